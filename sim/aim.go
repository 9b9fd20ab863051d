package sim

import (
	"bytes"
	"slices"
	"time"

	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// How often something is aimed.
const (
	strikeOneIn = 3                      // expiries at whose proposal something goes wrong
	leadOneIn   = 8                      // beginnings of a leader at which something does
	acceptOneIn = 8                      // offers that were accepted, after which one of several things happens
	wakesWithin = 100 * time.Millisecond // a holder that is late comes back so long after the proposal, at most
	aimedFault  = "aimed"                // its name, for Config.Only
)

// aim lets something go wrong at the very moment at which a leader proposes an
// expiry: with it all rules about expiry and extension are at stake, and faults
// that come at any time rarely meet it. Whoever has held the lease comes back
// just then, and extends it: late, but in earnest.
func (w *world) aim(p *process, ps []node.Proposal) {
	if !w.aims() || !slices.ContainsFunc(ps, expires) {
		return
	}
	w.wakeLate()
	if w.chance(strikeOneIn) {
		w.strike(p)
	}
}

// aims reports whether anything is aimed in this run, now.
func (w *world) aims() bool {
	return !w.healed && w.cfg.Faults > 0 && (w.cfg.Only == "" || w.cfg.Only == aimedFault)
}

// expires reports whether a proposal is an expiry: what the leader decides by
// itself says so in its origin, and only an end of something may use the reserve.
func expires(p node.Proposal) bool {
	return p.Reserve && p.Done != nil && bytes.Contains(p.Command, []byte("leader"))
}

// wakeLate lets agents whose deadline has passed go on.
func (w *world) wakeLate() {
	for _, a := range w.agents {
		if a.token == 0 || a.holds() || a.fading || w.chance(3) {
			continue
		}
		turn, token := a.turn, a.token
		w.after(w.upTo(wakesWithin), func() {
			if a.turn == turn && a.token == token && !a.retired {
				a.quiet = 0
				a.extendHeld()
			}
		})
	}
}

// aimLead does so when a member begins to lead.
func (w *world) aimLead(p *process) {
	if w.aims() && w.chance(leadOneIn) {
		w.strike(p)
	}
}

// aimAccepted does so when an agent has been told that it holds what it was offered:
// the leader alone knows of that for a while. Or the lease is revoked, or pinned.
func (w *world) aimAccepted(a *agent) {
	if !w.aims() {
		return
	}
	switch w.rng.IntN(acceptOneIn) {
	case 0:
		if p := w.leading(); p != nil {
			w.strike(p)
		}
	case 1:
		w.admin.do(leases.RevokeCommand{Name: a.want, By: "people", AtDeadline: true})
	case 2:
		w.admin.pins(a.want)
	}
}

// strike lets something go wrong with a process that is doing something: it is
// not ended or stopped in the middle of it, but soon after.
func (w *world) strike(p *process) {
	kinds := 2
	if len(w.members) > 1 {
		kinds = 6
	}
	kind := w.rng.IntN(kinds)
	w.res.Faults[aimedFault]++
	w.note("fault %s: %d at member %d", aimedFault, kind, p.m.at)
	soon := func(do func()) {
		w.after(w.upTo(10*turnTakes), func() {
			if !w.healed && !p.gone {
				do()
			}
		})
	}
	switch kind {
	case 0:
		soon(func() { w.stop(p.m) })
	case 1:
		soon(func() { p.m.kill(w.upTo(bootTakes)) })
	case 2, 3:
		p.node.StartTransferLeader(0, func(error) {})
	default:
		apart := []*member{p.m}
		w.cutOff(apart, true)
		w.lasting(w.upTo(5*time.Second), func() { w.cutOff(apart, false) })
	}
}
