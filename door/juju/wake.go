package juju

import "time"

// wake answers blocked callers at a bounded pace: each of them claims at once,
// and whoever holds a lease extends meanwhile. One alone is answered at once.
func (d *Door) wake() {
	var got []*block
	pace := pacer{at: d.monotonic()}
	for {
		got = d.wakes.Take(got, wakeBurst)
		if len(got) == 0 {
			return
		}
		for _, b := range got {
			b.answer()
		}
		if wait := pace.take(len(got), d.monotonic(), d.limits.Load().WakesPerSecond); wait > 0 {
			d.rest(wait)
		}
	}
}

// pacer says how long to rest so that no more happens in a second than may, after
// a burst of at most wakeBurst.
type pacer struct {
	at   int64   // when it was last asked
	debt float64 // what has happened beyond the pace, up to then
}

func (p *pacer) take(n int, now int64, perSecond int) time.Duration {
	p.debt = max(0, p.debt-float64(now-p.at)/1e9*float64(perSecond)) + float64(n)
	p.at = now
	if p.debt <= wakeBurst {
		return 0
	}
	return time.Duration((p.debt - wakeBurst) / float64(perSecond) * 1e9)
}
