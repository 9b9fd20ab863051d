package peers

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/node"
)

// TestSendersAndWriterKeepOrder lets several goroutines send to a member that
// reads nothing, until the kernel takes no more and the rest of a frame has to
// wait for the writer. Then it reads: what was taken arrives whole, once, and that
// of each sender in its order.
func TestSendersAndWriterKeepOrder(t *testing.T) {
	for name, opts := range map[string][]option{"plain": nil, "tls": {secured(newAuthority(t))}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, opts...)
			release := b.hold()
			defer release()
			const senders = 4
			taken := make([]int, senders)
			var sending sync.WaitGroup
			for s := range senders {
				sending.Go(func() {
					for pad := make([]byte, 3000+s); a.set.SendApp(2, fmt.Appendf(nil, "%d %d %s", s, taken[s], pad)); {
						taken[s]++
					}
				})
			}
			sending.Wait()
			if a.set.Links()[0].QueuedBytes == 0 {
				t.Fatal("nothing waits for the writer")
			}
			release()
			all := taken[0] + taken[1] + taken[2] + taken[3]
			b.until("everything that was taken", func() bool { return len(b.apps) >= all })
			next := make([]int, senders)
			for _, frame := range b.now().apps {
				var s, n int
				if _, err := fmt.Sscanf(frame, "%d %d", &s, &n); err != nil {
					t.Fatal(err)
				}
				if n != next[s] {
					t.Fatalf("frame %d of sender %d came where %d was expected", n, s, next[s])
				}
				next[s]++
			}
			// The writer has ended with nothing left: a sender writes again.
			a.set.Send([]node.Message{heartbeat(1, 2, 1)})
			b.until("a heartbeat", func() bool { return len(b.got) == 1 })
		})
	}
}

// TestHandshakeIsNotInterrupted: whoever finds a connection before its handshake
// has said its last word does not write in front of that.
func TestHandshakeIsNotInterrupted(t *testing.T) {
	c := newConn(&peer{}, hello{class: node.Control}, nil, &socket{}, &frameReader{})
	if !c.out.put(&c.out.raft, 1, func(b []byte) []byte { return append(b, 1) }) {
		t.Fatal("nothing was taken")
	}
	if got := c.out.takeSmall(nil); len(got) != 0 {
		t.Errorf("a sender may write %d chunks", len(got))
	}
	if got, _ := c.out.take(nil); len(got) != 0 {
		t.Errorf("the writer may write %d chunks", len(got))
	}
	c.out.wrote(nil) // as serve does
	if got := c.out.takeSmall(nil); len(got) != 1 {
		t.Errorf("then a sender may write %d chunks", len(got))
	}
}

// TestPingIsNotTheHousekeepersLook: whoever begins to serve a connection pings at
// once, perhaps while the housekeeper looks how long it has been silent. Only the
// housekeeper counts that.
func TestPingIsNotTheHousekeepersLook(t *testing.T) {
	p := &peer{set: &Set{start: time.Now()}}
	c := newConn(p, hello{class: node.Control}, nil, &socket{}, &frameReader{})
	var housekeeper sync.WaitGroup
	housekeeper.Go(func() { c.attend(Standing{}) })
	for range 2 * silentPings {
		c.ping(Standing{})
	}
	housekeeper.Wait()
	if c.silent != 1 {
		t.Errorf("silent %d times, the housekeeper looked once", c.silent)
	}
}
