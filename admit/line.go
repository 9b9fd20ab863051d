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
	Enter func(T) Turn  // has the work begin if there is room for it
	Over  func(T) bool  // reports whether it waits no longer, whatever room there is: asked every tidyEvery; nil: all wait on

	mu      sync.Mutex // guards the rest
	waiting []T        // the first first
	looking bool       // the timer runs, or somebody looks
	tidied  time.Time  // of whoever looks
}

// Turn is what has come of work that asked for room.
type Turn uint8

// The turns.
const (
	NoRoom Turn = iota // it stays where it is, and all behind it
	Begun
	Aside // there is room, not for this: it goes to the end, and the next is asked
)

// maxAside is how many go to the end in one look: each is refused, though others would not be.
const maxAside = 4

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
func (l *Line[T]) Try(t T) bool { return l.Len() == 0 && l.Enter(t) == Begun }

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
	for aside := 0; ; {
		t, ok := l.first()
		if !ok {
			return
		}
		turn := l.Enter(t)
		if turn == Aside {
			aside++
		}
		if turn == NoRoom || turn == Aside && aside >= min(maxAside, l.Len()) {
			l.lookLater()
			return
		}
		l.leave(turn == Aside)
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

// leave takes the first out, or puts it behind the others.
func (l *Line[T]) leave(aside bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none T
	t := l.waiting[0]
	l.waiting[0] = none
	if l.waiting = l.waiting[1:]; aside {
		l.waiting = append(l.waiting, t)
	}
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
}
