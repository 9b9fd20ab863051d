package native

import (
	"slices"
	"sync"

	"github.com/incumbent-dev/incumbent"
)

// attached is a session that is attached to a stream.
type attached struct {
	id      incumbent.SessionID
	counter uint64
}

// sessionList is the sessions of one stream. Nearly every stream has one, which
// needs no memory of its own.
type sessionList struct {
	one  attached
	more []attached
}

func (l *sessionList) len() int {
	if l.one.id.IsZero() {
		return 0
	}
	return 1 + len(l.more)
}

func (l *sessionList) each(f func(*attached)) {
	if l.one.id.IsZero() {
		return
	}
	f(&l.one)
	for i := range l.more {
		f(&l.more[i])
	}
}

// set adds a session, or takes a higher counter over.
func (l *sessionList) set(a attached) {
	found := false
	l.each(func(b *attached) {
		if b.id == a.id {
			b.counter = max(b.counter, a.counter)
			found = true
		}
	})
	switch {
	case found:
	case l.one.id.IsZero():
		l.one = a
	default:
		l.more = append(l.more, a)
	}
}

// raise gives a session that is there a higher counter.
func (l *sessionList) raise(a attached) {
	l.each(func(b *attached) {
		if b.id == a.id {
			b.counter = max(b.counter, a.counter)
		}
	})
}

// has reports whether the session is there with this counter.
func (l *sessionList) has(a attached) bool {
	found := false
	l.each(func(b *attached) { found = found || *b == a })
	return found
}

// remove takes a session out and returns it.
func (l *sessionList) remove(id incumbent.SessionID) (attached, bool) {
	if l.one.id == id && !id.IsZero() {
		a := l.one
		l.one = attached{}
		if n := len(l.more); n > 0 {
			l.one = l.more[n-1]
			l.more = l.more[:n-1]
		}
		return a, true
	}
	for i, a := range l.more {
		if a.id == id {
			l.more = slices.Delete(l.more, i, i+1)
			return a, true
		}
	}
	return attached{}, false
}

// streamList is all streams of the door, to say good-bye to.
type streamList struct {
	mu    sync.Mutex // guards the list, and the links of its streams
	first *stream
	count int
}

func (l *streamList) add(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.next = l.first
	if l.first != nil {
		l.first.prev = s
	}
	l.first = s
	l.count++
}

func (l *streamList) remove(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.next, s.prev = nil, nil
	l.count--
}

func (l *streamList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// all returns the streams of the moment.
func (l *streamList) all() []*stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*stream, 0, l.count)
	for s := l.first; s != nil; s = s.next {
		out = append(out, s)
	}
	return out
}

// owners finds the stream that a session is attached to: for offers.
type owners struct {
	mu   sync.Mutex // guards the map; held for one look-up
	byID map[incumbent.SessionID]*stream
}

func (o *owners) set(id incumbent.SessionID, s *stream) {
	o.mu.Lock()
	o.byID[id] = s
	o.mu.Unlock()
}

// unset forgets the session if it is still this stream's.
func (o *owners) unset(id incumbent.SessionID, s *stream) {
	o.mu.Lock()
	if o.byID[id] == s {
		delete(o.byID, id)
	}
	o.mu.Unlock()
}

func (o *owners) get(id incumbent.SessionID) *stream {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byID[id]
}

// each calls f for the attached sessions of the moment.
func (o *owners) each(f func(incumbent.SessionID, *stream)) {
	type pair struct {
		id incumbent.SessionID
		s  *stream
	}
	o.mu.Lock()
	pairs := make([]pair, 0, len(o.byID))
	for id, s := range o.byID {
		pairs = append(pairs, pair{id, s})
	}
	o.mu.Unlock()
	for _, p := range pairs {
		f(p.id, p.s)
	}
}
