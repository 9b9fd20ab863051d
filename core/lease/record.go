package lease

import (
	"bytes"
	"iter"
	"slices"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Writers of records of the section in a snapshot: a lease each, by name. The bytes are
// hashed, so they depend on nothing but the state: fields in the order of their numbers,
// zero values left out.

// Records implements [core.FamilyView].
func (v *View) Records() int { return v.names.Len() }

// Write implements [core.FamilyView].
func (v *View) Write(record func([]byte) bool) {
	var e writer
	v.names.Scan(func(n *entry) bool {
		e.B = e.B[:0]
		e.record(v.lease(n), v.queue(n))
		return record(e.B)
	})
}

// Keep implements [core.Remembering]: what a caller needs to know that lost the first
// answer, and no more. The lease is without its history, queue and pins.
func (Family) Keep(record any) []byte {
	a := AnswerOf(core.Result{Record: record})
	if a.Lease == nil {
		return nil
	}
	l := *a.Lease
	l.granted, l.Waiting, l.changes = 0, 0, 0
	l.seldom = &seldom{PreviousHolder: l.PreviousHolder}
	a.Lease = &l
	var e writer
	e.answer(a)
	return e.B
}

// Kept implements [core.Remembering].
func (Family) Kept(b []byte) (any, bool) {
	r := reader{words: make(map[string]string)}
	a, ok := r.answer(b)
	if !ok {
		return nil, false
	}
	var again writer
	again.answer(a)
	return a.Record(), bytes.Equal(again.B, b)
}

// answer writes what is kept: the message LeaseAnswer of lease.proto.
func (e *writer) answer(a Answer) {
	m := e.Begin(1)
	e.record(a.Lease, nil)
	e.End(m)
	e.Flag(2, a.Granted)
	e.Flag(3, a.Queued)
	e.Uint(4, uint64(a.Position))
}

// record writes a lease and, unless it is nil, who waits for it: the message Lease of
// lease.proto.
func (e *writer) record(l *Lease, queue iter.Seq[Waiter]) {
	e.name(l.Name)
	e.Text(2, l.Holder)
	e.Session(3, l.Session)
	e.Fixed(4, uint64(l.Token))
	e.Fixed(5, uint64(l.LastToken))
	e.Millis(6, l.TTL)
	e.Uint(7, l.Renewal)
	e.Flag(8, l.Offered)
	e.Flag(9, l.Critical)
	e.Flag(10, l.Revoking)
	for _, p := range l.Pins {
		e.Text(11, p)
	}
	if queue != nil {
		queue(func(w Waiter) bool { e.waiter(12, &w); return true })
	}
	e.Uint(13, uint64(l.Modified))
	l.Origin.Encode(&e.Writer, 14)
	e.B = append(e.B, l.past...)
	if l.granted != 0 {
		c := l.grantChange()
		e.B = c.append(e.B)
	}
	e.Text(16, l.PreviousHolder)
}

func (e *writer) waiter(num wire.Number, w *Waiter) {
	m := e.Begin(num)
	e.Session(1, w.Session)
	e.Text(2, w.Holder)
	e.Uint(3, uint64(w.Since))
	e.Flag(4, w.Critical)
	e.Uint(5, w.Turn)
	e.End(m)
}

// ReadRecord implements [core.Tables].
func (t *tables) ReadRecord(b []byte) bool {
	t.reading.words = t.words
	l, queue, ok := t.reading.lease(b)
	if !ok {
		return false
	}
	e := &t.reading.again
	e.B = e.B[:0]
	e.record(l, slices.Values(queue))
	// What is kept is written as it was read, or the bytes are refused: so states that
	// are equal have equal bytes, and damage shows.
	if !bytes.Equal(e.B, b) {
		return false
	}
	last, some := t.names.Max()
	switch {
	case some && !nameLess(&last.Name, &l.Name), l.Token != 0 && t.leaseByToken(l.Token) != nil, len(queue) > MaxQueue:
		return false
	}
	l.Waiting = int32(len(queue))
	if l.check() != nil {
		return false
	}
	t.replace(nil, l)
	return t.enqueue(l, queue)
}

// enqueue stores who waits for a lease.
func (t *tables) enqueue(l *Lease, queue []Waiter) bool {
	last := Waiter{}
	for _, w := range queue {
		if l.checkWaiter(&w, &last) != nil {
			return false
		}
		if _, twice := t.placeOf(l.entry, w.Session, w.Holder); twice {
			return false
		}
		t.addPlace(l.entry, w)
		last = w
	}
	return true
}
