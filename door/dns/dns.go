// Package dns is the door for who looks services and nodes of the catalog up by DNS,
// by the names that Consul's users know (docs/protocols/consul.md).
//
//	datagram or connection ─ limit ─ parse ─ resolve: a view of the catalog → records ─ fit: into the size there is ─ write
//
// It answers for one domain, and for the reverse of addresses that the catalog has.
// It never asks another server: what is not its own is REFUSED.
//
// # Invariants
//
//   - An answer over UDP is at most [MaxDatagram] bytes, and 512 where the question
//     does not say that more may come. An address, or its network, is answered no
//     more often than [Config.Rate] says: beyond that, every other answer is an empty
//     one that says to come by TCP, and the others are not sent.
//   - A critical instance is in no answer.
//   - A member whose view is older than [Config.MaxAge] answers SERVFAIL.
//
// # Concurrency
//
// Questions over UDP are answered on a few goroutines that read from the socket in
// turn; none is made for a question. Each connection over TCP has one.
package dns

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/incumbent-dev/incumbent"
)

// Limits and defaults of [Config].
const (
	MaxDatagram        = 1232 // bytes of an answer over UDP: no network splits it (DNS flag day 2020)
	DefaultDomain      = "consul"
	DefaultDatacenter  = "dc1"
	DefaultUDPAnswers  = 3     // records in an answer to who does not say what size it takes
	DefaultRate        = 2_000 // answers over UDP in a second to one network
	DefaultMaxAge      = time.Hour
	maxTTL             = 7 * 24 * time.Hour
	maxAnswers         = 5_000 // records of an answer over TCP
	readers            = 4     // goroutines that answer over UDP
	maxQuestion        = 1 << 10
	idleTimeout        = 10 * time.Second // of a connection
	writeTimeout       = 5 * time.Second
	questionsInOneGo   = 1_000 // on one connection, which then closes
	maxConfiguredNames = 1_000 // services with a ttl of their own
)

// Config is what the door is made of. Names is required.
type Config struct {
	// Names returns the catalog as it is known now, and how old that may be.
	Names func() (Names, time.Duration)

	Domain     string // DefaultDomain
	Datacenter string // DefaultDatacenter

	NodeTTL    time.Duration            // of records of nodes
	ServiceTTL map[string]time.Duration // by name; "web*" is all that begin so, "*" all others; 0 where none fits

	OnlyPassing bool          // leave instances out that warn, too
	UDPAnswers  int           // 0: DefaultUDPAnswers; negative: as many as fit
	MaxAge      time.Duration // of what is answered from; 0: DefaultMaxAge
	Rate        int           // 0: DefaultRate; negative: any

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: none
	// Shuffle puts n things into another order; nil: at random.
	Shuffle func(n int, swap func(i, j int))
}

// Validate returns an Invalid error that says what is wrong.
func (c *Config) Validate() error {
	switch {
	case c.Names == nil:
		return invalid("Names is missing")
	case c.NodeTTL < 0 || c.NodeTTL > maxTTL:
		return invalid("a ttl of nodes of %v is outside 0s to %v", c.NodeTTL, maxTTL)
	case c.MaxAge < 0:
		return invalid("an age of %v is below 0", c.MaxAge)
	case len(c.ServiceTTL) > maxConfiguredNames:
		return invalid("more than %d services have a ttl of their own", maxConfiguredNames)
	}
	for name, ttl := range c.ServiceTTL {
		if ttl < 0 || ttl > maxTTL {
			return invalid("a ttl of %s of %v is outside 0s to %v", name, ttl, maxTTL)
		}
	}
	if _, ok := dns.IsDomainName(c.Domain); !ok || strings.Contains(c.Domain, "..") {
		return invalid("%q is no domain", c.Domain)
	}
	if labels, ok := dns.IsDomainName(c.Datacenter); !ok || labels != 1 {
		return invalid("%q is no datacenter: it is one label of a name", c.Datacenter)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return incumbent.Errorf(incumbent.Invalid, "dns: "+format, args...)
}

// Door answers questions.
type Door struct {
	cfg     Config
	zone    string // the domain, fully qualified and in lower case
	limiter *limiter
	counts  counts

	mu      sync.Mutex // protects what follows; held for moments
	closed  bool
	closers map[interface{ Close() error }]struct{}
	serving sync.WaitGroup
}

// New returns a door that listens nowhere yet. The error is Invalid.
func New(cfg Config) (*Door, error) {
	if cfg.Domain == "" {
		cfg.Domain = DefaultDomain
	}
	if cfg.Datacenter == "" {
		cfg.Datacenter = DefaultDatacenter
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.UDPAnswers == 0 {
		cfg.UDPAnswers = DefaultUDPAnswers
	}
	if cfg.Rate == 0 {
		cfg.Rate = DefaultRate
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = DefaultMaxAge
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Shuffle == nil {
		cfg.Shuffle = rand.Shuffle
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Datacenter = strings.ToLower(cfg.Datacenter)
	return &Door{
		cfg: cfg, zone: strings.ToLower(dns.Fqdn(cfg.Domain)), limiter: newLimiter(cfg.Rate),
		closers: map[interface{ Close() error }]struct{}{},
	}, nil
}

// open takes something that Close closes; false: the door is closed.
func (d *Door) open(c interface{ Close() error }) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.closers[c] = struct{}{}
	d.serving.Add(1)
	return true
}

func (d *Door) done(c interface{ Close() error }) {
	_ = c.Close() // nobody is left to tell
	d.mu.Lock()
	delete(d.closers, c)
	d.mu.Unlock()
	d.serving.Done()
}

// Close closes sockets and connections, and waits until nobody is answered any more,
// or ctx ends.
func (d *Door) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	for c := range d.closers {
		_ = c.Close()
	}
	d.mu.Unlock()
	gone := make(chan struct{})
	go func() { d.serving.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServeUDP answers datagrams until the door or the socket is closed.
func (d *Door) ServeUDP(pc *net.UDPConn) error {
	if !d.open(pc) {
		return net.ErrClosed
	}
	defer d.done(pc)
	askDestination(pc)
	errs := make(chan error, readers)
	for range readers {
		go func() { errs <- d.datagrams(pc) }()
	}
	var first error
	for range readers {
		if err := <-errs; err != nil && first == nil {
			first = err
			_ = pc.Close() // the others end
		}
	}
	if errors.Is(first, net.ErrClosed) {
		return nil
	}
	return first
}

// datagrams answers one datagram after the other.
func (d *Door) datagrams(pc *net.UDPConn) error {
	in := make([]byte, maxQuestion)
	for {
		n, from, err := dns.ReadFromSessionUDP(pc, in)
		if err != nil {
			switch {
			case passing(err):
			case outOfMemory(err):
				time.Sleep(memoryPause)
			default:
				return err
			}
			continue
		}
		verdict := d.limiter.take(addressOf(from.RemoteAddr()), d.cfg.Now())
		if verdict == drop {
			d.counts.limited[drop].Add(1)
			continue
		}
		out := d.answer(in[:n], true, verdict)
		if out == nil {
			continue
		}
		if _, err := dns.WriteToSessionUDP(pc, out, from); err != nil && errors.Is(err, net.ErrClosed) {
			return err
		}
		d.counts.bytes.Add(uint64(len(out)))
	}
}

// passing reports whether a read may succeed again.
func passing(err error) bool {
	var n net.Error
	return !errors.Is(err, net.ErrClosed) && (errors.As(err, &n) && n.Timeout() || isRefused(err))
}

// outOfMemory reports that the system has no room for what a read or its datagram needs, or no
// network, which may be otherwise soon.
func outOfMemory(err error) bool {
	return errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENETDOWN)
}

// memoryPause is how long a reader of datagrams leaves the system alone then.
const memoryPause = 50 * time.Millisecond

// ServeTCP answers on connections until the door or the listener is closed. How many
// there are is the listener's to bound.
func (d *Door) ServeTCP(ln net.Listener) error {
	if !d.open(ln) {
		return net.ErrClosed
	}
	defer d.done(ln)
	for {
		c, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		if !d.open(c) {
			_ = c.Close()
			return nil
		}
		go func() {
			defer d.done(c)
			d.connection(c)
		}()
	}
}

// connection answers one question after the other.
func (d *Door) connection(nc net.Conn) {
	c := &dns.Conn{Conn: nc}
	for range questionsInOneGo {
		if nc.SetReadDeadline(time.Now().Add(idleTimeout)) != nil {
			return
		}
		in, err := c.ReadMsgHeader(nil)
		if err != nil {
			return
		}
		out := d.answer(in, false, send)
		if out == nil || nc.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return
		}
		if _, err := c.Write(out); err != nil {
			return
		}
		d.counts.bytes.Add(uint64(len(out)))
	}
}
