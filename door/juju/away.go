package juju

import "math/rand/v2"

// SendAway closes all connections that are open now, in any order: their agents
// connect to another member. It calls next before each, which may wait, and ends
// early when that says false.
func (d *Door) SendAway(next func() bool) {
	all := d.conns.all()
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	for _, c := range all {
		if !next() {
			return
		}
		c.goAway()
	}
}
