// Package gate guards a listener against those who have not shown who they are.
//
// Whoever connects is a stranger until the door behind the listener says
// otherwise ([Prove]), or takes the connection over ([Leave]). On the way there a
// connection passes these stages:
//
//	accepted ─▶ silent ──first byte──▶ waiting ──Accept──▶ unproven ──Prove──▶ proven
//	               │                      │                    │
//	               └──────────────────────┴────────────────────┴──▶ closed, with a Reason
//
// A silent connection costs a descriptor and a few hundred bytes: no goroutine and
// no buffer on Linux, where one epoll set watches all of a listener. It has
// [Config.FirstByte] to say something. A waiting one costs as little. Only unproven
// ones have goroutines, buffers and handshakes, and of these there are at most
// [Config.Unproven]; the others wait for a place, the addresses they come from
// taking turns.
//
// An address is an IPv4 address, or the /64 of an IPv6 address. No address is
// refused for what it sends: fifteen thousand agents may come from one. But no
// address has more than three quarters of the unproven places, and who makes room
// when there is none is the oldest of the address that has the most, never one of an
// address that has no more than whoever wants in. Where many of an address are served
// and prove nothing, the next ones wait: see [Pace].
//
// A proven connection never makes room for another. When all of [Config.Max] are
// proven, who comes is closed, but for [Config.Reserved] places beyond it, for
// operators. So it is while the process is short of file descriptors ([Config.Few]), whoever
// has them: without one the log cannot begin its next file.
//
// Behind a proxy that passes connections on, all come from one address. Such a
// proxy says in front of each connection where it comes from (PROXY protocol,
// versions 1 and 2, https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt).
// It is believed of the addresses that are named ([Config.Proxies]), and must be
// there then; of all others it is bytes like any.
//
// # Invariants
//
//   - A connection is in one stage. It is counted by its address while it is not
//     proven, and by nobody once it has left.
//   - Who is proven is never closed to make room.
//   - Time is counted in ticks that were really handled: a process that stood still
//     closes nobody for that.
//
// # Concurrency
//
// All methods may be called from any goroutine. Gate.mu guards the books; it is
// held for a few dozen steps and for system calls that do not block, never across
// reads or writes.
package gate

import (
	"cmp"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of [Config], and what is of no interest to an operator.
const (
	DefaultMax       = 16_000           // connections at once
	DefaultUnproven  = 512              // of them, served and not proven
	DefaultFirstByte = 10 * time.Second // from accept to the first byte

	tickEvery     = 250 * time.Millisecond
	oneSecond     = uint32(time.Second / tickEvery) // in ticks
	youngest      = oneSecond                       // who has less does not make room for another address
	patience      = 3 * oneSecond                   // nor has this long been served while its own address waits
	weary         = patience * 3 / 4                // who has waited this long for the pace may be closed
	wearyPart     = 64                              // of those who wait, one part in so many at a time
	sharePercent  = 75                              // of the unproven places, for one address
	reservedATick = 8                               // strangers that may try for a reserved place
	mostLooks     = 64                              // addresses asked for somebody who makes room
	acceptPause   = 50 * time.Millisecond           // when there is no descriptor left, or a connection could not be taken
	stormFrom     = 50                              // strangers closed in stormWindow that are worth a line in the log
	stormWindow   = 10 * oneSecond
)

// Config configures a [Gate]. Zero fields mean the defaults.
type Config struct {
	Name      string         // of the listener, for the log
	Max       int            // connections at once, whoever has them; DefaultMax
	Unproven  int            // of them, served and not proven; DefaultUnproven
	Reserved  int            // places beyond Max, for operators
	FirstByte time.Duration  // from accept to the first byte; DefaultFirstByte
	Proxies   []netip.Prefix // whose PROXY header is believed, and wanted
	Pace      *Pace          // of all listeners of the member; nil: nobody waits for what others failed to prove
	// Parked is how many proven connections have left and are still open; nil: none.
	Parked func() int
	// Few reports whether the process is short of file descriptors; nil: never. It is asked for
	// each connection that is accepted.
	Few    func() bool
	Logger *slog.Logger // nil: none

	after    func(time.Duration, func()) // time.AfterFunc, or a test's
	rest     func(time.Duration)         // time.Sleep, or a test's
	portable bool                        // of tests: watch as where there is no epoll
}

// Reason is why a stranger was closed.
type Reason uint8

// The reasons.
const (
	Silent        Reason = iota // nothing was said in time
	MadeRoom                    // another came, and this one was the oldest of the address that had the most
	Full                        // everybody else is proven
	BadProxy                    // a proxy did not say where the connection comes from
	NoDescriptors               // the process or the machine has none left
	Failing                     // others of its address prove nothing, and more wait than are served in time
	NumReasons
)

// String returns the reason's name, as in metrics.
func (r Reason) String() string {
	return [NumReasons]string{"silent", "made_room", "full", "bad_proxy", "no_descriptors", "failing"}[r]
}

// Gate is a listener whose connections have said something.
type Gate struct {
	inner net.Listener
	cfg   Config
	max   atomic.Int64
	begin sync.Once

	mu       sync.Mutex // guards what follows
	turn     sync.Cond  // somebody may be let in, or the gate is closed
	watcher  watcher
	now      uint32 // ticks handled
	ticking  bool
	pausing  bool // until the pace lets somebody in
	silent   list // oldest first
	unproven list // being served, oldest first
	ready    int  // waiting
	proven   int
	over     int // in reserved places
	tried    int // for a reserved place, in this tick
	sources  map[netip.Addr]*source
	ranks    []rank // sources by how many connections they have
	turns    turns  // of sources that have somebody waiting
	looked   uint64 // sources that next has looked at, for tests
	closed   [NumReasons]uint64
	storm    storm
	doomed   []*Conn // to be closed when mu is given back
	err      error   // why nobody comes any more
}

// New returns a gate before a listener. Connections are accepted from the first
// call of Accept on.
func New(inner net.Listener, cfg Config) *Gate {
	if cfg.Parked == nil {
		cfg.Parked = func() int { return 0 }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Few == nil {
		cfg.Few = func() bool { return false }
	}
	if cfg.after == nil {
		cfg.after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}
	if cfg.rest == nil {
		cfg.rest = time.Sleep
	}
	cfg.Unproven = cmp.Or(cfg.Unproven, DefaultUnproven)
	cfg.FirstByte = cmp.Or(cfg.FirstByte, DefaultFirstByte)
	g := &Gate{inner: inner, cfg: cfg, sources: make(map[netip.Addr]*source)}
	g.silent.which, g.unproven.which = ofStage, ofStage
	g.turn.L = &g.mu
	g.SetMax(cfg.Max)
	return g
}

// SetMax changes how many connections there may be; 0 means the default. Those that
// are there stay.
func (g *Gate) SetMax(most int) { g.max.Store(int64(cmp.Or(most, DefaultMax))) }

// SetStrangers changes how many are served before they have proven anything, and how
// long they may be silent before that. Those that are served stay.
func (g *Gate) SetStrangers(unproven int, firstByte time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg.Unproven, g.cfg.FirstByte = cmp.Or(unproven, DefaultUnproven), cmp.Or(firstByte, DefaultFirstByte)
	g.turn.Broadcast()
}

// Strangers returns what SetStrangers changes.
func (g *Gate) Strangers() (unproven int, firstByte time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cfg.Unproven, g.cfg.FirstByte
}

// Max is how many connections there may be.
func (g *Gate) Max() int { return int(g.max.Load()) }

// Addr implements net.Listener.
func (g *Gate) Addr() net.Addr { return g.inner.Addr() }

// Close implements net.Listener. Who has not been let in is closed.
func (g *Gate) Close() error {
	err := g.inner.Close()
	g.shut(net.ErrClosed)
	return err
}

// Accept implements net.Listener: it returns the next connection that has said
// something, a *Conn. It waits while there is no place for it.
func (g *Gate) Accept() (net.Conn, error) {
	g.begin.Do(g.start)
	g.mu.Lock()
	defer g.unlock()
	for g.err == nil {
		if c := g.next(); c != nil {
			return c, nil
		}
		g.turn.Wait()
	}
	return nil, g.err
}

func (g *Gate) start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return
	}
	g.watcher = each{g}
	if !g.cfg.portable {
		w, err := newWatcher(g)
		if err != nil {
			g.err = err
			return
		}
		g.watcher = w
	}
	go g.accept()
}

// accept takes connections until the listener is closed.
func (g *Gate) accept() {
	for {
		nc, err := g.inner.Accept()
		switch {
		case err == nil:
			g.meet(nc)
		case outOfDescriptors(err):
			g.exhausted()
			g.cfg.rest(acceptPause)
		case ofOneConnection(err):
			g.cfg.rest(acceptPause)
		default:
			g.shut(err)
			return
		}
	}
}

// meet gives a connection a place, or closes it.
func (g *Gate) meet(nc net.Conn) {
	c := &Conn{Conn: nc, gate: g}
	from := addressOf(nc.RemoteAddr())
	c.proxied = within(g.cfg.Proxies, from)
	most, why := g.most()
	if !g.admit(c, from, most, why) {
		nc.Close() // with a farewell: whoever has just dialed may not have noticed that it is through
	}
}

// most is how many there may be that are not parked, and for want of what no more.
func (g *Gate) most() (int, Reason) {
	if g.cfg.Few() {
		return 0, NoDescriptors
	}
	return g.Max() - g.cfg.Parked(), Full
}

// has is how many there are that are not parked, without those in reserved places.
func (g *Gate) has() int { return g.lenUnproven() + g.proven - g.over }

func (g *Gate) admit(c *Conn, from netip.Addr, most int, why Reason) bool {
	g.mu.Lock()
	defer g.unlock()
	if g.err != nil || !g.room(c, from, most, why) {
		return false
	}
	g.enter(c, from)
	g.watcher.watch(c)
	g.tickOn()
	return true
}

// unlock gives mu back and closes whom meanwhile was decided to be: a close may wait
// for whoever is about to read.
func (g *Gate) unlock() {
	doomed := g.doomed
	g.doomed = nil
	g.mu.Unlock()
	for _, c := range doomed {
		c.hangUp()
	}
}

// room finds a place for whoever comes from an address, at somebody else's cost if
// need be.
func (g *Gate) room(c *Conn, from netip.Addr, most int, why Reason) bool {
	if g.has() < most {
		return true
	}
	if v := g.victim(from); v != nil {
		g.drop(v, MadeRoom)
		return true
	}
	// A machine's own operators need no patience.
	paced := from.IsLoopback() || g.tried < reservedATick
	if g.over < g.cfg.Reserved && paced {
		g.tried++
		g.over++
		c.over = true
		return true
	}
	g.count(why, from)
	return false
}

// victim is who makes room: the oldest of the address that has the most. Nobody is
// who has only just come, unless that address has more than the one that wants in;
// then it is who has been silent for longest. Never is it somebody of an address that
// has no more than the one that wants in: who dials again and again would have the
// place of whoever takes long to show who it is.
func (g *Gate) victim(from netip.Addr) *Conn {
	own, has := g.sources[from], g.lenOf(from)
	looks := 0
	for n := len(g.ranks) - 1; n > has; n-- {
		for s := g.ranks[n].first; s != nil && looks < mostLooks; s = s.next {
			looks++
			if c := s.all.first; g.now-c.since >= youngest || has+1 < n {
				return c
			}
		}
	}
	if own != nil && g.now-own.all.first.since >= youngest {
		return own.all.first
	}
	if c := g.silent.first; c != nil && (c.source == own || c.source.all.n > has) {
		return c
	}
	return nil
}

func (g *Gate) lenUnproven() int { return g.silent.n + g.ready + g.unproven.n }

func (g *Gate) lenOf(from netip.Addr) int {
	if s := g.sources[from]; s != nil {
		return s.all.n
	}
	return 0
}

// exhausted makes room where descriptors are short.
func (g *Gate) exhausted() {
	g.mu.Lock()
	defer g.unlock()
	g.count(NoDescriptors, netip.Addr{})
	if v := g.victim(netip.Addr{}); v != nil {
		g.drop(v, MadeRoom)
	}
}

// next is who is let in next; nil if nobody waits, or none may. Of n addresses that wait
// it looks at no more than n, and at few where what keeps one out keeps out all: it runs
// each time somebody speaks or leaves.
func (g *Gate) next() *Conn {
	if g.turns.n == 0 {
		return nil
	}
	soonest := time.Duration(0)
	full := g.lookAround()
	for s := range g.turns.all() {
		g.looked++
		if full.forNew && s.served == 0 {
			continue
		}
		if d, all := g.cfg.Pace.wait(s.address); d > 0 {
			if soonest == 0 || d < soonest {
				soonest = d
			}
			if all {
				break
			}
			continue
		}
		if !g.place(s, full) {
			if s.served == 0 {
				full.forNew = true
				if !full.othersWait {
					break
				}
			}
			continue
		}
		if c := g.letIn(s); c != nil {
			return c
		}
		full = g.lookAround()
	}
	g.pause(soonest)
	return nil
}

// fullness is what next knows of the unproven while they have all places.
type fullness struct {
	busiest    *source // that has the most of them served, the first of equals; nil: there is a place
	oldest     *Conn   // of those
	othersWait bool    // of some source that has somebody served there are others waiting
	forNew     bool    // an address of which nobody is served finds no place: so does no other like it
}

func (g *Gate) lookAround() fullness {
	var f fullness
	if g.unproven.n < g.cfg.Unproven {
		return f
	}
	for c := g.unproven.first; c != nil; c = c.links[ofStage].next {
		if f.busiest == nil || c.source.served > f.busiest.served {
			f.busiest = c.source
		}
		f.othersWait = f.othersWait || c.source.waiting.n > 0
	}
	f.oldest = f.busiest.oldestServed()
	return f
}

// pause has those who wait for the pace look again, when it may let somebody in. A few of
// those who have waited long are closed: closed all at once they would all come back at once.
func (g *Gate) pause(d time.Duration) {
	if d == 0 || g.pausing {
		return
	}
	g.pausing = true
	g.cfg.after(d, func() {
		g.mu.Lock()
		defer g.unlock()
		g.pausing = false
		g.weed(weary, 1, g.ready/wearyPart)
		g.turn.Broadcast()
	})
}

// place finds a place among the unproven for somebody of a source.
func (g *Gate) place(s *source, full fullness) bool {
	switch {
	case s.served*100 >= g.cfg.Unproven*sharePercent && s.served > 0:
		return g.yield(s.oldestServed(), patience)
	case full.busiest == nil:
		return true
	case s.served >= full.busiest.served:
		return g.yield(s.oldestServed(), patience)
	case s.served+1 < full.busiest.served:
		return g.yield(full.oldest, youngest)
	}
	return g.yield(full.oldest, patience)
}

// yield closes who is served, if for so long; nil: nobody.
func (g *Gate) yield(c *Conn, age uint32) bool {
	if c == nil || g.now-c.since < age {
		return false
	}
	g.drop(c, MadeRoom)
	return true
}

// letIn has the first that waits of a source served; nil if all of them have gone
// meanwhile: a handshake with somebody who has given up would be work for nobody.
func (g *Gate) letIn(s *source) *Conn {
	c := s.waiting.first
	for ; c != nil && c.secure && c.hasGone(); c = s.waiting.first {
		g.leave(c)
		g.doomed = append(g.doomed, c)
	}
	if c == nil {
		return nil
	}
	g.turns.last = s
	g.waitsNoMore(c)
	c.stage, c.since = served, g.now
	c.visit.Store(g.cfg.Pace.visit(s.address, c.secure))
	s.served++
	g.unproven.add(c)
	return c
}

// spoke is told that a connection has said something.
func (g *Gate) spoke(c *Conn) {
	g.silent.remove(c)
	g.watcher.forget(c)
	c.stage, c.spoke = waiting, g.now
	c.source.waiting.add(c)
	g.ready++
	if c.source.waiting.n == 1 {
		g.turns.add(c.source)
	}
	g.turn.Signal()
}

// waitsNoMore is the inverse of what spoke does.
func (g *Gate) waitsNoMore(c *Conn) {
	c.source.waiting.remove(c)
	g.ready--
	if c.source.waiting.n == 0 {
		g.turns.cut(c.source)
	}
}

// drop closes a stranger.
func (g *Gate) drop(c *Conn, why Reason) {
	g.count(why, c.source.address)
	g.leave(c)
	g.doomed = append(g.doomed, c)
}

// leave forgets a connection.
func (g *Gate) leave(c *Conn) {
	switch c.stage {
	case silent:
		g.silent.remove(c)
		g.watcher.forget(c)
	case waiting:
		g.waitsNoMore(c)
	case served:
		g.unproven.remove(c)
		c.source.served--
	case proven:
		g.proven--
	case gone:
		return
	}
	if c.stage != proven {
		g.disown(c)
	}
	if c.over {
		g.over--
	}
	c.stage = gone
	g.turn.Signal()
}

// shut ends the gate: who has not been let in is closed.
func (g *Gate) shut(why error) {
	g.mu.Lock()
	defer g.unlock()
	if g.err == nil {
		g.err = why
	}
	for c := g.silent.first; c != nil; c = g.silent.first {
		g.leave(c)
		g.doomed = append(g.doomed, c)
	}
	for s := range g.turns.all() {
		for c := s.waiting.first; c != nil; c = s.waiting.first {
			g.leave(c)
			g.doomed = append(g.doomed, c)
		}
	}
	if g.watcher != nil {
		g.watcher.close()
	}
	g.turn.Broadcast()
}

// Stats are numbers of the moment, but for Closed, which counts since the start.
type Stats struct {
	Silent, Waiting, Unproven, Proven int
	Closed                            [NumReasons]uint64
}

// Stats returns the numbers of the moment. Proven are those that have not left.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Stats{Silent: g.silent.n, Waiting: g.ready, Unproven: g.unproven.n, Proven: g.proven, Closed: g.closed}
}

// Open is how many connections there are that have not left.
func (g *Gate) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lenUnproven() + g.proven
}

// Refused is how many were closed because all others are proven, or no descriptor
// was left.
func (g *Gate) Refused() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed[Full] + g.closed[NoDescriptors]
}
