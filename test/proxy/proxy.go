// Package proxy is a TCP proxy that fails on demand: it stands between members
// of a cluster, or between a client and a server, and delays, holds back or
// breaks what goes through it. For tests and the load tool.
//
// A connection has two ways: out, from who dialled to the target, and in, back.
// A way that is held loses nothing: TCP would send lost packets again, so that
// bytes arrive late and in order once it is free, or never if an end gives up
// before. While either way of a new connection is held, the target is not
// dialled, as no handshake would come through.
//
// # Concurrency
//
// All methods may be called from any goroutine.
package proxy

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Limits of a connection.
const (
	chunkBytes  = 32 << 10        // read at once
	chunksKept  = 64              // delayed or held at most, each way: then the sender's window fills
	dialTimeout = 5 * time.Second // to the target
)

// Config says where a proxy stands. Target is required.
type Config struct {
	// Listen is the address to accept on; "": a free port of 127.0.0.1.
	Listen string
	// Target is the address connections are forwarded to.
	Target string
	// Name tells who dialled, from the address a connection comes from, so that
	// a rule can be for one dialler only. nil: all are "".
	Name func(remote net.Addr) string
}

// Rule is what happens to connections. The zero value forwards at once.
type Rule struct {
	Delay           time.Duration // each way, for every byte
	HoldOut, HoldIn bool          // nothing arrives that way
	Refuse          bool          // new connections are closed at once
}

func (r Rule) held(out bool) bool { return out && r.HoldOut || !out && r.HoldIn }

// Proxy forwards connections to one target.
type Proxy struct {
	cfg Config
	ln  net.Listener
	all sync.WaitGroup // accepting, and every connection

	mu      sync.Mutex // protects the rest, held for map operations
	general Rule
	rules   map[string]Rule // by dialler, in place of the general one
	changed chan struct{}   // closed when a rule changes
	links   map[*link]bool
	closed  bool
}

// link is one connection through the proxy.
type link struct {
	p      *Proxy
	name   string
	dialer net.Conn
	target net.Conn // nil until it is dialled
	ended  chan struct{}
	once   sync.Once
}

// Open starts a proxy.
func Open(cfg Config) (*Proxy, error) {
	if cfg.Target == "" {
		return nil, errors.New("no target")
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, ln: ln, rules: make(map[string]Rule), changed: make(chan struct{}), links: make(map[*link]bool)}
	p.all.Go(p.accept)
	return p, nil
}

// Addr is where the proxy accepts.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Set makes the rule that of all connections, open ones and new ones, and
// forgets the rules of single diallers.
func (p *Proxy) Set(r Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.general = r
	clear(p.rules)
	p.tell()
}

// SetFor makes the rule that of the connections one dialler has and will open.
func (p *Proxy) SetFor(name string, r Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules[name] = r
	p.tell()
}

// tell wakes all that wait for another rule. Held: p.mu.
func (p *Proxy) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Reset breaks all open connections: both ends see a reset.
func (p *Proxy) Reset() {
	for _, l := range p.open() {
		l.end(true)
	}
}

// Links is how many connections are open.
func (p *Proxy) Links() int { return len(p.open()) }

func (p *Proxy) open() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*link
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

// Close stops accepting, ends all connections and waits for them.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.ln.Close()
	for _, l := range p.open() {
		l.end(false)
	}
	p.all.Wait()
	return err
}

// rule is what holds for a dialler now, and a channel that closes when that may
// change.
func (p *Proxy) rule(name string) (Rule, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.rules[name]; ok {
		return r, p.changed
	}
	return p.general, p.changed
}

func (p *Proxy) accept() {
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		p.all.Go(func() { p.serve(conn) })
	}
}

func (p *Proxy) serve(conn net.Conn) {
	l := &link{p: p, dialer: conn, ended: make(chan struct{})}
	defer l.end(false)
	if p.cfg.Name != nil {
		l.name = p.cfg.Name(conn.RemoteAddr())
	}
	if r, _ := p.rule(l.name); r.Refuse || !p.add(l) {
		return
	}
	defer p.remove(l)
	if !l.await(func(r Rule) bool { return !r.HoldOut && !r.HoldIn }) {
		return
	}
	target, err := net.DialTimeout("tcp", p.cfg.Target, dialTimeout)
	if err != nil {
		l.end(true)
		return
	}
	defer target.Close()
	if !l.reached(target) {
		_ = target.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // dialled as TCP; it was broken off before it began
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.carry(conn, target, true) })
	both.Go(func() { l.carry(target, conn, false) })
	both.Wait()
}

// reached gives the link its other end, unless it has ended meanwhile.
func (l *link) reached(target net.Conn) bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	select {
	case <-l.ended:
		return false
	default:
	}
	l.target = target
	return true
}

// add reports whether the proxy is still open.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = true
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
