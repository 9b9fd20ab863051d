package native

import (
	"maps"
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

// owners finds the stream that a session is attached to: for offers.
type owners struct {
	mu   sync.Mutex // guards the map; held for one look-up, or to copy it
	byID map[incumbent.SessionID]owner
}

// owner is a stream, and the counter with which the session is attached to it.
type owner struct {
	s       *stream
	counter uint64
	came    bool // it may have come with a place in line
	claimed bool // it may have been given one since
}

// set says that a session is attached to a stream. Of two attachments that end in any order
// the one with the higher counter counts.
func (o *owners) set(a attached, s *stream) {
	o.mu.Lock()
	if o.byID[a.id].counter <= a.counter {
		o.byID[a.id] = owner{s: s, counter: a.counter, came: true}
	}
	o.mu.Unlock()
}

// claims says, before a claim of an attached session is handed on, that it may wait in line.
func (o *owners) claims(id incumbent.SessionID) {
	o.mu.Lock()
	if is, ok := o.byID[id]; ok {
		is.claimed = true
		o.byID[id] = is
	}
	o.mu.Unlock()
}

// cameWithout says that the session was told, when it was attached so, that it waits nowhere.
func (o *owners) cameWithout(a attached, s *stream) {
	o.mu.Lock()
	if is := o.byID[a.id]; is.s == s && is.counter == a.counter {
		is.came = false
		o.byID[a.id] = is
	}
	o.mu.Unlock()
}

// unset forgets the session if it is still this stream's, by no later attachment.
func (o *owners) unset(a attached, s *stream) {
	o.mu.Lock()
	if is := o.byID[a.id]; is.s == s && is.counter <= a.counter {
		delete(o.byID, a.id)
	}
	o.mu.Unlock()
}

func (o *owners) get(id incumbent.SessionID) *stream {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byID[id].s
}

// waiting calls f once for each stream of a session that is attached and may wait in line:
// from what is known here, or by what expects says.
func (o *owners) waiting(expects func(incumbent.SessionID) bool, f func(*stream)) {
	o.mu.Lock()
	all := maps.Clone(o.byID)
	o.mu.Unlock()
	streams := make(map[*stream]bool)
	for id, is := range all {
		if !streams[is.s] && (is.came || is.claimed || expects(id)) {
			streams[is.s] = true
			f(is.s)
		}
	}
}
