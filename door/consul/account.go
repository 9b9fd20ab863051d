package consul

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
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

// noteDenied hands on that a caller may not do an action.
func (d *Door) noteDenied(who *caller, a auth.Action, subject string) {
	d.note(who, audit.Record{Action: a.String(), Subject: subject, Outcome: audit.Denied, Reason: audit.Permission})
}

// noteUnknown hands on that somebody brought what proves nobody.
func (d *Door) noteUnknown(who *caller, err error) {
	if incumbent.KindOf(err) == incumbent.Denied {
		d.note(who, audit.Record{Action: audit.Login, Outcome: audit.Denied, Reason: audit.Identity})
	}
}

// changed hands on that the caller has changed something, at an index.
func (r *request) changed(a auth.Action, subject, detail string, index incumbent.Index) {
	r.door.note(r.who, audit.Record{Action: a.String(), Subject: subject, Detail: detail, Outcome: audit.Done, Index: uint64(index)})
}
