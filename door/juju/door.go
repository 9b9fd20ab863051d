package juju

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/accept"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/release"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/workqueue"
)

// doorName is this door's in the origin of commands.
const doorName = "juju"

// Leases is what the door asks of the lease service; see [lease.Service].
type Leases interface {
	Do(c lease.Call, ops []lease.Op, done func())
}

// Passwords says what a tag is granted; see [auth.Verifier].
type Passwords interface {
	Verify(ctx context.Context, scope, tag, password string, from netip.Addr) (auth.Pass, error)
	Knows(scope, tag string, pass auth.Pass) bool
	Busy(from netip.Addr) bool
}

// Config is what the door is made of. All but the limits, Ready, Admission, Now,
// Monotonic and Logger is required.
type Config struct {
	Limits

	Engine *engine.Engine
	Leases Leases // the engine's if nil
	// Park carries the connections.
	Park      *park.Set
	Passwords Passwords
	// TLS returns what a handshake uses from now on.
	TLS func() *tls.Config
	// Cluster is the cluster's id, which clients know as the controller's UUID.
	Cluster [16]byte
	// Ready returns an error while the member cannot serve: whoever connects is
	// sent away to come back. nil: always ready.
	Ready func() error
	// Admission gives requests places in lanes; nil admits everything.
	Admission *admit.Controller

	// Tally counts connections, for their quotas; nil counts none.
	Tally *tally.Tally
	// Audit takes note of what agents change, and of what they are not let do. It
	// does not wait. nil: nobody does.
	Audit func(audit.Record)

	Now       func() time.Time
	Monotonic func() int64 // nanoseconds since some moment, for Admission; of the machine's clock if nil
	Logger    *slog.Logger
}

// Validate returns an Invalid error if a part is missing or a limit is wrong.
func (c *Config) Validate() error {
	for name, missing := range map[string]bool{
		"Engine": c.Engine == nil, "Park": c.Park == nil, "Passwords": c.Passwords == nil, "TLS": c.TLS == nil,
	} {
		if missing {
			return incumbent.Errorf(incumbent.Invalid, "juju door: %s is missing", name)
		}
	}
	return c.Limits.Validate()
}

// Door serves Juju's agents.
type Door struct {
	leases     Leases
	view       func() *core.View
	confirm    func(done func(err error))
	releases   release.Source // waits that begin with a confirmed state
	endings    release.Source // waits for the end of a holding that this member's state shows
	park       *park.Set
	passwords  Passwords
	tls        func() *tls.Config
	controller string // UUID
	ready      func() error
	lanes      admit.Clocked
	audit      func(audit.Record)
	now        func() time.Time
	monotonic  func() int64
	jitter     func() float64 // [0, 1): spreads what is tried again
	log        *slog.Logger

	limits  atomic.Pointer[Limits]
	counts  counts
	tally   *tally.Tally
	lines   [admit.NumLanes]admit.Line[*bulk]
	waiting admit.Room // bytes of calls that wait: in line, to be tried again, for the end of a holding
	pending *accept.Pending
	logins  context.Context // ends when the door drains
	drain   context.CancelFunc
	conns   park.List[*conn] // that have logged in

	judgements atomic.Uint64 // calls of Rejudge

	answers *workqueue.Queue[*bulk]  // that the lease service has answered
	wakes   *workqueue.Queue[*block] // whose holding has ended
	work    *workqueue.Queue[func()] // looks at states, and what is tried again

	closing    chan struct{}
	drainOnce  sync.Once
	closeOnce  sync.Once
	goroutines sync.WaitGroup // of the door
}

// New returns a door with its goroutines running; Close ends them.
func New(cfg Config) (*Door, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Leases == nil {
		cfg.Leases = cfg.Engine.Leases()
	}
	d := &Door{
		leases: cfg.Leases, view: cfg.Engine.View, confirm: cfg.Engine.Confirm, park: cfg.Park, passwords: cfg.Passwords, tls: cfg.TLS,
		controller: uuidOf(cfg.Cluster), ready: cfg.Ready, audit: cfg.Audit, now: cfg.Now, monotonic: cfg.Monotonic,
		jitter: rand.Float64, log: cfg.Logger, tally: cfg.Tally,
		answers: workqueue.New[*bulk](), wakes: workqueue.New[*block](), work: workqueue.New[func()](), closing: make(chan struct{}),
		pending: accept.New(),
	}
	d.releases = release.Source{Engine: cfg.Engine, Confirm: cfg.Engine.Confirm, Run: d.work.Put}
	d.endings = d.releases
	d.endings.Confirm = func(done func(error)) { done(nil) }
	d.logins, d.drain = context.WithCancel(context.Background())
	d.initLines()
	d.counts.init()
	if d.ready == nil {
		d.ready = func() error { return nil }
	}
	if d.audit == nil {
		d.audit = func(audit.Record) {}
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.monotonic == nil {
		began := d.now()
		d.monotonic = func() int64 { return int64(d.now().Sub(began)) }
	}
	d.lanes = admit.Clocked{Controller: cfg.Admission, Now: d.monotonic}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.SetLimits(cfg.Limits)
	for range workers {
		d.goroutines.Go(func() { workqueue.Run(d.work) })
		d.goroutines.Go(d.respond)
	}
	d.goroutines.Go(d.wake)
	d.goroutines.Go(func() { cfg.Engine.FollowPolicies(d.closing, d.Rejudge) })
	return d, nil
}

// SetLimits changes the limits while running. Connections that are open keep
// their time of silence.
func (d *Door) SetLimits(l Limits) {
	l = l.withDefaults()
	d.limits.Store(&l)
	d.pending.Wake()
}

// respond answers what the lease service has decided.
func (d *Door) respond() {
	var got []*bulk
	for {
		got = d.answers.Take(got, 64)
		if len(got) == 0 {
			return
		}
		for _, k := range got {
			k.answered()
		}
	}
}

// after runs a job later, spread out: half to one and a half times the delay.
func (d *Door) after(delay time.Duration, job func()) {
	time.AfterFunc(time.Duration(float64(delay)*(0.5+d.jitter())), func() { d.work.Put(job) })
}

// WaitingBytes is how much calls take that wait: in line for a place in their lane, for a time at
// which they are tried again, or for the end of a holding. At most [MaxWaitingBytes], or the part
// of the memory limit that [admit.Controller.Bound] says.
func (d *Door) WaitingBytes() int64 { return d.waiting.Taken() }

// initLines makes the lines in which calls wait for a place in their lane.
func (d *Door) initLines() {
	for l := range d.lines {
		line := &d.lines[l]
		line.Pause, line.Run = linePause, d.work.Put
		line.Enter = func(k *bulk) admit.Turn {
			p, why := d.placeFor(k, admit.Lane(l))
			switch why {
			case admit.NumReasons:
				k.hand(p)
				return admit.Begun
			case admit.Share:
				return admit.Aside // all others are let in
			}
			return admit.NoRoom
		}
		line.Over = func(k *bulk) bool { return d.over(admit.Lane(l), k) }
	}
}

// over reports whether a call waits in a lane's line no longer: its connection has ended, or
// memory has become short for the lane, for which what waits has to give way.
func (d *Door) over(l admit.Lane, k *bulk) bool {
	switch {
	case k.c.isGone():
		k.abandon()
	case d.lanes.Holds(l) != nil:
		k.giveWay()
	default:
		return false
	}
	return true
}

// placeFor gives a call a place in its lane, or says why it has none; NumReasons: it has one.
func (d *Door) placeFor(k *bulk, l admit.Lane) (admit.Place, admit.Reason) {
	if k.lined {
		return d.lanes.EnterNext(k.c.who.work(), l, k.cost())
	}
	p, err := d.lanes.Enter(k.c.who.work(), l, k.cost())
	return p, admit.ReasonOf(l, err)
}

// Recheck closes the connections of those whose password is good no more, or does not
// grant what it did when they logged in, and does what [Door.Rejudge] does.
func (d *Door) Recheck() {
	d.Rejudge()
	for _, c := range d.conns.All() {
		if !d.knows(c.who) {
			c.goAway()
		}
	}
}

// Rejudge ends the calls that wait for what a policy lets their agents wait for no more:
// they are answered that it is not permitted. It is called behind each change of a
// policy, and does not wait.
func (d *Door) Rejudge() {
	d.judgements.Add(1)
	d.work.Put(func() {
		for _, c := range d.conns.All() {
			for _, b := range c.waiting() {
				b.rejudge()
			}
		}
	})
}

// knows reports whether an agent would still be let in as who it is.
func (d *Door) knows(who *agent) bool {
	return d.passwords.Knows(who.model, who.tag, auth.Pass{Grants: who.grants, Proof: who.principal.Proof})
}

// Drain accepts nobody any more and closes all connections; calls that wait are
// not answered. It does not wait.
func (d *Door) Drain() {
	d.drainOnce.Do(func() {
		d.pending.Close()
		d.drain() // who waits for the turn of a password is gone
		for _, c := range d.conns.All() {
			c.goAway()
		}
	})
}

// SendAway closes all connections that are open now, in any order: their agents
// connect to another member. It calls next before each, which may wait, and ends
// early when that says false.
func (d *Door) SendAway(next func() bool) { d.conns.SendAway(next, (*conn).goAway) }

// Close drains, and ends the door's goroutines. It comes after the listener and
// the connections:
//
//	door.Drain → listener.Close → park.Set.Close → door.Close
func (d *Door) Close(ctx context.Context) error {
	d.Drain()
	err := d.pending.Wait(ctx)
	d.closeOnce.Do(func() {
		close(d.closing)
		d.answers.Close()
		d.wakes.Close()
		d.work.Close()
	})
	d.goroutines.Wait()
	return err
}

func asError(err error) *incumbent.Error {
	if e, ok := err.(*incumbent.Error); ok { //nolint:errorlint // an error that wraps one is not it
		return e
	}
	return incumbent.Errorf(incumbent.KindOf(err), "%w", err)
}

// addressOf prints where a connection comes from.
func addressOf(c net.Conn) string { return c.RemoteAddr().String() }
