package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// lockDelay is that of the locks of these tests, and kept is how long the leader
// keeps it.
const (
	lockDelay = 20 * time.Second
	kept      = lockDelay + lockDelay/100 + lease.DefaultGrace
	late      = time.Second // more than it takes to look at a deadline and to end it
)

// alone is a running group of one member.
type alone struct {
	*Engine
	t     *testing.T
	ended chan error
}

func startAlone(t *testing.T, fs vfs.FS) *alone {
	t.Helper()
	return startWith(t, fs, Config{})
}

func startWith(t *testing.T, fs vfs.FS, cfg Config) *alone {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Open(node.Config{FS: fs, Dir: "data", Schema: core.SchemaVersion, SegmentBytes: node.MinSegmentBytes, DiskReserve: -1}); err != nil {
		t.Fatal(err)
	}
	a := &alone{e, t, make(chan error, 1)}
	go func() { a.ended <- e.Run(t.Context()) }()
	<-e.Node().Ready()
	return a
}

func (a *alone) stop() {
	a.t.Helper()
	if err := a.Close(a.t.Context()); err != nil {
		a.t.Error(err)
	}
	if err := <-a.ended; err != nil {
		a.t.Error(err)
	}
}

func (a *alone) do(cmd core.Command) *core.Result {
	a.t.Helper()
	c := make(chan *core.Result, 1)
	a.Propose(node.Proposal{Command: cmd.Encode(core.Meta{}), Done: func(r any, err error) {
		if err != nil {
			a.t.Error(err)
		}
		result, _ := r.(*core.Result)
		c <- result
	}})
	return <-c
}

func (a *alone) must(cmd core.Command) {
	a.t.Helper()
	if r := a.do(cmd); r == nil || r.Err != nil {
		a.t.Fatalf("%+v: %+v", cmd, r)
	}
}

// waitsFor fails unless the key can be locked so long after since, and not before.
func (a *alone) waitsFor(lock kv.Command, since time.Time, d time.Duration) {
	a.t.Helper()
	time.Sleep(time.Until(since.Add(d)))
	if r := a.do(lock); r == nil || r.Err == nil || r.Err.Kind != incumbent.Held {
		a.t.Fatalf("locked %v after the end: %+v", time.Since(since), r)
	}
	time.Sleep(late)
	a.must(lock)
}

var delayed = kv.Key{Namespace: "n", Name: "a/b"}

func lockFor(n byte) kv.Command {
	return kv.Command{Verb: kv.Acquire, Key: delayed, Session: incumbent.SessionID{n}, Delay: lockDelay}
}

// A key whose lock ended with its session can be locked by another once the delay
// of the lock is over, and not before; who waits for that is told.
func TestG07_ALockedKeyWaitsForItsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAlone(t, vfs.NewMem())
		defer a.stop()
		for n := range byte(2) {
			a.must(core.OpenSessionCommand{ID: incumbent.SessionID{n + 1}})
		}
		a.must(lockFor(1))
		time.Sleep(time.Hour)
		a.must(core.CloseSessionCommand{ID: incumbent.SessionID{1}, Reason: "test"})
		since := time.Now()
		if n := a.Leases().Stats().Due; n != 0 {
			t.Errorf("%d are due", n)
		}
		modified := kv.Of(a.View()).Entry(delayed).Modified
		a.waitsFor(lockFor(2), since, kept)
		if e := kv.Of(a.View()).Entry(delayed); e.LockIndex != 2 || e.Modified <= modified {
			t.Errorf("locked: %+v", e)
		}
		if n := a.View().Index(); n != 7 {
			t.Errorf("%d commands, want 2 sessions, 3 locks, the end of the session and that of its delay", n)
		}
	})
}

// A new leader cannot know how long the delay has lasted.
func TestG06_ANewLeaderStartsADelayAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		a := startAlone(t, fs)
		for n := range byte(2) {
			a.must(core.OpenSessionCommand{ID: incumbent.SessionID{n + 1}})
		}
		a.must(lockFor(1))
		a.must(core.CloseSessionCommand{ID: incumbent.SessionID{1}, Reason: "test"})
		time.Sleep(kept - time.Second)
		a.stop()
		a = startAlone(t, fs)
		defer a.stop()
		a.waitsFor(lockFor(2), time.Now(), kept-lease.Bucket)
	})
}
