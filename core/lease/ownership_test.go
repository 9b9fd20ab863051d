package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// ownersState is a state in which principals do things.
type ownersState struct {
	t *testing.T
	*state
}

func newOwners(t *testing.T) ownersState { return ownersState{t, New()} }

func (s ownersState) as(principal string, cmd core.Command) core.Result {
	s.t.Helper()
	r := make([]core.Result, 1)
	s.Apply([][]byte{cmd.Encode(core.Meta{Origin: core.Origin{Principal: principal}})}, r)
	if err := s.Check(); err != nil {
		s.t.Fatalf("%T of %s: %v", cmd, principal, err)
	}
	return r[0]
}

func (s ownersState) must(principal string, cmd core.Command) core.Result {
	s.t.Helper()
	r := s.as(principal, cmd)
	if r.Err != nil {
		s.t.Fatalf("%+v of %s: %v", cmd, principal, r.Err)
	}
	return r
}

func (s ownersState) denied(principal string, cmd core.Command) {
	s.t.Helper()
	before := s.View()
	r := s.as(principal, cmd)
	if r.Err == nil || r.Err.Kind != incumbent.Denied || r.Session != nil {
		s.t.Errorf("%+v of %s: %+v, want Denied", cmd, principal, r)
	}
	before.Sessions(incumbent.SessionID{}, func(o *core.Session) bool {
		if s.View().Session(o.ID) != o {
			s.t.Errorf("%+v of %s has changed session %v", cmd, principal, o.ID)
		}
		return true
	})
}

const (
	alice = "agent:alice"
	bob   = "agent:bob"
	admin = "operator:admin"
)

func owned(i byte) incumbent.SessionID { return incumbent.SessionID{0: 1, 15: i} }

func ownName(l string) incumbent.Name { return incumbent.Name{Namespace: "n", Model: "m", Lease: l} }

// The id of a session is no right: whoever names another's is refused, in every
// command that does something with it, and has shown nobody alive.
func TestG12_ASessionsIDIsNoRight(t *testing.T) {
	s := newOwners(t)
	s.must(alice, core.OpenSessionCommand{ID: owned(1), TTL: time.Minute})
	s.must(bob, core.OpenSessionCommand{ID: owned(2), TTL: time.Minute})
	s.must(alice, ClaimCommand{Name: ownName("a"), Holder: "alice", Session: owned(1)})
	s.must(bob, ClaimCommand{Name: ownName("b"), Holder: "bob", Session: owned(2)})
	s.must(alice, ClaimCommand{Name: ownName("b"), Holder: "alice", Session: owned(1), Wait: true})
	for _, cmd := range []core.Command{
		core.OpenSessionCommand{ID: owned(1), TTL: time.Minute},
		core.OpenSessionCommand{ID: owned(1), TTL: time.Hour},
		core.ExtendSessionCommand{ID: owned(1), TTL: time.Hour},
		core.CloseSessionCommand{ID: owned(1)},
		ClaimCommand{Name: ownName("c"), Holder: "bob", Session: owned(1)},
		ClaimCommand{Name: ownName("a"), Holder: "alice", Session: owned(1)},
		ClaimCommand{Name: ownName("b"), Holder: "x", Session: owned(1), Wait: true},
		ReleaseCommand{Name: ownName("a"), Holder: "alice", Session: owned(1)},
		TransferCommand{Name: ownName("a"), Holder: "alice", Session: owned(1), ToSession: owned(2), ToHolder: "bob"},
		LeaveQueueCommand{Name: ownName("b"), Session: owned(1)},
	} {
		s.denied(bob, cmd)
		s.denied("anonymous", cmd)
		s.denied("operators:bob", cmd)
	}
	if l := Of(s.View()).Lease(ownName("a")); l.Holder != "alice" || Of(s.View()).Lease(ownName("b")).Waiting != 1 {
		t.Errorf("after all that: %+v", l)
	}
	// Its owner may, an operator may, and so may a member on its own account.
	for _, who := range []string{alice, admin, ""} {
		s.must(who, core.OpenSessionCommand{ID: owned(1), TTL: time.Minute})
		s.must(who, core.ExtendSessionCommand{ID: owned(1), TTL: time.Minute})
	}
	s.must(admin, core.CloseSessionCommand{ID: owned(1)})
	s.must(alice, core.OpenSessionCommand{ID: owned(1), TTL: time.Minute})
	s.must(bob, core.CloseSessionCommand{ID: owned(1), Others: true}) // whom a policy lets
	// What is over is nobody's: a later owner takes it.
	s.must(bob, core.OpenSessionCommand{ID: owned(1), TTL: time.Minute})
	s.denied(alice, core.OpenSessionCommand{ID: owned(1), TTL: time.Minute})
}

// A lease is transferred to who waits for it, to a session of its own, or by an
// operator: nobody fills the session of a stranger, who then could claim nothing.
func TestG12_ALeaseIsTransferredToWhoWaits(t *testing.T) {
	s := newOwners(t)
	s.must(alice, core.OpenSessionCommand{ID: owned(1), TTL: time.Minute})
	s.must(alice, core.OpenSessionCommand{ID: owned(3), TTL: time.Minute})
	s.must(bob, core.OpenSessionCommand{ID: owned(2), TTL: time.Minute})
	give := func(l string, to incumbent.SessionID, holder string) TransferCommand {
		return TransferCommand{Name: ownName(l), Holder: "alice", Session: owned(1), ToSession: to, ToHolder: holder}
	}
	for _, l := range []string{"a", "b", "c", "d"} {
		s.must(alice, ClaimCommand{Name: ownName(l), Holder: "alice", Session: owned(1)})
	}
	s.denied(alice, give("a", owned(2), "bob"))
	s.must(bob, ClaimCommand{Name: ownName("a"), Holder: "bob", Session: owned(2), Wait: true})
	s.denied(alice, give("a", owned(2), "bob/2")) // another holder does not wait
	if r := s.must(alice, give("a", owned(2), "bob")); AnswerOf(r).Lease.Holder != "bob" || !AnswerOf(r).Lease.Offered {
		t.Errorf("given to who waits: %+v", AnswerOf(r).Lease)
	}
	s.must(alice, give("b", owned(3), "alice/2"))
	s.must(admin, give("c", owned(2), "bob"))
	only := give("d", owned(3), "mallory") // whom the caller may not speak for
	only.Waiting = true
	s.denied(alice, only)
}

// In each turn every principal that waits is granted once, so that one with many
// places keeps nobody from his first; the places of one stay in their order.
func TestG12_QueuesTakeTurns(t *testing.T) {
	s := newOwners(t)
	s.must(alice, core.OpenSessionCommand{ID: owned(1), TTL: time.Minute})
	s.must(bob, core.OpenSessionCommand{ID: owned(2), TTL: time.Minute})
	s.must(admin, core.OpenSessionCommand{ID: owned(3), TTL: time.Minute})
	name := ownName("a")
	s.must(admin, ClaimCommand{Name: name, Holder: "admin", Session: owned(3)})
	wait := func(who string, id incumbent.SessionID, holder string, position int) {
		t.Helper()
		if r := s.must(who, ClaimCommand{Name: name, Holder: holder, Session: id, Wait: true}); AnswerOf(r).Position != position {
			t.Errorf("%s has place %d, want %d", holder, AnswerOf(r).Position, position)
		}
	}
	for i := range 4 {
		wait(alice, owned(1), fmt.Sprint("alice/", i), i+1)
	}
	wait(bob, owned(2), "bob/0", 2)
	wait(bob, owned(2), "bob/1", 4)
	wait(bob, owned(2), "bob/2", 6)
	s.must(alice, LeaveQueueCommand{Name: name, Session: owned(1), Holder: "alice/2"})
	wait(alice, owned(1), "alice/4", 7)
	// A copy goes on in the same order.
	for _, want := range []string{"alice/0", "bob/0", "alice/1", "bob/1", "bob/2", "alice/3", "alice/4"} {
		l := Of(s.View()).Lease(name)
		r := s.must(admin, ReleaseCommand{Name: name, Token: l.Token})
		if AnswerOf(r).Lease.Holder != want {
			t.Fatalf("granted %s, want %s", AnswerOf(r).Lease.Holder, want)
		}
	}
	if n := len(s.state.t.shares.now) + s.state.t.turns.Len(); n != 0 {
		t.Errorf("%d shares of queues are left", n)
	}
}

// Nobody but an operator takes more than a share of a queue.
func TestG12_SharesOfAQueue(t *testing.T) {
	s := newOwners(t)
	s.state.t.limits.ofSession, s.state.t.limits.ofPrincipal = 2, 3
	for i, who := range []string{alice, alice, bob, admin} {
		s.must(who, core.OpenSessionCommand{ID: owned(byte(i + 1)), TTL: time.Minute})
	}
	for _, l := range []string{"a", "b"} {
		s.must(admin, ClaimCommand{Name: ownName(l), Holder: "admin", Session: owned(4)})
	}
	wait := func(who, l string, id byte, holder string) core.Result {
		return s.as(who, ClaimCommand{Name: ownName(l), Holder: holder, Session: owned(id), Wait: true})
	}
	for _, c := range []struct {
		who, l string
		id     byte
		holder string
		ok     bool
	}{
		{alice, "a", 1, "1", true},
		{alice, "a", 1, "2", true},
		{alice, "a", 1, "3", false},
		{alice, "a", 1, "2", true},
		{alice, "a", 2, "4", true},
		{alice, "a", 2, "5", false},
		{alice, "b", 2, "6", true},
		{alice, "b", 2, "7", true},
		{alice, "b", 2, "8", false},
		{bob, "a", 3, "8", true},
		{admin, "a", 4, "9", true},
		{admin, "a", 4, "10", true},
		{admin, "a", 4, "11", true},
		{admin, "a", 4, "12", true},
	} {
		if r := wait(c.who, c.l, c.id, c.holder); (r.Err == nil) != c.ok || r.Err != nil && r.Err.Kind != incumbent.TooLarge {
			t.Errorf("%+v: %v", c, r.Err)
		}
	}
	s.must(alice, core.CloseSessionCommand{ID: owned(1)})
	if r := wait(alice, "a", 2, "5"); r.Err != nil {
		t.Errorf("after places were given up: %v", r.Err)
	}
}

// A session that lets an offer lapse loses all its places in that queue, so that the
// others wait for it once.
func TestG08_AQueueWaitsOnceForADeadSession(t *testing.T) {
	s := newOwners(t)
	name := ownName("a")
	for i := range byte(3) {
		s.must(fmt.Sprint("agent:", i), core.OpenSessionCommand{ID: owned(i + 1), TTL: time.Minute})
	}
	s.must("agent:0", ClaimCommand{Name: name, Holder: "0", Session: owned(1)})
	for i := range 5 {
		s.must("agent:1", ClaimCommand{Name: name, Holder: fmt.Sprint("1/", i), Session: owned(2), Wait: true})
	}
	s.must("agent:2", ClaimCommand{Name: name, Holder: "2", Session: owned(3), Wait: true})
	l := AnswerOf(s.must("agent:0", ReleaseCommand{Name: name, Holder: "0", Session: owned(1)})).Lease
	if l.Holder != "1/0" || l.Waiting != 5 {
		t.Fatalf("offered to %s, %d wait", l.Holder, l.Waiting)
	}
	l = AnswerOf(s.must("", ExpireCommand{Token: l.Token, Renewal: l.Renewal})).Lease
	if l.Holder != "2" || l.Waiting != 0 {
		t.Errorf("after the offer lapsed it is with %s, and %d wait", l.Holder, l.Waiting)
	}
}
