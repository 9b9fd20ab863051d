package node

import (
	"fmt"
	"sync"
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
	for _, inline := range []bool{false, true} {
		for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
			for _, callers := range []int{1, 64, 1024} {
				name := fmt.Sprintf("inline=%v/sync=%v/callers=%d", inline, delay, callers)
				b.Run(name, func(b *testing.B) { benchmarkPropose(b, inline, delay, callers) })
			}
		}
	}
}

func benchmarkPropose(b *testing.B, inline bool, delay time.Duration, callers int) {
	r := (&stand{}).start(b, func(c *Config) {
		c.FS, c.Dir = slowSync(vfs.OS{}, delay), b.TempDir()
		c.InlineAppend = inline
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
