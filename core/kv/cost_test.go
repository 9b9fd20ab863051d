package kv

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// cost is what applying something took. Whatever a command stores, tells or
// collects is allocated, and so are the copies of the paths it changes: neither
// number is a time.
type cost struct{ objects, bytes uint64 }

func measure(t *testing.T, s *core.State, c core.Command, want incumbent.Kind) cost {
	t.Helper()
	b := c.Encode(core.Meta{})
	s.View() // as between two batches: what is changed now is copied
	results := make([]core.Result, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.Apply([][]byte{b}, results)
	runtime.ReadMemStats(&after)
	kind := incumbent.OK
	if err := results[0].Err; err != nil {
		kind = err.Kind
	}
	if kind != want {
		t.Fatalf("%+v: %v, want %v", c, results[0].Err, want)
	}
	return cost{after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc}
}

// What a command about one key may cost, whatever the state: a path of each tree,
// and its value.
const (
	maxSmallObjects = 400
	maxSmallBytes   = 96 << 10
)

// crowded returns a state whose tables are full, with limits that a test reaches.
func crowded(t *testing.T) *core.State {
	f := &smallFamily{limits: limits{perSession: 5000, locks: 10_001, deleted: 5000, tombstones: 5000}}
	s := core.New(f)
	for _, id := range []string{"s", "x", "y"} {
		do(t, s, core.OpenSessionCommand{ID: session(id), TTL: time.Minute})
	}
	for i := range 5000 {
		do(t, s, Command{Verb: Acquire, Key: key(fmt.Sprintf("s/%d", i)), Session: session("s")})
		do(t, s, Command{Verb: Acquire, Key: key(fmt.Sprintf("x/%d", i)), Session: session("x"), Delay: time.Second})
		do(t, s, Command{Verb: Put, Key: key(fmt.Sprintf("t/%d", i))})
		do(t, s, Command{Verb: Remove, Key: key(fmt.Sprintf("t/%d", i))})
		do(t, s, Command{Verb: Put, Key: key(fmt.Sprintf("p/%d", i))})
	}
	do(t, s, Command{Verb: Put, Key: key("p/one-more")})
	do(t, s, core.CloseSessionCommand{ID: session("x")}) // 5000 delays
	return s
}

// A command about one key costs no more in tables at their limits than its own
// limits allow.
func TestWorkOfSmallCommandsIsBounded(t *testing.T) {
	s := crowded(t)
	y := session("y")
	for _, step := range []struct {
		what string
		cmd  Command
		want incumbent.Kind
	}{
		{"put what is new", Command{Verb: Put, Key: key("p/new")}, incumbent.OK},
		{"put what is there", Command{Verb: Put, Key: key("p/7")}, incumbent.OK},
		{"put what is locked", Command{Verb: Put, Key: key("s/7")}, incumbent.OK},
		{"put what has a tombstone", Command{Verb: Put, Key: key("t/4999")}, incumbent.OK},
		{"put in vain", Command{Verb: Put, Key: key("p/7"), If: IfIndex}, incumbent.Conflict},
		{"remove", Command{Verb: Remove, Key: key("p/8")}, incumbent.OK},
		{"remove what displaces a tombstone", Command{Verb: Remove, Key: key("p/9")}, incumbent.OK},
		{"lock more than the session may", Command{Verb: Acquire, Key: key("p/1"), Session: session("s")}, incumbent.TooLarge},
		{"lock what is locked", Command{Verb: Acquire, Key: key("s/7"), Session: y}, incumbent.Held},
		{"lock under a delay", Command{Verb: Acquire, Key: key("x/7"), Session: y}, incumbent.Held},
		{"lock", Command{Verb: Acquire, Key: key("p/1"), Session: y}, incumbent.OK},
		{"lock more than there may be", Command{Verb: Acquire, Key: key("p/2"), Session: y}, incumbent.TooLarge},
		{"unlock", Command{Verb: Release, Key: key("p/1"), Session: y}, incumbent.OK},
		{"delete more than one may", Command{Verb: RemoveTree, Key: key("")}, incumbent.TooLarge},
		{"delete below what is not there", Command{Verb: RemoveTree, Key: key("nothing")}, incumbent.OK},
		{"end another delay", Command{Verb: EndDelay, Key: key("x/7"), Index: 1}, incumbent.Conflict},
	} {
		limit := cost{maxSmallObjects, maxSmallBytes}
		if step.cmd.Verb == RemoveTree && step.want == incumbent.TooLarge {
			limit.bytes = 512 << 10 // what it looks at: as much as one may delete
		}
		if c := measure(t, s, step.cmd, step.want); c.objects > limit.objects || c.bytes > limit.bytes {
			t.Errorf("%s: %+v, limit %+v", step.what, c, limit)
		}
	}
}

// A command about many keys costs twice as much for twice as many.
func TestWorkOfLargeCommandsIsLinear(t *testing.T) {
	const n = 4000
	locked := func(c Command) func(t *testing.T, n int) (*core.State, core.Command) {
		return func(t *testing.T, n int) (*core.State, core.Command) {
			s := core.New(Family{})
			do(t, s, core.OpenSessionCommand{ID: session("s"), TTL: time.Minute})
			for i := range n {
				c.Verb, c.Key, c.Session = Acquire, key(fmt.Sprint(i)), session("s")
				do(t, s, c)
			}
			return s, core.CloseSessionCommand{ID: session("s")}
		}
	}
	for _, c := range []struct {
		what string
		make func(t *testing.T, n int) (*core.State, core.Command)
	}{
		{"the end of a session whose keys stay", locked(Command{})},
		{"the end of a session whose keys stay under a delay", locked(Command{Delay: time.Second})},
		{"the end of a session whose keys go", locked(Command{OnEnd: Delete, Delay: time.Second})},
		{"deleting a tree", func(t *testing.T, n int) (*core.State, core.Command) {
			s := core.New(Family{})
			for i := range n {
				do(t, s, Command{Verb: Put, Key: key(fmt.Sprintf("a/%d", i))})
				do(t, s, Command{Verb: Put, Key: key(fmt.Sprintf("b/%d", i))})
			}
			return s, Command{Verb: RemoveTree, Key: key("a/")}
		}},
		{"deleting a tree that displaces as many tombstones", func(t *testing.T, n int) (*core.State, core.Command) {
			f := ample()
			f.limits.tombstones = n
			s := core.New(f)
			for i := range n {
				do(t, s, Command{Verb: Put, Key: key(fmt.Sprintf("a/%d", i))})
				do(t, s, Command{Verb: Put, Key: key(fmt.Sprintf("b/%d", i))})
			}
			do(t, s, Command{Verb: RemoveTree, Key: key("b/")})
			return s, Command{Verb: RemoveTree, Key: key("a/")}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, cmd := c.make(t, n)
			half := measure(t, s, cmd, incumbent.OK)
			s, cmd = c.make(t, 2*n)
			whole := measure(t, s, cmd, incumbent.OK)
			t.Logf("%d: %+v, %d: %+v", n, half, 2*n, whole)
			if half.bytes < n*EntryBytes {
				t.Errorf("%d bytes for %d keys: not all are counted", half.bytes, n)
			}
			if whole.objects > 2*half.objects+half.objects/4+maxSmallObjects || whole.bytes > 3*half.bytes+maxSmallBytes {
				t.Errorf("%+v for %d, %+v for %d", half, n, whole, 2*n)
			}
		})
	}
}

// Batches that are about other things give the view that was there.
func TestAViewIsCopiedOnlyAfterAChange(t *testing.T) {
	s := core.New(Family{})
	do(t, s, Command{Verb: Put, Key: key("a")})
	before := s.View().Family(Number)
	do(t, s, core.OpenSessionCommand{ID: session("s"), TTL: time.Minute})
	if s.View().Family(Number) != before {
		t.Error("a new view shows nothing new")
	}
	do(t, s, Command{Verb: Acquire, Key: key("a"), Session: session("s"), Delay: time.Second})
	locked := s.View().Family(Number)
	do(t, s, core.CloseSessionCommand{ID: session("s")})
	delayed := s.View().Family(Number)
	do(t, s, Command{Verb: EndDelay, Key: key("a"), Index: s.Index()})
	if ended := s.View().Family(Number); locked == before || delayed == locked || ended == delayed {
		t.Error("an old view is shown after a change")
	}
}
