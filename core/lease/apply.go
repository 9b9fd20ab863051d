package lease

import (
	"errors"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// exec executes one command: the tables, with the command under way.
type exec struct {
	*tables
	x         *core.Exec
	cmd       command
	absentIDs []incumbent.SessionID // see exec.absent
}

// result is what one command answers.
type result struct {
	Lease    *Lease // as the command left it, or (Held, NotHolder, Conflict) as it found it
	Err      *incumbent.Error
	Granted  bool
	Queued   bool
	Position int
}

// Answer is what the Record of an answer about a lease says.
type Answer struct {
	Lease    *Lease // as the command left it, or (Held, NotHolder, Conflict) as it found it
	Granted  bool   // a claim: a new holding began
	Queued   bool   // a claim with Wait: it took or kept a place
	Position int    // of that place in the queue, from 1; 0 is "nothing is known of it"
}

// newHolding is the Record of a claim that was granted, and a *Lease that of any other
// command but a claim that queues, for which it is an *Answer: so a Record costs
// nothing but there.
type newHolding Lease

// AnswerOf returns what a result says of a lease. The zero value: nothing.
func AnswerOf(r core.Result) Answer {
	switch record := r.Record.(type) {
	case *Lease:
		return Answer{Lease: record}
	case *newHolding:
		return Answer{Lease: (*Lease)(record), Granted: true}
	case *Answer:
		return *record
	}
	return Answer{}
}

// Record returns the answer as a Record.
func (a Answer) Record() any {
	switch {
	case a.Queued:
		queued := a // so that only this one is allocated
		return &queued
	case a.Granted:
		return (*newHolding)(a.Lease)
	case a.Lease != nil:
		return a.Lease
	}
	return nil
}

func (r *result) told() core.Result {
	a := Answer{r.Lease, r.Granted, r.Queued, r.Position}
	return core.Result{Err: r.Err, Record: a.Record()}
}

// Apply implements [core.Tables]. Its Record is for [AnswerOf].
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	s := &t.under
	s.x = x
	if err := s.cmd.decode(b); err != nil {
		return core.Result{Err: err}
	}
	c := &s.cmd
	if x.Reading() != nil && !c.partOfTransaction() {
		return core.Result{Err: errAlone()}
	}
	s.absentIDs = nil
	r := s.execute(c)
	s.forget()
	return r.told()
}

func (s *exec) execute(c *command) result {
	switch c.verb {
	case doClaim:
		return s.claim(c)
	case doAccept:
		return s.accept(c)
	case doRelease:
		return s.release(c)
	case doRevoke:
		return s.revoke(c)
	case doTransfer:
		return s.transfer(c)
	case doExpire:
		return s.expire(c)
	case doPin:
		return s.pin(c)
	case doUnpin:
		return s.unpin(c)
	default: // decode lets no other through
		return s.leaveQueue(c)
	}
}

// EndSession implements [core.Tables]. It leaves the session's queues before it frees
// its leases, so that none is handed back to it.
func (t *tables) EndSession(x *core.Exec, e *core.Ending) {
	s := &t.under
	s.x, s.cmd, s.absentIDs = x, command{absent: e.Absent}, nil
	id := e.Session.ID
	for _, e := range s.waitedFor(id) {
		s.leave(s.lease(e), id, nil)
	}
	end := ending{what: SessionGone, late: e.Late, by: e.Reason}
	if e.Expired {
		end.what = Expired
	}
	for _, l := range s.leasesOf(id) {
		s.freeLease(l, end)
	}
	s.uncount(id)
	s.forget()
}

// Keeps implements [core.Keeping]: a pinned lease keeps the session that owns it, for
// the one cannot expire without the other.
func (t *tables) Keeps(id incumbent.SessionID) bool {
	c := t.counts[id]
	return c != nil && c.pinned > 0
}

// forget drops the free leases that have been so for longest. No token is lost
// with them: the next one is greater than any.
func (s *exec) forget() {
	for s.free.Len() > s.limits.free {
		oldest, _ := s.free.Min()
		l := s.lease(oldest.entry)
		s.replace(l, nil)
		s.tell(Forgotten, l, nil, incumbent.SessionID{})
	}
}

// lookup returns the record that a command names. A name that has one is valid.
func (s *exec) lookup(c *command) (incumbent.Name, *Lease, *incumbent.Error) {
	if l := s.find(c.namespace, c.model, c.lease); l != nil {
		return l.Name, l, nil
	}
	name := incumbent.Name{Namespace: s.word(c.namespace), Model: s.word(c.model), Lease: string(c.lease)}
	if plain(c.namespace, incumbent.MaxNamespaceBytes) && plain(c.model, incumbent.MaxNamespaceBytes) && plain(c.lease, incumbent.MaxNameBytes) {
		return name, nil, nil
	}
	return name, nil, invalid(name.Validate())
}

// plain reports whether a text is one of those that are valid wherever texts
// are: printable ASCII. Nearly all are, and this tells them at a byte a cycle.
func plain(b []byte, limit int) bool {
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= limit
}

// word returns a text that lives on, and mostly lives already: namespaces and models
// are few.
func (t *tables) word(b []byte) string { return word(t.words, b) }

func word(words map[string]string, b []byte) string {
	if w, ok := words[string(b)]; ok {
		return w
	}
	if len(words) >= maxWords {
		clear(words)
	}
	w := string(b)
	words[w] = w
	return w
}

// fail is the caller's fault, in words that need no values.
func fail(k incumbent.Kind, message string) *incumbent.Error {
	return &incumbent.Error{Kind: k, Message: message}
}

// invalid returns what a check of the root package found.
func invalid(err error) *incumbent.Error {
	var e *incumbent.Error
	if err == nil || errors.As(err, &e) {
		return e
	}
	return fail(incumbent.Invalid, err.Error())
}
