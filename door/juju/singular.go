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
func (k *call) singularClaim(r *request) {
	var p singularParams
	if f := decodeParams(r, &p); f != nil {
		k.refuse(f)
		return
	}
	if len(p.Claims) > MaxParams {
		k.refuse(errManyParams)
		return
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
	b.begin()
}

// singularWait waits until none of the leases is held as it was.
func (k *call) singularWait(r *request) {
	var p entityParams
	if f := decodeParams(r, &p); f != nil {
		k.refuse(f)
		return
	}
	n := len(p.Entities)
	if n > MaxParams {
		k.refuse(errManyParams)
		return
	}
	if n > 1 {
		if !k.sit(int32(n - 1)) {
			k.refuse(errTooMany)
			return
		}
		k.seats = int32(n)
	}
	if !k.keep(n, false) {
		k.refuse(errTooMany)
		return
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
		return
	}
	w.left.Store(int32(len(names)))
	for i, name := range names {
		w.begin(i, name)
	}
}
