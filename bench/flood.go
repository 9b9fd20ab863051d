package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Limits of floods.
const (
	floodSets     = 256                   // of leases, keys, instances or rows, that all floods of a run change
	floodClients  = 256                   // of one, unless its work says otherwise: each has a request under way
	floodClosed   = 128                   // of them, while what the cluster carries is found out
	floodPatience = 10 * time.Second      // a request may take
	rudePatience  = time.Second           // a client that behaves badly waits for an answer, then asks again at once
	closedWait    = 50 * time.Millisecond // after a refusal, at most, while what the cluster carries is found out
	clientEvery   = 20 * time.Millisecond // between two clients that do not connect at once
	reconnectsIn  = time.Second           // until the clients of protocols that can tell no time connect again
	floodTTL      = 20 * time.Second      // of leases whose clients were broken off: over when it is measured what the servers carry afterwards
	floodWatches  = 50 * time.Millisecond // a watch of Consul's protocol in a flood lasts, if nothing changes
	maxFloodTimes = 100
	unsentMost    = 0.2              // of a flood may find no client free, or it was none of so many times
	unsentAfter   = 10 * time.Second // of a flood: in a shorter one that is chance
	operatorEvery = 500 * time.Millisecond
	caughtUpIn    = 30 * time.Second // all members are, after a flood of clients that behave badly
)

// The operations of a flood: requests that were executed, and those that were refused. What
// they took counts from when a client took them up, not from when they were due.
const (
	floodDone    = "flood"
	floodRefused = "flood-refused"
)

// floodWork is what floods the servers. A request has several operations, so that few
// connections carry many of them and the load tool is not what is measured.
type floodWork struct {
	door  string // that must be there; "": the native one
	batch int    // operations of a request
	width int    // how many clients; floodClients if 0
	// waits: by its protocol, or at the gate, what there is no room for waits before it is refused,
	// and its client with it. So many clients ask for no more than they are answered.
	waits bool
	// apart: to open a client asks nothing of the servers, and it is ready before the flood
	// begins: what it prepares would take the processors from them. It connects by itself.
	apart bool
	// oneByOne: its clients connect one after the other: that all do at once is what storms of logins
	// are for.
	oneByOne bool
	// open makes a client of one member, the n-th of all.
	open func(ctx context.Context, f *flood, member, n int) (*floodClient, error)
}

// floodClient is one client. It is used by one goroutine at a time.
type floodClient struct {
	// ask makes the i-th request and returns how many of its operations were done. The
	// error of one that was refused for the load is Overloaded.
	ask   func(ctx context.Context, i int) (done int, err error)
	close func() // may be nil
}

// end ends a client, if there is one.
func (c *floodClient) end() {
	if c != nil && c.close != nil {
		c.close()
	}
}

// doneIf is what a request of so many operations came to: all, or none.
func doneIf(err error, operations int) (int, error) {
	if err != nil {
		return 0, err
	}
	return operations, nil
}

// floods are what the action flood can consist of.
var floods = map[string]*floodWork{
	"claims":        {batch: claimBatch, width: 2 * floodClients, apart: true, open: openClaims},
	"writes":        {batch: 500, width: 6 * floodClients, apart: true, open: openWrites},
	"registrations": {door: doorConsul, batch: 64, width: 8 * floodClients, open: openRegistrations},
	"table-changes": {door: doorOVSDB, batch: 200, waits: true, open: openTableChanges},
	"juju-claims":   {door: doorJuju, batch: jujuFloodClaims, waits: true, open: openJujuClaims},
	// Who proves nothing, at each door: waits until its turn comes or it is turned away.
	"wrong-password":      {batch: 1, width: 8 * floodClients, waits: true, open: attempts(guessNative)},
	"juju-wrong-password": {door: doorJuju, batch: 1, width: 8 * floodClients, waits: true, open: attempts(guessJuju)},
	"consul-wrong-token":  {door: doorConsul, batch: 1, width: 8 * floodClients, waits: true, open: attempts(guessConsul)},
	"ovsdb-opens":         {door: doorOVSDB, batch: 1, width: 8 * floodClients, waits: true, open: attempts(knockOVSDB)},
	// Who is known and asks for nothing, at each door: is answered, later and later.
	"juju-denied":      {door: doorJuju, batch: deniedClaims, waits: true, oneByOne: true, open: openForeign},
	"stream-denied":    {batch: deniedFrames, waits: true, oneByOne: true, open: openMisspelt},
	"consul-not-found": {door: doorConsul, batch: 1, waits: true, oneByOne: true, open: openLost},
	"ovsdb-echoes":     {door: doorOVSDB, batch: 1, waits: true, oneByOne: true, open: openEchoes},
}

// flood is one action of that name. What it finds goes into facts that name how many
// times what the cluster carries it asks for: 0 asks for the next when the last is
// answered, and finds out what that is.
type flood struct {
	*run
	*floodWork
	action   Action
	name     string
	doors    map[int]string // member → where it has the work's door
	model    string         // of Juju's, where it all is
	began    time.Duration
	opens    opens
	accepted *opRecord     // requests that were executed
	refused  *opRecord     // and those that were refused: how long that took
	done     atomic.Int64  // operations
	half     time.Duration // when half of the time was over, and how many of them were done then; 0: it was not
	halfDone int64
	offered  atomic.Int64
	unsent   atomic.Int64 // beyond what the clients could take up: each had a request under way, and as many waited
	lateOnes atomic.Int64 // requests that were not answered in time, or broke
	denied   atomic.Int64 // operations that were done: what was asked for is another's

	explained string // the name of a lease
}

// flood lets a flood in on some members. What it returns ends it.
func (o *ordeal) flood(ctx context.Context, a Action, who []int) (end func(), err error) {
	work := floods[a.Work]
	f := &flood{run: o.run, floodWork: work, action: a, name: a.floodName(), accepted: o.rec.op(floodDone), refused: o.rec.op(floodRefused), model: incumbent.NewSessionID().String()}
	switch {
	case a.Times > 0 && o.rates == nil:
		return nil, incumbent.Errorf(incumbent.Invalid, "a flood of %v times what is carried needs one without times before it", a.Times)
	case a.Times > 0 && o.peak == 0:
		return nil, incumbent.Errorf(incumbent.Unavailable, "no request was executed in the flood before this one, which was to find out what is carried")
	}
	f.explained = leaseOfNobody
	if o.critical != nil {
		f.explained = o.critical.leaseName(0)
	}
	if f.doors, err = o.doorsOf(ctx, work.door, who); err != nil {
		return nil, err
	}
	clients := make([]*floodClient, f.clientCount())
	if f.apart {
		for i := range clients {
			if clients[i], err = f.open(ctx, f, who[i%len(who)], i); err != nil {
				return nil, err
			}
		}
	}
	if a.Times > 0 {
		o.endStep("before " + f.phase())
	}
	f.began = o.now()
	caught := ctx
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	due := make(chan struct{}, len(clients))
	for i, c := range clients {
		all.Go(func() {
			if f.oneByOne && sleep(ctx, time.Duration(i)*clientEvery) != nil {
				return
			}
			f.client(ctx, c, who[i%len(who)], i, due)
		})
	}
	if a.Times > 0 {
		all.Go(func() { f.pace(ctx, a.Times*o.peak/float64(work.batch), due) })
		// What they leave is due in the flood, if that is long enough.
		all.Go(func() { o.mortal.fallSilent(ctx, silentProcesses(o.victims.size()), time.Duration(a.For)/2) })
		all.Go(func() { f.keepOpening(ctx, who) })
	} else {
		close(due) // all are always due
		all.Go(func() {
			if sleep(ctx, time.Duration(a.For)/2) == nil {
				f.halfDone, f.half = f.done.Load(), f.now()
			}
		})
	}
	all.Go(func() { f.operate(ctx, who, f.operatorCalls()) })
	return func() {
		ended := o.now()
		took := (ended - f.began).Seconds()
		stop()
		all.Wait()
		if a.Times > 0 {
			o.endStep(f.phase())
		}
		o.judgeFlood(f, f.rate(ended), took)
		if a.Rude {
			o.catching.Go(func() { o.noteCaughtUp(caught, ended) })
		}
	}, nil
}

// rate is how many operations a second were done of a flood that has ended. Of one that finds out
// what is carried it is that of the second half, in which there is what is worked on, if it lasted
// so long: one that began late may not have.
func (f *flood) rate(ended time.Duration) float64 {
	from, done := f.began, f.done.Load()
	if f.action.Times == 0 && f.half > 0 && done > f.halfDone {
		from, done = f.half, done-f.halfDone
	}
	return float64(done) / (ended - from).Seconds()
}

// phase is what a flood's step is called by.
func (f *flood) phase() string { return "flood " + f.name }

// floodName is what the facts of a flood are called by.
func (a Action) floodName() string {
	switch {
	case a.Times == 0:
		return "carried"
	case a.Rude:
		return fmt.Sprintf("rude_%gx", a.Times)
	}
	return fmt.Sprintf("%gx", a.Times)
}

// judgeFlood notes what a flood came to.
func (o *ordeal) judgeFlood(f *flood, rate, took float64) {
	if denied := f.denied.Load(); denied > 0 {
		o.fact(f.name+"_denied_share", float64(denied)/float64(max(1, f.done.Load())))
	}
	if f.action.Times == 0 && o.rates == nil {
		o.peak, o.best, o.rates = rate, rate, map[string]float64{}
		o.fact("carried_per_second", rate)
		if rate == 0 {
			o.check.Violate("none of the operations was done of which it was to be found out how many the servers carry")
		}
		return
	}
	name := f.name
	if f.action.Times == 0 {
		name = "afterwards"
	}
	o.fact(name+"_done_per_second", rate)
	if o.best = max(o.best, rate); f.action.Times > 0 {
		o.rates[name] = rate
	}
	for name, rate := range o.rates {
		o.fact(name+"_missing_share", 1-rate/o.best)
	}
	if f.action.Times == 0 && o.peak > 0 { // found out as before the floods, and to be as much as then
		o.fact(name+"_missing_share", max(0, 1-rate/o.peak))
	}
	if f.action.Times == 0 {
		return
	}
	o.fact(name+"_offered_per_second", float64(f.offered.Load())/took)
	o.fact(name+"_sent_per_second", float64(f.offered.Load()-f.unsent.Load())/took)
	unsent := float64(f.unsent.Load()) / float64(max(1, f.offered.Load()))
	o.fact(name+"_unsent_share", unsent)
	if unsent > unsentMost && !f.waits && !f.action.Rude && took >= unsentAfter.Seconds() {
		o.check.Violate("for %.0f %% of a flood of %gx the load tool had no client free: the servers were not asked for so much", 100*unsent, f.action.Times)
	}
	o.fact(name+"_unanswered", float64(f.lateOnes.Load()))
	for what, n := range map[string]*atomic.Int64{"served": &f.opens.served, "refused": &f.opens.refused, "unanswered": &f.opens.unanswered} {
		o.fact(name+"_opens_"+what, float64(n.Load()))
	}
}

// clientCount is how many clients the flood has.
func (f *flood) clientCount() int {
	if f.action.Times == 0 {
		return floodClosed
	}
	return cmp.Or(f.width, floodClients)
}

// sets are what the n-th client works on, of so many leases, keys, instances or rows: all
// floods of a run work on the same, so that what is carried is found out on as much state as
// is flooded. Of more clients than sets, several change the same one.
func (f *flood) sets(n, of int) (list []int) {
	for n %= of; n < of; n += min(f.clientCount(), of) {
		list = append(list, n)
	}
	return list
}

// pace says when requests are due. While all clients have one under way, as many more wait for
// them at most; what is due beyond that could not be answered either, and is counted. How long a
// request waited is not measured: see [flood.client].
func (f *flood) pace(ctx context.Context, rate float64, due chan<- struct{}) {
	began := f.now()
	for sent := 0; ctx.Err() == nil; {
		for want := int((f.now() - began).Seconds() * rate); sent < want; sent++ {
			f.offered.Add(int64(f.batch))
			select {
			case due <- struct{}{}:
			default:
				f.unsent.Add(int64(f.batch))
			}
		}
		_ = sleep(ctx, time.Millisecond)
	}
}

// client asks whenever something is due, which counts from then on. c is made when it is needed
// if it is nil, and that it is made counts too.
func (f *flood) client(ctx context.Context, c *floodClient, member, n int, due <-chan struct{}) {
	defer func() { c.end() }()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case _, paced := <-due:
			if ctx.Err() != nil {
				return
			}
			if !paced {
				f.offered.Add(int64(f.batch))
			}
		}
		for again := true; again && ctx.Err() == nil; {
			began := f.now()
			done, err := f.once(ctx, member, n, i, &c)
			wait := f.outcome(ctx, began, done, err)
			again = f.action.Rude && err != nil
			if !again && wait > 0 && f.action.Times == 0 {
				// Who finds out what is carried does not ask again at once, nor does it obey:
				// with few clients the servers would have nothing to do meanwhile.
				_ = sleep(ctx, min(wait, closedWait))
			}
		}
	}
}

// once makes a request, over a new connection if there is none. Some protocols can refuse
// work only by not letting anybody in.
func (f *flood) once(ctx context.Context, member, n, i int, c **floodClient) (done int, err error) {
	ctx, cancel := f.patience(ctx)
	defer cancel()
	if *c == nil {
		if *c, err = f.open(ctx, f, member, n); err != nil {
			refused := incumbent.Errorf(incumbent.Overloaded, "was not let in: %w", err)
			refused.RetryAfter = reconnectsIn
			return 0, refused
		}
	}
	done, err = (*c).ask(ctx, i)
	if _, overloaded := overloadOf(err); err != nil && !overloaded && !f.apart {
		(*c).end()
		*c = nil
	}
	return done, err
}

// patience is how long a request may take. Only who behaves badly says so to the servers:
// what is refused to others comes back, and costs, four times as often, see [admit.HoldBack].
func (f *flood) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.action.Rude {
		return context.WithTimeout(ctx, rudePatience)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(floodPatience, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// outcome records a request that a client took up at began, and returns when the server wants
// its next one.
func (f *flood) outcome(ctx context.Context, began time.Duration, done int, err error) (wait time.Duration) {
	now := f.now()
	f.done.Add(int64(done))
	wait, overloaded := overloadOf(err)
	switch {
	case err == nil:
		f.accepted.done(now, now-began, 1)
	case overloaded:
		f.refused.done(now, now-began, 1)
	case ctx.Err() == nil:
		f.lateOnes.Add(1)
	}
	return wait
}

// operate does what an operator does who looks what is the matter, on each member in
// turn, until ctx ends: it must go on in every flood. What has to wait for the call before it is
// late. The last call comes to its end, too.
func (f *flood) operate(ctx context.Context, who []int, calls []operatorCall) {
	record, due := f.rec.op("operator"), f.now()
	for n := 0; ; n++ {
		due += operatorEvery
		// Where a call ended late, the next is due at once, and sleep need not see that ctx has ended.
		if sleep(ctx, due-f.now()) != nil || ctx.Err() != nil {
			return
		}
		whole := context.WithoutCancel(ctx)
		call, cancel := context.WithTimeout(whole, floodPatience)
		err := calls[n%len(calls)](call, who[n%len(who)])
		cancel()
		f.run.outcome(whole, record, due, err)
		if err != nil {
			f.check.Violate("an operator's call %d failed in a flood: %v", n%len(calls), err)
		}
	}
}

// operatorCall is what an operator does on one member.
type operatorCall func(ctx context.Context, member int) error

// operatorCalls are what it does on a member, by turns: one who was there before, and one who
// comes for it.
func (f *flood) operatorCalls() []operatorCall {
	return []operatorCall{
		func(ctx context.Context, member int) error {
			_, err := statusOf(ctx, f.clients[member])
			return err
		},
		func(ctx context.Context, member int) error {
			s, err := f.clients[member].Cluster().Events(ctx, connect.NewRequest(&apiv1.EventsRequest{Limit: 10}))
			if err != nil {
				return err
			}
			s.Receive()
			return errors.Join(s.Err(), s.Close())
		},
		func(ctx context.Context, member int) error {
			_, err := f.clients[member].Settings().Set(ctx, "quota.namespace.leases", "0")
			return err
		},
		func(ctx context.Context, member int) error {
			_, err := f.clients[member].Leases().Get(ctx, connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Name: f.explained}}))
			if f.explained == leaseOfNobody && (incumbent.KindOf(err) == incumbent.NotFound || connect.CodeOf(err) == connect.CodeNotFound) {
				return nil
			}
			return err
		},
		func(ctx context.Context, member int) error {
			cfg := f.cluster.Client()
			cfg.Servers = []string{f.urls[member]}
			c, err := client.New(cfg)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = statusOf(ctx, c)
			return err
		},
	}
}

// leaseOfNobody is explained where no critical lease is held beside the flood.
const leaseOfNobody = "of-nobody"
