package bench

import (
	"sync"
	"time"
)

// planned is a step with its intended time.
type planned struct {
	at    time.Duration
	what  step
	agent *agent
	link  *fleetLink
	unit  *unit         // of a fleet of Juju's
	conn  *jujuConn     // of the unit, where the step is about it
	token uint64        // that the step is about
	gen   uint64        // of the agent's holding when it was planned
	since time.Duration // when it was first to be sent, of one that was refused
}

// idleWait is how long an empty schedule sleeps unless it is woken.
const idleWait = time.Second

// schedule is a binary heap by intended time.
type schedule struct{ heap []planned }

// push adds a step and reports whether it is now the first.
func (s *schedule) push(p planned) (first bool) {
	s.heap = append(s.heap, p)
	h := s.heap
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up].at <= h[i].at {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	return i == 0
}

// due takes the first step if its time has come.
func (s *schedule) due(now time.Duration) (planned, bool) {
	if len(s.heap) == 0 || s.heap[0].at > now {
		return planned{}, false
	}
	h := s.heap
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], planned{}
	h = h[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].at < h[least].at {
				least = c
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	s.heap = h
	return first, true
}

// next is how long until the first step is due.
func (s *schedule) next(now time.Duration) time.Duration {
	if len(s.heap) == 0 {
		return idleWait
	}
	return max(0, s.heap[0].at-now)
}

// agenda is a fleet's schedule and what wakes the goroutine that performs it. The
// fleet's mutex guards it.
type agenda struct {
	schedule schedule
	wake     chan struct{}
}

func newAgenda() agenda { return agenda{wake: make(chan struct{}, 1)} }

// poke has drive look again, at the schedule and whether the fleet has ended.
func (a *agenda) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// enqueue puts a step on the schedule. Held: the fleet's mutex.
func (a *agenda) enqueue(p planned) {
	if a.schedule.push(p) {
		a.poke()
	}
}

// drive performs steps as they fall due until the fleet has ended. It holds mu, the
// fleet's, which guards ended, while it performs them.
func (a *agenda) drive(mu *sync.Mutex, clock func() time.Duration, ended *bool, perform func(planned)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-a.wake:
		}
		mu.Lock()
		now := clock()
		for !*ended {
			p, ok := a.schedule.due(now)
			if !ok {
				break
			}
			perform(p)
		}
		wait, over := a.schedule.next(now), *ended
		mu.Unlock()
		if over {
			return
		}
		timer.Reset(wait)
	}
}
