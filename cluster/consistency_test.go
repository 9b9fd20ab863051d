package cluster

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

func TestG27_Compare(t *testing.T) {
	a, b, c := stateHash{1}, stateHash{2}, stateHash{3}
	type reports = map[uint64]stateHash
	one, two, three, five := []uint64{1}, []uint64{1, 2}, []uint64{1, 2, 3}, []uint64{1, 2, 3, 4, 5}
	for _, x := range []struct {
		name    string
		self    uint64
		voters  []uint64
		reports reports
		want    finding
	}{
		{"no voters known", 1, nil, reports{1: a}, undecided},
		{"alone, nothing yet", 1, one, reports{}, undecided},
		{"alone", 1, one, reports{1: a}, agreed},
		{"a learner beside one", 9, one, reports{1: a, 9: a}, agreed},
		{"a learner that differs from one", 9, one, reports{1: a, 9: b}, differs},
		{"learners never decide", 1, one, reports{1: a, 8: b, 9: b}, agreed},
		{"two, one report", 1, two, reports{1: a}, undecided},
		{"two alike", 1, two, reports{1: a, 2: a}, agreed},
		{"two that differ", 1, two, reports{1: a, 2: b}, split},
		{"two that differ, and a learner", 9, two, reports{1: a, 2: b, 9: a}, split},
		{"three, one against one", 1, three, reports{1: a, 2: b}, undecided},
		{"three, this one differs", 1, three, reports{1: b, 2: a, 3: a}, differs},
		{"three, another differs", 2, three, reports{1: b, 2: a, 3: a}, agreed},
		{"three, two are enough", 1, three, reports{1: a, 2: a}, agreed},
		{"three, the others are enough", 1, three, reports{2: a, 3: a}, agreed},
		{"three, all different", 1, three, reports{1: a, 2: b, 3: c}, split},
		{"five, two against two", 1, five, reports{1: a, 2: a, 3: b, 4: b}, undecided},
		{"five, three against two", 5, five, reports{1: a, 2: a, 3: a, 4: b, 5: b}, differs},
		{"five, two, two and one", 1, five, reports{1: a, 2: a, 3: b, 4: b, 5: c}, split},
		{"four, nobody can win any more", 1, five[:4], reports{1: a, 2: b, 3: c}, split},
		{"a learner, of five", 9, five, reports{1: a, 2: a, 3: a, 9: b}, differs},
	} {
		got, right, votes := compare(x.self, x.voters, x.reports)
		if got != x.want {
			t.Errorf("%s: got %d, want %d", x.name, got, x.want)
		}
		if (got == agreed || got == differs) && (right != a || votes < len(x.voters)/2+1) {
			t.Errorf("%s: %d votes for %v", x.name, votes, right)
		}
	}
}

// checkers are the members of a cluster in one bubble, each with a state.
type checkers struct {
	t       *testing.T
	all     map[uint64]*consistency
	states  map[uint64]*core.State
	voters  []uint64
	lost    func(from, to uint64) bool // frames that do not arrive; nil: none
	sent    int
	differs map[uint64]error
	split   map[uint64]error
}

func newCheckers(t *testing.T, voters, learners []uint64) *checkers {
	c := &checkers{
		t: t, all: make(map[uint64]*consistency), states: make(map[uint64]*core.State), voters: voters,
		differs: make(map[uint64]error), split: make(map[uint64]error),
	}
	members := append(append([]uint64(nil), voters...), learners...)
	for _, id := range members {
		c.states[id] = core.New(leases.Family{})
		c.all[id] = newConsistency(consistencyConfig{
			self: id, voters: func() []uint64 { return voters }, members: func() []uint64 { return members },
			send:    func(to uint64, frame []byte) bool { return c.deliver(id, to, frame) },
			differs: func(err error) { c.differs[id] = err }, split: func(err error) { c.split[id] = err },
			logger: slog.New(slog.DiscardHandler),
		})
	}
	t.Cleanup(func() {
		for _, m := range c.all {
			m.close()
		}
	})
	return c
}

func (c *checkers) deliver(from, to uint64, frame []byte) bool {
	c.sent++
	if !isReport(frame) {
		c.t.Errorf("a frame that no member takes for a report: %x", frame)
	}
	if c.lost != nil && c.lost(from, to) {
		return false
	}
	c.all[to].receive(from, frame)
	return true
}

// checkpoint applies commands and a checkpoint on a member and waits until all
// is quiet.
func (c *checkers) checkpoint(id uint64, cmds ...core.Command) {
	log := make([][]byte, 0, len(cmds)+1)
	for _, cmd := range append(cmds, core.CheckpointCommand{}) {
		log = append(log, cmd.Encode(core.Meta{}))
	}
	results := make([]core.Result, len(log))
	c.states[id].Apply(log, results)
	c.all[id].checkpoint(results[len(log)-1].View)
	synctest.Wait()
}

func wrong(holder string) core.Command {
	return leases.ClaimCommand{Name: incumbent.Name{Namespace: "n", Model: "m", Lease: "l"}, Holder: holder, TTL: time.Minute}
}

func TestG27_AllAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheckers(t, []uint64{1, 2, 3}, []uint64{9})
		for range checkpointsKept + 3 {
			for id := range c.all {
				c.checkpoint(id, wrong("ann"))
			}
		}
		for id, m := range c.all {
			if m.agreedAt() != c.states[id].Index() {
				t.Errorf("member %d agrees up to %d of %d", id, m.agreedAt(), c.states[id].Index())
			}
			if len(m.reports) > checkpointsKept {
				t.Errorf("member %d remembers %d checkpoints", id, len(m.reports))
			}
		}
		if len(c.differs)+len(c.split) > 0 {
			t.Errorf("%v, %v", c.differs, c.split)
		}
	})
}

// Who differs stops, whichever it is and whenever it reports; nobody else does.
func TestG27_OneDiffers(t *testing.T) {
	for _, id := range []uint64{1, 2, 3, 9} {
		for first := range 4 {
			synctest.Test(t, func(t *testing.T) {
				c := newCheckers(t, []uint64{1, 2, 3}, []uint64{9})
				order := []uint64{1, 2, 3, 9}
				for _, m := range append(append([]uint64(nil), order[first:]...), order[:first]...) {
					holder := "ann"
					if m == id {
						holder = "eve"
					}
					c.checkpoint(m, wrong(holder))
				}
				err := c.differs[id]
				if incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), "at index 2 has hash") {
					t.Errorf("member %d: %v", id, err)
				}
				if len(c.differs) != 1 || len(c.split) != 0 {
					t.Errorf("member %d differs: %v, %v", id, c.differs, c.split)
				}
			})
		}
	}
}

// Two voters cannot tell who is right: both alarm, once.
func TestG27_TwoDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheckers(t, []uint64{1, 2}, []uint64{9})
		for range 2 {
			c.checkpoint(1, wrong("ann"))
			c.checkpoint(2, wrong("eve"))
			c.checkpoint(9, wrong("ann"))
		}
		for id := range c.all {
			if err := c.split[id]; incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), "at index 2") {
				t.Errorf("member %d: %v", id, err)
			}
		}
		if len(c.differs) != 0 {
			t.Errorf("%v", c.differs)
		}
	})
}

// What is lost one way comes with the answer to the other member's report, and
// reports that come twice or late answer nobody and change nothing.
func TestConsistencyLostLateAndTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheckers(t, []uint64{1, 2, 3}, nil)
		c.lost = func(from, to uint64) bool { return c.sent <= 2 } // what the first one says
		for _, id := range c.voters {
			c.checkpoint(id, wrong("ann"))
		}
		for id, m := range c.all {
			if m.agreedAt() != 2 || len(m.reports[2]) != 3 {
				t.Errorf("member %d: agrees up to %d, heard %d", id, m.agreedAt(), len(m.reports[2]))
			}
		}
		before := c.sent
		c.all[1].receive(2, encodeReport(2, stateHash{7}))
		c.all[1].receive(3, encodeReport(2, stateHash{7}))
		if c.sent != before || len(c.differs) != 0 {
			t.Errorf("%d answers, %v", c.sent-before, c.differs)
		}
		for i := range incumbent.Index(checkpointsKept) {
			c.all[1].receive(2, encodeReport(100+i, stateHash{7}))
		}
		c.all[1].receive(2, encodeReport(2, stateHash{7})) // forgotten meanwhile
		c.all[1].receive(3, encodeReport(2, stateHash{7}))
		if len(c.differs)+len(c.split) != 0 || c.sent != before {
			t.Errorf("late reports: %v, %v", c.differs, c.split)
		}
	})
}

// Frames are any bytes.
func FuzzConsistencyReceive(f *testing.F) {
	f.Add(encodeReport(1, stateHash{1}))
	f.Add([]byte{})
	f.Add([]byte{reportKind})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newConsistency(consistencyConfig{
			self: 1, voters: func() []uint64 { return []uint64{1, 2, 3} }, members: func() []uint64 { return nil },
			send:    func(uint64, []byte) bool { return true },
			differs: func(err error) { t.Error(err) }, split: func(err error) { t.Error(err) },
			logger: slog.New(slog.DiscardHandler),
		})
		defer c.close()
		c.receive(2, b)
		if n := len(c.reports); n > 0 != (len(b) == reportBytes && isReport(b)) {
			t.Errorf("%d reports of %x", n, b)
		}
	})
}

// Closing ends a hash under way, and nothing is told after it.
func TestConsistencyClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheckers(t, []uint64{1}, nil)
		m := c.all[1]
		m.close()
		c.checkpoint(1, wrong("ann"))
		m.receive(2, encodeReport(2, stateHash{7}))
		if m.agreedAt() != 0 || c.sent != 0 || len(m.reports) != 0 {
			t.Errorf("agrees up to %d, sent %d, %d reports", m.agreedAt(), c.sent, len(m.reports))
		}
	})
}
