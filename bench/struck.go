package bench

import "slices"

// size implements victims.
func (f *fleet) size() int { return len(f.heldBy) }

// flush implements victims: all is here.
func (*fleet) flush() {}

// strike implements victims.
func (f *fleet) strike() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.struckAt = f.now()
	f.holders = make(map[int]uint64, len(f.agents))
	for _, a := range f.agents {
		if a.token != 0 {
			f.holders[a.id] = a.token
			a.struck = true
		}
	}
	f.unrenewed, f.renewed = len(f.holders), 0
}

// disconnect implements victims.
func (f *fleet) disconnect(members []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.links {
		if l != nil && l.stream != nil && slices.Contains(members, l.member) {
			f.leave(l, errDisconnected)
		}
	}
}

// count implements crew.
func (f *fleet) count() (tally, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return tally{
		Leading: f.holding, Blocked: f.waiting, Open: f.open, Closed: f.moved, Moved: int(f.handed.Load()),
		Struck: len(f.holders), Waiting: f.unrenewed, Refused: f.denied, Unsure: f.unsure, Renewed: f.renewed,
	}, f.failure
}

// judge implements victims: every holder must go on with the token it had.
func (f *fleet) judge() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteAllUnanswered(f.now())
	kept := 0
	for _, a := range f.agents {
		token, held := f.holders[a.id]
		switch {
		case !held:
		case a.token == token:
			kept++
		default:
			f.check.Violate("agent %d had token %d before the fault and %d after", a.id, token, a.token)
		}
	}
	if f.unrenewed > 0 {
		f.check.Violate("%d holders have had no good extension since the fault", f.unrenewed)
	}
	f.fact("renewing_again_seconds", f.renewed.Seconds())
	for name, v := range map[string]int{
		"kept_their_token": kept, "held_before_the_fault": len(f.holders), "not_recovered": f.unrenewed, "extensions_refused": f.denied, "extensions_unconfirmed": f.unsure, "reconnects": f.moved,
	} {
		f.fact(name, float64(v))
	}
	return f.failure
}
