package juju

import (
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// claimLeadership claims for units, or extends what they hold. A claim that has
// become Held is a denial that the lease service took from a confirmed state.
func (k *call) claimLeadership(r *request) {
	p, f := decodeClaim(r)
	if f != nil {
		k.refuse(f)
		return
	}
	if len(p.Params) > MaxParams {
		k.refuse(errManyParams)
		return
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
	b.begin()
}

// blockUntilReleased waits until an application has no leader any more, or
// another one than when it was asked.
func (k *call) blockUntilReleased(r *request) {
	var p blockParams
	if f := decodeParams(r, &p); f != nil {
		k.refuse(f)
		return
	}
	if !isApplication(p.Name) || !k.c.mayFollow(k.row, p.Name) {
		k.count(errPermission)
		k.reply(replyResult(k.id, errPermission))
		return
	}
	if !k.keep(1, false) {
		k.refuse(errTooMany)
		return
	}
	w := k.newWaiting(1, func(denied []*failure) []byte {
		if denied[0] != nil {
			return replyResult(k.id, denied[0])
		}
		return replyEmpty(k.id)
	})
	w.begin(0, nameOf(k.c.who.model, p.Name))
}
