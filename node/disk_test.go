package node

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// segmentName ends the name of the file that the log is written to. Others in its
// folder are made ready for later at any time, beside what a test does.
const segmentName = ".wal"

// TestG31_FailedSyncStopsTheNode lets one sync of the log fail.
func TestG31_FailedSyncStopsTheNode(t *testing.T) {
	s := newStand()
	var broken atomic.Bool
	r := s.start(t, func(c *Config) {
		c.FS = vfs.Inject(s.fs, func(call vfs.Call) vfs.Fault {
			if broken.Load() && call.Op == vfs.OpSync && strings.HasSuffix(call.Name, segmentName) {
				return vfs.Fault{Err: syscall.EIO}
			}
			return vfs.Fault{}
		})
	})
	r.mustPropose("before")
	broken.Store(true)
	if _, err := r.propose("during"); incumbent.KindOf(err) != incumbent.Unknown {
		t.Errorf("proposal whose sync failed: got %v, want Unknown", err)
	}
	err := <-r.err
	if incumbent.KindOf(err) != incumbent.Internal || !errors.Is(err, syscall.EIO) {
		t.Errorf("run: got %v, want Internal with the cause", err)
	}
	if _, err := r.propose("after"); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("proposal to a stopped node: got %v, want Unavailable", err)
	}
	if _, err := r.confirm(); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("confirmation from a stopped node: got %v, want Unavailable", err)
	}
}

// TestG31_LowDiskRefusesGrowth lets free space fall under the reserve and come
// back.
func TestG31_LowDiskRefusesGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		s.fs.SetCapacity(64 << 20)
		var events []bool
		r := s.start(t, func(c *Config) {
			c.DiskReserve = 16 << 20
			c.Events.Growth = func(refused bool, _, _ int64) { events = append(events, refused) }
		})
		r.mustPropose("a")
		s.fs.SetCapacity(20 << 20)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		_, err := r.propose("b")
		var e *incumbent.Error
		if !errors.As(err, &e) || e.Kind != incumbent.Overloaded || e.RetryAfter <= 0 ||
			!strings.Contains(e.Hint, "/data") || !strings.Contains(e.Hint, "--disk-reserve-bytes") {
			t.Errorf("proposal on a low disk: got %+v, want Overloaded naming disk and setting", e)
		}
		done := make(chan error, 1)
		r.Propose(Proposal{Command: []byte("release"), Reserve: true, Done: func(_ any, err error) { done <- err }})
		if err := <-done; err != nil {
			t.Errorf("proposal with reserve: %v", err)
		}
		if st := r.Status(); !st.GrowthRefused || st.FreeBytes >= 16<<20 {
			t.Errorf("status: %+v", st)
		}
		s.fs.SetCapacity(64 << 20)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		r.mustPropose("c")
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if len(events) != 2 || !events[0] || events[1] {
			t.Errorf("events: %v, want refused, then not", events)
		}
	})
}

// TestRefuseGrowth has growth refused for a reason of the user's, and allowed
// again.
func TestRefuseGrowth(t *testing.T) {
	s := newStand()
	r := s.start(t, nil)
	reason := incumbent.Errorf(incumbent.Unavailable, "another disk is full")
	r.RefuseGrowth(func() error { return reason })
	if _, err := r.propose("a"); !errors.Is(err, reason) {
		t.Errorf("growth: got %v, want the reason", err)
	}
	done := make(chan error, 1)
	r.Propose(Proposal{Command: []byte("release"), Reserve: true, Done: func(_ any, err error) { done <- err }})
	if err := <-done; err != nil {
		t.Errorf("proposal with reserve: %v", err)
	}
	r.RefuseGrowth(nil)
	r.mustPropose("b")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestG31_FullDiskPausesAppends fills the disk to the last byte: what waits is
// answered when there is space again, and nothing was lost.
func TestG31_FullDiskPausesAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		s.fs.SetCapacity(9 << 20)
		r := s.start(t, nil)
		// More than the segments that exist or fit, so appends must come to wait.
		const proposals = 14
		answered := make(chan error, proposals)
		for range proposals {
			r.Propose(Proposal{Command: make([]byte, 900<<10), Reserve: true, Done: func(_ any, err error) { answered <- err }})
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if st := r.Status(); st.Paused == "" || !st.GrowthRefused || len(answered) == proposals {
			t.Fatalf("%d answered, status %+v: want appends paused", len(answered), st)
		}
		if _, err := r.propose("grow"); incumbent.KindOf(err) != incumbent.Overloaded {
			t.Errorf("growth on a full disk: got %v, want Overloaded", err)
		}
		if _, err := r.confirm(); err != nil {
			t.Errorf("confirmation on a full disk: %v", err)
		}
		s.fs.SetCapacity(0)
		for range proposals {
			if err := <-answered; err != nil {
				t.Errorf("proposal that waited for space: %v", err)
			}
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		r.mustPropose("grow")
		if st := r.Status(); st.Paused != "" || st.GrowthRefused {
			t.Errorf("status after space returned: %+v", st)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A log that finds no place for its next file has a snapshot taken while it still can be
// written, which frees one: a disk that is full of nothing but log pauses nobody for ever.
func TestG31_ALogWithoutSparesIsTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		var ended []SnapshotDone
		r := s.start(t, func(c *Config) {
			c.Machine.(*journal).forget = true
			c.SnapshotBytes = 1 << 40
			c.Events.Snapshot = func(d SnapshotDone) { ended = append(ended, d) }
		})
		propose := func() {
			t.Helper()
			done := make(chan error, 1)
			r.Propose(Proposal{Command: make([]byte, 900<<10), Reserve: true, Done: func(_ any, err error) { done <- err }})
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("it waits for ever: %+v", r.Status())
			}
			time.Sleep(diskPollEvery)
			synctest.Wait()
		}
		for range 3 {
			propose()
		}
		s.fs.SetCapacity(1 << 40)
		free, err := s.fs.Free("/data")
		if err != nil {
			t.Fatal(err)
		}
		s.fs.SetCapacity(1<<40 - free + 1<<20)
		if st := r.Status(); st.LogSegments != 2 || len(ended) != 0 {
			t.Fatalf("%d snapshots, status %+v: the test tests nothing", len(ended), st)
		}
		const proposals = 20
		for range proposals {
			propose()
		}
		if n := len(ended); n == 0 || n > proposals/2 {
			t.Errorf("%d snapshots for %d proposals, want no more than one a file of the log", n, proposals)
		}
		for _, d := range ended {
			if d.Err != nil {
				t.Error(d.Err)
			}
		}
		if st := r.Status(); st.Paused != "" || st.LogSegments > 2 {
			t.Errorf("status: %+v", st)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A snapshot whose file is written when appends come to wait for space is marked all the
// same: it lets files of the log go.
func TestG31_AMarkDoesNotWaitBehindAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		s.fs.SetCapacity(9 << 20)
		var armed atomic.Bool
		var pauses []bool
		var r *running
		proposed := make(chan int, 1)
		answered := make(chan error, 100)
		r = s.start(t, func(c *Config) {
			c.SnapshotBytes = 1 << 40
			c.Events.Paused = func(paused bool, _ error) { pauses = append(pauses, paused) }
			j := c.Machine.(*journal)
			j.forget = true
			j.onWrite = func() {
				if !armed.Swap(false) {
					return
				}
				n := 0
				for ; r.Status().Paused == "" && n < cap(answered); n++ {
					r.Propose(Proposal{Command: make([]byte, 900<<10), Reserve: true, Done: func(_ any, err error) { answered <- err }})
					time.Sleep(time.Millisecond)
				}
				proposed <- n
			}
		})
		for range 3 {
			r.mustPropose(strings.Repeat("x", 900<<10))
		}
		armed.Store(true)
		go func() { _, _ = r.Snapshot(context.Background()) }()
		for range <-proposed {
			select {
			case err := <-answered:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("appends wait for ever: %+v", r.Status())
			}
		}
		synctest.Wait()
		for i, paused := range pauses {
			if paused != (i%2 == 0) {
				t.Errorf("told of pauses %v", pauses)
				break
			}
		}
		if st := r.Status(); st.Snapshot == 1 || len(pauses) == 0 {
			t.Errorf("told of pauses %v, status %+v: the test tests nothing", pauses, st)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestG32_HungDiskShowsAndCausesNoElection lets one sync take three seconds.
func TestG32_HungDiskShowsAndCausesNoElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		var hung atomic.Bool
		var stalls []bool
		roles := 0
		r := s.start(t, func(c *Config) {
			c.FS = vfs.Inject(s.fs, func(call vfs.Call) vfs.Fault {
				if call.Op == vfs.OpSync && strings.HasSuffix(call.Name, segmentName) && hung.Swap(false) {
					time.Sleep(3 * time.Second)
				}
				return vfs.Fault{}
			})
			c.Events.FlushStalled = func(stalled bool, _ time.Duration) { stalls = append(stalls, stalled) }
			c.Events.RoleChanged = func(Role) { roles++ }
		})
		was := roles
		hung.Store(true)
		done := make(chan error, 1)
		r.Propose(Proposal{Command: []byte("slow"), Done: func(_ any, err error) { done <- err }})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := r.Status(); !st.FlushStalled || st.FlushOut < time.Second || len(done) != 0 {
			t.Errorf("status while the disk hangs: %+v", st)
		}
		// A confirmation needs no disk.
		if _, err := r.confirm(); err != nil {
			t.Errorf("confirm while the disk hangs: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("slow proposal: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if st := r.Status(); st.FlushStalled || len(stalls) != 2 || roles != was {
			t.Errorf("stalls %v, role changes %d, status %+v", stalls, roles-was, st)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A disk that hangs while the log is told of a snapshot hangs for all writes, and shows.
func TestG32_ADiskThatHangsAtTheMarkShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		var armed, marking atomic.Bool
		r := s.start(t, func(c *Config) {
			c.FS = vfs.Inject(s.fs, func(call vfs.Call) vfs.Fault {
				switch {
				case call.Op == vfs.OpSyncDir && strings.HasSuffix(call.Name, "snap") && armed.Load():
					marking.Store(true)
				case call.Op == vfs.OpSync && strings.HasSuffix(call.Name, segmentName) && marking.Swap(false):
					time.Sleep(3 * time.Second)
				}
				return vfs.Fault{}
			})
		})
		armed.Store(true)
		go func() { _, _ = r.Snapshot(context.Background()) }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := r.Status(); !st.FlushStalled || st.FlushOut < time.Second {
			t.Errorf("status while the disk hangs: %+v", st)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := r.Status(); st.FlushStalled || st.Snapshot == 0 {
			t.Errorf("status afterwards: %+v", st)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// Without space for the mark of a snapshot the log waits for some, as for anything else.
func TestG31_NoSpaceForTheMarkOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		var armed, marking, full atomic.Bool
		full.Store(true)
		r := s.start(t, func(c *Config) {
			c.FS = vfs.Inject(s.fs, func(call vfs.Call) vfs.Fault {
				switch {
				case call.Op == vfs.OpSyncDir && strings.HasSuffix(call.Name, "snap") && armed.Load():
					marking.Store(true)
				case call.Op == vfs.OpWrite && strings.HasSuffix(call.Name, segmentName) && marking.Load() && full.Load():
					return vfs.Fault{Err: syscall.ENOSPC}
				}
				return vfs.Fault{}
			})
		})
		armed.Store(true)
		done := make(chan error, 1)
		go func() {
			_, err := r.Snapshot(context.Background())
			done <- err
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := r.Status(); st.Paused == "" || len(done) != 0 {
			t.Errorf("status without space: %+v", st)
		}
		full.Store(false)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if st := r.Status(); st.Paused != "" || st.FlushStalled || st.Snapshot == 0 {
			t.Errorf("status afterwards: %+v", st)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSnapshotWithoutSpace gives a snapshot no space: it is given up and tried
// again later, and the node goes on.
func TestSnapshotWithoutSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		var full atomic.Bool
		var ended []SnapshotDone
		r := s.start(t, func(c *Config) {
			c.SnapshotEntries = 10
			c.FS = vfs.Inject(s.fs, func(call vfs.Call) vfs.Fault {
				if full.Load() && call.Op == vfs.OpWrite && strings.Contains(call.Name, "/snap/") {
					return vfs.Fault{Err: syscall.ENOSPC, Bytes: call.Bytes / 2}
				}
				return vfs.Fault{}
			})
			c.Events.Snapshot = func(d SnapshotDone) { ended = append(ended, d) }
		})
		full.Store(true)
		for range 20 {
			r.mustPropose("a")
		}
		synctest.Wait()
		if len(ended) != 1 || !vfs.IsNoSpace(ended[0].Err) {
			t.Fatalf("snapshots ended: %+v, want one without space", ended)
		}
		if _, err := r.Snapshot(context.Background()); !vfs.IsNoSpace(err) {
			t.Errorf("snapshot on demand: got %v, want no space", err)
		}
		full.Store(false)
		time.Sleep(snapshotRetryAfter + time.Second)
		synctest.Wait()
		if last := ended[len(ended)-1]; last.Err != nil || r.Status().Snapshot != last.Index {
			t.Errorf("last snapshot: %+v, status says %d", last, r.Status().Snapshot)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestG31_SnapshotsLeaveTheReserve gives snapshots less space than they need, which is more
// than the reserve: none is begun that is known not to fit, one that turns out not to fit
// ends before it has taken the reserve, and one that is small is written even below it.
func TestG31_SnapshotsLeaveTheReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reserve, large = 1 << 20, 4 << 20
		s := newStand()
		free := func(bytes int64) {
			s.fs.SetCapacity(1 << 40)
			have, err := s.fs.Free("/data")
			if err != nil {
				t.Fatal(err)
			}
			s.fs.SetCapacity(1<<40 - have + bytes)
		}
		var written atomic.Int64
		least := atomic.Int64{} // free bytes while a snapshot was written
		r := s.start(t, func(c *Config) {
			c.DiskReserve = reserve
			c.SnapshotBytes = 1 << 40 // none but those that are asked for
			c.FS = vfs.Inject(s.fs, func(call vfs.Call) vfs.Fault {
				if call.Op == vfs.OpWrite && strings.Contains(call.Name, "/snap/") {
					written.Add(call.Bytes)
					if have, err := s.fs.Free("/data"); err == nil {
						least.Store(min(least.Load(), have-call.Bytes))
					}
				}
				return vfs.Fault{}
			})
		})
		attempt := func() (bytes int64, err error) {
			written.Store(0)
			least.Store(1 << 40)
			_, err = r.Snapshot(t.Context())
			synctest.Wait()
			return written.Load(), err
		}
		for range large / (512 << 10) {
			r.mustPropose(strings.Repeat("x", 512<<10))
		}
		// Nothing is known of the size of the first but that it is more than nothing.
		free(reserve + large/2)
		if _, err := attempt(); !vfs.IsNoSpace(err) || least.Load() < reserve {
			t.Errorf("the first: %v, with %d bytes left", err, least.Load())
		}
		free(reserve + 2*large)
		if n, err := attempt(); err != nil || n < large {
			t.Fatalf("with space: %d bytes, %v", n, err)
		}
		r.mustPropose("more")
		free(reserve + large/2)
		if n, err := attempt(); !vfs.IsNoSpace(err) || n != 0 {
			t.Errorf("one that is known not to fit: %d bytes, %v", n, err)
		}
		_, _ = attempt()
		if n, err := attempt(); !vfs.IsNoSpace(err) || n == 0 || least.Load() < reserve {
			t.Errorf("one that may have shrunk is never begun: %d bytes, %v, with %d left", n, err, least.Load())
		}
		r.cfg.DiskReserve = 1 << 40
		free(3 * large)
		if _, err := attempt(); err != nil {
			t.Errorf("one that is small beside what is free: %v", err)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
