package juju

import (
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// line is where calls wait that found no place in their lane, in the order in
// which they came. Only the first asks again: if each did, the lane would be seen
// to be full all the time, and what gives way to it would wait for as long. It has
// no goroutine; a timer runs while somebody waits.
type line struct {
	door *Door
	lane admit.Lane

	mu    sync.Mutex // guards the rest; held to change it
	calls []*bulk    // waiting, the first first
	busy  bool       // the timer runs, or somebody lets calls in
}

// pass gives a call a place, or has it wait for one. It reports whether it has it.
func (l *line) pass(k *bulk) (admit.Place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) == 0 {
		if p, err := l.door.enter(k.c.who.work(), l.lane, k.cost()); err == nil {
			return p, true
		}
	}
	l.door.counts.retries.Add(1)
	l.calls = append(l.calls, k)
	if !l.busy {
		l.busy = true
		l.wait()
	}
	return admit.Place{}, false
}

// wait has the line looked at after a while.
func (l *line) wait() {
	time.AfterFunc(linePause, func() { l.door.work.Put(l.letIn) })
}

// letIn hands in as many calls as find a place now.
func (l *line) letIn() {
	for {
		k := l.first()
		if k == nil {
			return
		}
		p, err := l.door.enter(k.c.who.work(), l.lane, k.cost())
		if err != nil {
			l.wait()
			return
		}
		l.leave()
		k.hand(p)
	}
}

// first is who is first; nil if nobody waits any more, and then nobody lets in.
func (l *line) first() *bulk {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy = len(l.calls) > 0; !l.busy {
		return nil
	}
	return l.calls[0]
}

// leave takes the first out.
func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[0] = nil
	if l.calls = l.calls[1:]; len(l.calls) == 0 {
		l.calls = nil
	}
}
