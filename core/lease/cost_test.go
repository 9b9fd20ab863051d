package lease

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// cost is what applying something took: rows written or read one after the
// other, and bytes allocated, which is what copies cost. Neither is a time.
type cost struct{ steps, bytes uint64 }

func (s *state) measure(t fatal, c core.Command, want incumbent.Kind) cost {
	cmd := c.Encode(core.Meta{})
	s.View() // as between two batches: what is changed now is copied
	var before, after runtime.MemStats
	steps := s.t.steps
	runtime.ReadMemStats(&before)
	r := s.apply(cmd)
	runtime.ReadMemStats(&after)
	if got := incumbent.KindOf(asError(r.Err)); got != want {
		t.Fatalf("%#v: %v, want %v", c, r.Err, want)
	}
	return cost{s.t.steps - steps, after.TotalAlloc - before.TotalAlloc}
}

// What a command may cost that touches a fixed number of leases and places,
// whatever the state: the limits of one record (its history, its pins, whom to
// pass over) and a path of each tree.
const (
	maxSmallSteps = 2*core.MaxAbsent + 16
	maxSmallBytes = 128 << 10
)

// crowd is a state at its limits around the lease "q": its queue is full, of
// places of one session under many holders but for the last, and its session
// has 64 pins on it.
type crowd struct {
	*state
	owner, many, last incumbent.SessionID
	absent            []incumbent.SessionID
}

func newCrowd(t fatal, places int) *crowd {
	c := &crowd{state: New(), owner: sessionID("owner"), many: sessionID("many"), last: sessionID("last")}
	for i := range core.MaxAbsent - 1 {
		c.absent = append(c.absent, sessionID(fmt.Sprintf("absent%d", i)))
	}
	c.absent = append(c.absent, c.many)
	for _, id := range []incumbent.SessionID{c.owner, c.many, c.last} {
		c.run(t, core.OpenSessionCommand{ID: id, TTL: time.Minute})
	}
	q := parseName("q")
	c.run(t, ClaimCommand{Name: q, Holder: "owner", Session: c.owner})
	for i := range places - 1 {
		c.run(t, ClaimCommand{Name: q, Holder: fmt.Sprintf("many%d", i), Session: c.many, Wait: true})
	}
	c.run(t, ClaimCommand{Name: q, Holder: "last", Session: c.last, Wait: true})
	return c
}

func (c *crowd) run(t fatal, cmd core.Command) {
	if r := c.apply(cmd.Encode(core.Meta{})); r.Err != nil {
		t.Fatalf("%#v: %v", cmd, r.Err)
	}
}

func (c *crowd) lease() *Lease { return Of(c.View()).Lease(parseName("q")) }

// A command that concerns one place or one holding costs no more in a queue
// that is full than its own limits allow.
func TestWorkOfSmallCommandsIsBounded(t *testing.T) {
	c := newCrowd(t, MaxQueue)
	q := parseName("q")
	for i := range incumbent.MaxPins - 1 {
		c.run(t, PinCommand{Name: q, Entity: strings.Repeat("p", incumbent.MaxPinBytes-2) + fmt.Sprintf("%02d", i)})
	}
	for range 2 * MaxHistory {
		c.run(t, PinCommand{Name: q, Entity: "other"})
		c.run(t, UnpinCommand{Name: q, Entity: "other"})
	}
	for i := range core.MaxMembers - 1 {
		c.run(t, core.PutMemberCommand{Member: core.Member{ID: uint64(i + 1), Name: fmt.Sprintf("m%d", i), Schema: core.SchemaVersion}})
	}
	held := func() incumbent.Token { return c.lease().Token }
	as := func(l *Lease) (string, incumbent.SessionID) { return l.Holder, l.Session }
	holder, session := as(c.lease())
	for _, step := range []struct {
		name string
		cmd  func() core.Command
		want incumbent.Kind
	}{
		{"claim another's", func() core.Command { return ClaimCommand{Name: q, Holder: "x", TTL: time.Minute} }, incumbent.Held},
		{"claim one's own", func() core.Command { return ClaimCommand{Name: q, Holder: holder, Session: session} }, incumbent.OK},
		{"claim what is new", func() core.Command { return ClaimCommand{Name: parseName("new"), Holder: "x", TTL: time.Minute} }, incumbent.OK},
		{"wait again, last", func() core.Command { return ClaimCommand{Name: q, Holder: "last", Session: c.last, Wait: true} }, incumbent.OK},
		{"wait in a full queue", func() core.Command { return ClaimCommand{Name: q, Holder: "x", Session: c.last, Wait: true} }, incumbent.TooLarge},
		{"leave from the middle", func() core.Command { return LeaveQueueCommand{Name: q, Session: c.many, Holder: "many2000"} }, incumbent.OK},
		{"wait in a queue with room", func() core.Command { return ClaimCommand{Name: q, Holder: "x", Session: c.last, Wait: true} }, incumbent.OK},
		{"pin", func() core.Command { return PinCommand{Name: q, Entity: "one_more"} }, incumbent.OK},
		{"pin too often", func() core.Command { return PinCommand{Name: q, Entity: "one_too_many"} }, incumbent.TooLarge},
		{"unpin", func() core.Command { return UnpinCommand{Name: q, Entity: "one_more"} }, incumbent.OK},
		{"release past the absent", func() core.Command {
			return ReleaseCommand{Name: q, Holder: holder, Session: session, Absent: c.absent}
		}, incumbent.OK},
		{"accept", func() core.Command { return AcceptCommand{Token: held()} }, incumbent.OK},
		{"transfer to a session in the queue", func() core.Command {
			h, s := as(c.lease())
			return TransferCommand{Name: q, Holder: h, Session: s, ToSession: c.last}
		}, incumbent.OK},
		{"expire, preferring who stands anywhere", func() core.Command {
			return ExpireCommand{Token: held(), Renewal: c.lease().Renewal, Next: c.last, Absent: c.absent}
		}, incumbent.OK},
		{"revoke at the deadline", func() core.Command { return RevokeCommand{Name: q, AtDeadline: true} }, incumbent.OK},
		{"revoke past the absent", func() core.Command { return RevokeCommand{Name: q, Absent: c.absent} }, incumbent.OK},
		{"open a session", func() core.Command { return core.OpenSessionCommand{ID: sessionID("new"), TTL: time.Minute} }, incumbent.OK},
		{"extend a session", func() core.Command { return core.ExtendSessionCommand{ID: c.many, TTL: time.Hour} }, incumbent.OK},
		{"an expiry that is void", func() core.Command { return core.ExpireSessionCommand{ID: c.many, Renewal: 1} }, incumbent.Conflict},
		{"add a member", func() core.Command {
			return core.PutMemberCommand{Member: core.Member{ID: 99, Name: "m99", Schema: core.SchemaVersion}}
		}, incumbent.OK},
		{"remove a member", func() core.Command { return core.RemoveMemberCommand{ID: 99} }, incumbent.OK},
		{"checkpoint", func() core.Command { return core.CheckpointCommand{} }, incumbent.OK},
		{"raise the index", func() core.Command { return core.EpochCommand{} }, incumbent.OK},
	} {
		if got := c.measure(t, step.cmd(), step.want); got.steps > maxSmallSteps || got.bytes > maxSmallBytes {
			t.Errorf("%s: %d steps, %d bytes", step.name, got.steps, got.bytes)
		}
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
}

// What ends or forgets many things costs as much for each of them, however
// many they are: twice as many cost twice as much.
func TestWorkOfLargeCommandsIsLinear(t *testing.T) {
	name := func(i int) incumbent.Name { return parseName(fmt.Sprintf("lease%d", i)) }
	owner, waiter := sessionID("busy"), sessionID("waiter")
	for _, c := range []struct {
		name string
		n    int // of the smaller one
		make func(t *testing.T, n int) (*crowd, core.Command)
	}{
		{"the end of a session with many places in one queue", MaxQueue / 2, func(t *testing.T, n int) (*crowd, core.Command) {
			c := newCrowd(t, n)
			return c, core.CloseSessionCommand{ID: c.many}
		}},
		{"leaving a queue with many places", MaxQueue / 2, func(t *testing.T, n int) (*crowd, core.Command) {
			c := newCrowd(t, n)
			return c, LeaveQueueCommand{Name: parseName("q"), Session: c.many}
		}},
		{"the end of a session with a place in many queues", MaxWaitsPerSession / 4, func(t *testing.T, n int) (*crowd, core.Command) {
			c := newCrowd(t, 1)
			c.run(t, core.OpenSessionCommand{ID: waiter})
			for i := range n {
				c.run(t, ClaimCommand{Name: name(i), Holder: "x", TTL: time.Minute})
				c.run(t, ClaimCommand{Name: name(i), Holder: "waiter", Session: waiter, Wait: true})
			}
			return c, core.CloseSessionCommand{ID: waiter}
		}},
		{"the end of a session in the middle of queues that are longer the more there are", 64, func(t *testing.T, n int) (*crowd, core.Command) {
			c := newCrowd(t, 1)
			for i := range n {
				c.run(t, core.OpenSessionCommand{ID: sessionID(fmt.Sprintf("s%d", i))})
			}
			for i := range n {
				c.run(t, ClaimCommand{Name: name(i), Holder: "x", TTL: time.Minute})
				for k := range n {
					c.run(t, ClaimCommand{Name: name(i), Holder: "waiter", Session: sessionID(fmt.Sprintf("s%d", k)), Wait: true})
				}
			}
			return c, core.CloseSessionCommand{ID: sessionID(fmt.Sprintf("s%d", n/2))}
		}},
		{"the end of a session with leases that others wait for, most of them absent", MaxLeasesPerSession / 16, func(t *testing.T, n int) (*crowd, core.Command) {
			c := newCrowd(t, 2)
			c.run(t, core.OpenSessionCommand{ID: owner})
			for _, id := range c.absent[:4] {
				c.run(t, core.OpenSessionCommand{ID: id, TTL: time.Minute})
			}
			for i := range n {
				c.run(t, ClaimCommand{Name: name(i), Holder: "owner", Session: owner})
				for _, id := range append(c.absent[:4:4], c.last) {
					c.run(t, ClaimCommand{Name: name(i), Holder: "waiter", Session: id, Wait: true})
				}
			}
			return c, core.CloseSessionCommand{ID: owner, Absent: c.absent}
		}},
		{"the expiry of a session with leases", MaxLeasesPerSession / 2, func(t *testing.T, n int) (*crowd, core.Command) {
			c := newCrowd(t, 1)
			c.run(t, core.OpenSessionCommand{ID: owner, TTL: time.Minute})
			for i := range n {
				c.run(t, ClaimCommand{Name: name(i), Holder: "owner", Session: owner})
			}
			return c, core.ExpireSessionCommand{ID: owner, Renewal: c.View().Session(owner).Renewal, Absent: c.absent}
		}},
		{"the end of a session whose leases displace as many free ones", 2000, func(t *testing.T, n int) (*crowd, core.Command) {
			c := newCrowd(t, 1)
			c.t.limits.free = 0
			c.run(t, core.OpenSessionCommand{ID: owner, TTL: time.Minute})
			for i := range n {
				c.run(t, ClaimCommand{Name: name(i), Holder: "owner", Session: owner})
			}
			return c, core.CloseSessionCommand{ID: owner}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			one, cmd := c.make(t, c.n)
			small := one.measure(t, cmd, incumbent.OK)
			two, cmd := c.make(t, 2*c.n)
			large := two.measure(t, cmd, incumbent.OK)
			t.Logf("%d: %+v, %d: %+v", c.n, small, 2*c.n, large)
			if small.steps < uint64(c.n-1) {
				t.Errorf("%d steps for %d: not all are counted", small.steps, c.n)
			}
			if large.steps > 2*small.steps+2*small.steps/10+maxSmallSteps {
				t.Errorf("%d steps for %d, %d for %d", small.steps, c.n, large.steps, 2*c.n)
			}
			if large.bytes > 3*small.bytes+maxSmallBytes {
				t.Errorf("%d bytes for %d, %d for %d", small.bytes, c.n, large.bytes, 2*c.n)
			}
		})
	}
}
