package gate

import "net/netip"

// tickOn has ticks counted while there is something to count them for. mu is held.
func (g *Gate) tickOn() {
	if !g.ticking {
		g.ticking = true
		g.cfg.after(tickEvery, g.tick)
	}
}

// tick closes who was silent for too long, and has those who wait look for a place
// again.
func (g *Gate) tick() {
	g.mu.Lock()
	defer g.unlock()
	g.now++
	g.tried = 0
	most := uint32((g.cfg.FirstByte + tickEvery - 1) / tickEvery)
	for c := g.silent.first; c != nil && g.now-c.since > most; c = g.silent.first {
		g.drop(c, Silent)
	}
	g.weed(patience, 0, g.ready)
	g.look()
	g.turn.Broadcast()
	g.ticking = false
	if g.err == nil && (g.lenUnproven() > 0 || g.storm.closed > 0 || g.storm.on) {
		g.tickOn()
	}
}

// weed closes some of those who have waited for the pace for more than so many ticks, so many
// at most: their clients are told in time. Of an address so many are left: those it may be the
// turn of.
func (g *Gate) weed(age uint32, leave, most int) {
	looks := max(most, mostLooks)
	for s := range g.turns.all() {
		if looks--; looks < 0 {
			return
		}
		if !g.cfg.Pace.holds(s.address, leave) {
			continue
		}
		for c := s.waiting.first; c != nil && s.waiting.n > leave && g.now-c.spoke > age; c = s.waiting.first {
			if most--; most < 0 {
				return
			}
			g.drop(c, Failing)
		}
	}
}

// storm is when so many strangers are closed that it is worth a line in the log: one
// when it begins, one when it is over.
type storm struct {
	on     bool
	closed int    // in this window
	since  uint32 // tick in which the window began
	total  uint64 // closed since it began
}

// count notes that a stranger was closed, who comes from an address.
func (g *Gate) count(why Reason, from netip.Addr) {
	s := &g.storm
	g.closed[why]++
	if s.closed == 0 {
		s.since = g.now
	}
	s.closed++
	s.total++
	g.tickOn()
	if s.on || s.closed < stormFrom {
		return
	}
	s.on, s.total = true, uint64(s.closed)
	g.cfg.Logger.Warn("strangers are closed", "listener", g.cfg.Name, "reason", why.String(), "address", from.String(),
		"silent", g.silent.n, "waiting", g.ready, "unproven", g.unproven.n, "proven", g.proven)
}

// look sees whether a storm is over.
func (g *Gate) look() {
	s := &g.storm
	if s.closed == 0 && !s.on || g.now-s.since < stormWindow {
		return
	}
	if s.on && s.closed < stormFrom {
		s.on = false
		g.cfg.Logger.Info("strangers are no longer closed", "listener", g.cfg.Name, "closed", s.total)
	}
	s.closed, s.since = 0, g.now
}
