package juju

import (
	"strings"

	"github.com/incumbent-dev/incumbent"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// singularName names the lease that says which controller runs the workers of the
// caller's model, or of the controller itself. There are no others.
func (k *call) singularName(tag string) (incumbent.Name, bool) {
	id, isModel := strings.CutPrefix(tag, modelKind)
	if !isModel || id != k.c.who.model {
		var isController bool
		if id, isController = strings.CutPrefix(tag, controllerKind); !isController || id != k.c.door.controller {
			return incumbent.Name{}, false
		}
	}
	return incumbent.Name{Namespace: singularNamespace, Model: k.c.who.model, Lease: id}, true
}

// singularClaim claims for the controller that calls. Such leases decide whether
// anything works at all: in overload they are refused last.
func (k *call) singularClaim(r *request) (asked int) {
	var p singularParams
	if f := decodeParams(r, &p); f != nil {
		return k.refuse(f)
	}
	if len(p.Claims) > MaxParams {
		return k.refuse(errManyParams)
	}
	b := k.newBulk(len(p.Claims), k.row.Lane(), errLeaseDenied, replyResults)
	for i := range p.Claims {
		x := &p.Claims[i]
		name, ok := k.singularName(x.Entity)
		switch {
		case !ok || x.Claimant != k.c.who.tag, x.Duration < MinSingular || x.Duration > MaxSingular, !k.c.allowed(k.row, name, x.Claimant): // the original tells them apart no more
			b.results[i] = errPermission
		default:
			b.ask(i, leases.ClaimCommand{Name: name, Holder: x.Claimant, TTL: x.Duration, Critical: true})
		}
	}
	return b.begin()
}

// singularWait waits until none of the leases is held as it was.
func (k *call) singularWait(r *request) (asked int) {
	var p entityParams
	if f := decodeParams(r, &p); f != nil {
		return k.refuse(f)
	}
	n := len(p.Entities)
	if n > MaxParams {
		return k.refuse(errManyParams)
	}
	if n > 1 {
		if !k.sit(int32(n - 1)) {
			return k.refuse(errTooMany)
		}
		k.seats = int32(n)
	}
	if !k.keep(n, false) {
		return k.refuseFor(n, errTooMany)
	}
	w := k.newWaiting(n, func(results []*failure) []byte { return replyResults(k.id, results) })
	names := make(map[int]incumbent.Name, n)
	for i := range p.Entities {
		name, ok := k.singularName(p.Entities[i].Tag)
		if !ok || !k.c.allowed(k.row, name, k.c.who.principal.Name) {
			w.deny(i)
			continue
		}
		names[i] = name
	}
	if len(names) == 0 {
		k.reply(w.form(w.denied))
		return 0
	}
	w.left.Store(int32(len(names)))
	for i, name := range names {
		w.begin(i, name)
	}
	return len(names)
}
