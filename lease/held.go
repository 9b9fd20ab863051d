package lease

import (
	"maps"
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// hold lets an extension wait for what is on its way through the log and names
// its lease or session.
func (e *Engine) hold(k key, w waiter) {
	e.held[k] = append(e.held[k], w)
	e.heldWaiting++
}

// holdNamed lets an extension by name wait for a command that its client has
// sent before.
func (e *Engine) holdNamed(name incumbent.Name, w waiter) {
	e.heldNames[name] = append(e.heldNames[name], w)
	e.heldWaiting++
}

// holdDeadline lets the extension of a family's deadline wait for the command that
// ends it.
func (e *Engine) holdDeadline(k deadlineKey, w waiter) {
	e.heldDeadlines[k] = append(e.heldDeadlines[k], w)
	e.heldWaiting++
}

// releaseDeadline looks again at what waited for the end of a family's deadline.
func (e *Engine) releaseDeadline(k deadlineKey) {
	if len(e.heldDeadlines) == 0 {
		return
	}
	if ws, ok := e.heldDeadlines[k]; ok {
		delete(e.heldDeadlines, k)
		e.judgeAgain(ws)
	}
}

// release looks again at what waited for a lease or a session.
func (e *Engine) release(k key) {
	if len(e.held) == 0 {
		return
	}
	if ws, ok := e.held[k]; ok {
		delete(e.held, k)
		e.judgeAgain(ws)
	}
}

// releaseNamed looks again at what waited for a command on a lease.
func (e *Engine) releaseNamed(name incumbent.Name) {
	if len(e.heldNames) == 0 {
		return
	}
	if ws, ok := e.heldNames[name]; ok {
		delete(e.heldNames, name)
		e.judgeAgain(ws)
	}
}

func (e *Engine) judgeAgain(ws []waiter) {
	e.heldWaiting -= len(ws)
	for _, w := range ws {
		if e.leading {
			e.judgeItem(w.batch, w.item)
		} else {
			e.ask(w)
		}
	}
}

// takeHeld empties the lists of what is held, in a fixed order.
func (e *Engine) takeHeld() []waiter {
	ws := make([]waiter, 0, e.heldWaiting)
	for _, k := range slices.SortedFunc(maps.Keys(e.held), key.compare) {
		ws = append(ws, e.held[k]...)
	}
	for _, n := range slices.SortedFunc(maps.Keys(e.heldNames), incumbent.Name.Compare) {
		ws = append(ws, e.heldNames[n]...)
	}
	for _, k := range slices.SortedFunc(maps.Keys(e.heldDeadlines), deadlineKey.compare) {
		ws = append(ws, e.heldDeadlines[k]...)
	}
	clear(e.heldDeadlines)
	clear(e.held)
	clear(e.heldNames)
	e.heldWaiting = 0
	return ws
}

// giveUpHeld answers, on a member that does not lead, what has been held for
// too long.
func (e *Engine) giveUpHeld() {
	if e.heldWaiting == 0 || !e.courier.on {
		return
	}
	for _, k := range slices.SortedFunc(maps.Keys(e.held), key.compare) {
		if e.held[k] = e.giveUpAmong(e.held[k]); len(e.held[k]) == 0 {
			delete(e.held, k)
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(e.heldNames), incumbent.Name.Compare) {
		if e.heldNames[n] = e.giveUpAmong(e.heldNames[n]); len(e.heldNames[n]) == 0 {
			delete(e.heldNames, n)
		}
	}
}

func (e *Engine) giveUpAmong(ws []waiter) []waiter {
	n := len(ws)
	ws = slices.DeleteFunc(ws, e.tooOld)
	e.heldWaiting -= n - len(ws)
	return ws
}
