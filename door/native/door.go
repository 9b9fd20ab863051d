package native

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/release"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/watch"
	"github.com/incumbent-dev/incumbent/workqueue"
)

// doorName is this door's in the origin of commands.
const doorName = "native"

// Leases is what the door asks of the lease service; see [lease.Service].
type Leases interface {
	Submit(c lease.Call, cmd core.Command, done func(core.Result))
	Extend(b *lease.Batch)
	Attach(a lease.Attachment, done func(core.Result))
	Detach(session incumbent.SessionID, counter uint64)
	Inspect(q *lease.Inspection)
}

// Config is what the door is made of. All but the limits, Now, Logger and what
// has a default is required.
type Config struct {
	Limits

	Engine *engine.Engine
	Leases Leases            // the engine's if nil
	View   func() *core.View // the engine's if nil
	// Park carries the streams.
	Park     *park.Set
	Operator Operator
	Guard    Guard
	// Credentials is what it needs to keep credentials of the cluster; it may be left
	// out.
	Credentials Credentials
	// Admission gives requests places in lanes; nil admits everything.
	Admission *admit.Controller
	// Age says how old a stale read may be: how long ago this member last heard
	// of the leader, 0 where it leads. nil: always 0.
	Age func() time.Duration
	// Audit takes note of what callers change, and of what they are not let do. It
	// does not wait. nil: nobody does.
	Audit func(audit.Record)
	// Tally counts streams, watches and waits, for their quotas; nil counts none.
	Tally *tally.Tally
	// Away says why clients are to go to another member: streams are then refused
	// with that error. nil, or a nil error: they are welcome.
	Away func() error

	OfferWindow   time.Duration // in which an offer is to be accepted; lease.DefaultOfferWindow
	ProgressEvery time.Duration // between progress marks of a silent watch; DefaultProgressEvery
	Now           func() time.Time
	Monotonic     func() int64 // nanoseconds since some moment, for Admission; of the machine's clock if nil
	Logger        *slog.Logger
}

// Validate returns an Invalid error if a part is missing or a limit is wrong.
func (c *Config) Validate() error {
	for name, missing := range map[string]bool{
		"Engine": c.Engine == nil, "Park": c.Park == nil, "Operator": c.Operator == nil, "Guard": c.Guard == nil,
	} {
		if missing {
			return incumbent.Errorf(incumbent.Invalid, "native door: %s is missing", name)
		}
	}
	if c.OfferWindow < 0 || c.ProgressEvery < 0 {
		return incumbent.Errorf(incumbent.Invalid, "native door: a setting is negative")
	}
	return c.Limits.Validate()
}

// Door serves the native API.
type Door struct {
	engine        *engine.Engine
	leases        Leases
	view          func() *core.View
	confirm       func(done func(err error))
	hub           *watch.Hub
	releases      release.Source
	writes        engine.Writes
	park          *park.Set
	operator      Operator
	guard         Guard
	credentials   Credentials
	lanes         admit.Clocked
	monotonic     func() int64
	age           func() time.Duration
	away          func() error
	audit         func(audit.Record)
	tally         *tally.Tally
	offerWindow   time.Duration
	progressEvery time.Duration
	now           func() time.Time
	log           *slog.Logger

	limits  atomic.Pointer[Limits]
	known   atomic.Pointer[func(auth.Principal) bool] // as last given to Recheck; nil: everybody
	handler atomic.Pointer[http.Handler]              // of the calls; made anew with the limits

	// The hot path.
	benches []*bench  // by worker of park
	gathers sync.Pool // *gather
	answers *workqueue.Queue[*gather]
	still   standstill

	// Everything else that streams want.
	outcomes *workqueue.Queue[*streamOp]
	work     *workqueue.Queue[func()]
	pumps    *workqueue.Queue[*streamWatch]
	watches  watchSet
	streams  park.List[*stream]
	rules    atomic.Pointer[chan struct{}] // closed at the next change of a policy
	blocked  park.List[*lastingCall]       // calls whose callers brought something that can be taken back
	owners   owners

	held       admit.HeldBack // calls that were refused for the load
	slowed     admit.HeldBack // and those that were for what they asked
	lines      [admit.NumLanes]admit.Line[*waitingFrame]
	waiting    admit.Room // what waits in them takes, in bytes
	bodies     admit.Room // and bodies that have not come whole
	unsent     unsent
	life       context.Context // ends when the door drains; its cause says so
	drain      context.CancelCauseFunc
	closing    chan struct{}
	closeOnce  sync.Once
	goroutines sync.WaitGroup
	calls      callCount
}

// New returns a door with its goroutines running; Close ends them.
func New(cfg Config) (*Door, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Leases == nil {
		cfg.Leases = cfg.Engine.Leases()
	}
	if cfg.View == nil {
		cfg.View = cfg.Engine.View
	}
	d := &Door{
		engine: cfg.Engine, leases: cfg.Leases, view: cfg.View, confirm: cfg.Engine.Confirm, hub: cfg.Engine.Hub(),
		park: cfg.Park, operator: cfg.Operator, guard: cfg.Guard, credentials: cfg.Credentials, monotonic: cfg.Monotonic, age: cfg.Age, away: cfg.Away, audit: cfg.Audit, tally: cfg.Tally,
		offerWindow:   cmp.Or(cfg.OfferWindow, lease.DefaultOfferWindow),
		progressEvery: cmp.Or(cfg.ProgressEvery, DefaultProgressEvery),
		now:           cfg.Now, log: cfg.Logger,
		answers: workqueue.New[*gather](), outcomes: workqueue.New[*streamOp](), work: workqueue.New[func()](), pumps: workqueue.New[*streamWatch](),
		owners:  owners{byID: map[incumbent.SessionID]owner{}},
		closing: make(chan struct{}),
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.monotonic == nil {
		began := d.now()
		d.monotonic = func() int64 { return int64(d.now().Sub(began)) }
	}
	d.lanes = admit.Clocked{Controller: cfg.Admission, Now: d.monotonic}
	d.unsent.bound = func() int64 { return d.lanes.Bound(MaxUnsentBytes) }
	if d.age == nil {
		d.age = func() time.Duration { return 0 }
	}
	if d.audit == nil {
		d.audit = func(audit.Record) {}
	}
	if d.away == nil {
		d.away = func() error { return nil }
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.writes = engine.Writes{Engine: cfg.Engine, View: cfg.View, Confirm: cfg.Engine.Confirm, Run: d.work.Put}
	d.releases = release.Source{Engine: cfg.Engine, Confirm: cfg.Engine.Confirm, Run: d.work.Put}
	d.life, d.drain = context.WithCancelCause(context.Background())
	d.initLines()
	d.newRules()
	d.SetLimits(cfg.Limits)
	d.gathers.New = func() any { return d.newGather() }
	for range cfg.Park.Stats().Workers {
		d.benches = append(d.benches, &bench{gather: d.newGather(), turn: 1, refused: newOutbox()})
	}
	cfg.Park.OnEndBatch(func(worker int) { d.endBatch(d.benches[worker]) })
	d.start()
	return d, nil
}

func (d *Door) start() {
	for range responders {
		d.goroutines.Go(d.respond)
	}
	for range workers {
		d.goroutines.Go(func() { workqueue.Run(d.work) })
		d.goroutines.Go(d.tell)
	}
	for range pumps {
		d.goroutines.Go(d.pump)
	}
	d.goroutines.Go(d.watchOffers)
	d.goroutines.Go(func() { d.engine.FollowPolicies(d.closing, d.recheckRules) })
	d.goroutines.Go(d.tickAlong)
}

// tickAlong looks after watches.
func (d *Door) tickAlong() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	rounds := max(int(d.progressEvery/tickEvery), 1)
	var buf []*streamWatch
	for {
		select {
		case <-t.C:
			buf = d.watches.tick(buf, rounds)
			clear(buf)
		case <-d.closing:
			return
		}
	}
}

// SetLimits changes the limits while running. Requests under way keep theirs.
func (d *Door) SetLimits(l Limits) {
	l = l.withDefaults()
	d.limits.Store(&l)
	h := d.newHandler(&l)
	d.handler.Store(&h)
}

// Stats are numbers of the moment.
type Stats struct {
	Streams int // open
	Watches int // on streams
	Calls   int // unary and streaming calls under way
	Waiting int // frames that wait for their turn
}

// Stats returns the numbers of the moment.
func (d *Door) Stats() Stats {
	waiting := 0
	for l := range d.lines {
		waiting += d.lines[l].Len()
	}
	return Stats{Streams: d.streams.Len(), Watches: d.watches.len(), Calls: d.calls.len(), Waiting: waiting}
}

// errDraining answers whoever is still waiting, or comes too late.
func errDraining() *incumbent.Error {
	return incumbent.Errorf(incumbent.Unavailable, "this member is shutting down").WithHint("connect to another member")
}

// Drain refuses new calls and streams, answers those that block, and asks the
// clients of streams to go elsewhere; their connections are closed once that
// was sent. It does not wait.
func (d *Door) Drain() {
	d.calls.stop()
	d.drain(errDraining())
	for _, s := range d.streams.All() {
		s.goAway(errDraining().Message)
	}
}

// SendAway asks the clients of all streams that are open now to go to another
// member, in any order, and closes each once that was sent. It calls next before
// each, which may wait, and ends early when that says false.
func (d *Door) SendAway(next func() bool) {
	d.streams.SendAway(next, func(s *stream) { s.goAway("this member cannot serve for now") })
}

// Close drains, waits for calls under way until ctx ends, and ends the door's
// goroutines. It comes last:
//
//	door.Drain → http.Server.Shutdown → park.Set.Close → door.Close
//
// What a stream that is still open sends afterwards is not answered.
func (d *Door) Close(ctx context.Context) error {
	d.Drain()
	err := d.calls.wait(ctx)
	d.closeOnce.Do(func() {
		close(d.closing)
		d.answers.Close()
		d.outcomes.Close()
		d.work.Close()
		d.pumps.Close()
	})
	d.goroutines.Wait()
	d.watches.abandon()
	return err
}
