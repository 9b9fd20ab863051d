package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/door/native"
	"github.com/incumbent-dev/incumbent/rawio"
)

// Before an expiry is proposed, all that had arrived is heard: see [lease.Options].
// Of parked connections park knows what has arrived. Here it is found out for
// those that net/http has, over which calls come that extend: an extension is
//
//	in the socket ─▶ read ─▶ in a buffer ─▶ a request that begins ─▶ its handler ─▶ handed to the lease loop
//
// and a connection is clean when nothing of it can be in between:
//
//   - All bytes that the socket held when the barrier began were taken out, and
//     whoever takes them out has asked for more since. Both are counted in one step
//     with the read itself, so nothing is neither here nor there. Who asks for more
//     has used all it had: crypto/tls has no whole record, HTTP/2 has dispatched
//     each frame, HTTP/1.1 has no whole request; or it has one and listens for the
//     client's going away, and then the connection is active, which net/http says
//     before it asks.
//   - Over HTTP/1.1 as many handlers have begun as requests were announced. Over
//     HTTP/2 nobody says how many there are to begin: while any stream is open, some
//     looks must have passed since.
//   - No handler of a call that extends is still reading, checking or handing on.
//
// Half a request would keep a connection from being clean for as long as its client
// likes, and so would one that HTTP/1.1 must not read before the answer to another.
// So nothing is waited for longer than [mostLooks]. Looks are counted, not time: a
// member that stood still has all of them yet to come when it goes on, and each
// of them waits for its turn among the same goroutines as what it looks for.
const (
	lookEvery  = 10 * time.Millisecond
	mostLooks  = 25 // a quarter of a second, by which an expiry may be late for half a request
	startLooks = 2  // in which a goroutine that HTTP/2 has started comes to its turn
)

// arrivals are the connections that net/http has.
type arrivals struct {
	after func(time.Duration, func()) // time.AfterFunc, or a test's

	mu    sync.Mutex // guards conns; held to copy it
	conns map[*arrival]struct{}
}

func newArrivals() *arrivals {
	return &arrivals{
		after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		conns: make(map[*arrival]struct{}),
	}
}

// arrival is a connection of which is known what of it has arrived. Its reads are
// net/http's, one at a time.
type arrival struct {
	net.Conn
	kernel *rawio.Reader // nil: nobody can know what has arrived

	mu      sync.Mutex // guards the rest; held across a read that does not block
	read    uint64     // bytes taken out of the kernel
	asked   uint64     // of these, when more was asked for last
	gone    bool       // net/http has it no more
	active  bool       // has a request without an answer
	http2   bool
	begun   uint64 // requests that HTTP/1.1 has announced
	entered uint64 // handlers that have begun
	unheard int    // of those, calls that may still hand on an extension
}

// listen makes the connections of a listener known.
func (s *arrivals) listen(inner net.Listener) net.Listener { return &arrivalListener{inner, s} }

type arrivalListener struct {
	net.Listener
	arrivals *arrivals
}

// Accept implements net.Listener.
func (l *arrivalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.arrivals.add(c), nil
}

func (s *arrivals) add(c net.Conn) *arrival {
	a := &arrival{Conn: c}
	a.kernel = rawio.NewReader(c, &a.mu, &a.read)
	s.mu.Lock()
	s.conns[a] = struct{}{}
	s.mu.Unlock()
	return a
}

// Read implements net.Conn.
func (a *arrival) Read(p []byte) (int, error) {
	a.mu.Lock()
	a.asked = a.read
	a.mu.Unlock()
	if a.kernel == nil {
		n, err := a.Conn.Read(p)
		a.mu.Lock()
		a.read += uint64(n)
		a.mu.Unlock()
		return n, err
	}
	return a.kernel.Read(p)
}

// NetConn is the connection below.
func (a *arrival) NetConn() net.Conn { return a.Conn }

// SyscallConn is the descriptor, for park.
func (a *arrival) SyscallConn() (syscall.RawConn, error) { return rawio.Raw(a.Conn) }

// CloseWrite ends the sending side, where the connection can.
func (a *arrival) CloseWrite() error { return rawio.CloseWrite(a.Conn) }

// connState is for http.Server.ConnState.
func (s *arrivals) connState(c net.Conn, state http.ConnState) {
	a := rawio.Below[*arrival](c)
	if a == nil {
		return
	}
	a.mu.Lock()
	a.active = state == http.StateActive
	switch state {
	case http.StateActive:
		a.begun++
	case http.StateIdle:
		a.begun = a.entered // net/http answers some by itself
	}
	a.gone = state == http.StateClosed || state == http.StateHijacked
	gone := a.gone
	a.mu.Unlock()
	if gone {
		s.mu.Lock()
		delete(s.conns, a)
		s.mu.Unlock()
	}
}

type arrivalKey struct{}

// connContext is for http.Server.ConnContext.
func (*arrivals) connContext(ctx context.Context, c net.Conn) context.Context {
	if a := rawio.Below[*arrival](c); a != nil {
		return context.WithValue(ctx, arrivalKey{}, a)
	}
	return ctx
}

// hear notes each request, and when what it may extend has been handed on.
func (*arrivals) hear(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := r.Context().Value(arrivalKey{}).(*arrival)
		if !ok {
			h.ServeHTTP(w, r)
			return
		}
		if !a.enter(r) {
			h.ServeHTTP(w, r)
			return
		}
		heard := sync.OnceFunc(a.heard)
		defer heard()
		h.ServeHTTP(w, r.WithContext(native.WithHeard(r.Context(), heard)))
	})
}

// enter notes that a handler has begun, and reports whether it may extend.
func (a *arrival) enter(r *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entered++
	a.http2 = r.ProtoMajor > 1
	switch r.URL.Path {
	case incumbentv1connect.LeaseServiceExtendProcedure, incumbentv1connect.LeaseServiceClaimProcedure, incumbentv1connect.LeaseServiceBatchProcedure,
		incumbentv1connect.CatalogServiceUpdateCheckProcedure:
		a.unheard++
		return true
	}
	return false
}

func (a *arrival) heard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unheard--
}

// listening is a barrier under way.
type listening struct {
	arrivals *arrivals
	done     func()
	looks    int
	left     map[*arrival]*owed // connections that were not clean yet
}

// owed is what a barrier waits for on one connection.
type owed struct {
	target uint64 // bytes that had arrived when it began
	used   int    // looks since these were used
}

// Barrier calls done, once and on a goroutine of its own, when what had arrived by
// calls before was handed to the lease loop.
func (s *arrivals) Barrier(done func()) {
	go func() { // to ask the kernel of each connection takes about a microsecond
		h := &listening{arrivals: s, done: done, left: make(map[*arrival]*owed)}
		s.mu.Lock()
		conns := make([]*arrival, 0, len(s.conns))
		for a := range s.conns {
			conns = append(conns, a)
		}
		s.mu.Unlock()
		for _, a := range conns {
			if o := a.owes(); !a.clean(o) {
				h.left[a] = o
			}
		}
		h.look()
	}()
}

// look ends the barrier if all connections are clean, or it has lasted long enough.
func (h *listening) look() {
	for a, o := range h.left {
		if a.clean(o) {
			delete(h.left, a)
		}
	}
	if len(h.left) == 0 || h.looks == mostLooks {
		h.done()
		return
	}
	h.looks++
	h.arrivals.after(lookEvery, h.look)
}

// owes returns what a barrier that begins now waits for.
func (a *arrival) owes() *owed {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &owed{target: a.read}
	if a.kernel != nil {
		n, _ := a.kernel.Arrived() // a connection that was closed holds nothing more
		o.target += n
	}
	return o
}

// clean reports whether nothing that had arrived is still on its way. It is called
// once for each look.
func (a *arrival) clean(o *owed) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.gone || a.kernel == nil:
		return true
	case a.asked < o.target:
		return false
	case a.unheard > 0:
		return false
	case !a.active:
		return true
	case !a.http2:
		return a.entered >= a.begun
	}
	o.used++
	return o.used > startLooks
}
