package bench

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// How an agent leaves a member, as the Go client does.
const (
	silentAfter  = time.Second            // an answer that does not come; the scenario may say otherwise
	sweepEvery   = 100 * time.Millisecond // how often streams are looked at for silence
	firstPause   = 100 * time.Millisecond // the first attempt waits up to so long, spread over the span
	longestPause = 2 * time.Second        // later ones wait twice as long as the one before, up to this
	mostDoubled  = 5                      // times that what a member asks for is doubled, for each refusal more
	patienceMost = 20 * time.Second       // for one attempt to connect, or one answer
	// redials is how many streams of one process are being opened again at once. Agents on
	// machines of their own do not wait for each other's; thousands in one process do, and would
	// take that for silence of the servers'.
	redials = 32
)

var (
	errSilent       = errors.New("the member is silent")
	errSentAway     = errors.New("the member says good-bye")
	errDisconnected = errors.New("the connection was ended on purpose")
)

// fleetLink is one stream and the requests under way on it. When its member is
// silent or gone, the link goes on at another, with the same sessions and tokens.
type fleetLink struct {
	f      *fleet
	n      int
	member int            // of the run's members
	stream *client.Stream // nil while it is down
	next   uint64         // id of the last request: never goes back, so that no late answer fits a new request
	opened uint64         // streams so far: the counter of attachments
	// quiet is since when nothing was heard although an answer is due.
	quiet time.Duration
	// owing is when the first extension was sent since the last one that was
	// judged; 0: none was. A member that is cut off from the others first says
	// nothing and, once too many wait there, refuses: its refusals are answers,
	// but none that keeps a lease, and none that a holder should wait for anew.
	owing time.Duration
	// patience is how long an attempt to connect or an answer may take: twice as long after
	// each time that it was too short, and half as long with each extension that is judged.
	patience time.Duration
	pending  map[uint64]pending
	agents   []*agent
	bySess   map[string]*agent
	beating  bool
	beaten   time.Duration // the newest answer to a beat
	mute     bool          // its agents have fallen silent, and it stays as it is
}

// openLinks dials the streams that want agents need, and has their agents begin.
// Streams are spread over the members in turn. Where each agent has its own,
// connections are part of the ramp. What was dialled before an error is closed
// with the fleet.
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
		l := &fleetLink{f: f, n: n, member: f.home(n), patience: f.silent, pending: make(map[uint64]pending), bySess: make(map[string]*agent)}
		stream, r, err := f.dial(ctx, l)
		for wait, overloaded := overloadOf(err); overloaded && sleep(ctx, wait) == nil; wait, overloaded = overloadOf(err) {
			f.turnedAway()
			stream, r, err = f.dial(ctx, l)
		}
		if err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.links[n] = l
		f.serve(l, stream, r)
		f.join(l, due)
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
		l.agents = append(l.agents, a)
		l.bySess[a.session.String()] = a
		f.plan(max(due(i), f.now()), stepOpen, a, nil)
	}
}

func (f *fleet) dial(ctx context.Context, l *fleetLink) (*client.Stream, *bufio.Reader, error) {
	size := 512
	if f.perStream > 1 {
		size = 32 << 10
	}
	began := f.now()
	stream, r, err := f.clients[l.member].DialStream(ctx, client.StreamOptions{Local: f.source(l.n), ReadBuffer: size})
	if now := f.now(); err == nil {
		f.opConnect.done(now, now-began, 1)
	} else {
		f.opConnect.failed(now, 1)
	}
	return stream, r, err
}

// serve makes the stream the link's and reads it. Held: f.mu.
func (f *fleet) serve(l *fleetLink, stream *client.Stream, r *bufio.Reader) {
	l.stream, l.owing = stream, 0
	l.opened++
	f.open++
	f.running.Go(func() { f.read(l, stream, r) })
}

// read serves one stream of a link until it ends.
func (f *fleet) read(l *fleetLink, stream *client.Stream, r *bufio.Reader) {
	err := stream.ServeRaw(r, func(msg []byte) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if l.stream != stream {
			return errSilent // given up meanwhile: what it says is for nobody
		}
		l.quiet = f.now()
		return eachAnswer(msg, func(a *answer) error { return f.take(l, a) })
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.stream == stream {
		f.leave(l, err)
	}
}

// leave gives the link's stream up. What was under way on it is asked again at
// another member. Held: f.mu.
func (f *fleet) leave(l *fleetLink, why error) {
	if f.ended {
		return
	}
	if !f.roams || errors.Is(why, errWire) {
		f.fail(why)
		return
	}
	if errors.Is(why, errSilent) {
		l.wait()
	}
	l.stream.Close()
	l.stream = nil
	f.open--
	if l.mute {
		return // nobody comes back
	}
	f.moved++
	now := f.now()
	for _, p := range l.pending {
		f.interrupted(p, now)
	}
	clear(l.pending)
	f.running.Go(func() { f.reconnect(l) })
}

// calm has the link be less patient again: an extension was judged. Held: f.mu.
func (l *fleetLink) calm() { l.patience = max(l.f.silent, l.patience/2) }

// wait has the link be more patient. Held: f.mu.
func (l *fleetLink) wait() { l.patience = min(2*l.patience, max(patienceMost, l.patience)) }

// interrupted: nobody will answer the request. Held: f.mu.
func (f *fleet) interrupted(p pending, now time.Duration) {
	f.recordOf(p.what).failed(now, 1)
	switch p.what {
	case stepExtend:
		p.agent.owe(p.intended, p.token)
	case stepAccept:
		p.agent.accepting = false
	case stepOpen, stepClaim, stepRelease:
		p.agent.later = append(p.agent.later, p)
	}
}

// owe notes an extension that has no good answer, unless its holding is over.
func (a *agent) owe(intended time.Duration, token uint64) {
	if a.token == token && token != 0 && (a.owed == 0 || intended < a.owed) {
		a.owed = intended
	}
}

// reconnect opens the link's next stream, at another member if there is one.
// A fleet that lost a member does not come back in the same moment.
func (f *fleet) reconnect(l *fleetLink) {
	wait := rand.N(firstPause)
	refused := time.Duration(0) // when it was for the first time; 0: it was not
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if sleep(f.ctx, wait) != nil {
			return
		}
		select {
		case f.redialling <- struct{}{}:
		case <-f.ctx.Done():
			return
		}
		f.mu.Lock()
		patience := l.patience
		if n := len(f.clients); n > 1 {
			l.member = (l.member + 1 + rand.IntN(n-1)) % n
		}
		f.mu.Unlock()
		ctx, cancel := context.WithTimeout(f.ctx, patience)
		stream, r, err := f.dial(ctx, l)
		cancel()
		<-f.redialling
		if err == nil {
			f.resume(l, stream, r)
			return
		}
		wait = rand.N(pause)
		if hint, overloaded := overloadOf(err); overloaded {
			if refused == 0 {
				refused = f.now()
			}
			wait = max(hint, (f.now()-refused)/3)
			wait = f.withinBeat(wait + rand.N(wait/2+1))
			continue
		}
		f.mu.Lock()
		l.wait()
		f.mu.Unlock()
	}
}

// withinBeat is a pause, no longer than from one beat to the next: who waits is to hold on.
func (f *fleet) withinBeat(pause time.Duration) time.Duration {
	if pause > f.every {
		return f.every/2 + rand.N(f.every/2)
	}
	return pause
}

// resume goes on where the stream before was left: holders extend at once, by
// their tokens, and then every session is attached here.
func (f *fleet) resume(l *fleetLink, stream *client.Stream, r *bufio.Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		stream.Close()
		return
	}
	f.serve(l, stream, r)
	now := f.now()
	for _, a := range l.agents {
		if l.stream == nil {
			return // it broke again
		}
		switch {
		case a.token != 0 && a.owed != 0:
			f.extend(a, now)
			f.do(now, stepAttach, a)
		case a.opened:
			f.do(now, stepAttach, a)
		default:
			f.redo(a)
		}
	}
}

// redo asks again for what a broken stream left unanswered, with the intended
// times it had. Held: f.mu.
func (f *fleet) redo(a *agent) {
	later := a.later
	a.later = nil
	for _, p := range later {
		f.send(p.intended, p.what, a, p.token)
	}
}

// reattached compares what an agent believes with what the member says about its
// session, after the link has moved. Held: f.mu.
func (f *fleet) reattached(a *agent, at *apiv1.Attached, now time.Duration) {
	asked := len(a.later) > 0
	f.redo(a)
	for _, held := range at.GetLeases() {
		f.offer(a, held.GetToken(), now)
	}
	if a.waits && len(at.GetWaits()) == 0 && len(at.GetLeases()) == 0 && !asked {
		f.noLongerWaits(a)
		f.do(now, stepClaim, a)
	}
}

// sweep leaves the members that owe an answer, or a good one, for too long: no longer than
// until the next extension is due. It counts what those that stay have not answered. Held: f.mu.
func (f *fleet) sweep(now time.Duration) {
	for _, l := range f.links {
		if l == nil || l.stream == nil || l.mute {
			continue
		}
		if l.overdue(now, max(f.silent, min(l.patience, f.every)), len(f.clients) > 1) {
			f.leave(l, errSilent)
			continue
		}
		f.noteUnanswered(l, now)
	}
	f.enqueue(planned{at: now + sweepEvery, what: stepSweep})
}

// noteUnanswered counts, once each, the extensions and beats that have no answer a ttl after
// they were sent. That a member answers others, which is why it is not left for them, does
// not excuse it. Held: f.mu.
func (f *fleet) noteUnanswered(l *fleetLink, now time.Duration) {
	for id, p := range l.pending {
		keeps := p.what == stepExtend || p.what == stepAccept || p.what == stepBeat
		if keeps && !p.missed && now-p.sent > f.ttl {
			p.missed = true
			l.pending[id] = p
			f.check.Violate("stream %d: extension %d was not answered within %v", l.n, id, f.ttl)
		}
	}
}

// noteAllUnanswered does so for all streams: one server alone is never left, and is judged at
// the end, since it may have stood still. Held: f.mu.
func (f *fleet) noteAllUnanswered(now time.Duration) {
	for _, l := range f.links {
		if l != nil && !l.mute {
			f.noteUnanswered(l, now)
		}
	}
}

// overdue reports whether the member owes this stream any answer for longer than
// patience or, if there is another member, one that judges an extension.
func (l *fleetLink) overdue(now, patience time.Duration, others bool) bool {
	return len(l.pending) > 0 && now-l.quiet > patience || others && l.owing != 0 && now-l.owing > patience
}
