package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent/park"
)

// jujuFleet is a fleet of Juju's units, each with a connection of its own to the
// door for Juju's agents. It behaves as Juju's load tool does: a unit claims its
// application's leadership; who has it extends it; who is denied asks to be told
// when it is free, and claims again.
//
// Connections are parked: what arrives is taken by a few workers, and what is sent
// is never waited for. One mutex guards all units, as with the native fleet.
type jujuFleet struct {
	*run
	ttl, every time.Duration
	login      jujuLogin
	hosts      []string
	part       part
	tls        *tls.Config
	park       *park.Set
	welcome    atomic.Pointer[[]byte] // see welcomed

	ctx     context.Context // of dialling; ends with the fleet
	cancel  context.CancelFunc
	running sync.WaitGroup // drive and those who dial

	mu sync.Mutex // guards the agenda too
	agenda
	units    []*unit
	leases   []jujuLease
	toDial   []planned // due, and waiting for one who dials
	dialers  int
	scratch  []byte // for one message
	tally    tally
	ended    bool
	failure  error
	struckAt time.Duration // when the fault that is played began; 0: none has

	opHandshake, opConnect, opClaim, opDenied, opExtend, opPing, opHandOver, opRecovery *opRecord
}

// unit is one candidate for the leadership of its application.
type unit struct {
	id, lease, n int
	conn         *jujuConn // nil while it is not connected
	request      uint64    // id of the last one on its connection

	connects time.Duration // intended time of the connection that is being opened
	tries    int           // logins in a row that were told to try again
	moves    int           // added to its number, it gives its host
	call     jujuCall      // the claim, extension or wait under way
	ping     jujuCall

	leads  bool
	token  uint64        // of its holding, as the checker counts them
	since  time.Duration // when it became leader
	until  time.Duration // its own deadline
	due    time.Duration // when the lease is free if it extends no more
	lapsed bool
	owed   time.Duration // intended time of the oldest extension without a good answer; 0: none
	gen    uint64        // of its holding and its connection; steps planned for an earlier one are void
	struck bool          // it led when the fault began and has had no answer since
}

// jujuCall is a request without an answer; id 0: there is none.
type jujuCall struct {
	what           step
	id             uint64
	intended, sent time.Duration
	missed         bool // it has no answer in time, which is counted
}

// jujuLease is who was the last to lead an application, and how many holdings
// there were, as the checker counts them.
type jujuLease struct {
	unit  *unit
	token uint64
}

func (u *unit) application() string { return "app" + strconv.Itoa(u.lease) }
func (u *unit) name() string        { return u.application() + "/" + strconv.Itoa(u.n) }
func (u *unit) tag() string         { return "unit-" + u.application() + "-" + strconv.Itoa(u.n) }

// host is which of n hosts the unit speaks to: as in Juju's load tool unit N to host N.
func (u *unit) host(n int) int { return (u.id + u.moves) % n }

// newJujuFleet makes the fleet of a process that has a part of the leases.
func newJujuFleet(ctx context.Context, r *run, login jujuLogin, hosts []string, p part) (*jujuFleet, error) {
	set, err := park.New(park.Config{})
	if err != nil {
		return nil, err
	}
	f := &jujuFleet{
		run: r, ttl: time.Duration(r.sc.TTL), every: time.Duration(r.sc.Every), login: login, hosts: hosts, part: p,
		tls: jujuTLS(), park: set, agenda: newAgenda(),
		opHandshake: r.rec.op("handshake"), opConnect: r.rec.op("connect"), opClaim: r.rec.op("claim"), opDenied: r.rec.op("claim-denied"), opExtend: r.rec.op("extend"),
		opPing: r.rec.op("ping"), opHandOver: r.rec.op("hand-over"), opRecovery: r.rec.op("recovery"),
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.enqueue(planned{what: stepSweep})
	f.running.Go(func() { f.drive(&f.mu, f.now, &f.ended, f.perform) })
	return f, nil
}

func (f *jujuFleet) candidates() int { return max(1, f.sc.Candidates) }

// grow adds units until there are n leases in all processes, at a rate for all of
// them, and waits until each of this one's leads or is blocked.
func (f *jujuFleet) grow(ctx context.Context, n int, rate float64) error {
	f.mu.Lock()
	from, began := len(f.leases), f.now()
	for lease := from; lease < n; lease++ {
		f.leases = append(f.leases, jujuLease{})
		for c := range f.candidates() {
			id := lease*f.candidates() + c
			if f.part.has(lease) {
				u := &unit{id: id, lease: lease, n: c}
				f.units = append(f.units, u)
				u.connects = began + time.Duration(float64(id-from*f.candidates())/rate*float64(time.Second))
				f.plan(u.connects, stepConnect, u)
			}
		}
	}
	ramp := time.Duration(float64((n-from)*f.candidates()) / rate * float64(time.Second))
	f.mu.Unlock()
	if err := f.settle(ctx, ramp+jujuSettle); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faultOver()
	return nil
}

// jujuSettle is how long after a ramp all units must lead or be blocked.
const jujuSettle = 10 * time.Minute

func (f *jujuFleet) settle(ctx context.Context, most time.Duration) error {
	err := f.awaitAll(ctx, most, "units lead", func() (int, int, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.tally.Leading + f.tally.Blocked, len(f.units), f.failure
	})
	if err != nil || f.sc.HandOvers > 0 { // what is handed over nobody has until it expires
		return err
	}
	return f.awaitHeld(ctx, func() (int, int, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.tally.Leading, len(f.units) / f.candidates(), f.failure
	})
}

// count implements crew.
func (f *jujuFleet) count() (tally, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally, f.failure
}

// size implements victims.
func (f *jujuFleet) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.leases)
}

// flush implements victims: all is here.
func (*jujuFleet) flush() {}

// judge implements victims.
func (f *jujuFleet) judge() error { return f.judgeTally(f.count()) }

// hold keeps the fleet going for a while. Leaders that are to hand over fall
// silent: their leases expire.
func (f *jujuFleet) hold(ctx context.Context, d time.Duration) error {
	end := f.now() + d
	if rate := f.sc.HandOvers; rate > 0 && f.candidates() > 1 {
		for due := f.now(); due < end; {
			if err := sleep(ctx, due-f.now()); err != nil {
				return err
			}
			f.retire()
			due += time.Duration(float64(time.Second) / rate)
		}
	}
	if err := sleep(ctx, end-f.now()); err != nil {
		return err
	}
	_, err := f.count()
	return err
}

// retire ends the connection of a leader, which comes back at once and finds that
// it leads no more, or that nobody has noticed.
func (f *jujuFleet) retire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.leases) == 0 {
		return
	}
	u := f.leases[rand.IntN(len(f.leases))].unit
	if u == nil || !u.leads || u.conn == nil || u.call.id != 0 {
		return // nobody leads, or an extension is under way that would count as failed
	}
	f.say("lost     %s after %v in 0s", u.name(), (f.now() - u.since).Round(time.Second))
	f.noLongerLeads(u)
	f.hangUp(u)
	f.connectAt(u, u.due+jujuRedial)
}

// close ends all connections: nothing is recorded after.
func (f *jujuFleet) close() {
	f.mu.Lock()
	f.ended = true
	f.cancel()
	f.poke()
	f.mu.Unlock()
	f.running.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nothing that is queued matters
	if err := f.park.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
		panic("bench: parked connections did not end: " + err.Error()) // no other error is possible
	}
}

// plan puts a step on the schedule. Held: f.mu, as by all below.
func (f *jujuFleet) plan(at time.Duration, what step, u *unit) {
	f.enqueue(planned{at: at, what: what, unit: u, gen: u.gen})
}

func (f *jujuFleet) perform(p planned) {
	u := p.unit
	switch {
	case p.what == stepSweep:
		f.sweep(f.now())
	case p.what == stepConnect:
		f.toDial = append(f.toDial, p)
		if f.dialers < jujuDialers {
			f.dialers++
			f.running.Go(f.dialAll)
		}
	case p.what == stepPing && u.conn == p.conn:
		f.enqueue(planned{at: p.at + jujuPingEvery, what: stepPing, unit: u, conn: p.conn})
		f.send(u, stepPing, p.at)
	case p.what != stepExtend || p.gen != u.gen: // of a connection or a holding that is over
	case u.conn == nil:
		u.owe(p.at)
	default:
		f.send(u, stepExtend, p.at)
	}
}

// jujuSweepEvery is how often is looked at what has no answer.
const jujuSweepEvery = time.Second

// sweep counts, once each, the claims and extensions that have no answer a ttl after they
// were sent: a unit waits for one for as long as its connection lasts. It also counts the leaders
// that have lapsed: one that cannot connect sends nothing and hears nothing.
func (f *jujuFleet) sweep(now time.Duration) {
	for _, u := range f.units {
		f.noteLapse(u, now)
		if c := &u.call; (c.what == stepClaim || c.what == stepExtend) && !c.missed && now-c.sent > f.ttl {
			c.missed = true
			f.check.Violate("%s: request %d for its leadership was not answered within %v", u.name(), c.id, f.ttl)
		}
	}
	f.enqueue(planned{at: now + jujuSweepEvery, what: stepSweep})
}

// send sends a unit's request.
func (f *jujuFleet) send(u *unit, what step, intended time.Duration) {
	u.request++
	b := append(f.scratch[:0], make([]byte, jujuFrameHeader)...)
	call := jujuCall{what: what, id: u.request, intended: intended, sent: f.now()}
	switch what {
	case stepPing:
		b = appendJujuPing(b, u.request)
		u.ping = call
	case stepBlock:
		b = appendJujuBlock(b, u.request, u)
		u.call = call
		f.tally.Blocked++
	default:
		f.noteLapse(u, call.sent)
		b = appendJujuClaim(b, u.request, u, f.ttl)
		u.call = call
	}
	f.scratch = b
	_, _ = u.conn.parked.Write(jujuFrame(b, ws.OpText)) // if the connection has ended, Closed says so
}
