package park

import "sync/atomic"

// barrier waits for its parts, each of which arrives once.
type barrier struct {
	left atomic.Int64
	done func()
}

func (b *barrier) arrive() {
	if b.left.Add(-1) == 0 {
		b.done()
	}
}

// Barrier calls done, once, when every byte that the kernel had made readable
// on a parked connection before the call has been handed to its handler (or
// stored or left, where the handler holds: [Hold]) and the batches that contain it
// have ended. done is called from a worker, or from within Barrier if there
// is nothing to wait for, and must not block.
//
// The work is bounded: what arrives after the call is not waited for. A frame
// that had arrived in part is not complete afterwards either, and bytes that
// the kernel has accepted but not yet announced, which takes microseconds,
// are not waited for.
func (s *Set) Barrier(done func()) {
	b := &barrier{done: done}
	b.left.Store(int64(len(s.workers)))
	for _, w := range s.workers {
		w.barrier(b)
	}
}
