package bench

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// fleet is a set of agents that want leases, in open loop: what each does next
// has an intended time, kept by one schedule; answers arrive on the readers of
// the streams and put the next step on the schedule.
//
// One mutex guards all agents: a step is a few field writes and a send to a
// socket that is not full, and two cores are shared with the server anyway.
type fleet struct {
	*run
	ttl, every time.Duration
	perStream  int
	strict     bool // a fault is played: no holding may change hands at all
	idle       bool // agents want no lease
	tag        string

	running sync.WaitGroup // drive, and a reader for each stream

	mu       sync.Mutex
	agents   []*agent     // those of a stream that is not open yet have no link
	links    []*fleetLink // nil until it is open
	open     int          // links that were opened
	heldBy   []*agent     // lease → its holder as told
	schedule schedule
	wake     chan struct{}
	holding  int
	waiting  int
	ended    bool
	failure  error

	opened, claimed, handed atomic.Int64

	opOpen, opAttach, opClaim, opExtend, opBeat, opRelease, opHandOver *opRecord
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
	lapsed bool
}

// fleetLink is one stream and the requests under way on it.
type fleetLink struct {
	f       *fleet
	n       int
	stream  *client.Stream
	next    uint64
	pending map[uint64]pending
	bySess  map[string]*agent
	beating bool
}

// pending is one unanswered request.
type pending struct {
	what     step
	agent    *agent
	token    uint64
	intended time.Duration
	sent     time.Duration
}

// step is what an agent does next.
type step uint8

const (
	stepOpen step = iota + 1
	stepAttach
	stepClaim
	stepExtend
	stepBeat
	stepRelease
	stepAccept
)

func newFleet(r *run) *fleet {
	f := &fleet{
		run: r, ttl: time.Duration(r.sc.TTL), every: time.Duration(r.sc.Every), strict: r.sc.Fault != nil,
		perStream: max(1, r.sc.SessionsPerStream), tag: incumbent.NewSessionID().String()[:8], wake: make(chan struct{}, 1),
		opOpen: r.rec.op("open"), opAttach: r.rec.op("attach"), opClaim: r.rec.op("claim"), opExtend: r.rec.op("extend"),
		opBeat: r.rec.op("beat"), opRelease: r.rec.op("release"), opHandOver: r.rec.op("hand-over"),
	}
	if r.sc.Connections == "own" {
		f.perStream = 1
	}
	r.mu.Lock()
	r.agents = f.counts
	r.mu.Unlock()
	return f
}

func (f *fleet) counts() (holding, waiting, connections int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holding, f.waiting, f.open
}

func (f *fleet) leaseName(lease int) string { return fmt.Sprintf("%s/app-%d", f.tag, lease) }

// candidates is how many agents want each lease.
func (f *fleet) candidates() int { return max(1, f.sc.Candidates) }

// grow adds agents until n leases have all their candidates, at a rate, and
// waits until they have what they want.
func (f *fleet) grow(ctx context.Context, n int, rate float64) error {
	f.mu.Lock()
	from := len(f.agents)
	for len(f.heldBy) < n {
		f.heldBy = append(f.heldBy, nil)
	}
	f.mu.Unlock()
	want := n * f.candidates()
	began := f.now()
	due := func(i int) time.Duration {
		return began + time.Duration(float64(i-from)/rate*float64(time.Second))
	}
	f.mu.Lock()
	for i := from; i < want; i++ {
		// All candidates of a lease come at about the same time, as units of
		// an application do.
		f.agents = append(f.agents, &agent{id: i, lease: i / f.candidates(), session: incumbent.NewSessionID()})
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

// openLinks dials the streams that want agents need, and has their agents begin.
// Where each agent has its own, connections are part of the ramp. What was
// dialled before an error is closed with the fleet.
func (f *fleet) openLinks(ctx context.Context, want int, due func(int) time.Duration) error {
	f.mu.Lock()
	have := len(f.links)
	need := max(have, (want+f.perStream-1)/f.perStream)
	f.links = append(f.links, make([]*fleetLink, need-have)...)
	f.mu.Unlock()
	return inParallel(ctx, need-have, func(i int) error {
		n := have + i
		if f.perStream == 1 {
			if err := sleep(ctx, due(n)-f.now()); err != nil {
				return err
			}
		}
		link, r, err := f.dialLink(ctx, n)
		if err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.links[n] = link
		f.open++
		f.running.Go(func() { f.read(link, r) })
		f.join(link, due)
		return nil
	})
}

// join has the agents of a stream begin that have not yet. Held: f.mu.
func (f *fleet) join(l *fleetLink, due func(int) time.Duration) {
	from := l.n * f.perStream
	for i := from; i < min(from+f.perStream, len(f.agents)); i++ {
		a := f.agents[i]
		if a.link != nil {
			continue
		}
		a.link = l
		l.bySess[a.session.String()] = a
		f.plan(max(due(i), f.now()), stepOpen, a, nil)
	}
}

func (f *fleet) dialLink(ctx context.Context, n int) (*fleetLink, *bufio.Reader, error) {
	c := f.clients[n%len(f.clients)]
	size := 512
	if f.perStream > 1 {
		size = 32 << 10
	}
	s, r, err := c.DialStream(ctx, client.StreamOptions{Local: f.source(n), ReadBuffer: size})
	if err != nil {
		return nil, nil, err
	}
	return &fleetLink{f: f, n: n, stream: s, pending: make(map[uint64]pending), bySess: make(map[string]*agent)}, r, nil
}

// settle waits until all agents hold or wait.
func (f *fleet) settle(ctx context.Context, want int, most time.Duration) error {
	end := f.now() + most
	for {
		f.mu.Lock()
		have, failure := f.holding+f.waiting, f.failure
		f.mu.Unlock()
		switch {
		case failure != nil:
			return failure
		case have >= want:
			return nil
		case f.now() > end:
			return incumbent.Errorf(incumbent.DeadlineExceeded, "after %v only %d of %d agents hold or wait", most, have, want)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// hold keeps the fleet going for a while.
func (f *fleet) hold(ctx context.Context, d time.Duration) error {
	stop := make(chan struct{})
	var done sync.WaitGroup
	if f.sc.HandOvers > 0 && f.candidates() > 1 {
		done.Go(func() { f.handOver(stop, f.sc.HandOvers) })
	}
	err := sleep(ctx, d)
	close(stop)
	done.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = f.failure
	}
	return err
}

// handOver has holders release, at a rate, to whoever waits.
func (f *fleet) handOver(stop <-chan struct{}, rate float64) {
	began := f.now()
	for k := 0; ; k++ {
		due := began + time.Duration(float64(k)/rate*float64(time.Second))
		select {
		case <-time.After(due - f.now()):
		case <-stop:
			return
		}
		f.mu.Lock()
		if a := f.heldBy[rand.IntN(len(f.heldBy))]; a != nil && a.token != 0 {
			f.do(due, stepRelease, a)
		}
		f.mu.Unlock()
	}
}

// close ends all streams and waits for their readers: nothing is recorded after.
func (f *fleet) close() {
	f.mu.Lock()
	f.ended = true
	for _, l := range f.links {
		if l != nil {
			l.stream.Close()
		}
	}
	f.poke()
	f.mu.Unlock()
	f.running.Wait()
}

func (f *fleet) fail(err error) {
	if f.failure == nil && !f.ended {
		f.failure = err
	}
}

func (f *fleet) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// plan puts a step on the schedule. Held: f.mu.
func (f *fleet) plan(at time.Duration, what step, a *agent, l *fleetLink) {
	p := planned{at: at, what: what, agent: a, link: l}
	if a != nil {
		p.token, p.gen = a.token, a.gen
	}
	f.enqueue(p)
}

// again plans a step that was refused, about the token it was about. Held: f.mu.
func (f *fleet) again(at time.Duration, p pending) {
	f.enqueue(planned{at: at, what: p.what, agent: p.agent, token: p.token, gen: p.agent.gen})
}

func (f *fleet) enqueue(p planned) {
	if f.schedule.push(p) {
		f.poke()
	}
}

// drive performs steps as they fall due, until the fleet is closed.
func (f *fleet) drive() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-f.wake:
		}
		f.mu.Lock()
		now := f.now()
		for {
			p, ok := f.schedule.due(now)
			if !ok || f.ended {
				break
			}
			f.perform(p)
		}
		wait := f.schedule.next(now)
		ended := f.ended
		f.mu.Unlock()
		if ended {
			return
		}
		timer.Reset(wait)
	}
}

// perform does one planned step. Held: f.mu.
func (f *fleet) perform(p planned) {
	switch {
	case p.what == stepBeat:
		f.beat(p.at, p.link)
	case p.what == stepExtend && (p.agent.token == 0 || p.gen != p.agent.gen): // lost or released meanwhile
	case p.what == stepAccept && p.token != p.agent.offered: // over
	default:
		f.send(p.at, p.what, p.agent, p.token)
	}
}

// do sends an agent's request about what it holds. Held: f.mu.
func (f *fleet) do(intended time.Duration, what step, a *agent) {
	f.send(intended, what, a, a.token)
}

// send sends an agent's request about a token. Held: f.mu.
func (f *fleet) send(intended time.Duration, what step, a *agent, token uint64) {
	l := a.link
	l.next++
	id := l.next
	now := f.now()
	l.pending[id] = pending{what: what, agent: a, token: token, intended: intended, sent: now}
	var err error
	switch what {
	case stepExtend, stepAccept:
		if what == stepExtend {
			f.plan(intended+f.every, stepExtend, a, nil)
			f.noteLapse(a, now)
		}
		err = l.stream.SendEncoded(appendExtend(nil, id, []uint64{token}))
	default:
		err = l.stream.Send(f.frame(id, what, a, token))
	}
	if err != nil {
		f.fail(err)
	}
}

func (f *fleet) noteLapse(a *agent, now time.Duration) {
	if a.until < now && !a.lapsed {
		a.lapsed = true
		f.check.Lapsed()
	}
}

func (f *fleet) frame(id uint64, what step, a *agent, token uint64) *apiv1.ClientFrame {
	frame := &apiv1.ClientFrame{Id: id}
	name := &apiv1.LeaseName{Name: f.leaseName(a.lease)}
	session := a.session.String()
	switch what {
	case stepOpen:
		frame.Request = &apiv1.ClientFrame_Operation{Operation: &apiv1.Operation{Op: &apiv1.Operation_OpenSession{OpenSession: &apiv1.OpenSessionRequest{
			Id: session, TtlMs: uint32(f.ttl.Milliseconds()),
		}}}}
	case stepAttach:
		frame.Request = &apiv1.ClientFrame_Attach{Attach: &apiv1.Attach{Session: session, Counter: 1}}
	case stepClaim:
		frame.Request = &apiv1.ClientFrame_Operation{Operation: &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{
			Name: name, Holder: f.holder(a), Session: session, Wait: f.candidates() > 1,
		}}}}
	case stepRelease:
		f.check.Released(f.leaseName(a.lease), token)
		frame.Request = &apiv1.ClientFrame_Operation{Operation: &apiv1.Operation{Op: &apiv1.Operation_Release{Release: &apiv1.ReleaseRequest{
			Name: name, Holder: f.holder(a), Session: session, Token: token,
		}}}}
		if a.token == token {
			f.dropHolding(a)
		}
	}
	return frame
}

func (f *fleet) holder(a *agent) string {
	return fmt.Sprintf("app-%d/%d", a.lease, a.id%f.candidates())
}

// beat keeps the waiting sessions of a stream alive. Held: f.mu.
func (f *fleet) beat(intended time.Duration, l *fleetLink) {
	l.next++
	l.pending[l.next] = pending{what: stepBeat, intended: intended, sent: f.now()}
	f.plan(intended+f.every, stepBeat, nil, l)
	if err := l.stream.Send(&apiv1.ClientFrame{Id: l.next, Request: &apiv1.ClientFrame_Beat{Beat: &apiv1.Beat{}}}); err != nil {
		f.fail(err)
	}
}

// dropHolding: the agent holds no more. Held: f.mu.
func (f *fleet) dropHolding(a *agent) {
	if a.token != 0 {
		f.holding--
	}
	if f.heldBy[a.lease] == a {
		f.heldBy[a.lease] = nil
	}
	a.token, a.lapsed = 0, false
	a.gen++
}
