package node

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/vfs"
)

// slowSync makes every sync of a log file take at least d, as a disk does.
func slowSync(fs vfs.FS, d time.Duration) vfs.FS {
	if d == 0 {
		return fs
	}
	return vfs.Inject(fs, func(c vfs.Call) vfs.Fault {
		if c.Op == vfs.OpSync {
			time.Sleep(d)
		}
		return vfs.Fault{}
	})
}

// BenchmarkPropose proposes commands of 100 bytes from many callers who each
// wait for their answer, on a real disk, and with a sync delay added.
func BenchmarkPropose(b *testing.B) {
	for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
		for _, callers := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("sync=%v/callers=%d", delay, callers), func(b *testing.B) { benchmarkPropose(b, delay, callers) })
		}
	}
}

func benchmarkPropose(b *testing.B, delay time.Duration, callers int) {
	r := (&stand{}).start(b, func(c *Config) {
		c.FS, c.Dir = slowSync(vfs.OS{}, delay), b.TempDir()
		c.SegmentBytes = 0
	})
	cmd := make([]byte, 100)
	r.machine.forget = true
	b.ReportAllocs()
	b.ResetTimer()
	var group sync.WaitGroup
	for i := range callers {
		n := b.N / callers
		if i < b.N%callers {
			n++
		}
		group.Go(func() {
			done := make(chan error, 1)
			for range n {
				r.Propose(Proposal{Command: cmd, Done: func(_ any, err error) { done <- err }})
				if err := <-done; err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cmds/s")
}

// BenchmarkConfirm measures one confirmation after another, and many at once.
func BenchmarkConfirm(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		r := newStand().start(b, nil)
		b.ReportAllocs()
		done := make(chan error, 1)
		for b.Loop() {
			r.Confirm(func(_ uint64, err error) { done <- err })
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("batch=100000", func(b *testing.B) {
		r := newStand().start(b, nil)
		const batch = 100_000
		b.ReportAllocs()
		var group sync.WaitGroup
		done := func(_ uint64, err error) {
			if err != nil {
				b.Error(err)
			}
			group.Done()
		}
		for b.Loop() {
			group.Add(batch)
			for range batch {
				r.Confirm(done)
			}
			group.Wait()
		}
		b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "confirms/s")
	})
}

// BenchmarkCommitReachesFollower measures from the moment the leader has applied
// a command to the moment a follower has, with three members that hand messages
// to one another: the commit index is pushed, not left to the next heartbeat.
func BenchmarkCommitReachesFollower(b *testing.B) {
	g := newTrio(b)
	applied := make(chan struct{}, 1)
	var at atomic.Int64 // when the leader applied the last command
	for _, id := range trioIDs {
		r := (&stand{fs: g.disks[id]}).startUnready(b, func(c *Config) { c.Transport = g })
		g.mu.Lock()
		g.members[id] = r
		g.mu.Unlock()
	}
	l := g.leader()
	f := g.members[g.follower()]
	if err := f.WaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	l.machine.mu.Lock()
	l.machine.onApply = func([][]byte) { at.Store(time.Now().UnixNano()) }
	l.machine.mu.Unlock()
	f.machine.mu.Lock()
	f.machine.onApply = func([][]byte) { applied <- struct{}{} }
	f.machine.mu.Unlock()
	took := make([]time.Duration, 0, b.N)
	done := make(chan error, 1)
	for b.Loop() {
		l.Propose(Proposal{Command: []byte("x"), Done: func(_ any, err error) { done <- err }})
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		<-applied
		took = append(took, time.Duration(time.Now().UnixNano()-at.Load()))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
	b.StopTimer()
	g.stopAll()
}
