package bench

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Hostile clients that take their time: strangers that never end what they begin.

// Limits of them, and what they do.
const (
	maxSlow   = 10_000 // connections whose message never ends
	slowEvery = 500 * time.Millisecond
	slowMost  = 150 * time.Second // until a server closes a connection whose message never ends: one to OVSDB may take two minutes
)

// slowStarts are how messages begin that never end: a handshake, a request of HTTP and one of
// JSON-RPC. Every listener is told all three.
var slowStarts = []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "POST / HTTP/1.1\r\nHost: slow\r\nX: ", `{"id":1,"method":"echo","params":["`}

// visits are the connections whose message never ends.
type visits struct {
	opened, closed atomic.Int64 // and closed by a server
	longest        atomic.Int64 // nanoseconds that one was suffered
}

// ended is told how long a connection was suffered, and whether a server closed it.
func (v *visits) ended(suffered time.Duration, closed bool) {
	for old := v.longest.Load(); old < int64(suffered) && !v.longest.CompareAndSwap(old, int64(suffered)); {
		old = v.longest.Load()
	}
	if closed {
		v.closed.Add(1)
	}
}

// judge says whether so many came, and all were cut off in time.
func (v *visits) judge(s *strangers, came int) {
	longest := time.Duration(v.longest.Load())
	s.fact("strangers_slow", float64(v.opened.Load()))
	s.fact("strangers_slow_closed", float64(v.closed.Load()))
	s.fact("strangers_slow_longest_seconds", longest.Seconds())
	if n := v.opened.Load(); n < int64(came) {
		s.check.Violate("only %d of %d connections whose message never ends were opened", n, came)
	}
	if longest > slowMost {
		s.check.Violate("a connection whose message never ends was suffered for %v; %v is the most", longest.Round(time.Second), slowMost)
	}
}

// dribble keeps a connection open whose message never ends.
func (s *strangers) dribble(ctx context.Context, address, start string) {
	d := net.Dialer{LocalAddr: strangerSource, Timeout: strangerWait}
	for ctx.Err() == nil {
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			_ = sleep(ctx, strangerPause)
			continue
		}
		s.slow.opened.Add(1)
		began := s.now()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, c) // until somebody closes it
		}()
		stop := context.AfterFunc(ctx, func() { c.Close() })
		_, err = io.WriteString(c, start)
		for err == nil && sleep(ctx, slowEvery) == nil {
			select {
			case <-gone:
				err = net.ErrClosed
			default:
				_, err = c.Write([]byte{'x'})
			}
		}
		stop()
		c.Close()
		<-gone
		s.slow.ended(s.now()-began, ctx.Err() == nil)
		_ = sleep(ctx, strangerPause)
	}
}
