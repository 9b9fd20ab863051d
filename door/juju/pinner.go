package juju

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// applications are those that a call of LeadershipPinner means: the ones it names,
// else the caller's own.
func (k *call) applications(r *request) ([]string, *failure) {
	var p entityParams
	if f := decodeParams(r, &p); f != nil {
		return nil, f
	}
	if len(p.Entities) > MaxParams {
		return nil, errManyParams
	}
	if len(p.Entities) == 0 {
		if own := k.c.who.application; own == "" || !k.c.mayFollow(k.row, own) {
			return nil, errPermission
		}
		return []string{k.c.who.application}, nil
	}
	var names []string
	for i := range p.Entities {
		name, ok := applicationOf(p.Entities[i].Tag)
		if !ok || !k.c.mayFollow(k.row, name) {
			return nil, errPermission
		}
		names = append(names, name)
	}
	return names, nil
}

// pin keeps leaders from being replaced while the caller's machine is worked on,
// or undoes that. The pin is the caller's: the same one twice is one.
func (k *call) pin(r *request) (asked int) {
	names, f := k.applications(r)
	if f != nil {
		return k.refuse(f)
	}
	form := func(id uint64, results []*failure) []byte { return replyPins(id, names, results) }
	b := k.newBulk(len(names), k.row.Lane(), errPermission, form)
	for i, application := range names {
		if k.method == pinLeaders {
			b.ask(i, leases.PinCommand{Name: nameOf(k.c.who.model, application), Entity: k.c.who.tag})
		} else {
			b.ask(i, leases.UnpinCommand{Name: nameOf(k.c.who.model, application), Entity: k.c.who.tag})
		}
	}
	return b.begin()
}

// replyPins is the reply of a call that pins or unpins.
func replyPins(id uint64, names []string, results []*failure) []byte {
	b := append(replyStart(id, len(names)*resultsBytes), `,"response":{"results":[`...)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"application-name":`...), name)
		if f := results[i]; f != nil {
			b = appendString(append(b, `,"error":{"message":`...), f.message)
			b = appendString(append(b, `,"code":`...), codeNames[f.code])
			b = append(b, '}')
		}
		b = append(b, '}')
	}
	return replyEnd(append(b, "]}"...))
}

// pinned lists who pins what the caller may see: all of its model with the grant
// for it, else its own application.
func (k *call) pinned(*request) (asked int) {
	d := k.c.door
	p, err := d.lanes.Enter(k.c.who.work(), k.row.Lane(), 1)
	if err != nil {
		return k.refuseFor(1, errTryAgain)
	}
	d.confirm(func(err error) {
		d.work.Put(func() {
			defer p.Leave()
			if err != nil {
				k.refuse(failureOf(asError(err), errPermission))
				return
			}
			k.reply(k.listPins(d.view()))
		})
	})
	return 1
}

// listPins is the reply: {"result":{application:[tag,…]}}.
func (k *call) listPins(view *core.View) []byte {
	b := append(replyStart(k.id, 512), `,"response":{"result":{`...)
	first := true
	show := func(l *leases.Lease) bool {
		if len(l.Pins) == 0 || !k.c.mayFollow(k.row, l.Name.Lease) {
			return true
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendString(b, l.Name.Lease), ':', '[')
		for i, tag := range slices.Sorted(slices.Values(l.Pins)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, tag)
		}
		b = append(b, ']')
		return true
	}
	if own := k.c.who.application; own != "" {
		if l := leases.Of(view).Lease(nameOf(k.c.who.model, own)); l != nil && !k.c.who.grants.Has(auth.ClaimAny) {
			show(l)
			return replyEnd(append(b, "}}"...))
		}
	}
	if leases.Of(view).PinnedCount() > 0 {
		leases.Of(view).Below(leadershipNamespace, k.c.who.model, "", incumbent.Name{}, show)
	}
	return replyEnd(append(b, "}}"...))
}
