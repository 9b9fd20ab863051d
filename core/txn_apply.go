package core

import (
	"fmt"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// running is the transaction under way, and how it is taken back: families put their
// tables back themselves, and how sessions were before it stands in its changes.
type running struct {
	outer   command // without its operations
	reading *Reading
	marked  []Undoable

	grants  int // tokens handed out
	reserve int // indexes taken for them
	changes int // of the batch, before it
	told    incumbent.Index
	records int
}

// txn executes a transaction.
func (s *State) txn(c *command) Result {
	t, err := decodeTxn(c.body)
	if err != nil {
		return Result{Err: err}
	}
	run := &running{outer: *c, reading: new(Reading), changes: len(s.changes), told: s.told, records: s.records}
	run.outer.op, run.outer.body = 0, nil
	s.running = run
	r, _ := t.play(stateStage{s}, run.reading)
	s.settle(r.Err != nil)
	*c = run.outer
	return r
}

// settle ends the transaction under way: it has happened, or (back) not at all.
func (s *State) settle(back bool) {
	run := s.running
	s.running = nil
	for _, f := range run.marked {
		f.Settle(back)
	}
	if !back {
		s.granted = run.grants > 0 // what ends behind it may grant more
		return
	}
	s.closing = s.closing[:0]
	for _, ch := range slices.Backward(s.changes[run.changes:]) {
		if ch.SessionBefore != nil { // none has been opened, and none ends before the transaction does
			s.putSession(ch.SessionBefore)
		}
	}
	clear(s.changes[run.changes:])
	s.changes = s.changes[:run.changes]
	s.told, s.records = run.told, run.records
	s.index, s.at = s.first, s.first
}

type stateStage struct{ s *State }

func (g stateStage) open(id incumbent.SessionID) bool { return g.s.sessionOf(id) != nil }

func (g stateStage) transacted(n wire.Number) Transacted {
	t, _ := g.s.family(n, g.s.running.outer.schema).(Undoable)
	if t == nil {
		return nil
	}
	return t
}

// begin takes the indexes that the operations may need as tokens, before the first
// of them: all that they do is told under the last one, so that it is one change to
// whoever follows.
func (g stateStage) begin(ops *steps) {
	s, run := g.s, g.s.running
	s.changes = slices.Grow(s.changes, ops.count)
	for q := *ops; ; {
		num, op, more := q.next()
		if !more {
			break
		}
		if f, ok := s.family(num, run.outer.schema).(Granting); ok {
			run.reserve += f.Grants(op)
		}
	}
	if run.reserve > 1 {
		s.index = s.first + incumbent.Index(run.reserve) - 1
		s.at = s.index
	}
}

func (g stateStage) operate(_ *Reading, num wire.Number, op []byte, last bool) (Result, bool) {
	s, run := g.s, g.s.running
	s.cmd = run.outer
	f, _ := s.family(num, run.outer.schema).(Undoable)
	if f == nil {
		return Result{Err: fail(incumbent.Invalid, "of a kind that is not kept here, or no part of a transaction")}, true
	}
	g.mark(f, last)
	s.cmd.op, s.cmd.body = num, op
	return s.applyFamily(&s.cmd), true
}

// mark has a family remember its tables before the first operation that may have to
// be taken back. An operation that fails has done nothing, so the last one never has.
func (g stateStage) mark(f Undoable, last bool) {
	run := g.s.running
	if last {
		return
	}
	for _, m := range run.marked {
		if m == f {
			return
		}
	}
	f.Mark()
	run.marked = append(run.marked, f)
}

// token is that of a further grant of the transaction.
func (run *running) token(first incumbent.Index) incumbent.Token {
	if run.grants == run.reserve {
		panic(fmt.Sprintf("core: a transaction grants more than the %d leases it may", run.reserve))
	}
	run.grants++
	return incumbent.Token(first) + incumbent.Token(run.grants) - 1
}

// Reading is what the transaction under way has read; nil: the command is none.
func (x *Exec) Reading() *Reading {
	if x.s.running == nil {
		return nil
	}
	return x.s.running.reading
}
