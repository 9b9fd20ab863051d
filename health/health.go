// Package health runs the checks of the catalog: it connects to services, by HTTP,
// TCP, UDP, the health protocol of gRPC or a ping of HTTP/2, as the checks say with which
// they were registered, and reports what has changed. Nothing is ever executed for a check.
// An alias looks at other checks in the state, as often as its interval says.
//
// Each check is run by one member: the one at which it was registered first as it is. Which members
// run the checks of a namespace all of them know by leases that each holds for itself ([Presence]). When
// one of them ends, every other takes those of its checks that fall to it by a hash of
// member and check, without a word between them: the end of the lease is one entry of
// the log, however many checks there are. A member that comes back waits for a while
// before it claims its lease, and begins its checks spread over their intervals.
//
//	state ─ Applied ─▶ Runner: which are mine, and when due ─▶ runs, a few at a time ─▶ streak ─ Report ─▶ state
//
// A run that changes nothing reaches nobody but the runner's memory: neither the log
// nor those who watch. An output that changes while the status does not is reported
// now and then.
//
// # Invariants
//
//   - A member whose own lease is not there runs nothing.
//   - What a run found of one definition of a check is never written behind another, however
//     late this member hears of that (see [Update]).
//   - At most [Config.AtOnce] runs are under way, and one of each check. None takes
//     longer than [MaxTimeout], or goes on for a check that has gone or changed.
//   - No connection is made to an address of the link, of a machine's metadata or of
//     a listener of the cluster, whatever a name resolves to and wherever an answer
//     redirects. The first two can be allowed, the last not: a member may trust who
//     connects from its own machine.
//   - What a run may read, and what an output may hold, is bounded.
//
// # Concurrency
//
// One goroutine, that of [Runner.Run], owns when checks are due and how their runs
// went, and cancels those that nobody wants any more. Runs have goroutines of their own,
// and hand back what they found. Changed,
// Replace and Members may be called from any goroutine and do not block.
package health

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// Defaults of [Config].
const (
	DefaultAtOnce      = 256             // runs under way
	DefaultOutputEvery = 5 * time.Minute // between two reports of an output alone

	runAgain = 5 * time.Second // at most until the next run after a report that came to nothing
)

// Check is a check as the state has it.
type Check struct {
	Key
	Member     uint64 // with which it was registered
	Definition []byte // see [Parse]
	Status     Status
	Output     string

	record *catalog.Check // that it is made of; nil where a test has no catalog
}

// Config is what a runner works with. Self and Report are required.
type Config struct {
	Self uint64 // this member
	// Report writes what runs of a check found into the state. It does not block;
	// done is called once, from any goroutine.
	Report func(k Key, o Outcome, done func(error))

	// Alias is what an alias finds in the state; nil: nothing. It does not wait.
	Alias func(k Key, d *Definition) Outcome

	AtOnce      int           // runs under way; 0: DefaultAtOnce
	OutputEvery time.Duration // between two reports of an output alone; 0: DefaultOutputEvery; negative: never
	// AllowAll lets checks connect to addresses of the link and of metadata.
	AllowAll bool
	// Never says why no check may connect to an address, whatever is allowed; "": it
	// may. nil: nothing is known of any.
	Never func(netip.AddrPort) string

	// What tests set: how connections are made (nil: for real), and how far into its
	// interval a check begins, in [0, 1) (nil: anywhere).
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Jitter func() float64
}

// Runner runs checks.
type Runner struct {
	cfg    Config
	prober *prober
	counts counts
	kick   chan struct{}

	mu   sync.Mutex // protects news; held for moments
	news news
}

// news is what the loop has not looked at yet.
type news struct {
	changed  map[Key]*Check // nil: it is there no longer
	all      bool           // changed is all there is
	members  []uint64       // that run checks; nil: no others than before
	reported []reported
}

// reported is what came of a report.
type reported struct {
	job *job
	err error
}

// New returns a runner without a check. The error is Invalid.
func New(cfg Config) (*Runner, error) {
	if cfg.Report == nil || cfg.Self == 0 {
		return nil, incumbent.Errorf(incumbent.Invalid, "health: Report or Self is missing")
	}
	if cfg.AtOnce == 0 {
		cfg.AtOnce = DefaultAtOnce
	}
	if cfg.OutputEvery == 0 {
		cfg.OutputEvery = DefaultOutputEvery
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	p := newProber(addresses{cfg.AllowAll, cfg.Never})
	if cfg.Dial != nil {
		p.dial = cfg.Dial
	}
	r := &Runner{cfg: cfg, prober: p, kick: make(chan struct{}, 1), news: news{changed: map[Key]*Check{}}}
	r.counts.init()
	return r, nil
}

// Changed takes note of a check that is to be run by some member, as it is now; nil:
// it is not any more.
func (r *Runner) Changed(k Key, c *Check) {
	r.tell(func(n *news) { n.changed[k] = c })
}

// Replace takes note of all checks that members are to run, in the place of those that
// were until now.
func (r *Runner) Replace(checks []*Check) {
	all := make(map[Key]*Check, len(checks))
	for _, c := range checks {
		all[c.Key] = c
	}
	r.tell(func(n *news) { n.changed, n.all = all, true })
}

// Members takes note of who runs checks now.
func (r *Runner) Members(ids []uint64) {
	r.tell(func(n *news) { n.members = append([]uint64{}, ids...) })
}

func (r *Runner) tell(note func(*news)) {
	r.mu.Lock()
	note(&r.news)
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default: // the loop will look anyway
	}
}

func (r *Runner) heard() news {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.news
	r.news = news{changed: map[Key]*Check{}}
	return n
}

// Run runs checks until ctx ends, and returns when no run is under way any more.
func (r *Runner) Run(ctx context.Context) {
	var runs sync.WaitGroup
	defer runs.Wait()
	s := newSchedule(r.cfg)
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		s.hear(now, r.heard())
		for j := s.next(now); j != nil; j = s.next(now) {
			d := j.def
			run, cancel := context.WithCancel(ctx)
			j.cancel = cancel
			runs.Go(func() { r.probe(ctx, run, j, d, results) })
		}
		r.counts.is(now, s)
		timer.Reset(s.wait(now))
		select {
		case <-r.kick:
		case <-timer.C:
		case got := <-results:
			r.report(s, got)
		case <-ctx.Done():
			return
		}
	}
}

// result is what a run found.
type result struct {
	job     *job
	def     *Definition // that was run
	outcome Outcome
}

// probe runs a check until the run is cancelled, and hands back what it found for as
// long as the runner is there to take it: its place is free only then.
func (r *Runner) probe(ctx, run context.Context, j *job, d *Definition, results chan<- result) {
	runtime.Gosched() // many may be due at once, and what has just begun would run first
	began := time.Now()
	var o Outcome
	if d.Kind() == KindAlias && r.cfg.Alias != nil {
		o = r.cfg.Alias(j.key, d)
	} else {
		o = r.prober.run(run, d)
	}
	switch {
	case ctx.Err() != nil: // an outcome that was cut short is none
		return
	case run.Err() == nil:
		r.counts.ran(d.Kind(), o.Status, time.Since(began))
	}
	select {
	case results <- result{j, d, o}:
	case <-ctx.Done():
	}
}

// report takes in what a run found, and reports it where that says something new.
func (r *Runner) report(s *schedule, got result) {
	now := time.Now()
	s.hear(now, r.heard()) // what it is compared with is as new as can be
	o, ok := s.ran(now, got)
	if !ok {
		return
	}
	r.cfg.Report(got.job.key, o, func(err error) {
		r.counts.reported(err)
		r.tell(func(n *news) { n.reported = append(n.reported, reported{got.job, err}) })
	})
}
