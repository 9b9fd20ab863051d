package ovsdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/accept"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/workqueue"
)

// doorName is this door's in the origin of commands.
const doorName = "ovsdb"

// Guard says who calls; see [auth.Authenticator].
type Guard interface {
	Identify(p auth.Peer) (auth.Principal, error)
	Knows() func(auth.Principal) bool
}

// Standing is what a member knows of itself and its cluster.
type Standing struct {
	Cluster   [16]byte
	Member    [16]byte // the same for as long as the member lives
	Connected bool     // it knows a leader, or is one
	Leads     bool
}

// Config is what the door is made of. Engine, Park, Guard and Standing are required.
type Config struct {
	Limits

	Engine *engine.Engine
	Park   *park.Set // carries the connections
	Guard  Guard
	// Standing is that of the moment. It does not wait.
	Standing func() Standing
	// TLS returns what a handshake uses from now on; nil: there is no TLS.
	TLS func() *tls.Config
	// OwnCA: certificates of clients are of an authority of the door's own, and name
	// agents; else Guard judges them.
	OwnCA bool
	// Sources say where rows of databases say what else to listen at. Listen, required
	// then, listens at such a target, as "pssl:6642:192.0.2.1"; secure: connections have TLS.
	Sources []Source
	Listen  func(target string) (ln net.Listener, secure bool, err error)
	// Namespace is that of the databases the door shows; "": the default one.
	Namespace string
	// Anonymous is who connects and brings nothing. The zero value: nobody.
	Anonymous auth.Principal
	// Schemas are the texts of those that the databases are to have: one that is not
	// there is defined, one that is there of an earlier version is converted.
	Schemas [][]byte
	// Admission gives what is asked for places in lanes; nil admits everything.
	Admission *admit.Controller
	// Tally counts monitors, for their quotas; nil counts none.
	Tally *tally.Tally
	// Audit takes note of what is changed and what is denied. It does not wait. nil:
	// nobody does.
	Audit func(audit.Record)

	Now       func() time.Time
	Monotonic func() int64 // nanoseconds since some moment, for Admission; of the machine's clock if nil
	Logger    *slog.Logger
	// Ticks replaces the door's own ticker: one value a second. For tests.
	Ticks <-chan time.Time
}

// Validate returns an Invalid error if a part is missing or a limit is wrong.
func (c *Config) Validate() error {
	for name, missing := range map[string]bool{
		"Engine": c.Engine == nil, "Park": c.Park == nil, "Guard": c.Guard == nil, "Standing": c.Standing == nil,
	} {
		if missing {
			return incumbent.Errorf(incumbent.Invalid, "ovsdb door: %s is missing", name)
		}
	}
	if len(c.Sources) > 0 && c.Listen == nil {
		return incumbent.Errorf(incumbent.Invalid, "ovsdb door: Listen is missing")
	}
	return c.Limits.Validate()
}

// Door serves clients of Open vSwitch's databases.
type Door struct {
	cfg       Config
	engine    *engine.Engine
	view      func() *core.View
	namespace string
	now       func() time.Time
	monotonic func() int64
	lanes     admit.Clocked
	jitter    func() float64 // [0, 1): spreads what is tried again
	log       *slog.Logger

	limits   atomic.Pointer[Limits]
	counts   counts
	ticks    atomic.Uint64
	held     admit.HeldBack // connections that are refused, or end for a quota, and are not closed yet
	told     atomic.Int64   // when the log was told of one that ends for a quota, in seconds since 1970
	underWay admit.Room     // bytes of messages that have not come whole, and of those that are not answered, beyond a little of each connection
	unsent   unsent         // what waits for readers
	wishes   admit.Room     // bytes that the conditions of monitors cost
	pending  *accept.Pending
	conns    park.List[*conn]
	feeds    feeds
	keeper   keeper
	rows     rowRemotes  // of the clock
	writing  atomic.Bool // what has become of rows is on its way to them
	work     *workqueue.Queue[func()]
	woken    *workqueue.Queue[*txn] // that have waited, and are to look again

	putsOff atomic.Int64  // jobs that look again later, see putOff
	unmade  atomic.Int64  // databases of Config.Schemas that are still to be made
	made    chan struct{} // closed once there is none

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
	schemas, err := readSchemas(cfg.Schemas)
	if err != nil {
		return nil, err
	}
	cfg.Namespace = cmp.Or(cfg.Namespace, incumbent.DefaultNamespace)
	d := &Door{
		cfg: cfg, engine: cfg.Engine, view: cfg.Engine.View, namespace: cfg.Namespace, now: cfg.Now, monotonic: cfg.Monotonic,
		jitter: rand.Float64, log: cfg.Logger, pending: accept.New(), work: workqueue.New[func()](), woken: workqueue.New[*txn](), made: make(chan struct{}), closing: make(chan struct{}),
	}
	d.counts.init()
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
	d.keeper.init(d)
	d.feeds.init(d)
	d.rows = rowRemotes{door: d, last: map[string]ovs.UUID{}, open: map[string]*rowRemote{}}
	for range workers {
		d.goroutines.Go(func() { workqueue.Run(d.work) })
	}
	d.goroutines.Go(d.wakeWaits)
	d.goroutines.Go(d.keepTime)
	d.goroutines.Go(func() { d.engine.FollowPolicies(d.closing, d.rejudge) })
	d.unmade.Store(int64(len(schemas)))
	if len(schemas) == 0 {
		close(d.made)
	}
	for _, w := range schemas {
		d.define(w)
	}
	return d, nil
}

// SetLimits changes the limits while running.
func (d *Door) SetLimits(l Limits) {
	l = l.withDefaults()
	d.limits.Store(&l)
}

// Limits are those that hold, with their defaults.
func (d *Door) Limits() Limits { return *d.limits.Load() }

// spread is half to one and a half times a delay.
func (d *Door) spread(delay time.Duration) time.Duration {
	return time.Duration(float64(delay) * (0.5 + d.jitter()))
}

// after runs a job later, spread out.
func (d *Door) after(delay time.Duration, job func()) {
	time.AfterFunc(d.spread(delay), func() { d.work.Put(job) })
}

// putOff runs a job later that looks again whether there is a place, or a leader: the sooner
// the fewer wait for one, so that nobody waits for much longer than others do, and what all
// of them ask is bounded.
func (d *Door) putOff(job func()) { d.putOffAfter(nil, job) }

// putOffAfter is putOff of what was refused: not before its error says.
func (d *Door) putOffAfter(err *incumbent.Error, job func()) {
	waiting := time.Duration(d.putsOff.Add(1))
	delay := d.spread(min(max(firstRetry, waiting*retryEach), maxRetry))
	if err != nil {
		delay = max(delay, err.RetryAfter) // which is spread already
	}
	time.AfterFunc(delay, func() {
		d.work.Put(func() {
			d.putsOff.Add(-1)
			job()
		})
	})
}

// keepTime is the door's clock: what is looked at again and again for all connections.
func (d *Door) keepTime() {
	in := d.cfg.Ticks
	if in == nil {
		t := time.NewTicker(tickEvery)
		defer t.Stop()
		in = t.C
	}
	for {
		select {
		case <-in:
			at := d.ticks.Add(1)
			d.probe(at)
			if at%uint64(beatEvery/tickEvery) == 0 {
				d.keeper.beat()
			}
			d.feeds.tick()
			d.rows.tick(at)
		case <-d.closing:
			d.rows.closeAll()
			return
		}
	}
}

// echoRequest asks a client whether it is there.
var echoRequest = []byte(`{"id":"echo","method":"echo","params":[]}`)

// probe asks those for an echo who have been silent, and closes those who have not
// answered. Time is counted in ticks that were handled, and what waits in a socket has
// been heard by then: a process that stood still cuts nobody off. Nor is who rests because it
// did not keep to its pace, nor who is not read while much of what it asked for is under way,
// nor who waits for the rows of a monitor: encoding a large database takes longer than a probe,
// and there are clients that read nothing but the answer they wait for. Whose next message found no
// room is read again.
func (d *Door) probe(at uint64) {
	general := d.limits.Load().Probe
	for _, c := range d.conns.All() {
		c.tryAgain()
		every := c.who.remote.get().Probe
		if every == 0 && !c.who.socket { // who is on this machine ends visibly, and may be busy for long
			every = general
		}
		if every <= 0 {
			continue
		}
		if c.owed.Load() > 0 || c.rests.Load() > 0 || c.heldUp() {
			c.heard.Store(at)
		}
		silence := uint64((every + tickEvery - 1) / tickEvery)
		silent := at - min(at, c.heard.Load())
		switch {
		case silent <= silence:
			c.probed.Store(false)
		case !c.probed.Swap(true):
			d.counts.probes.Add(1)
			c.answer(echoRequest)
		case silent > 2*silence:
			c.cut(errSilent)
		}
	}
}

var errSilent = incumbent.Errorf(incumbent.DeadlineExceeded, "no answer to a request for an echo").
	WithHint("raise --ovsdb-probe if clients stand still for longer")

// Recheck ends the connections of those who are not known any more, because credentials
// have changed.
func (d *Door) Recheck() {
	knows := d.cfg.Guard.Knows()
	for _, c := range d.conns.All() {
		if !d.known(c.who, knows) {
			c.goAway()
		}
	}
}

func (d *Door) known(who *caller, knows func(auth.Principal) bool) bool {
	if who.roots != nil { // of the door's own authority
		return who.roots == d.cfg.TLS().ClientCAs && d.now().UnixMilli() < who.ends && knows(who.principal)
	}
	return who.principal == d.cfg.Anonymous || knows(who.principal)
}

// Drain accepts nobody any more and ends all connections. It does not wait.
func (d *Door) Drain() {
	d.drainOnce.Do(func() {
		d.pending.Close()
		for _, c := range d.conns.All() {
			c.goAway()
		}
	})
}

// SendAway ends all connections that are open now, in any order: their clients connect
// to another member. It calls next before each, which may wait, and ends early when
// that says false.
func (d *Door) SendAway(next func() bool) { d.conns.SendAway(next, (*conn).goAway) }

// Connections returns how many are accepted and not closed.
func (d *Door) Connections() int { return int(d.counts.connections.Load()) }

// Parked returns how many of them are parked.
func (d *Door) Parked() int { return d.conns.Len() }

// Close drains, and ends the door's goroutines. It comes after the listeners and the
// connections:
//
//	door.Drain → listeners.Close → park.Set.Close → door.Close
func (d *Door) Close(ctx context.Context) error {
	d.Drain()
	err := d.pending.Wait(ctx)
	d.closeOnce.Do(func() {
		close(d.closing)
		d.feeds.close()
		d.work.Close()
		d.woken.Close()
	})
	d.goroutines.Wait()
	return err
}
