package ovsdb

import (
	"crypto/x509"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/tally"
)

// caller is who has connected.
type caller struct {
	door      *Door
	remote    *Remote
	principal auth.Principal
	address   string
	socket    bool   // it is connected by a socket of this machine
	name      string // that its certificate was made out for; "": it has shown none
	// Of a certificate of the door's own authority: the authorities that there were, and
	// when it ends, in milliseconds since 1970.
	roots *x509.CertPool
	ends  int64

	unproven bool        // is who brings nothing
	visit    *gate.Visit // then

	counted tally.Place // the connection's, among its principal's
}

// work says for whom work on a database is done.
func (w *caller) work(db string) admit.Who {
	return admit.Who{Client: admit.ClientOf(w.principal.Name, w.address), Group: admit.KeyOf(db)}
}

// rights are those that policies give it now, and by which policies that is: see
// [core.Meta].
func (w *caller) rights() (*auth.Rights, incumbent.Index) {
	v := w.door.view()
	rights := policy.Of(v).Rules().Of(w.principal)
	if w.principal.Kind == auth.Operator {
		return rights, 0
	}
	return rights, policy.JudgedBy(v)
}

// may returns nil if the caller may do something to a database, or a lock, and else
// takes note of it.
func (w *caller) may(a auth.Action, r auth.Resource) (judged incumbent.Index, err error) {
	rights, judged := w.rights()
	r.Door = doorName
	if err = auth.Authorize(rights, a, r); err != nil {
		w.denied(a, r)
	}
	return judged, err
}

// mayWrite is may for changes of a database's rows: within which of its roles, none: all.
func (w *caller) mayWrite(db string) (roles []string, judged incumbent.Index, err error) {
	rights, judged := w.rights()
	r := w.door.named(db)
	r.Door = doorName
	if roles, err = auth.AuthorizeRows(rights, r); err != nil {
		w.denied(auth.TableWrite, r)
	}
	return roles, judged, err
}

func (w *caller) denied(a auth.Action, r auth.Resource) {
	w.door.note(w, audit.Record{Action: a.String(), Subject: subjectOf(r.Name), Outcome: audit.Denied, Reason: audit.Permission})
}

// subjectOf is what records call a database, or the lease that is a lock.
func subjectOf(n incumbent.Name) string {
	if n.Model == "" {
		return audit.In(n.Namespace, n.Lease)
	}
	return n.String()
}

// named is a name in the door's namespace, for policies.
func (d *Door) named(name string) auth.Resource {
	return auth.Resource{Name: incumbent.Name{Namespace: d.namespace, Lease: name}}
}

// origin is that of what a caller asks for.
func (w *caller) origin() core.Origin {
	return core.Origin{At: w.door.now(), Door: doorName, Address: w.address, Principal: w.principal.String()}
}

// noteFull logs that a connection ends as its client may not have another monitor, once in a
// while: whoever is refused comes back.
func (d *Door) noteFull(who *caller, err error) {
	now, last := d.now().Unix(), d.told.Load()
	if now >= last && now < last+int64(fullEvery/time.Second) || !d.told.CompareAndSwap(last, now) {
		return
	}
	d.log.Warn("a client asked for one monitor too many, and is disconnected", "principal", who.principal, "address", who.address, "cause", err)
}

// settled hands on what became of something that a caller has asked for: nothing if it was
// refused for what is there, or has changed nothing. It is for any goroutine, and does not wait.
func (d *Door) settled(who *caller, a auth.Action, subject, detail string, r *core.Result, changed bool) {
	x := audit.Record{Action: a.String(), Subject: subject, Detail: detail, Index: uint64(r.Index)}
	switch incumbent.KindOf(errorIn(*r)) {
	case incumbent.OK:
		if !changed {
			return
		}
	case incumbent.Denied:
		x.Outcome, x.Reason = audit.Denied, audit.Permission
	case incumbent.Unknown:
		x.Outcome = audit.Unknown
	default:
		return
	}
	d.note(who, x)
}

// note hands on what callers change, and what they are not let do, to whoever counts and
// records it.
func (d *Door) note(who *caller, r audit.Record) {
	if d.cfg.Audit == nil {
		return
	}
	r.Door, r.Address, r.Principal = doorName, who.address, who.principal.String()
	d.cfg.Audit(r)
}
