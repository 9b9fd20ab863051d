package lease

import "time"

// lateBounds are the upper bounds of the histogram of lateness.
const numLateBounds = 9

func lateBounds() [numLateBounds]time.Duration {
	return [numLateBounds]time.Duration{
		50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	}
}

// histogram counts how long after its deadline a lease or session was freed.
type histogram struct {
	counts [numLateBounds + 1]uint64
	sum    time.Duration
	max    time.Duration
}

func (h *histogram) add(late time.Duration) {
	late = max(late, 0)
	h.sum += late
	h.max = max(h.max, late)
	for i, bound := range lateBounds() {
		if late <= bound {
			h.counts[i]++
			return
		}
	}
	h.counts[numLateBounds]++
}

// Lateness is how long after their deadlines leases and sessions were freed.
type Lateness struct {
	Bounds []time.Duration // upper bounds; one more count is for what is beyond
	Counts []uint64
	Count  uint64
	Sum    time.Duration
	Max    time.Duration
}

func (h *histogram) lateness() Lateness {
	bounds := lateBounds()
	l := Lateness{Bounds: bounds[:], Counts: h.counts[:], Sum: h.sum, Max: h.max}
	l.Counts = append([]uint64(nil), l.Counts...)
	for _, n := range l.Counts {
		l.Count += n
	}
	return l
}
