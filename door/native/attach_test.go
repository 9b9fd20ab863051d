package native

import (
	"slices"
	"sync"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
)

// unwilling refuses to attach for as long as a test says so, and notes what is detached.
type unwilling struct {
	Leases

	mu       sync.Mutex // guards the rest
	refuses  bool
	loses    bool // and tells the attachment before that it is lost
	before   lease.Attachment
	detached []attached
}

func (u *unwilling) set(refuses, loses bool) {
	u.mu.Lock()
	u.refuses, u.loses = refuses, loses
	u.mu.Unlock()
}

func (u *unwilling) Attach(a lease.Attachment, done func(core.Result)) {
	u.mu.Lock()
	refuses, loses, before := u.refuses, u.loses, u.before
	if !refuses {
		u.before = a
	}
	u.mu.Unlock()
	if !refuses {
		u.Leases.Attach(a, done)
		return
	}
	if loses {
		before.Lost(lease.LostElsewhere)
	}
	done(core.Result{Err: incumbent.Errorf(incumbent.Overloaded, "no room")})
}

func (u *unwilling) Detach(id incumbent.SessionID, counter uint64) {
	u.mu.Lock()
	u.detached = append(u.detached, attached{id, counter})
	u.mu.Unlock()
	u.Leases.Detach(id, counter)
}

func (u *unwilling) hasDetached(id string, counter uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	session, err := incumbent.ParseSessionID(id)
	return err == nil && slices.Contains(u.detached, attached{session, counter})
}

// A session that is attached again over the same stream, which is refused, stays attached
// as it was; but not if it was lost meanwhile, as to another stream.
func TestARefusedAttachLeavesTheOneBefore(t *testing.T) {
	const ttl = 20000
	leases := new(unwilling)
	m := newMember(t, func(c *Config) { leases.Leases, c.Leases = c.Leases, leases })
	attach := func(w *wire, counter uint64) string {
		t.Helper()
		return w.ask(attachFrame(9, sessionA, counter)).Error.GetKind()
	}
	beats := func(w *wire, held uint32) {
		t.Helper()
		if b := w.ok(beatMessage(10)).GetBeaten(); b.HeldMs != held {
			t.Errorf("a beat keeps what it carries for %d ms, want %d", b.HeldMs, held)
		}
	}
	w := m.dial()
	w.ok(openFrame(1, sessionA, ttl))
	w.ok(attachFrame(2, sessionA, 5))
	leases.set(true, false)
	for _, counter := range []uint64{6, 5, 4, 7} {
		if kind := attach(w, counter); kind != incumbent.Overloaded.String() {
			t.Fatalf("counter %d: %v", counter, kind)
		}
		beats(w, ttl)
	}
	leases.set(false, false)
	if kind := attach(w, 5); kind != incumbent.Conflict.String() {
		t.Fatalf("the same counter: %v", kind)
	}
	beats(w, ttl)
	w.conn.Close()
	eventually(t, "it is detached", func() bool { return leases.hasDetached(sessionA, 5) })

	w = m.dial()
	w.ok(attachFrame(2, sessionA, 8))
	leases.set(true, true)
	if kind := attach(w, 9); kind != incumbent.Overloaded.String() {
		t.Fatal(kind)
	}
	beats(w, 0)
	leases.set(false, false)
	w.ok(attachFrame(2, sessionA, 10))
	beats(w, ttl)
}

// A stream that closes, or lets a session go, before a refusal has come leaves no attachment.
func TestARefusedAttachIsLetGoOfWithTheOneBefore(t *testing.T) {
	leases := new(unwilling)
	m := newMember(t, func(c *Config) { leases.Leases, c.Leases = c.Leases, leases })
	w := m.dial()
	w.ok(openFrame(1, sessionA, 20000))
	w.ok(attachFrame(2, sessionA, 5))
	s := w.door(m)
	id, err := incumbent.ParseSessionID(sessionA)
	if err != nil {
		t.Fatal(err)
	}
	a := &attaching{s: s, what: attached{id, 6}, former: attached{id, 5}} // on its way
	s.mu.Lock()
	s.sessions.raise(a.what)
	s.mu.Unlock()
	w.conn.Close()
	eventually(t, "it is closed", func() bool { return leases.hasDetached(sessionA, 6) })
	a.undo()
	if !leases.hasDetached(sessionA, 5) {
		t.Error("the session stays attached to a stream that has closed")
	}
}

// A stream that is full still takes a session of its own that is attached again.
func TestAFullStreamAttachesItsOwnAgain(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.ok(openFrame(1, sessionA, 20000))
	w.ok(openFrame(2, sessionB, 20000))
	w.ok(attachFrame(3, sessionA, 1))
	s := w.door(m)
	s.mu.Lock()
	for s.sessions.len() < MaxSessionsPerStream {
		s.sessions.set(attached{incumbent.NewSessionID(), 1})
	}
	s.mu.Unlock()
	if kind := w.kind(attachFrame(4, sessionB, 1)); kind != incumbent.TooLarge {
		t.Errorf("another one: %v", kind)
	}
	w.ok(attachFrame(5, sessionA, 2))
	if b := w.ok(beatMessage(6)).GetBeaten(); b.HeldMs != 20000 {
		t.Errorf("beaten %v", b)
	}
}

// A member that has not applied that a session was opened does not say that it is over: its
// client would give it up.
func TestG14_WhatIsNotKnownIsNotSaidToBeOver(t *testing.T) {
	m := newMember(t)
	m.as(agentA())
	w := m.dial()
	m.group.Refuse(true)
	for i, f := range []*pb.ClientFrame{attachFrame(1, sessionA, 1), startFrame(2, sessionA, 0, 2)} {
		if kind := w.kind(f); kind != incumbent.Unavailable {
			t.Errorf("%d: while nobody leads it is said to be %s", i, kind)
		}
	}
	m.group.Refuse(false)
	if kind := w.kind(attachFrame(3, sessionA, 3)); kind != incumbent.Expired {
		t.Errorf("then it is said to be %s", kind)
	}
}

// TestG40_PagesOfWhatIsAttachedAreNoReads: what the answer to an attachment has no room for is let
// in where the attachment is, not where reads are: its client could not go on with the session.
func TestG40_PagesOfWhatIsAttachedAreNoReads(t *testing.T) {
	lanes := shutLanes(t)
	lanes.SetMemory(0, 1)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	w, other := m.dial(), m.dial()
	w.ok(openFrame(1, sessionA, 20000))
	w.ok(attachFrame(2, sessionA, 1))
	lanes.Press(uint8(admit.Transactions.Rank()), 1<<62) // for long
	page := func(id string, after *pb.LeaseName) *pb.ClientFrame {
		return &pb.ClientFrame{Id: 3, Request: &pb.ClientFrame_GetSession{GetSession: &pb.GetSessionRequest{Id: id, After: after}}}
	}
	behind := &pb.LeaseName{Name: "m"}
	if got := w.ok(page(sessionA, behind)).GetGetSession(); got.GetSession().GetId() != sessionA {
		t.Errorf("a page of what is attached: %v", got)
	}
	for what, f := range map[string]*pb.ServerFrame{
		"the first page": w.ask(page(sessionA, nil)), "a page of another session": w.ask(page(sessionB, behind)),
		"a page on another stream": other.ask(page(sessionA, behind)), "a page of no session": w.ask(page("", behind)),
	} {
		if f.Error.GetKind() != incumbent.Overloaded.String() {
			t.Errorf("%s: %v", what, f)
		}
	}
}
