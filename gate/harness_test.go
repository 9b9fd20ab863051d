package gate

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a listener in memory whose connections come from any address.
type wire struct {
	conns chan net.Conn
	once  sync.Once
	over  chan struct{}
}

func newWire() *wire { return &wire{conns: make(chan net.Conn), over: make(chan struct{})} }

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.over:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.over) })
	return nil
}

func (*wire) Addr() net.Addr { return &net.TCPAddr{} }

// from is one end of a pipe that says where it comes from.
type from struct {
	net.Conn
	at netip.AddrPort
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(f.at) }

// rig is a gate before a wire, in virtual time. What it lets in arrives in order.
type rig struct {
	t    *testing.T
	wire *wire
	gate *Gate
	in   chan *Conn
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	cfg.portable = true
	r := &rig{t: t, wire: newWire(), in: make(chan *Conn, 1000)}
	r.gate = New(r.wire, cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := r.gate.Accept()
			if err != nil {
				return
			}
			r.in <- c.(*Conn)
		}
	}()
	t.Cleanup(func() {
		r.gate.Close()
		<-done
		close(r.in)
		for c := range r.in {
			c.Close()
		}
		synctest.Wait()
	})
	return r
}

// dial connects from an address.
func (r *rig) dial(address string) net.Conn {
	r.t.Helper()
	near, far := net.Pipe()
	r.t.Cleanup(func() { near.Close() })
	r.wire.conns <- from{far, netip.AddrPortFrom(netip.MustParseAddr(address), 1)}
	synctest.Wait()
	return near
}

// speak connects and says something.
func (r *rig) speak(address string) net.Conn {
	r.t.Helper()
	c := r.dial(address)
	r.say(c, "x")
	return c
}

func (r *rig) say(c net.Conn, text string) {
	go func() { _, _ = io.WriteString(c, text) }()
	synctest.Wait()
}

// next is who was let in; nil if nobody.
func (r *rig) next() *Conn {
	synctest.Wait()
	select {
	case c := <-r.in:
		return c
	default:
		return nil
	}
}

// looked is how many addresses were looked at to find who is next.
func (r *rig) looked() uint64 {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	return r.gate.looked
}

func (r *rig) mustLetIn() *Conn {
	r.t.Helper()
	c := r.next()
	if c == nil {
		r.t.Fatalf("nobody was let in: %+v", r.gate.Stats())
	}
	return c
}

// open reports whether a connection is open: nothing was sent to it.
func open(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Unix(1, 0))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func wait(ticks uint32) {
	time.Sleep(time.Duration(ticks) * tickEvery)
	synctest.Wait()
}

func play(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// outOf are errors of accept that pass.
var outOf = []error{syscall.EMFILE, syscall.ENFILE}

// ofOne are errors of accept that are about one connection.
var ofOne = []error{syscall.EPROTO, syscall.EPERM, syscall.ENETDOWN}

// failing is a listener that fails.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) == 0 {
		return nil, net.ErrClosed
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, err
}
