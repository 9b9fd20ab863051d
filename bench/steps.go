package bench

import (
	"cmp"
	"fmt"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// pending is one unanswered request.
type pending struct {
	what     step
	agent    *agent
	token    uint64 // it is about; of an attachment: its counter
	intended time.Duration
	sent     time.Duration
	missed   bool // it has no answer in time, which is counted
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
	stepRetry // an extension that has no good answer yet
	stepSweep // of the whole fleet

	stepConnect // of Juju's units, as are those below; they claim and extend too
	stepBlock
	stepPing
)

func (f *fleet) fail(err error) {
	if f.failure == nil && !f.ended {
		f.failure = err
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

// again plans a step that was refused, about the token it was about. What it takes counts from
// when it was first to be sent. Held: f.mu.
func (f *fleet) again(at time.Duration, p pending) {
	f.enqueue(planned{at: at, what: p.what, agent: p.agent, token: p.token, gen: p.agent.gen, since: p.intended})
}

// perform does one planned step. Held: f.mu.
func (f *fleet) perform(p planned) {
	switch {
	case p.what == stepSweep:
		f.sweep(f.now())
	case p.link != nil && p.link.mute || p.agent != nil && p.agent.link.mute: // nobody is there to do it
	case p.what == stepBeat:
		f.beat(p.at, p.link)
	case (p.what == stepExtend || p.what == stepRetry) && (p.agent.token == 0 || p.gen != p.agent.gen): // lost or released meanwhile
	case p.what == stepRetry:
		if p.agent.owed != 0 {
			f.extend(p.agent, p.agent.owed)
		}
	case p.what == stepExtend:
		f.plan(p.at+f.every, stepExtend, p.agent, nil)
		f.extend(p.agent, p.at)
	case p.what == stepAccept && p.token != p.agent.offered: // over
	case p.what == stepAttach && p.token != p.agent.link.opened: // the next stream has attached it anew
	default:
		f.send(cmp.Or(p.since, p.at), p.what, p.agent, p.token)
	}
}

// do sends an agent's request about what it holds. Held: f.mu.
func (f *fleet) do(intended time.Duration, what step, a *agent) {
	f.send(intended, what, a, a.token)
}

// extend sends the holder's extension. One that is owed since earlier counts from
// then: whatever kept it from being answered is charged. Held: f.mu.
func (f *fleet) extend(a *agent, intended time.Duration) {
	f.noteLapse(a, f.now())
	if a.owed != 0 {
		intended = min(intended, a.owed)
	}
	f.send(intended, stepExtend, a, a.token)
}

// send sends an agent's request about a token. While its stream is down, the
// request is kept for the next one. Held: f.mu.
func (f *fleet) send(intended time.Duration, what step, a *agent, token uint64) {
	l, now := a.link, f.now()
	p := pending{what: what, agent: a, token: token, intended: intended, sent: now}
	if l.stream == nil {
		f.postpone(p)
		return
	}
	if what == stepAttach {
		p.token = l.opened
	}
	id := l.note(p, now)
	var err error
	if what == stepExtend || what == stepAccept {
		err = l.stream.SendEncoded(appendExtend(nil, id, []uint64{token}))
	} else {
		err = l.stream.Send(f.frame(id, what, a, token))
	}
	if err != nil {
		f.leave(l, err)
	}
}

// note registers a request and returns its id.
func (l *fleetLink) note(p pending, now time.Duration) uint64 {
	if len(l.pending) == 0 {
		l.quiet = now
	}
	if l.owing == 0 && (p.what == stepExtend || p.what == stepAccept) {
		l.owing = now
	}
	l.next++
	l.pending[l.next] = p
	return l.next
}

// postpone keeps a request for the link's next stream. Sessions are attached and
// offers taken up there anyway. Held: f.mu.
func (f *fleet) postpone(p pending) {
	switch p.what {
	case stepExtend:
		p.agent.owe(p.intended, p.token)
	case stepAccept:
		p.agent.accepting = false
	case stepOpen, stepClaim, stepRelease:
		if p.what == stepRelease {
			f.giveUp(p.agent, p.token)
		}
		p.agent.later = append(p.agent.later, p)
	}
}

// noteLapse counts that the holder's own deadline has passed: once, until it is ahead again.
// Held: f.mu.
func (f *fleet) noteLapse(a *agent, now time.Duration) {
	if a.until < now && !a.lapsed {
		a.lapsed = true
		f.check.Lapsed()
	}
}

func (f *fleet) frame(id uint64, what step, a *agent, token uint64) *apiv1.ClientFrame {
	frame := &apiv1.ClientFrame{Id: id}
	name := &apiv1.LeaseName{Model: f.model(a.lease), Name: f.leaseName(a.lease)}
	session := a.session.String()
	switch what {
	case stepOpen:
		frame.Request = &apiv1.ClientFrame_Operation{Operation: &apiv1.Operation{Op: &apiv1.Operation_OpenSession{OpenSession: &apiv1.OpenSessionRequest{
			Id: session, TtlMs: uint32(f.ttl.Milliseconds()),
		}}}}
	case stepAttach:
		frame.Request = &apiv1.ClientFrame_Attach{Attach: &apiv1.Attach{Session: session, Counter: a.link.opened}}
	case stepClaim:
		frame.Request = &apiv1.ClientFrame_Operation{Operation: &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{
			Name: name, Holder: f.holder(a), Session: session, Wait: f.candidates > 1, Critical: f.critical,
		}}}}
	case stepRelease:
		f.giveUp(a, token)
		frame.Request = &apiv1.ClientFrame_Operation{Operation: &apiv1.Operation{Op: &apiv1.Operation_Release{Release: &apiv1.ReleaseRequest{
			Name: name, Holder: f.holder(a), Session: session, Token: token,
		}}}}
	}
	return frame
}

// giveUp: the agent no longer counts on the holding. Held: f.mu.
func (f *fleet) giveUp(a *agent, token uint64) {
	f.check.Released(f.leaseName(a.lease), token)
	if a.token == token {
		f.dropHolding(a)
	}
}

func (f *fleet) holder(a *agent) string {
	return fmt.Sprintf("app-%d/%d", a.lease, a.id)
}

// beat keeps the waiting sessions of a stream alive. Held: f.mu.
func (f *fleet) beat(intended time.Duration, l *fleetLink) {
	f.plan(intended+f.every, stepBeat, nil, l)
	if l.stream == nil {
		return
	}
	now := f.now()
	for _, a := range l.agents {
		if f.byBeats && a.token != 0 {
			f.noteLapse(a, now)
		}
	}
	id := l.note(pending{what: stepBeat, intended: intended, sent: now}, now)
	if err := l.stream.Send(&apiv1.ClientFrame{Id: id, Request: &apiv1.ClientFrame_Beat{Beat: &apiv1.Beat{}}}); err != nil {
		f.leave(l, err)
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
	a.token, a.lapsed, a.owed, a.tries = 0, false, 0, 0
	a.gen++
}
