package juju

import (
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/lease"
)

// What agents change, and what they are not let do, is handed on to whoever counts
// and records it. The end of a holding by its time is nobody's doing.

// actions are what methods do, in the words of all doors.
var actions = [numMethods]auth.Action{
	ping: auth.Read, claimLeadership: auth.Claim, blockUntilReleased: auth.Watch, pinLeaders: auth.Pin, unpinLeaders: auth.Pin,
	pinnedLeadership: auth.Read, singularClaim: auth.Claim, singularWait: auth.Watch,
}

func (c *conn) note(m method, r audit.Record) {
	r.Door, r.Address, r.Principal, r.Action = doorName, c.who.address, c.who.principal.String(), actions[m].String()
	c.door.audit(r)
}

// denied hands on that an agent may not do what it asked for, if it is told so.
func (c *conn) denied(m method, f *failure) {
	if f.code == unauthorized {
		c.note(m, audit.Record{Subject: "model " + c.who.model, Outcome: audit.Denied, Reason: audit.Permission})
	}
}

// done hands on what was done, if anything was: not that a claim extended.
func (c *conn) done(m method, op *lease.Op) {
	r := audit.Record{Outcome: audit.Done, Index: uint64(op.Result.Index)}
	switch cmd := op.Command.(type) {
	case leases.ClaimCommand:
		if !leases.AnswerOf(op.Result).Granted {
			return
		}
		r.Subject, r.Detail = cmd.Name.String(), "for "+cmd.Holder
	case leases.PinCommand:
		r.Subject, r.Detail = cmd.Name.String(), "as "+cmd.Entity
	case leases.UnpinCommand:
		r.Subject, r.Detail = cmd.Name.String(), "no longer as "+cmd.Entity
	}
	c.note(m, r)
}

// denied hands on that somebody did not prove to be who he says.
func (g *greeting) denied(tag string) {
	gate.VisitOf(g.conn).Failed()
	g.door.audit(audit.Record{
		Door: doorName, Address: addressOf(g.conn), Principal: tag, Action: audit.Login, Subject: "model " + g.model,
		Outcome: audit.Denied, Reason: audit.Identity,
	})
}
