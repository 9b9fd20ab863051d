package sim

import (
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

func (a *agent) claim(wait bool) {
	sent := a.clock()
	cmd := leases.ClaimCommand{Name: a.want, Holder: a.holder(), Session: a.session, TTL: a.ttl, Wait: wait}
	if !a.session.IsZero() {
		cmd.TTL = 0
	}
	a.submit(cmd, func(r core.Result) {
		switch {
		case r.Err == nil && leases.AnswerOf(r).Queued:
			// Waits for an offer; after a while it looks for itself, at a member
			// that tells it of offers.
			a.later(a.w.upTo(2*maxTTL), func() {
				switch {
				case a.token != 0:
				case a.w.chance(leavesOneIn):
					a.leave()
				default:
					a.claim(wait)
				}
			})
		case r.Err == nil && leases.AnswerOf(r).Lease.Offered:
			a.offered(a.want, leases.AnswerOf(r).Lease.Token)
		case r.Err == nil && leases.AnswerOf(r).Lease.Session == a.session && !a.session.IsZero():
			// A session's lease lives by the session: its first extension says
			// for how long.
			a.accept(leases.AnswerOf(r).Lease.Token)
		case r.Err == nil:
			a.granted(leases.AnswerOf(r).Lease.Token, sent)
		default:
			a.w.res.Refusals++
			a.later(a.w.upTo(thinks), a.begin)
		}
	}, func() { a.claim(wait) })
}

// offered hears that the lease was handed to it.
func (a *agent) offered(name incumbent.Name, token incumbent.Token) {
	if name != a.want || a.token != 0 || a.leaving || a.w.now < a.quiet || a.retired {
		return // does not want it any more: the next is asked
	}
	a.accept(token)
}

func (a *agent) accept(token incumbent.Token) {
	sent := a.clock()
	retry := func() {
		a.later(a.w.upTo(returns), func() {
			if a.token == 0 && !a.leaving && a.clock() < sent+a.ttl {
				a.accept(token)
			}
		})
	}
	a.extend(lease.Extension{Token: token, Session: a.session}, func(x lease.Extension) {
		switch {
		case a.token != 0:
		case x.Kind == incumbent.OK:
			a.w.res.HandOvers++
			a.w.check.accepted[token] = true
			a.granted(token, sent)
			a.w.aimAccepted(a)
		case x.Kind.Transient():
			retry()
		default:
			a.later(a.w.upTo(thinks), a.begin)
		}
	}, retry)
}

// granted: the lease is held until the send plus the ttl, less the margin.
func (a *agent) granted(token incumbent.Token, sent time.Duration) {
	a.token, a.extending, a.fading, a.revoked = token, false, false, false
	a.until = sent + time.Duration(float64(a.ttl)*(1-drift))
	a.w.res.Grants++
	a.w.note("agent %d holds %s, token %d", a.id, a.want.Lease, token)
	a.w.check.granted(a)
	a.later(a.ttl/3, a.keep)
	if a.w.chance(leavesOneIn) {
		a.later(a.w.upTo(a.ttl), a.leavesLate)
	}
	if a.w.chance(4) {
		a.later(a.w.upTo(holdsLong), a.forget)
		return
	}
	a.later(a.w.upTo(3*maxTTL), a.release)
}

// forget is the death of a client: another takes its place, which knows nothing
// of the lease.
func (a *agent) forget() {
	a.w.note("agent %d forgets %s, token %d", a.id, a.want.Lease, a.token)
	a.begin()
}

// keep extends again and again.
func (a *agent) keep() {
	if a.token == 0 || a.fading {
		return
	}
	a.later(a.ttl/3, a.keep)
	if !a.w.healed && a.w.chance(napsOneIn) {
		a.nap()
		return
	}
	if a.clock() >= a.until+4*maxTTL {
		a.lost()
		return
	}
	if !a.extending {
		a.extendHeld()
	}
}

// extendHeld asks until there is an answer that says something.
func (a *agent) extendHeld() {
	token, sent := a.token, a.clock()
	if token == 0 || a.fading {
		return
	}
	a.extending = true
	x, beats := a.extension()
	again := func() {
		a.later(a.w.upTo(returns), func() {
			if a.token == token {
				a.extendHeld()
			}
		})
	}
	a.extend(x, func(x lease.Extension) {
		if a.token != token {
			return
		}
		a.extending = false
		switch {
		case beats && slices.Contains(x.RevokingTokens, token):
			a.fade()
		case x.Kind == incumbent.OK && beats && !a.holds():
			again() // it may be gone: a beat tells only of the session
		case x.Kind == incumbent.OK:
			a.w.res.Extensions++
			a.until = max(a.until, sent+time.Duration(float64(x.Held)*(1-drift)))
			a.w.check.extended(a, token)
		case x.Kind == incumbent.NotHolder || x.Kind == incumbent.Expired:
			a.w.check.notHolder(a, token)
			a.fade()
		default:
			again()
		}
	}, again)
}

// extension is how the agent extends what it holds: by its token or its name, or
// by a beat of the session that holds it. Now and then it asks for another ttl.
func (a *agent) extension() (x lease.Extension, beats bool) {
	x = lease.Extension{Token: a.token, Session: a.session}
	if a.byName() {
		x = lease.Extension{Named: &lease.Named{Name: a.want, Holder: a.holder()}}
	}
	if beats = (a.attaches() || a.onlyBeats()) && a.holds(); beats {
		x.Token = 0
	}
	if a.w.chance(asksOneIn) {
		x.TTL = a.w.someTTL()
	}
	return x, beats
}

// nap is a pause of the client about as long as its lease lasts: it comes back
// just in time, or just too late.
func (a *agent) nap() {
	a.quiet = a.w.now + max(0, a.until-a.clock()) + a.w.upTo(napsOver)
	a.w.note("agent %d naps until %v", a.id, a.quiet)
}

// fade lets what cannot be extended any more end by itself: up to its deadline
// the agent still counts on it.
func (a *agent) fade() {
	if !a.holds() {
		a.lost()
		return
	}
	if a.fading {
		return
	}
	a.fading = true
	token := a.token
	a.later(a.until-a.clock(), func() {
		if a.token == token {
			a.lost()
		}
	})
}

func (a *agent) lost() {
	a.w.note("agent %d holds %s no more", a.id, a.want.Lease)
	a.later(a.w.upTo(thinks), a.begin)
	a.token = 0
}

// release gives up the lease. From the send on the agent does not count on it.
func (a *agent) release() {
	if a.token == 0 {
		return
	}
	cmds := a.endings()
	a.w.check.released(a)
	a.token = 0
	a.w.res.Releases++
	a.give(cmds, a.begin)
}

// endings are the commands that end what the agent holds: it releases it, gives
// it to another that waits, or closes its session.
func (a *agent) endings() []core.Command {
	cmds := []core.Command{leases.ReleaseCommand{Name: a.want, Holder: a.holder(), Session: a.session, Token: a.token}}
	if !a.w.chance(givesOneIn) {
		return cmds
	}
	if !a.session.IsZero() && a.w.chance(2) {
		return []core.Command{core.CloseSessionCommand{ID: a.session, Reason: "done"}}
	}
	for _, o := range a.w.agents {
		if o != a && o.want == a.want && !o.session.IsZero() && o.token == 0 && !o.leaving {
			to := leases.TransferCommand{
				Name: a.want, Holder: a.holder(), Session: a.session, Token: a.token, ToSession: o.session, ToHolder: o.holder(),
			}
			return append([]core.Command{to}, cmds...)
		}
	}
	return cmds
}

// leave gives up a place in a queue, and then what was offered meanwhile.
func (a *agent) leave() {
	a.give([]core.Command{a.leaveQueue()}, func() {
		a.give([]core.Command{leases.ReleaseCommand{Name: a.want, Holder: a.holder(), Session: a.session}}, a.begin)
	})
}

func (a *agent) leaveQueue() core.Command {
	return leases.LeaveQueueCommand{Name: a.want, Session: a.session, Holder: a.holder()}
}

// leavesLate gives up a place that is a holding by now: the call was long under way.
func (a *agent) leavesLate() {
	if a.token != 0 && !a.session.IsZero() {
		a.submit(a.leaveQueue(), func(core.Result) {}, func() {})
	}
}

// give sends commands until one of them has done what it is there for, and then
// goes on.
func (a *agent) give(cmds []core.Command, then func()) {
	a.turn++ // a claim that still waits to be repeated would take back what is given up
	a.leaving = true
	var again func()
	again = func() {
		a.submit(cmds[0], func(r core.Result) {
			switch {
			case r.Err == nil || slices.Contains(gone, r.Err.Kind):
				a.later(a.w.upTo(thinks), then)
			case len(cmds) > 1:
				cmds = cmds[1:]
				again()
			default:
				again()
			}
		}, again)
	}
	again()
}

// gone are the kinds that say that there is nothing left to end.
var gone = []incumbent.Kind{incumbent.NotHolder, incumbent.Expired, incumbent.NotFound}
