package node

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/overload"
	"github.com/incumbent-dev/incumbent/vfs"
)

// slowLog makes the next sync of a log file wait until release is closed.
type slowLog struct {
	hold    atomic.Bool
	release chan struct{}
}

func (s *slowLog) decide(call vfs.Call) vfs.Fault {
	if call.Op == vfs.OpSync && strings.Contains(call.Name, "/log/") && s.hold.Load() {
		<-s.release
	}
	return vfs.Fault{}
}

// TestG41_FullInboxRefuses fills the inbox behind a disk that does not answer.
func TestG41_FullInboxRefuses(t *testing.T) {
	s := newStand()
	slow := &slowLog{release: make(chan struct{})}
	r := s.start(t, func(c *Config) {
		c.FS = vfs.Inject(s.fs, slow.decide)
		c.MaxInboxProposals = 16
	})
	slow.hold.Store(true)
	answers := make(chan error, 100)
	done := func(_ any, err error) { answers <- err }
	// Four entries in flight, then the inbox: 14 places, and 2 with reserve.
	for range MaxEntriesInFlight {
		r.Propose(Proposal{Command: []byte("f"), Done: done})
		waitFor(t, r, func(st Status) bool { return st.Waiting == 0 && st.Inbox == 0 })
	}
	for range 14 {
		r.Propose(Proposal{Command: []byte("w"), Done: done})
	}
	if len(answers) != 0 {
		t.Fatalf("refused too early: %v", <-answers)
	}
	r.Propose(Proposal{Command: []byte("x"), Done: done})
	var e *incumbent.Error
	if err := <-answers; !errors.As(err, &e) || e.Kind != incumbent.Overloaded || e.RetryAfter < overload.Retry/2 || e.Hint != hintFull {
		t.Errorf("full inbox: got %+v, want Overloaded with a time and what helps", e)
	}
	r.Propose(Proposal{Command: []byte("r"), Reserve: true, Done: done}, Proposal{Command: []byte("r"), Reserve: true, Done: done})
	if len(answers) != 0 {
		t.Errorf("a place in reserve was refused: %v", <-answers)
	}
	r.Propose(Proposal{Command: []byte("r"), Reserve: true, Done: done})
	if err := <-answers; incumbent.KindOf(err) != incumbent.Overloaded {
		t.Errorf("beyond the reserve: got %v, want Overloaded", err)
	}
	slow.hold.Store(false)
	close(slow.release)
	for range MaxEntriesInFlight + 14 + 2 {
		if err := <-answers; err != nil {
			t.Errorf("what was taken is answered: %v", err)
		}
	}
}

// waitFor waits until the node's status is as wanted.
func waitFor(t *testing.T, r *running, ok func(Status) bool) {
	t.Helper()
	for range 10_000 {
		if ok(r.Status()) {
			return
		}
		if _, err := r.confirm(); err != nil { // a turn of the loop goes by
			t.Fatal(err)
		}
	}
	t.Fatalf("status stays %+v", r.Status())
}

func TestLimitsOfOneProposal(t *testing.T) {
	r := newStand().start(t, nil)
	if _, err := r.propose(strings.Repeat("x", MaxCommandBytes+1)); incumbent.KindOf(err) != incumbent.TooLarge {
		t.Errorf("command over the limit: got %v, want TooLarge", err)
	}
	if _, err := r.propose(strings.Repeat("x", MaxCommandBytes)); err != nil {
		t.Errorf("largest command: %v", err)
	}
	if v, err := r.propose(""); err != nil || v != 2 {
		t.Errorf("empty command: got %v, %v", v, err)
	}
	done := make(chan error, 1)
	r.Propose(Proposal{Command: []byte("late"), Deadline: time.Now().Add(-time.Second), Done: func(_ any, err error) { done <- err }})
	if err := <-done; incumbent.KindOf(err) != incumbent.DeadlineExceeded {
		t.Errorf("past deadline: got %v, want DeadlineExceeded", err)
	}
	r.Propose(Proposal{Command: []byte("nobody waits")})
	r.mustPropose("end")
	if got := r.machine.list(); len(got) != 4 || got[2] != "nobody waits" {
		t.Errorf("applied %d commands", len(got))
	}
}

// TestG48_StopAnswersEverybody stops a node whose disk does not answer. In the
// bubble of synctest a goroutine that is left would fail the test.
func TestG48_StopAnswersEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		slow := &slowLog{release: make(chan struct{})}
		r := s.start(t, func(c *Config) { c.FS = vfs.Inject(s.fs, slow.decide) })
		slow.hold.Store(true)
		const appended = MaxEntriesInFlight
		kinds := make(chan incumbent.Kind, 100)
		for range appended + 3 {
			r.Propose(Proposal{Command: []byte("a"), Done: func(_ any, err error) { kinds <- incumbent.KindOf(err) }})
			synctest.Wait()
		}
		stopped := make(chan error, 1)
		go func() { stopped <- r.Close(context.Background()) }()
		time.Sleep(2 * time.Second) // longer than a stop waits for what is under way
		if _, err := r.propose("late"); incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("proposal while stopping: got %v, want Unavailable", err)
		}
		slow.hold.Store(false)
		close(slow.release)
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		if err := <-r.err; err != nil {
			t.Errorf("run: %v", err)
		}
		count := map[incumbent.Kind]int{}
		for range appended + 3 {
			count[<-kinds]++
		}
		if count[incumbent.Unknown] != appended || count[incumbent.Unavailable] != 3 {
			t.Errorf("answers: %v, want %d Unknown and 3 Unavailable", count, appended)
		}
		if _, err := r.Snapshot(t.Context()); incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("snapshot of a stopped node: got %v, want Unavailable", err)
		}
	})
}

// TestG05_NothingIsAnsweredBeforeItsSync holds a sync back.
func TestG05_NothingIsAnsweredBeforeItsSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		slow := &slowLog{release: make(chan struct{})}
		r := s.start(t, func(c *Config) { c.FS = vfs.Inject(s.fs, slow.decide) })
		slow.hold.Store(true)
		answered := make(chan error, 1)
		r.Propose(Proposal{Command: []byte("a"), Done: func(_ any, err error) { answered <- err }})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(answered) != 0 || len(r.machine.list()) != 0 {
			t.Errorf("answered %d, applied %v before the entry was durable", len(answered), r.machine.list())
		}
		slow.hold.Store(false)
		close(slow.release)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestStopFinishesWhatIsUnderWay stops a healthy node in the middle of work.
func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	s := newStand()
	r := s.start(t, nil)
	answers := make(chan error, 1000)
	for range cap(answers) {
		r.Propose(Proposal{Command: []byte("a"), Done: func(_ any, err error) { answers <- err }})
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Fatalf("got %v, want it applied before the stop", err)
		}
	}
}

func TestCloseWithoutRun(t *testing.T) {
	s := newStand()
	cfg := Config{FS: s.fs, Dir: "/data", Machine: &journal{}, Schema: 1, SegmentBytes: MinSegmentBytes}
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	early := make(chan error, 1)
	n.Propose(Proposal{Command: []byte("a"), Done: func(_ any, err error) { early <- err }})
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-early; incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("proposal before a close: got %v, want Unavailable", err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := n.Run(t.Context()); err != nil {
		t.Errorf("run after close: got %v, want nothing to do", err)
	}
	if err := n.Run(t.Context()); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("second run: got %v, want Invalid", err)
	}
	if _, err := Open(cfg); err != nil {
		t.Errorf("open again: %v", err) // the lock is free
	}
}

func TestPanicsStopTheNode(t *testing.T) {
	r := newStand().start(t, nil)
	r.machine.onApply = func([][]byte) { panic("broken invariant") }
	if _, err := r.propose("a"); incumbent.KindOf(err) != incumbent.Unknown {
		t.Errorf("proposal: got %v, want Unknown", err)
	}
	err := <-r.err
	if incumbent.KindOf(err) != incumbent.Internal || !strings.Contains(err.Error(), "broken invariant") {
		t.Errorf("run: got %v, want Internal with the panic's text", err)
	}

	r = newStand().start(t, nil)
	r.inbox.call(func() { r.replica.MetaAt(1 << 40) })
	signal(r.inbox.wake)
	if err := <-r.err; incumbent.KindOf(err) != incumbent.Internal || !strings.Contains(err.Error(), "loop") {
		t.Errorf("run: got %v, want Internal naming the goroutine", err)
	}
}

// TestAPanicLeavesNobodyWaiting has the loop panic in the turn that takes a
// proposal and a confirmation: both are answered.
func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	r := newStand().start(t, nil)
	begun, release := make(chan struct{}), make(chan struct{})
	r.inbox.call(func() { close(begun); <-release })
	<-begun
	answers := make(chan error, 2)
	r.Propose(Proposal{Command: []byte("a"), Done: func(_ any, err error) { answers <- err }})
	r.Confirm(func(_ uint64, err error) { answers <- err })
	r.inbox.call(func() { panic("broken invariant") })
	close(release)
	if err := <-r.err; incumbent.KindOf(err) != incumbent.Internal {
		t.Errorf("run: got %v, want Internal", err)
	}
	for range cap(answers) {
		if err := <-answers; incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("got %v, want Unavailable", err)
		}
	}
}

// TestG44_SnapshotDelaysNothing proposes and confirms while a snapshot takes
// ten seconds, and holds its writing against the rate.
func TestG44_SnapshotDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		r := s.start(t, func(c *Config) { c.SnapshotRate = 1 << 20 })
		for range 10 {
			r.mustPropose(strings.Repeat("x", MaxCommandBytes))
		}
		began := time.Now()
		done := make(chan error, 1)
		go func() { _, err := r.Snapshot(context.Background()); done <- err }()
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			asked := time.Now()
			r.mustPropose("y")
			if _, err := r.confirm(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(asked); took > electionTicks*DefaultTick/4 {
				t.Errorf("answered after %v beside a snapshot", took)
			}
		}
		if len(done) != 0 {
			t.Error("the snapshot was over before anything was measured")
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("10 MiB at 1 MiB/s took %v", took)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestStopDuringSnapshot stops while a snapshot is being written; the next start
// removes what it left.
func TestStopDuringSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		r := s.start(t, func(c *Config) { c.SnapshotRate = 1 << 20 })
		for range 10 {
			r.mustPropose(strings.Repeat("x", MaxCommandBytes))
		}
		done := make(chan error, 1)
		go func() { _, err := r.Snapshot(context.Background()); done <- err }()
		time.Sleep(3 * time.Second)
		killed := s.fs.Clone()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("snapshot: got %v, want Unavailable", err)
		}
		for _, fs := range []*vfs.Mem{s.fs, killed} {
			r := (&stand{fs: fs}).start(t, nil)
			if names, err := fs.List("/data/snap"); err != nil || len(names) != 1 {
				t.Errorf("files left: %v, %v", names, err)
			}
			if got := len(r.machine.list()); got != 10 {
				t.Errorf("%d commands, want 10", got)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestConfigValidate(t *testing.T) {
	good := Config{FS: vfs.NewMem(), Dir: "/d", Machine: &journal{}}
	for name, change := range map[string]func(*Config){
		"no machine":   func(c *Config) { c.Machine = nil },
		"no folder":    func(c *Config) { c.Dir = "" },
		"small inbox":  func(c *Config) { c.MaxInboxBytes = 100 },
		"small file":   func(c *Config) { c.SegmentBytes = 4096 },
		"negative":     func(c *Config) { c.SnapshotRate = -1 },
		"inbox of -1":  func(c *Config) { c.MaxInboxProposals = -1 },
		"no tick":      func(c *Config) { c.Tick = -1 },
		"no fs at all": func(c *Config) { c.FS = nil },
	} {
		c := good
		change(&c)
		if err := c.Validate(); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// What is committed waits behind what is being applied: that counts, too.
func TestAppliedSaysHowLongItWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan AppliedEntries, 10)
		r := newStand().start(t, func(c *Config) {
			c.Events.Applied = func(a AppliedEntries) { told <- a }
		})
		for len(told) > 0 {
			<-told
		}
		r.machine.onApply = func([][]byte) { time.Sleep(time.Second) }
		for range 2 {
			r.Propose(Proposal{Command: []byte("a"), Done: func(any, error) {}})
			time.Sleep(200 * time.Millisecond)
		}
		for i, want := range []AppliedEntries{
			{Entries: 1, Commands: 1, Took: time.Second},
			{Entries: 1, Commands: 1, Waited: 800 * time.Millisecond, Took: time.Second},
		} {
			if got := <-told; got != want {
				t.Errorf("%d: %+v, want %+v", i, got, want)
			}
		}
	})
}
