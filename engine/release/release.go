// Package release tells when a holding has ended: what a caller who blocks until
// a lease is released waits for, in any door.
//
// A [Wait] looks at a confirmed state and then waits for a change after that
// state's index, so nothing that is committed in between is missed (G10). What
// it waits for is another token, never "free": a hand-over is never free.
//
//	confirm ─▶ look: over? ── yes ──▶ done
//	             │ no
//	             ▼
//	          wait for a change after the index looked at ─▶ look again
//
// # Invariants
//
// A wait ends exactly once: with done, or by a Cancel that returned true.
//
// # Concurrency
//
// A Wait has no goroutine. Its parts run on whoever confirms, on [Source.Run]
// and on the hub; its mutex is never held while one of them is called.
package release

import (
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// Source is what waits look at.
type Source struct {
	Engine *engine.Engine
	// Confirm calls done when this member has applied everything that was
	// committed when it was called. It never blocks; neither does done.
	Confirm func(done func(err error))
	// Run runs a function soon, on a goroutine that may take a while.
	Run func(func())
}

// Wait is one wait for the end of a holding.
type Wait struct {
	src   *Source
	name  incumbent.Name
	token incumbent.Token // 0: whatever the first look finds; written by look alone, under mu
	done  func(error)

	mu     sync.Mutex // guards the rest; held to look at it
	over   bool
	looks  int // begun
	waiter *watch.Waiter
}

// Begin waits until the lease is no longer held under token, or, with token 0,
// under whichever it is held when looked at first. done is called once, from any
// goroutine, and must not block; with an error if the wait cannot go on (the
// state cannot be confirmed, the hub is full or closed, the token was never
// granted). It may be called before Begin returns.
func (s *Source) Begin(name incumbent.Name, token incumbent.Token, done func(error)) *Wait {
	w := &Wait{src: s, name: name, token: token, done: done}
	s.Confirm(func(err error) {
		if err != nil {
			w.end(err)
			return
		}
		s.Run(w.look)
	})
	return w
}

// look decides on the present state, or waits for the next change.
func (w *Wait) look() {
	n := w.beginLook()
	if n == 0 {
		return
	}
	view := w.src.Engine.View()
	l := leases.Of(view).Lease(w.name)
	switch {
	case l.Free():
		w.end(nil)
		return
	case w.token == 0:
		w.mu.Lock()
		w.token = l.Token
		w.mu.Unlock()
	case w.token > l.LastToken:
		w.end(incumbent.Errorf(incumbent.Invalid, "%v was never granted; the greatest is %v", w.token, l.LastToken))
		return
	case w.token != l.Token:
		w.end(nil)
		return
	}
	waiter, err := w.src.Engine.Hub().Wait(watch.Exact(engine.FamilyTopic(leases.Number, leases.TopicOf(w.name))), view.Index(), w.ends, w.fired)
	if err != nil {
		w.end(err)
		return
	}
	w.keep(n, waiter)
}

// beginLook numbers a look, from 1; 0: the wait is over.
func (w *Wait) beginLook() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return 0
	}
	w.looks++
	return w.looks
}

// keep keeps what a look waits with, for Cancel. It may have fired before the look comes
// here, and a later look begun, even ended: then that one's is what the wait has.
func (w *Wait) keep(look int, waiter *watch.Waiter) {
	w.mu.Lock()
	late := w.over || look != w.looks
	if !late {
		w.waiter = waiter
	}
	w.mu.Unlock()
	if late {
		waiter.Cancel()
	}
}

// ends reports whether an event ends the holding.
func (w *Wait) ends(e *watch.Event) bool {
	c, ok := e.Payload.(*core.Change)
	if !ok {
		panic(incumbent.Errorf(incumbent.Internal, "an event of a lease carries %T", e.Payload))
	}
	l, _ := leases.ChangeOf(c)
	return l.Lease == nil || l.Lease.Token != w.token
}

// fired goes on after the hub: events may have been lost there, then only the
// state can tell.
func (w *Wait) fired(f watch.Fired) {
	switch incumbent.KindOf(f.Err) {
	case incumbent.OK:
		w.end(nil)
	case incumbent.Compacted:
		w.src.Run(w.look)
	default:
		w.end(f.Err)
	}
}

func (w *Wait) end(err error) {
	if w.Cancel() {
		w.done(err)
	}
}

// Cancel ends the wait without a word and reports whether it did: if so, done
// will never be called.
func (w *Wait) Cancel() bool {
	w.mu.Lock()
	was, waiter := w.over, w.waiter
	w.over, w.waiter = true, nil
	w.mu.Unlock()
	if was {
		return false
	}
	if waiter != nil {
		waiter.Cancel()
	}
	return true
}

// Token returns the holding whose end is waited for, 0 before the first look: who
// waits on after an error names it.
func (w *Wait) Token() incumbent.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}
