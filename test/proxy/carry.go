package proxy

import (
	"io"
	"net"
	"time"
)

// chunk is what was read at once, and when it may arrive.
type chunk struct {
	data []byte
	read time.Time
}

// carry moves bytes one way until its source ends, then ends the destination's
// input, so that a half-closed connection stays one.
func (l *link) carry(from, to net.Conn, out bool) {
	queue := make(chan chunk, chunksKept)
	l.p.all.Go(func() {
		defer close(queue)
		for {
			buf := make([]byte, chunkBytes)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case queue <- chunk{buf[:n], time.Now()}:
				case <-l.ended:
					return
				}
			}
			if err != nil {
				if err != io.EOF { //nolint:errorlint // Read returns it bare
					l.end(true) // the other end shall see the reset too
				}
				return
			}
		}
	})
	for c := range queue {
		if !l.due(c, out) {
			return
		}
		if _, err := to.Write(c.data); err != nil {
			l.end(true)
			return
		}
	}
	if l.await(func(r Rule) bool { return !r.held(out) }) {
		_ = to.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // both ends are TCP; an end that went needs no word
	}
}

// due waits until the chunk may arrive. False: the connection has ended.
func (l *link) due(c chunk, out bool) bool {
	for {
		if !l.await(func(r Rule) bool { return !r.held(out) }) {
			return false
		}
		r, changed := l.p.rule(l.name)
		wait := time.Until(c.read.Add(r.Delay))
		if wait <= 0 && !r.held(out) {
			return true
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-changed:
		case <-l.ended:
		}
		t.Stop()
	}
}

// await waits until the rule is as it shall be. False: the connection has ended.
func (l *link) await(free func(Rule) bool) bool {
	for {
		r, changed := l.p.rule(l.name)
		select {
		case <-l.ended:
			return false
		default:
		}
		if free(r) {
			return true
		}
		select {
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}

// end closes both ends, with a reset if asked.
func (l *link) end(reset bool) {
	l.once.Do(func() {
		l.p.mu.Lock()
		close(l.ended) // with the lock, so that no target is added after
		target := l.target
		l.p.mu.Unlock()
		for _, conn := range []net.Conn{l.dialer, target} {
			if tcp, ok := conn.(*net.TCPConn); ok {
				if reset {
					_ = tcp.SetLinger(0) // or it ends in order
				}
				_ = tcp.Close()
			}
		}
	})
}
