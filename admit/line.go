package admit

import (
	"slices"
	"sync"
	"time"
)

// Line is where work waits that found no room in its lane, in the order in which it
// came. Only the first asks again: if each did, the lane would be seen to be full all the
// time, and what gives way to it would wait for as long. It has no goroutine; a timer runs
// while something waits.
//
// Enter and Over are called without the line's mutex, which is held to change the line;
// Over, and Enter for what waits, by one goroutine at a time. All methods may be called from
// anywhere.
type Line[T any] struct {
	Pause time.Duration // between two looks
	Run   func(func())  // runs a look soon, on a goroutine of the owner's
	Enter func(T) bool  // has the work begin if there is room for it; false: there is none
	Over  func(T) bool  // reports whether it waits no longer, whatever room there is: asked every tidyEvery; nil: all wait on

	mu      sync.Mutex // guards the rest
	waiting []T        // the first first
	looking bool       // the timer runs, or somebody looks
	tidied  time.Time  // of whoever looks
}

// tidyEvery is how often all that wait are asked whether they still do.
const tidyEvery = 100 * time.Millisecond

// Len is how many wait.
func (l *Line[T]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// Try has work begin at once if nothing waits and there is room for it. false: it has to wait
// (see Join) or to be refused.
func (l *Line[T]) Try(t T) bool { return l.Len() == 0 && l.Enter(t) }

// Join has work wait.
func (l *Line[T]) Join(t T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, t)
	if !l.looking {
		l.looking = true
		l.lookLater()
	}
}

func (l *Line[T]) lookLater() { time.AfterFunc(l.Pause, func() { l.Run(l.look) }) }

// look has as much begin as finds room now.
func (l *Line[T]) look() {
	if now := time.Now(); l.Over != nil && now.Sub(l.tidied) >= tidyEvery {
		l.tidied = now
		l.tidy()
	}
	for {
		t, ok := l.first()
		if !ok {
			return
		}
		if !l.Enter(t) {
			l.lookLater()
			return
		}
		l.leave()
	}
}

// tidy takes out what waits no longer. Whoever joins meanwhile does so behind it.
func (l *Line[T]) tidy() {
	l.mu.Lock()
	stay := slices.Clone(l.waiting)
	l.mu.Unlock()
	were := len(stay)
	if stay = slices.DeleteFunc(stay, l.Over); len(stay) == were {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(stay, l.waiting[were:]...)
}

// first is who is first. If nobody waits, nobody looks any more.
func (l *Line[T]) first() (t T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looking = len(l.waiting) > 0; l.looking {
		t = l.waiting[0]
	}
	return t, l.looking
}

// leave takes the first out.
func (l *Line[T]) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none T
	l.waiting[0] = none
	if l.waiting = l.waiting[1:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
}
