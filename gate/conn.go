package gate

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/incumbent-dev/incumbent/rawio"
)

// The stages of a connection; see the package comment.
type stage uint8

const (
	silent stage = iota
	waiting
	served
	proven
	gone
)

// Conn is a connection that came through a gate.
type Conn struct {
	net.Conn
	gate   *Gate
	remote net.Addr // as a proxy has said; nil: the connection's own

	// Of whoever waits for the first bytes, then of the reader.
	proxied bool            // a proxy's
	told    bool            // its header was read
	header  []byte          // as far as it has come
	behind  netip.AddrPort  // who is behind the proxy
	spare   []byte          // read and not used; only where there is no epoll
	raw     syscall.RawConn // and where there is
	fd      int32
	watched bool
	secure  bool // begins with a handshake of TLS: whoever ends their side then has gone

	sure  atomic.Bool // proven
	holds atomic.Bool // something is given back with the connection
	visit atomic.Pointer[Visit]
	kept  atomic.Pointer[any]

	// Under gate.mu.
	stage  stage
	over   bool   // in a reserved place
	since  uint32 // tick in which the stage began; of who waits, that of the one before
	spoke  uint32 // tick in which it began to wait
	source *source
	links  [numLists]link
	give   func() // gives back what the connection holds; nil: nothing
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.spare) > 0 {
		n := copy(p, c.spare)
		c.spare = c.spare[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.end()
	return c.Conn.Close()
}

// CloseWrite ends the sending side, where the connection can.
func (c *Conn) CloseWrite() error { return rawio.CloseWrite(c.Conn) }

// RemoteAddr is where the connection comes from: of a proxy's, as the proxy says.
func (c *Conn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

// NetConn is the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// SyscallConn is the descriptor.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawio.Raw(c.Conn) }

// prove is [Prove] of the connection itself.
func (c *Conn) prove(operator bool) bool {
	if c.sure.Load() {
		return true
	}
	g := c.gate
	most, why := g.most()
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.stage == proven || c.stage == gone {
		return true // who is gone finds out
	}
	if c.over && !operator {
		if g.has() >= most {
			g.count(why, c.source.address)
			return false
		}
		c.over = false
		g.over--
	}
	over := c.over
	c.over = false // leave would give the place back
	g.leave(c)
	c.over, c.stage = over, proven
	g.proven++
	c.sure.Store(true)
	return true
}

// end is leave of a connection that is over.
func (c *Conn) end() {
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.stage == served {
		c.visit.Load().Ended()
	}
	g.leave(c)
	c.letGo()
}

func (c *Conn) leave() {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	c.gate.leave(c)
	c.letGo()
}

// letGo gives back what the connection holds. mu is held: what is called does not block.
func (c *Conn) letGo() {
	if c.give != nil {
		c.give()
		c.give = nil
	}
}

// Holds reports whether the connection holds something.
func (c *Conn) Holds() bool { return c.holds.Load() }

// Hold has the connection hold something until it ends or leaves: then give is called,
// which must not block. It is false if it holds something already, or has ended.
func (c *Conn) Hold(give func()) bool {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if c.stage == gone || c.give != nil {
		return false
	}
	c.give = give
	c.holds.Store(true)
	return true
}

// TakeOver returns what gives back what the connection holds, for whoever holds it from
// now on. It is never nil.
func (c *Conn) TakeOver() (give func()) {
	if c == nil {
		return func() {}
	}
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	give = c.give
	c.give = nil
	c.holds.Store(false)
	if give == nil {
		return func() {}
	}
	return give
}

// hangUp closes without a farewell, so that nothing of a stranger stays behind: not
// even the kernel's memory of it.
func (c *Conn) hangUp() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails when closed
	}
	c.Conn.Close()
}

// named counts a connection by the address that a proxy has named, if it has. mu is
// held.
func (g *Gate) named(c *Conn) {
	if !c.told || c.remote != nil || !c.behind.IsValid() {
		return // the proxy itself may look whether we are there
	}
	c.remote = net.TCPAddrFromAddrPort(c.behind)
	g.disown(c)
	g.own(c, counted(c.behind.Addr()))
}

// Of finds the connection that came through a gate below TLS and whatever else has
// NetConn; nil if there is none.
func Of(c net.Conn) *Conn { return rawio.Below[*Conn](c) }

// Prove says that whoever has a connection has shown who it is. It is false if there
// is no place for another, which for operators there is: then the connection must be
// closed. Of a connection that came through no gate it is true.
func Prove(c net.Conn, operator bool) bool {
	found := Of(c)
	return found == nil || found.proves(operator)
}

func (c *Conn) proves(operator bool) bool {
	placed := c.prove(operator)
	if placed {
		c.visit.Load().Proved()
	}
	return placed
}

// Welcome is [Prove] of somebody who needs no proof there: the place is the same, and
// the visit goes on, to be judged by whether they stay.
func Welcome(c net.Conn) (visit *Visit, placed bool) {
	found := Of(c)
	if found == nil {
		return nil, true
	}
	return found.visit.Load(), found.prove(false)
}

// Leave says that the connection, which is proven, is counted by somebody else from
// now on: [Config.Parked].
func Leave(c net.Conn) { HandOver(c).Proved() }

// HandOver is [Leave] of a connection that has proven nothing yet: who counts it from now
// on says what came of the visit.
func HandOver(c net.Conn) *Visit {
	found := Of(c)
	if found == nil {
		return nil
	}
	found.leave()
	return found.visit.Load()
}

type contextKey struct{}

// NewContext returns a context that knows the connection of a request.
func NewContext(ctx context.Context, c net.Conn) context.Context {
	if found := Of(c); found != nil {
		return context.WithValue(ctx, contextKey{}, found)
	}
	return ctx
}

// FromContext returns the connection of a request; nil if it came through no gate.
func FromContext(ctx context.Context) *Conn {
	c, _ := ctx.Value(contextKey{}).(*Conn)
	return c
}

// Kept is what a door keeps with the connection: what first returns, from when it is first asked for.
// It may be asked for from any goroutine; then first may be called more than once.
func (c *Conn) Kept(first func() any) any {
	if kept := c.kept.Load(); kept != nil {
		return *kept
	}
	made := first()
	c.kept.CompareAndSwap(nil, &made)
	return *c.kept.Load()
}

// ProveRequest is [Prove] of the connection of a request.
func ProveRequest(ctx context.Context, operator bool) bool {
	c := FromContext(ctx)
	return c == nil || c.proves(operator)
}

// Proxied reports whether the connection of a request was passed on by a proxy that
// is believed: who is behind it is not on this machine, whatever the addresses say.
func Proxied(ctx context.Context) bool {
	c := FromContext(ctx)
	return c != nil && c.proxied
}
