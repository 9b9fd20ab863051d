package consul

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// What callers change, and what they are not let do, is handed on to whoever counts and
// records it.

func (d *Door) note(who *caller, r audit.Record) {
	if d.cfg.Audit == nil {
		return
	}
	r.Door, r.Address, r.Principal = doorName, who.address, who.principal.String()
	d.cfg.Audit(r)
}

// noteDenied hands on that a caller may not do an action to something, which the request
// calls by a name; nil: may not do it to anything.
func (d *Door) noteDenied(who *caller, a auth.Action, to *auth.Resource, name string) {
	out := audit.Record{Action: a.String(), Subject: name, Outcome: audit.Denied, Reason: audit.Permission}
	switch {
	case to == nil:
	case to.Name.Namespace != "":
		out.Subject = audit.In(to.Name.Namespace, to.Name.Lease)
	case a == auth.SessionUse || a == auth.SessionClose:
		out.Subject = "session " + name
		if to.Owner != who.principal.String() {
			out.Reason = audit.Owner
		}
	}
	d.note(who, out)
}

// noteUnknown hands on that somebody brought what proves nobody.
func (d *Door) noteUnknown(who *caller, err error) {
	if incumbent.KindOf(err) == incumbent.Denied {
		d.note(who, audit.Record{Action: audit.Login, Outcome: audit.Denied, Reason: audit.Identity})
	}
}

// operated hands on what became of what an operator has asked for: of that it is recorded, too,
// that it failed.
func (r *request) operated(subject, detail string, index incumbent.Index, err error) {
	out := audit.Record{Action: auth.Admin.String(), Subject: subject, Detail: detail, Index: uint64(index)}
	switch kind := incumbent.KindOf(err); kind {
	case incumbent.OK:
	case incumbent.Unknown:
		out.Outcome = audit.Unknown
	default:
		out.Outcome, out.Detail = audit.Failed, detail+", "+kind.String()
	}
	r.door.note(r.who, out)
}

// change is what a request is about to change, for whoever records it.
type change struct {
	action  auth.Action
	subject string
	session incumbent.SessionID // that it is done with; zero: with none
}

// settled hands on what became of a change: nothing if it was refused for what is there,
// or has changed nothing.
func (r *request) settled(c *change, res *core.Result, changed bool) {
	out := audit.Record{Action: c.action.String(), Subject: c.subject, Index: uint64(res.Index)}
	switch incumbent.KindOf(errOf(*res)) {
	case incumbent.OK:
		if res.Idle || !changed {
			return
		}
	case incumbent.Denied:
		out.Outcome, out.Reason = audit.Denied, audit.Permission
		if s := r.door.view().Session(c.session); s != nil && !s.UsableBy(r.who.principal.String()) {
			out.Reason = audit.Owner
		}
	case incumbent.Unknown:
		out.Outcome = audit.Unknown
	default:
		return
	}
	r.door.note(r.who, out)
}

// settledTxn hands on what became of a transaction: what it has done to keys, to nodes and to
// services, each with all their names.
func (r *request) settledTxn(steps []txnStep, res *core.Result) {
	for _, a := range [...]auth.Action{auth.KeyWrite, auth.NodeWrite, auth.ServiceWrite} {
		var names audit.Names
		for i := range steps {
			s := &steps[i]
			if s.writes && s.action == a && s.done(i, res) {
				names.Add(r.door.subject(s.name))
			}
		}
		if !names.None() {
			r.settled(&change{action: a, subject: names.String()}, res, true)
		}
	}
}

// done reports whether an operation, the i-th of a transaction, has changed something, or
// would have if the transaction had succeeded.
func (s *txnStep) done(i int, res *core.Result) bool {
	if res.Err != nil {
		return true
	}
	of := res.Txn.Results[i]
	of.Index = res.Index
	return kv.Changed(&of)
}

// changing returns what hands on the outcome of a command that changes something if it
// succeeds.
func (r *request) changing(a auth.Action, subject string) func(*core.Result) {
	return func(res *core.Result) { r.settled(&change{action: a, subject: subject}, res, true) }
}

// subject is what records call a name of the door's namespace.
func (d *Door) subject(name string) string { return audit.In(d.namespace, name) }
