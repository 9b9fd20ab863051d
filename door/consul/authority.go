package consul

import (
	"cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// caller is who makes a request.
type caller struct {
	door      *Door
	principal auth.Principal
	address   string
	rights    *auth.Rights    // by the policies when it was last judged
	judged    incumbent.Index // says by which: see [core.Meta]
}

// judge takes the policies of now.
func (w *caller) judge() {
	v := w.door.view()
	w.rights = policy.Of(v).Rules().Of(w.principal)
	if w.judged = 0; w.principal.Kind != auth.Operator {
		w.judged = policy.JudgedBy(v)
	}
}

// sight is what the caller may see by an action that looks.
func (w *caller) sight(a auth.Action) auth.Sight { return w.rights.Sight(a) }

// named is a name in the door's namespace, for policies.
func (d *Door) named(name string) incumbent.Name {
	return incumbent.Name{Namespace: d.namespace, Lease: name}
}

// identify finds out who asks. If that cannot be known it has been answered.
func (r *request) identify() bool {
	d, peer := r.door, r.conn.peer
	peer.Bearer = r.token()
	peer.Forwarded = peer.Forwarded || auth.Forwarded(r.header)
	p, err := d.cfg.Guard.Identify(peer)
	if peer.Bearer != "" && incumbent.KindOf(err) == incumbent.Denied && d.defaultPolicy() == "allow" {
		r.conn.visit.Load().Failed()
		peer.Bearer = "" // as in Consul, tokens mean nothing until there is a policy: it is as if it had brought none
		p, err = d.cfg.Guard.Identify(peer)
	}
	if err == nil && !peer.Unix {
		err = p.RefusePage(r.head)
	}
	r.head = nil
	r.who = &caller{door: d, principal: p, address: peer.Remote.String()}
	if err != nil {
		d.noteUnknown(r.who, err)
		r.conn.visit.Load().Refused(err)
		if incumbent.KindOf(err) == incumbent.Denied && peer.Bearer != "" {
			r.fail(403, textUnknownUser)
		} else {
			r.failFor(err)
		}
		return false
	}
	if p.Kind == auth.Anonymous {
		r.who.principal = d.cfg.Anonymous
	} else {
		r.conn.visit.Load().Proved()
	}
	if r.who.principal.Kind == auth.Anonymous {
		return true
	}
	d.strangers.remove(r.conn)
	if err := d.cfg.Tally.Count(r.conn, r.who.principal, doorName); err != nil {
		r.keepAlive = false
		r.failFor(err)
		return false
	}
	return true
}

// token is the one that the request brings: as in Consul the parameter's before any
// header's. Whoever brings an Authorization header of another scheme brings none: proxies
// have theirs.
func (r *request) token() string {
	if t := cmp.Or(r.query.Get("token"), r.header.Get("X-Consul-Token")); t != "" {
		return t
	}
	t, _ := auth.Bearer(r.header.Get("Authorization"))
	return t
}

// defaultPolicy is what happens to whom no policy speaks of.
func (d *Door) defaultPolicy() string {
	if policy.Of(d.view()).Rules() == nil {
		return "allow"
	}
	return "deny"
}
