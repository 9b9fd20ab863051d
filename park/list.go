package park

import (
	"math/rand/v2"
	"sync"
)

// List is the handlers of a door's connections, to say good-bye to them. H is a
// pointer to a handler that embeds a [Link] of itself, so that being listed costs
// a connection two words and no allocation. The zero value is empty. All methods
// may be called from any goroutine.
type List[H Linked[H]] struct {
	mu    sync.Mutex // guards the list, and the links of what is in it; held to change it or to copy it
	first H
	n     int
}

// Link is what a handler has for the one list it is in.
type Link[H any] struct {
	next, prev H // the zero H at either end; under the list's mutex
}

func (l *Link[H]) link() *Link[H] { return l }

// Linked is what embeds a [Link].
type Linked[H any] interface {
	comparable
	link() *Link[H]
}

// Add puts in a handler that is in no list.
func (l *List[H]) Add(h H) {
	var none H
	l.mu.Lock()
	defer l.mu.Unlock()
	h.link().next = l.first
	if l.first != none {
		l.first.link().prev = h
	}
	l.first = h
	l.n++
}

// Remove takes a handler out that was added, and out once.
func (l *List[H]) Remove(h H) {
	var none H
	l.mu.Lock()
	defer l.mu.Unlock()
	at := h.link()
	if at.prev != none {
		at.prev.link().next = at.next
	} else {
		l.first = at.next
	}
	if at.next != none {
		at.next.link().prev = at.prev
	}
	at.next, at.prev = none, none
	l.n--
}

// Len is how many there are.
func (l *List[H]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// All returns those of the moment.
func (l *List[H]) All() []H {
	var none H
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]H, 0, l.n)
	for h := l.first; h != none; h = h.link().next {
		out = append(out, h)
	}
	return out
}

// SendAway calls goAway for each of those of the moment, in any order. It calls
// next before each, which may wait, and ends early when that says false.
func (l *List[H]) SendAway(next func() bool, goAway func(H)) {
	all := l.All()
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	for _, h := range all {
		if !next() {
			return
		}
		goAway(h)
	}
}
