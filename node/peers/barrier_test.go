package peers

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/incumbent-dev/incumbent/node"
)

// TestBarrierCoversWhatHasArrived stops the reader of a member, sends it more
// than one read can take, and asks for a barrier: it is done after the last of
// those frames has been handed over, and not before.
func TestBarrierCoversWhatHasArrived(t *testing.T) {
	for name, opts := range map[string][]option{"plain": nil, "tls": {secured(newAuthority(t))}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, opts...)
			release := b.hold()
			defer release()
			const frames = 100
			big := make([]byte, 2000)
			for i := range frames {
				if !a.set.SendApp(2, fmt.Appendf(big[:0], "%04d", i)) {
					t.Fatal("not taken")
				}
			}
			eventually(t, "everything has left", func() bool { return a.set.Links()[0].QueuedBytes == 0 })
			awaitArrival(t, a)
			handed := make(chan int, 1)
			b.set.Barrier(func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				handed <- len(b.apps)
			})
			for range 100 {
				runtime.Gosched()
			}
			select {
			case n := <-handed:
				t.Fatalf("the barrier was done when %d frames had been handed over", n)
			default:
			}
			release()
			if n := <-handed; n != frames {
				t.Errorf("the barrier was done after %d frames, %d had arrived", n, frames)
			}
		})
	}
}

func TestBarrierIsDoneAtOnceWhenNothingWaits(t *testing.T) {
	a, b := pair(t)
	for _, m := range []*member{a, b} {
		done := make(chan struct{})
		m.set.Barrier(func() { close(done) })
		<-done
	}
	alone := newMember(t, 9)
	done := false
	alone.set.Barrier(func() { done = true })
	if !done {
		t.Error("without connections there is nothing to wait for")
	}
}

// TestBarrierEndsWithTheConnection closes a connection whose reader is stopped.
func TestBarrierEndsWithTheConnection(t *testing.T) {
	a, b := pair(t)
	release := b.hold()
	defer release()
	a.set.SendApp(2, []byte("x"))
	eventually(t, "it has left", func() bool { return a.set.Links()[0].QueuedBytes == 0 })
	awaitArrival(t, a)
	done := make(chan struct{})
	b.set.Barrier(func() { close(done) })
	a.close()
	release()
	<-done
}

// BenchmarkBarrier is what an expiry pays.
func BenchmarkBarrier(b *testing.B) {
	t := new(testing.T)
	m, o := newMember(t, 1), newMember(t, 2)
	know(m, o)
	connected(t, m, o)
	defer m.close()
	defer o.close()
	done := make(chan struct{}, 1)
	for b.Loop() {
		m.set.Barrier(func() { done <- struct{}{} })
		<-done
	}
}

// BenchmarkRoundTrip sends a heartbeat and waits for the answer.
func BenchmarkRoundTrip(b *testing.B) {
	t := new(testing.T)
	answered := make(chan struct{}, 1)
	m := newMember(t, 1, func(c *Config) { c.Deliver = func([]node.Message) { answered <- struct{}{} } })
	var o *member
	o = newMember(t, 2, func(c *Config) { c.Deliver = func([]node.Message) { o.set.Send([]node.Message{heartbeat(2, 1, 1)}) } })
	know(m, o)
	connected(t, m, o)
	defer m.close()
	defer o.close()
	for b.Loop() {
		m.set.Send([]node.Message{heartbeat(1, 2, 1)})
		<-answered
	}
}
