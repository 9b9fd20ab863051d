package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// fleet is a set of agents that want leases, in open loop: what each does next
// has an intended time, kept by one schedule; answers arrive on the readers of
// the streams and put the next step on the schedule.
//
// One mutex guards all agents: a step is a few field writes and a send to a
// socket that is not full, and two cores are shared with the server anyway.
type fleet struct {
	*run
	group
	ttl    time.Duration
	strict bool   // a fault is played: no holding may change hands at all
	idle   bool   // agents want no lease
	edges  *edges // where the streams are; nil: at all members
	part   part   // of the leases, where other processes have the rest
	tag    string

	// roams: an agent whose member is silent or gone goes on at another. With one
	// server and no fault, a stream that ends fails the run.
	roams  bool
	silent time.Duration
	ctx    context.Context // of reconnecting; ends with the fleet
	cancel context.CancelFunc

	redialling chan struct{} // has one for each stream that is being opened again

	running sync.WaitGroup // drive, and for each link its reader or who reconnects it

	mu sync.Mutex // guards the agenda too
	agenda
	agents    []*agent        // those of a stream that is not open yet have no link
	links     []*fleetLink    // nil until it is open
	open      int             // links that are open
	heldBy    []*agent        // lease → its holder as told
	freed     []time.Duration // lease → when its holder was to give it up to the next; 0: that is over
	holding   int
	waiting   int
	ended     bool
	failure   error
	moved     int            // streams that were opened again
	denied    int            // extensions of a held lease that were refused
	unsure    int            // that were not confirmed: an answer for many tokens does not say whether it is their lane that refused them
	struckAt  time.Duration  // when the fault that is played began; 0: none has
	holders   map[int]uint64 // agent → the token it had then
	unrenewed int            // of them, without a good extension since
	renewed   time.Duration  // when the last one had its, since then
	silenced  int            // streams whose agents have fallen silent, from the first on; of whoever has them do so
	fell      int            // holders that fell silent
	left      map[int]*agent // lease → who held it and fell silent, until another holds it

	opened, claimed, handed atomic.Int64

	opConnect                                                                      *opRecord // streams
	opOpen, opAttach, opClaim, opExtend, opBeat, opRelease, opHandOver, opRecovery *opRecord
	opFreed                                                                        *opRecord // of what a holder left: how late another held it
}

// group is what agents of a fleet have in common.
type group struct {
	prefix     string // of the names of their operations
	every      time.Duration
	candidates int // that want each lease
	perStream  int // sessions
	perModel   int // leases; 0: all are in none
	// byBeats: what the sessions of a stream hold lives by their beats, all by the same one; else
	// each holder extends what it holds.
	byBeats  bool
	critical bool
	// apart: candidates for one lease are on different streams, and come one after the other.
	// Such a fleet grows once, to a multiple of the sessions of a stream.
	apart bool
}

// agent is one candidate for one lease: a session.
type agent struct {
	id      int
	lease   int
	link    *fleetLink
	session incumbent.SessionID
	token   uint64 // it holds; 0: none
	offered uint64 // handed to it and not accepted yet; 0: none
	newest  uint64 // token it has ever had or been offered
	waits   bool   // counted as waiting
	// gen counts its holdings. Extensions planned for an earlier one are void.
	gen    uint64
	until  time.Duration // its own deadline
	sent   time.Duration // of the newest claim or extension with a good answer
	heard  time.Duration // that answer
	lapsed bool

	stream    uint64        // the counter of its link's stream to which its session is attached
	attached  time.Duration // since when
	opened    bool          // its session is there
	accepting bool          // an acceptance is under way or planned
	began     bool          // attached once: what it wants has been asked for
	owed      time.Duration // intended time of the oldest extension without a good answer; 0: none
	tries     int           // bad answers to extensions in a row
	refused   int           // requests that are no extensions, in a row
	later     []pending     // claims and releases that a broken stream left unanswered
	// struck: it held when the fault began and has had no good extension since.
	struck bool
}

// newFleet makes the fleet that the scenario describes.
func newFleet(ctx context.Context, r *run) *fleet {
	g := group{every: time.Duration(r.sc.Every), candidates: max(1, r.sc.Candidates), perStream: max(1, r.sc.SessionsPerStream), perModel: r.sc.PerModel, byBeats: r.sc.Beats}
	if r.sc.Connections == "own" {
		g.perStream = 1
	}
	f := newGroup(ctx, r, g)
	f.strict = len(r.sc.script()) > 0
	r.setAgents(f.counts)
	return f
}

// newPartOfFleet makes the fleet of a process that has a part of the leases.
func newPartOfFleet(ctx context.Context, r *run, p part) *fleet {
	f := newFleet(ctx, r)
	f.part = p
	f.running.Go(func() { f.drive(&f.mu, f.now, &f.ended, f.perform) })
	return f
}

// newGroup makes a fleet of its own.
func newGroup(ctx context.Context, r *run, g group) *fleet {
	op := func(name string) *opRecord { return r.rec.op(g.prefix + name) }
	f := &fleet{
		run: r, group: g, part: part{Of: 1}, ttl: time.Duration(r.sc.TTL), tag: incumbent.NewSessionID().String()[:8], agenda: newAgenda(), left: map[int]*agent{},
		opConnect: op("connect"), opOpen: op("open"), opAttach: op("attach"), opClaim: op("claim"), opExtend: op("extend"),
		opBeat: op("beat"), opRelease: op("release"), opHandOver: op("hand-over"), opRecovery: op("recovery"), opFreed: op("freed late"),
		roams: len(r.clients) > 1 || len(r.sc.script()) > 0, silent: silentAfter,
	}
	if r.sc.Silent > 0 {
		f.silent = time.Duration(r.sc.Silent)
	}
	f.redialling = make(chan struct{}, redials)
	f.ctx, f.cancel = context.WithCancel(ctx)
	if len(r.clients) > 1 {
		f.enqueue(planned{what: stepSweep})
	}
	return f
}

func (f *fleet) counts() (holding, waiting, connections int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holding, f.waiting, f.open
}

func (f *fleet) leaseName(lease int) string { return fmt.Sprintf("%s/app-%d", f.tag, lease) }

// model is the model of a lease; "": it is in none.
func (f *fleet) model(lease int) string {
	if f.perModel == 0 {
		return ""
	}
	return fmt.Sprintf("%s-%d", f.tag, lease/f.perModel)
}

// grow adds agents until n leases have all their candidates, at a rate, and
// waits until they have what they want. Both are of all processes.
func (f *fleet) grow(ctx context.Context, n int, rate float64) error {
	n, rate = f.part.share(n), rate/float64(f.part.Of)
	f.mu.Lock()
	for len(f.heldBy) < n {
		f.heldBy, f.freed = append(f.heldBy, nil), append(f.freed, 0)
	}
	f.mu.Unlock()
	if f.apart { // whoever comes first holds
		for c := range f.candidates {
			if err := f.begin(ctx, (c+1)*n, rate, func(i int) int { return i % n }); err != nil {
				return err
			}
		}
		return nil
	}
	// All candidates of a lease come at about the same time, as units of an application do.
	return f.begin(ctx, n*f.candidates, rate, func(i int) int { return i / f.candidates })
}

// begin adds agents until there are so many, at a rate, and waits until they have the
// leases that they want.
func (f *fleet) begin(ctx context.Context, want int, rate float64, lease func(i int) int) error {
	f.mu.Lock()
	from := len(f.agents)
	f.mu.Unlock()
	began := f.now()
	due := func(i int) time.Duration {
		return began + time.Duration(float64(i-from)/rate*float64(time.Second))
	}
	f.mu.Lock()
	for i := from; i < want; i++ {
		f.agents = append(f.agents, &agent{id: i, lease: lease(i), session: incumbent.NewSessionID()})
	}
	if have := len(f.links); from < want && have > 0 {
		f.join(f.links[have-1], due) // it may have room
	}
	f.mu.Unlock()
	if err := f.openLinks(ctx, want, due); err != nil {
		return err
	}
	return f.settle(ctx, want, time.Duration(float64(want-from)/rate*float64(time.Second))+time.Minute)
}

// settle waits until all agents hold or wait, and then until each lease is held.
func (f *fleet) settle(ctx context.Context, want int, most time.Duration) error {
	err := f.awaitAll(ctx, most, "agents hold", func() (int, int, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.holding + f.waiting, want, f.failure
	})
	if err != nil || f.idle {
		return err
	}
	return f.awaitHeld(ctx, func() (int, int, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.holding, len(f.heldBy), f.failure
	})
}

// awaitAll waits until as many as are wanted do what they are to do, which is that or
// wait.
func (r *run) awaitAll(ctx context.Context, most time.Duration, doing string, count func() (have, want int, err error)) error {
	have, want, err := r.await(ctx, most, count)
	if err == nil && have < want {
		return incumbent.Errorf(incumbent.DeadlineExceeded, "after %v only %d of %d %s or wait", most, have, want, doing)
	}
	return err
}

// heldWithin is how long, once all hold or wait, who is to have a lease that is free may take to
// be told of it and take it up.
const heldWithin = 10 * time.Second

// awaitHeld waits until each lease is held: one for which all wait, in vain, is a violation.
func (r *run) awaitHeld(ctx context.Context, count func() (held, leases int, err error)) error {
	held, leases, err := r.await(ctx, heldWithin, count)
	if err == nil && held < leases {
		r.check.Violate("%d of %d leases are held %v after all hold or wait", held, leases, heldWithin)
	}
	return err
}

// await counts until there are as many as are wanted, or the time is over.
func (r *run) await(ctx context.Context, most time.Duration, count func() (have, want int, err error)) (have, want int, err error) {
	for end := r.now() + most; ; {
		have, want, err = count()
		if err != nil || have >= want || r.now() > end {
			return have, want, err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return have, want, err
		}
	}
}

// hold keeps the fleet going for a while.
func (f *fleet) hold(ctx context.Context, d time.Duration) error {
	var err error
	if f.sc.HandOvers > 0 && f.candidates > 1 {
		err = f.handOvers(ctx, d, func() float64 { return float64(f.handed.Load()) }, f.handOver)
	} else {
		err = sleep(ctx, d)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = f.failure
	}
	return err
}

// handOvers has holders release, at the scenario's rate, to whoever waits: from then
// until the next one knows that it holds is what a hand-over takes. handed is how many
// there were; release has some holder release what it holds, due at a moment of the run.
func (r *run) handOvers(ctx context.Context, d time.Duration, handed func() float64, release func(due time.Duration)) error {
	releasing, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	done.Go(func() {
		began := r.now()
		for k := 0; ; k++ {
			due := began + time.Duration(float64(k)/r.sc.HandOvers*float64(time.Second))
			if sleep(releasing, due-r.now()) != nil {
				return
			}
			release(due)
		}
	})
	began, used, before := r.now(), r.meter.cpu(), handed()
	err := sleep(ctx, d)
	if n := handed() - before; n > 0 {
		r.fact("hand_overs_per_second", n/(r.now()-began).Seconds())
		r.fact("cpu_us_per_hand_over", float64((r.meter.cpu()-used).Microseconds())/n)
	}
	return err
}

// handOver has one of the holders release.
func (f *fleet) handOver(due time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.heldBy[rand.IntN(len(f.heldBy))]; a != nil && a.token != 0 {
		f.freed[a.lease] = due
		f.do(due, stepRelease, a)
	}
}

// close ends all streams and waits for their readers: nothing is recorded after.
func (f *fleet) close() {
	f.mu.Lock()
	f.ended = true
	f.cancel()
	for _, l := range f.links {
		if l != nil && l.stream != nil {
			l.stream.Close()
		}
	}
	f.poke()
	f.mu.Unlock()
	f.running.Wait()
}
