package juju

import (
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// claimLeadership claims for units, or extends what they hold. A claim that has
// become Held is a denial that the lease service took from a confirmed state.
func (k *call) claimLeadership(r *request) (asked int) {
	p, f := decodeClaim(r)
	if f != nil {
		return k.refuse(f)
	}
	if len(p.Params) > MaxParams {
		return k.refuse(errManyParams)
	}
	b := k.newBulk(len(p.Params), k.row.Lane(), errClaimDenied, replyResults)
	for i := range p.Params {
		x := &p.Params[i]
		application, ok := applicationOf(x.Application)
		unit, of, isUnit := unitOf(x.Unit)
		duration, inBounds := seconds(x.Duration)
		switch {
		case !ok || !isUnit:
			b.results[i] = errPermission
		case !inBounds:
			b.results[i] = errDuration
		case of != application || !k.c.mayClaim(application, unit):
			b.results[i] = errPermission
		default:
			b.ask(i, leases.ClaimCommand{Name: nameOf(k.c.who.model, application), Holder: unit, TTL: duration})
		}
	}
	return b.begin()
}

// blockUntilReleased waits until an application has no leader any more, or
// another one than when it was asked.
func (k *call) blockUntilReleased(r *request) (asked int) {
	var p blockParams
	if f := decodeParams(r, &p); f != nil {
		return k.refuse(f)
	}
	if !isApplication(p.Name) || !k.c.mayFollow(k.row, p.Name) {
		k.count(errPermission)
		k.reply(replyResult(k.id, errPermission))
		return 0
	}
	if !k.keep(1, false) {
		return k.refuseFor(1, errTooMany)
	}
	w := k.newWaiting(1, func(denied []*failure) []byte {
		if denied[0] != nil {
			return replyResult(k.id, denied[0])
		}
		return replyEmpty(k.id)
	})
	w.begin(0, nameOf(k.c.who.model, p.Name))
	return 1
}
