package catalog

import (
	"fmt"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// counting is the family with tables that count the comparisons of their trees.
type counting struct {
	Family
	comparisons *int
}

func (f counting) New() core.Tables {
	t := newTables()
	t.services = newTree(func(a, b *Service) int { *f.comparisons++; return compareServices(a, b) })
	t.instances = newTree(func(a, b *Instance) int { *f.comparisons++; return compareInstances(a, b) })
	t.checks = newTree(func(a, b *Check) int { *f.comparisons++; return compareChecks(a, b) })
	t.marks = newTree(func(a, b mark) int { *f.comparisons++; return a.compare(b) })
	return t
}

// crowdedNode is a state with a node that has services of different names, and checks of
// its own that pass.
func crowdedNode(t *testing.T, f counting, services, checks int) *core.State {
	t.Helper()
	s := core.New(leases.Family{}, f)
	cmds := []core.Command{Command{Verb: Register, Target: on("n"), Node: &Node{}}}
	for i := range services {
		cmds = append(cmds, Command{Verb: Register, Target: on("n"), Service: &Service{ID: fmt.Sprint("s", i), Name: fmt.Sprint("name", i)}})
	}
	cmds = append(cmds, own(checks, Passing))
	applied(t, s, cmds...)
	return s
}

// own registers checks of the node itself.
func own(checks int, status Status) Command {
	c := Command{Verb: Register, Target: on("n")}
	for i := range checks {
		c.Checks = append(c.Checks, &Check{ID: fmt.Sprint("c", i), Status: status})
		if i < MaxFollowing {
			c.Checks[i].SessionName = "lock"
		}
	}
	return c
}

// applied executes commands that succeed as one batch, has the view made, and returns the
// changes that watchers are told of.
func applied(t *testing.T, s *core.State, cmds ...core.Command) (told []core.Change) {
	t.Helper()
	var encoded [][]byte
	for _, c := range cmds {
		encoded = append(encoded, c.Encode(core.Meta{}))
	}
	results := make([]core.Result, len(cmds))
	for _, c := range s.Apply(encoded, results) {
		if c.Family != nil && c.Family.Told() {
			told = append(told, c)
		}
	}
	s.View()
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("command %d: %v", i, r.Err)
		}
	}
	return told
}

// topicsKept are how many further topics changes have: those that share a slice once.
func topicsKept(changes []core.Change) (n int) {
	known := map[*core.Topic]bool{}
	for _, c := range changes {
		if also := c.Family.Also; len(also) > 0 && !known[&also[0]] {
			known[&also[0]] = true
			n += len(also)
		}
	}
	return n
}

// A check of a node is shown by all services on it. What changes many such checks at once
// costs as much for each service as what changes one, and for each check the same whatever
// services there are.
func TestWorkOfLargeCommandsIsLinear(t *testing.T) {
	const services, checks, many, each = 2000, 128, 1000, 1000 // comparisons for a check
	flips := func(n int) (ops []core.Command) {
		for i := range n {
			ops = append(ops, Command{Verb: UpdateCheck, Target: ofCheck("n", fmt.Sprint("c", i%checks)), Status: Warning - Status(i/checks%2)})
		}
		return ops
	}
	session := func(n int) Command {
		return Command{Verb: OpenSession, Target: on("n"), Session: &Session{ID: sessionID(n), Name: "lock", TTL: time.Minute, Leads: true}}
	}
	count := func(cmds ...core.Command) (comparisons int, changes []core.Change) {
		s := crowdedNode(t, counting{comparisons: &comparisons}, services, checks)
		comparisons = 0
		changes = applied(t, s, cmds...)
		n := comparisons
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		return n, changes
	}
	one, _ := count(flips(1)...)
	for name, tt := range map[string]struct {
		cmds   []core.Command
		checks int
	}{
		"registration": {[]core.Command{own(checks, Warning)}, checks},
		"transaction":  {[]core.Command{core.TxnCommand{Then: flips(many)}}, many},
		"batch":        {flips(many), many},
		"sessions": {[]core.Command{
			own(MaxFollowing, Critical), session(1), core.CloseSessionCommand{ID: sessionID(1)}, session(2), core.CloseSessionCommand{ID: sessionID(2)},
		}, 5 * MaxFollowing},
	} {
		t.Run(name, func(t *testing.T) {
			n, changes := count(tt.cmds...)
			if n > 2*one+each*tt.checks {
				t.Errorf("%d comparisons for %d checks, %d for one", n, tt.checks, one)
			}
			told := 0
			for _, c := range changes {
				if c.Family.Topic.Scope[1] == string(Checks) {
					told++
				}
			}
			if told < tt.checks {
				t.Errorf("%d changes of checks are told, want %d", told, tt.checks)
			}
			if kept := topicsKept(changes); kept > services+2*len(changes) {
				t.Errorf("%d topics are kept for %d services and %d changes", kept, services, len(changes))
			}
		})
	}
}

// A snapshot of a node with many services and many checks of its own is read in time that
// is linear, too.
func TestReadingASnapshotIsLinear(t *testing.T) {
	const services, checks = 2000, 128
	read := func(checks int) int {
		n := 0
		s := crowdedNode(t, counting{comparisons: &n}, services, checks)
		v, again := Of(s.View()), counting{comparisons: &n}.New()
		n = 0
		v.Write(func(r []byte) bool {
			if !again.ReadRecord(r) {
				t.Fatal("a record is not read")
			}
			return true
		})
		again.View()
		return n
	}
	if one, all := read(1), read(checks); all > 2*one {
		t.Errorf("%d comparisons with %d checks, %d with one", all, checks, one)
	}
}

// Who watches a service of a node is told of each change of the node's own checks, under
// the same topics, whatever other changes of the node there are between them.
func TestFurtherTopicsFollowTheServices(t *testing.T) {
	s := crowdedNode(t, counting{comparisons: new(int)}, 2, 2)
	flip := func(status Status) Command {
		return Command{Verb: UpdateCheck, Target: ofCheck("n", "c0"), Status: status}
	}
	register := func(id, name string) Command {
		return Command{Verb: Register, Target: on("n"), Service: &Service{ID: id, Name: name}}
	}
	changes := applied(t, s,
		flip(Warning), flip(Critical), register("s2", "Name2"), flip(Warning), register("s2", "other"), flip(Passing), register("s2", "OTHER"), flip(Warning),
		Command{Verb: Deregister, Target: Target{ServiceKind, space, "n", "s2"}}, flip(Passing),
	)
	var got [][]string
	for _, c := range changes {
		if c.Family.Topic.Scope[1] != string(Checks) {
			continue
		}
		var names []string
		for _, topic := range c.Family.Also {
			names = append(names, topic.Name)
		}
		got = append(got, names)
	}
	const want = "[[n name0 name1] [n name0 name1] [n name0 name1 name2] [n name0 name1 other] [n name0 name1 other] [n name0 name1]]"
	if fmt.Sprint(got) != want {
		t.Errorf("told under %v, want %v", got, want)
	}
	v := Of(s.View())
	for name, want := range map[string]incumbent.Index{"name0": changes[len(changes)-1].Index, "other": changes[len(changes)-2].Index} {
		if at := v.ServiceIndex(space, name); at != want {
			t.Errorf("the index of %s is %d, want %d", name, at, want)
		}
	}
}
