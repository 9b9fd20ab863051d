package sim

import (
	"slices"
	"time"
)

// fault is one kind of what can go wrong.
type fault struct {
	name    string
	members int // it needs at least so many
	do      func(*world)
}

// faults is what can go wrong, in the order in which the seed chooses.
func faults() []fault {
	return []fault{
		{"power", 1, func(w *world) { w.victim().powerFails() }},
		{"power-all", 2, (*world).powerAll},
		{"kill", 1, func(w *world) { w.victim().kill(w.upTo(bootTakes)) }},
		{"pause", 1, (*world).pause},
		{"pause-most", 3, (*world).pauseMost},
		{"silence", 1, func(w *world) { w.clients[w.rng.IntN(len(w.clients))].fallSilent() }},
		{"slow-disk", 1, (*world).slowDisk},
		{"hung-disk", 1, (*world).hangDisk},
		{"failed-flush", 1, func(w *world) { w.victim().broken = true }},
		{"full-disk", 1, (*world).fillDisk},
		{"wall-clock", 1, (*world).jump},
		{"partition", 2, (*world).partition},
		{"one-way", 2, (*world).oneWay},
		{"bridge", 3, (*world).bridge},
		{"swizzle", 2, (*world).swizzle},
		{"slow-link", 2, (*world).slowLink},
		{"hand-over", 2, (*world).handOver},
		{"demote", 3, (*world).demote},
		{"wipe", 2, (*world).wipe},
		{"remove", 2, (*world).remove},
		{"roll-back", 2, (*world).rollBack},
	}
}

// nemesis lets faults happen at random intervals.
func (w *world) nemesis() {
	if w.cfg.Faults == 0 {
		return
	}
	choice := slices.DeleteFunc(faults(), func(f fault) bool {
		return len(w.members) < f.members || w.cfg.Only != "" && w.cfg.Only != f.name
	})
	var next func()
	next = func() {
		w.after(w.upTo(2*w.cfg.Faults), func() {
			if w.healed {
				return
			}
			f := choice[w.rng.IntN(len(choice))]
			w.note("fault %s", f.name)
			w.res.Faults[f.name]++
			f.do(w)
			next()
		})
	}
	next()
}

// victim is a member: as often as not the one that leads.
func (w *world) victim() *member {
	if m := w.leader(); m != nil && w.chance(2) {
		return m
	}
	return w.anyone()
}

func (w *world) anyone() *member { return w.members[w.rng.IntN(len(w.members))] }

// leader is the member that leads the newest term, if its process runs.
func (w *world) leader() *member {
	m := w.check.leaders[w.check.term]
	if m == 0 {
		return nil
	}
	if l := w.member(m); l != nil && l.proc != nil {
		return l
	}
	return nil
}

// heal ends all faults.
func (w *world) heal() {
	w.note("healed")
	w.healed = true
	w.net.mend()
	for _, m := range w.members {
		m.slow, m.hung, m.broken, m.wall = 0, 0, false, 0
		m.disk.SetCapacity(0)
		if p := m.proc; p != nil {
			p.crash = 0
			p.thaw()
		}
	}
	for _, a := range w.clients {
		a.quiet = 0
	}
}

// lasting undoes something after a while, unless the healing has.
func (w *world) lasting(d time.Duration, undo func()) {
	w.after(d, func() {
		if !w.healed {
			undo()
		}
	})
}

// powerFails makes the power fail after some more operations on files: in the
// middle of an append, of a snapshot, of anything.
func (m *member) powerFails() {
	if p := m.proc; p != nil && p.crash == 0 {
		p.crash = 1 + m.w.rng.IntN(40)
	}
}

// powerAll takes the power from all members at once.
func (w *world) powerAll() {
	for _, m := range w.members {
		m.powerOff()
	}
}

// stops are how long a process stands still: election timeouts, and more than
// any ttl.
var stops = [...]time.Duration{election / 2, election, 3 * election, 10 * election, 3 * maxTTL}

// pause stops a process for a while. Its sockets go on taking what is sent.
func (w *world) pause() { w.stop(w.victim()) }

func (w *world) stop(m *member) {
	d := stops[w.rng.IntN(len(stops))]
	if p := m.proc; p != nil {
		p.freeze(d/2 + w.upTo(d))
	}
}

// pauseMost stops a majority.
func (w *world) pauseMost() {
	for _, i := range w.rng.Perm(len(w.members))[:len(w.members)/2+1] {
		w.stop(w.members[i])
	}
}

// slowDisk makes one or two disks slow for a while.
func (w *world) slowDisk() {
	for range 1 + w.rng.IntN(2) {
		m := w.anyone()
		m.slow = w.upTo(400 * time.Millisecond)
		w.lasting(w.upTo(10*time.Second), func() { m.slow = 0 })
	}
}

// hangDisk lets no flush of a member end for a while.
func (w *world) hangDisk() {
	m := w.victim()
	m.hung = w.now + w.upTo(6*time.Second)
}

// fillDisk leaves a member's disk without room for a while.
func (w *world) fillDisk() {
	m := w.victim()
	const much = 1 << 40
	m.disk.SetCapacity(much)
	free, err := m.disk.Free("")
	w.must(err)
	m.disk.SetCapacity(much - free + int64(w.rng.IntN(1<<20)))
	w.lasting(w.upTo(8*time.Second), func() { m.disk.SetCapacity(0) })
}

// jump sets a member's wall clock wrong by up to an hour.
func (w *world) jump() {
	m := w.anyone()
	m.wall = w.upTo(2*time.Hour) - time.Hour
}

// cutOff separates members from all others, in both directions.
func (w *world) cutOff(apart []*member, cut bool) {
	for _, a := range apart {
		for _, b := range w.members {
			if !slices.Contains(apart, b) {
				w.net.block(a, b, cut)
				w.net.block(b, a, cut)
			}
		}
	}
}

// partition separates some members from the others.
func (w *world) partition() {
	n := 1 + w.rng.IntN(len(w.members)-1)
	apart := []*member{w.victim()}
	for _, i := range w.rng.Perm(len(w.members)) {
		if m := w.members[i]; len(apart) < n && m != apart[0] {
			apart = append(apart, m)
		}
	}
	w.cutOff(apart, true)
	w.lasting(w.upTo(10*time.Second), func() { w.cutOff(apart, false) })
}

// oneWay lets a member hear and not be heard, or the other way round.
func (w *world) oneWay() {
	m, deaf := w.victim(), w.chance(2)
	set := func(cut bool) {
		for _, o := range w.members {
			switch {
			case o == m:
			case deaf:
				w.net.block(o, m, cut)
			default:
				w.net.block(m, o, cut)
			}
		}
	}
	set(true)
	w.lasting(w.upTo(10*time.Second), func() { set(false) })
}

// bridge makes a partition that is not transitive: two members that cannot hear
// each other, while both hear all others.
func (w *world) bridge() {
	p := w.rng.Perm(len(w.members))
	a, b := w.members[p[0]], w.members[p[1]]
	set := func(cut bool) {
		w.net.block(a, b, cut)
		w.net.block(b, a, cut)
	}
	set(true)
	w.lasting(w.upTo(10*time.Second), func() { set(false) })
}

// swizzle cuts members off one by one and lets them return in another order.
func (w *world) swizzle() {
	const within = 6 * time.Second
	n := 1 + w.rng.IntN(len(w.members))
	for _, i := range w.rng.Perm(len(w.members))[:n] {
		apart := w.members[i : i+1]
		w.lasting(w.upTo(within), func() {
			w.cutOff(apart, true)
			w.lasting(w.upTo(within), func() { w.cutOff(apart, false) })
		})
	}
}

// slowLink makes the way between two members slow for a while.
func (w *world) slowLink() {
	p := w.rng.Perm(len(w.members))
	k := [2]int{p[0], p[1]}
	w.net.lag[k] = w.upTo(300 * time.Millisecond)
	w.lasting(w.upTo(10*time.Second), func() { delete(w.net.lag, k) })
}
