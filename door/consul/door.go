package consul

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"math/rand/v2"
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
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/workqueue"
)

// doorName is this door's in the origin of commands.
const doorName = "consul"

// Version is that of Consul whose behaviour is answered.
const Version = "1.22.3"

// DefaultDatacenter is the one datacenter's name, unless another is configured.
const DefaultDatacenter = "dc1"

// Guard says who calls; see [auth.Authenticator].
type Guard interface {
	Identify(p auth.Peer) (auth.Principal, error)
	Knows() func(auth.Principal) bool
}

// Member is one member as clients are told of it.
type Member struct {
	ID      uint64
	Name    string
	Address string // HOST:PORT at which other members reach it, or clients where it is alone
	Voter   bool
	Leader  bool
	Alive   bool // it was heard of lately
	Self    bool
}

// Cluster is what the door asks of its member's cluster.
type Cluster interface {
	// Members are those of the moment, in the order of their names.
	Members() []Member
	// Age is how old what this member shows may be: how long ago the leader was heard of.
	Age() time.Duration
}

// Config is what the door is made of. Engine, Park, Guard and Cluster are required.
type Config struct {
	Limits

	Engine  *engine.Engine
	Park    *park.Set // carries the connections
	Guard   Guard
	Cluster Cluster
	// TLS returns what a handshake uses from now on; nil: there is no TLS.
	TLS func() *tls.Config
	// Namespace is that of everything the door shows; "": the default one.
	Namespace string
	// Datacenter is the one datacenter's name; "": DefaultDatacenter.
	Datacenter string
	// Node is the name of the node that the agent is: one of the whole cluster.
	Node string
	// NodeID is its id: of the cluster, unless another is configured. See [Door.NodeID].
	NodeID   [16]byte
	Operator Operator
	// Anonymous is whom requests come from that bring nothing. The zero value: nobody.
	Anonymous auth.Principal
	// Admission gives requests places in lanes; nil admits everything.
	Admission *admit.Controller
	// Snapshot writes a snapshot of a state, archived. It may take as long as w does. nil:
	// this member makes none.
	Snapshot func(ctx context.Context, w io.Writer, v *core.View) error
	// Restore reads such a snapshot whole. nil: this member takes none.
	Restore func(io.Reader) (*core.View, error)
	// Tally counts reads that wait, for their quotas; nil counts none.
	Tally *tally.Tally
	// Audit takes note of what is changed and what is denied. It does not wait. nil:
	// nobody does.
	Audit func(audit.Record)

	Now       func() time.Time
	Monotonic func() int64 // nanoseconds since some moment, for Admission; of the machine's clock if nil
	Logger    *slog.Logger
}

// Validate returns an Invalid error if a part is missing or a limit is wrong.
func (c *Config) Validate() error {
	for name, missing := range map[string]bool{
		"Engine": c.Engine == nil, "Park": c.Park == nil, "Guard": c.Guard == nil, "Cluster": c.Cluster == nil, "Node": c.Node == "",
	} {
		if missing {
			return incumbent.Errorf(incumbent.Invalid, "consul door: %s is missing", name)
		}
	}
	return c.Limits.Validate()
}

// Door serves Consul's clients.
type Door struct {
	cfg       Config
	engine    *engine.Engine
	view      func() *core.View
	writes    engine.Writes
	routes    *router
	namespace string
	now       func() time.Time
	monotonic func() int64
	lanes     admit.Clocked
	jitter    func() float64 // [0, 1): spreads what is tried again
	log       *slog.Logger

	limits    atomic.Pointer[Limits]
	counts    counts
	rechecks  atomic.Uint64 // calls of Recheck
	bodies    admit.Room    // bytes of bodies that have not come whole, beyond smallBody of each
	held      admit.HeldBack
	pending   *accept.Pending
	conns     park.List[*conn]
	strangers strangers

	unheard     unheard
	polls       *pollsTold
	outputs     outputs
	boards      boards
	expressions expressions

	work    *workqueue.Queue[func()]   // reads, and what goes on after a wait
	changes *workqueue.Queue[func()]   // the same of all other requests
	told    *workqueue.Queue[*blocked] // reads that many wait for

	agentID  atomic.Pointer[string] // that the agent's node had when it was seen to be the members'; nil: it was not
	snapshot atomic.Bool            // one is being sent, or restored
	monitors atomic.Int32           // who is shown the log
	life     context.Context        // ends with the door
	ends     context.CancelFunc

	root       func() (rootJSON, error)
	operations sync.WaitGroup // what operators have asked for, each on its goroutine

	drainOnce  sync.Once
	closeOnce  sync.Once
	goroutines sync.WaitGroup // of the door
}

// New returns a door with its goroutines running; Close ends them.
func New(cfg Config) (*Door, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Namespace = cmp.Or(cfg.Namespace, incumbent.DefaultNamespace)
	cfg.Datacenter = cmp.Or(cfg.Datacenter, DefaultDatacenter)
	d := &Door{
		cfg: cfg, engine: cfg.Engine, view: cfg.Engine.View, routes: newRouter(), namespace: cfg.Namespace, now: cfg.Now, monotonic: cfg.Monotonic,
		jitter: rand.Float64, log: cfg.Logger, pending: accept.New(), work: workqueue.New[func()](), changes: workqueue.New[func()](), told: workqueue.New[*blocked](),
		polls: newPollsTold(),
	}
	d.life, d.ends = context.WithCancel(context.Background())
	d.root = sync.OnceValues(func() (rootJSON, error) { return makeRoot(cfg.NodeID) })
	d.counts.routes = d.routes.number()
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
	d.writes = engine.Writes{Engine: d.engine, View: d.view, Confirm: d.engine.Confirm, Run: d.changes.Put}
	d.SetLimits(cfg.Limits)
	for range workers {
		d.goroutines.Go(func() { workqueue.Run(d.work) })
	}
	for range changers {
		d.goroutines.Go(func() { workqueue.Run(d.changes) })
	}
	for range tellers {
		d.goroutines.Go(d.tell)
	}
	d.goroutines.Go(func() { d.engine.FollowPolicies(d.life.Done(), d.Recheck) })
	return d, nil
}

// SetLimits changes the limits while running.
func (d *Door) SetLimits(l Limits) {
	l = l.withDefaults()
	d.limits.Store(&l)
}

// after runs a job later, spread out: half to one and a half times the delay.
func (d *Door) after(delay time.Duration, job func()) {
	time.AfterFunc(time.Duration(float64(delay)*(0.5+d.jitter())), func() { d.work.Put(job) })
}

// Recheck looks again at all reads that wait, because policies or credentials have
// changed: who is not known any more, or may not see it, is told so.
func (d *Door) Recheck() {
	d.rechecks.Add(1)
	d.work.Put(func() {
		for _, c := range d.conns.All() {
			c.mu.Lock()
			r := c.current
			c.mu.Unlock()
			if r != nil {
				r.recheck()
			}
		}
	})
}

// Drain accepts nobody any more and ends all connections; reads that wait are answered
// with what there is. It does not wait.
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

// Close drains, and ends the door's goroutines. It comes after the listener and the
// connections:
//
//	door.Drain → listener.Close → park.Set.Close → door.Close
func (d *Door) Close(ctx context.Context) error {
	d.Drain()
	err := d.pending.Wait(ctx)
	d.closeOnce.Do(func() {
		d.ends()
		d.work.Close()
		d.changes.Close()
		d.told.Close()
	})
	d.goroutines.Wait()
	d.operations.Wait()
	return err
}
