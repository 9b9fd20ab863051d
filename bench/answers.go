package bench

import (
	"math/rand/v2"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// acceptPause is how long an acceptance that was not confirmed waits to be
// sent again: well within the time that an offer stands.
const acceptPause = 50 * time.Millisecond

// take handles one frame from the server. Held: f.mu, as by all below.
func (f *fleet) take(l *fleetLink, a *answer) error {
	if a.id == 0 {
		frame, err := a.full()
		if err == nil {
			f.event(l, frame)
		}
		return err
	}
	p, ok := l.pending[a.id]
	if !ok {
		f.check.Violate("stream %d: answer %d was not asked for or came twice", l.n, a.id)
		return nil
	}
	delete(l.pending, a.id)
	if p.what == stepExtend || p.what == stepAccept {
		return f.extended(p, a)
	}
	frame, err := a.full()
	if err != nil {
		return err
	}
	f.answered(l, p, frame)
	return nil
}

func (f *fleet) answered(l *fleetLink, p pending, frame *apiv1.ServerFrame) {
	failure := frame.GetError()
	if failure == nil {
		failure = frame.GetOperation().GetError()
	}
	now := f.now()
	if failure != nil {
		f.refusedStep(p, failure, now)
		return
	}
	if p.agent != nil {
		p.agent.refused = 0
	}
	switch p.what {
	case stepOpen:
		f.opOpen.done(now, now-p.intended, 1)
		f.opened.Add(1)
		p.agent.opened = true
		f.do(now, stepAttach, p.agent)
	case stepAttach:
		f.opAttach.done(now, now-p.intended, 1)
		f.attached(l, p.agent, frame.GetAttached(), now)
	case stepClaim:
		f.opClaim.done(now, now-p.intended, 1)
		f.claimedStep(p, frame.GetOperation().GetClaim(), now)
	case stepRelease:
		f.opRelease.done(now, now-p.intended, 1)
		f.do(now, stepClaim, p.agent) // to the end of the queue
	case stepBeat:
		f.opBeat.done(now, now-p.intended, 1)
		l.beaten = now
		if f.byBeats {
			f.beatExtended(l, p, now)
		}
		for range frame.GetBeaten().GetLost() {
			f.check.Violate("stream %d: a session that beat in time is over", l.n)
		}
	}
}

// attached: the member vouches for the agent's session on this stream.
func (f *fleet) attached(l *fleetLink, a *agent, at *apiv1.Attached, now time.Duration) {
	a.stream, a.attached = l.opened, now
	if a.began {
		f.reattached(a, at, now)
		return
	}
	a.began = true
	if f.idle {
		f.rest(l, now)
		return
	}
	// Extensions keep a holder's session; those that wait need beats.
	if (f.candidates > 1 || f.byBeats) && !l.beating {
		l.beating = true
		f.plan(now+time.Duration(rand.Int64N(int64(f.every))), stepBeat, nil, l)
	}
	f.do(now, stepClaim, a)
}

// refusedStep handles an error. Errors that pass are tried again a little later.
func (f *fleet) refusedStep(p pending, e *apiv1.Error, now time.Duration) {
	kind, _ := incumbent.ParseKind(e.Kind)
	f.recordOf(p.what).failed(now, 1)
	if kind == incumbent.Overloaded {
		f.turnedAway()
	}
	if p.what == stepBeat {
		return
	}
	if !kind.Transient() && kind != incumbent.DeadlineExceeded && kind != incumbent.Unknown {
		f.check.Violate("agent %d: %s: %s", p.agent.id, e.Kind, e.Message)
		return
	}
	pause := max(100*time.Millisecond, time.Duration(e.RetryAfterMs)*time.Millisecond) << min(p.agent.refused, mostDoubled)
	p.agent.refused++
	f.again(now+f.withinBeat(pause), p)
}

func (f *fleet) recordOf(s step) *opRecord {
	return map[step]*opRecord{
		stepOpen: f.opOpen, stepAttach: f.opAttach, stepClaim: f.opClaim, stepExtend: f.opExtend,
		stepBeat: f.opBeat, stepRelease: f.opRelease, stepAccept: f.opHandOver,
	}[s]
}

func (f *fleet) claimedStep(p pending, c *apiv1.ClaimResponse, now time.Duration) {
	f.claimed.Add(1)
	if a := p.agent; c.GetQueued() {
		// An offer may overtake the answer that puts it into the queue.
		if !a.waits && a.offered == 0 && a.token == 0 {
			a.waits = true
			f.waiting++
		}
		return
	}
	f.granted(p.agent, c.GetLease().GetToken(), p.sent, now)
	f.say("claimed  app/%d in %v", p.agent.lease, now-p.sent)
}

// granted: the agent holds the lease, counted from when it sent.
func (f *fleet) granted(a *agent, token uint64, sent, now time.Duration) {
	if a.token == 0 {
		f.holding++
	}
	f.noLongerWaits(a)
	a.token, a.offered, a.accepting, a.lapsed = token, 0, false, false
	a.owed, a.tries = 0, 0
	a.newest = max(a.newest, token)
	a.gen++ // ends the extensions of an earlier holding
	a.until, a.sent, a.heard = sent+holdFor(f.ttl), sent, now
	f.heldBy[a.lease] = a
	f.tookOver(a, now)
	f.check.Granted(f.leaseName(a.lease), a.id, token, now, a.until)
	if !f.byBeats {
		f.plan(now+time.Duration(rand.Int64N(int64(f.every))), stepExtend, a, nil)
	}
}

// extended handles the answer to an extension or to the acceptance of an offer.
func (f *fleet) extended(p pending, ans *answer) error {
	a, now := p.agent, f.now()
	if ans.failed || ans.unavailable > 0 {
		return f.unconfirmed(p, ans, now)
	}
	a.link.owing = 0
	a.link.calm()
	name := f.leaseName(a.lease)
	if ans.notHeld > 0 {
		f.recordOf(p.what).failed(now, 1)
		f.notHeld(p, name)
		return nil
	}
	until := p.sent + holdFor(time.Duration(ans.heldMs)*time.Millisecond)
	if p.what == stepAccept {
		began := p.intended
		if at := f.freed[a.lease]; at > 0 {
			began, f.freed[a.lease] = at, 0
		}
		f.opHandOver.done(now, now-began, 1)
		f.handed.Add(1)
		f.granted(a, p.token, p.sent, now)
		f.say("claimed  app/%d in %v", a.lease, now-p.sent)
		return nil
	}
	f.opExtend.done(now, now-p.intended, 1)
	if a.token == p.token {
		f.goesOn(p, until, now)
	}
	return nil
}

// goesOn: the agent's own deadline has moved to until.
func (f *fleet) goesOn(p pending, until, now time.Duration) {
	a := p.agent
	f.noteLapse(a, now)
	a.until, a.owed, a.tries = max(a.until, until), 0, 0
	a.lapsed = a.lapsed && a.until < now // still
	a.sent, a.heard = max(a.sent, p.sent), now
	f.recovered(p, now)
	f.check.Extended(f.leaseName(a.lease), p.token, until)
	f.say("extended app/%d held for %v in %v", a.lease, f.ttl, now-p.sent)
}

// beatExtended: a beat has extended the sessions that were attached to its stream when it was sent, and
// so what they held then.
func (f *fleet) beatExtended(l *fleetLink, p pending, now time.Duration) {
	l.calm()
	extended := 0
	for _, a := range l.agents {
		if a.token != 0 && a.stream == l.opened && max(a.heard, a.attached) <= p.sent {
			extended++
			p.agent, p.token = a, a.token
			f.goesOn(p, p.sent+holdFor(f.ttl), now)
		}
	}
	f.opExtend.done(now, now-p.intended, extended)
}

// retryPauses bound the time from an extension that was not confirmed to the
// next attempt, where agents do not wait for the next one that is due.
const (
	minRetryPause = 100 * time.Millisecond
	maxRetryPause = time.Second
)

// unconfirmed: nobody knows whether the extension took effect.
func (f *fleet) unconfirmed(p pending, ans *answer, now time.Duration) error {
	a := p.agent
	f.recordOf(p.what).failed(now, 1)
	if p.what == stepAccept {
		if a.offered == p.token {
			f.again(now+acceptPause, p)
		}
		return nil
	}
	pause := min(maxRetryPause, minRetryPause<<min(a.tries, 8))
	if ans.failed {
		frame, err := ans.full()
		if err != nil {
			return err
		}
		if kind, _ := incumbent.ParseKind(frame.GetError().GetKind()); refusal(kind) && a.token == p.token {
			f.denied++
		}
		pause = max(pause, time.Duration(frame.GetError().GetRetryAfterMs())*time.Millisecond)
	} else if a.token == p.token {
		f.unsure++
	}
	if a.token != p.token {
		return nil
	}
	a.owe(p.intended, p.token)
	if !f.roams {
		return nil // the next one is due anyway, and counts from when this one was
	}
	a.tries++
	f.plan(now+pause/2+rand.N(pause), stepRetry, a, nil)
	return nil
}

// refusal reports whether an error turns the request away, rather than saying
// that it could not be served or confirmed.
func refusal(k incumbent.Kind) bool {
	switch k {
	case incumbent.Unavailable, incumbent.NotLeader, incumbent.Unknown, incumbent.DeadlineExceeded:
		return false
	}
	return true
}

// recovered notes a holder's first good extension since the fault, counted from
// the later of the fault and when it was to be sent.
func (f *fleet) recovered(p pending, now time.Duration) {
	if p.agent.struck && p.sent >= f.struckAt {
		p.agent.struck = false
		f.unrenewed--
		f.renewed = now - f.struckAt
		f.opRecovery.done(now, now-max(f.struckAt, p.intended), 1)
	}
}

func (f *fleet) notHeld(p pending, name string) {
	a := p.agent
	if p.what == stepAccept {
		if a.offered == p.token {
			a.offered, a.accepting = 0, false
			f.do(f.now(), stepClaim, a)
		}
		return
	}
	if a.token != p.token || a.link.mute {
		return // released since it was sent, or nobody hears it
	}
	if f.strict {
		f.check.Violate("%s: agent %d, token %d, was told it does not hold", name, a.id, p.token)
	}
	now := f.now()
	f.noteLapse(a, now)
	f.check.NotHolder(name, p.token, p.sent, a.until)
	f.say("lost     app/%d after %v in %v", a.lease, f.ttl, now-p.sent)
	f.dropHolding(a)
	f.do(now, stepClaim, a)
}

func (f *fleet) noLongerWaits(a *agent) {
	if a.waits {
		a.waits = false
		f.waiting--
	}
}

// event handles what the server says unasked.
func (f *fleet) event(l *fleetLink, frame *apiv1.ServerFrame) {
	if l.mute {
		return
	}
	switch e := frame.Answer.(type) {
	case *apiv1.ServerFrame_Offer:
		a := l.bySess[e.Offer.GetLease().GetSession()]
		if a == nil {
			f.check.Violate("stream %d: an offer for session %s, which is not here", l.n, e.Offer.GetLease().GetSession())
			return
		}
		f.offer(a, e.Offer.GetLease().GetToken(), f.now())
	case *apiv1.ServerFrame_SessionLost:
		f.check.Violate("stream %d: session %s ended: %s", l.n, e.SessionLost.Session, e.SessionLost.Reason)
	case *apiv1.ServerFrame_GoAway:
		if f.roams {
			f.leave(l, errSentAway)
		}
	}
}

// offer takes up what was handed to an agent: it holds once it has accepted.
func (f *fleet) offer(a *agent, token uint64, now time.Duration) {
	switch {
	case token == a.newest && (a.offered != token || a.accepting):
		return // held already, or told again
	case token < a.newest:
		f.check.Violate("%s: agent %d was offered token %d after token %d", f.leaseName(a.lease), a.id, token, a.newest)
		return
	case f.strict && a.waits:
		f.check.Violate("%s: handed to agent %d while a fault was played", f.leaseName(a.lease), a.id)
	}
	f.noLongerWaits(a)
	a.offered, a.newest, a.accepting = token, token, true
	f.send(now, stepAccept, a, token)
}
