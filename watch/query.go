package watch

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// QueryKey tells queries apart: who asks the same with the same rights shares
// the answer. Params must be a canonical form.
type QueryKey struct {
	Kind   Kind
	Params string
	Rights string
}

// QuerySpec is a query.
type QuerySpec struct {
	Key    QueryKey
	Topics []Selector // all that the result depends on
	// Eval computes the result from a view. It runs on one of the hub's
	// goroutines, for one change once.
	Eval func(view any) Result
	// Equal compares two values; reflect.DeepEqual if nil.
	Equal func(a, b any) bool
}

// Result is what an evaluation gives.
type Result struct {
	Value    any
	Modified incumbent.Index // of the newest change the value shows; 0: not known
	Size     int             // bytes that keeping the value costs
}

// Answer is a result that many share. It never changes.
type Answer struct {
	Value   any
	Changed incumbent.Index // the value is this since then, or since before the hub first looked
	size    int
	encodings
}

// Encode returns the answer in encoding k, made once for all.
func (a *Answer) Encode(k Encoding, f func(value any) []byte) []byte {
	b, _ := a.get(k, func() []byte { return f(a.Value) })
	return b
}

// Query is a query in use. Release it.
type Query struct {
	hub  *Hub
	spec QuerySpec
	cur  cursor // seen: the answer shows everything up to this position

	refs int           // under hub.queries.mu
	idle *list.Element // under hub.queries.mu: its place among those nobody holds

	mu        sync.Mutex // protects what follows; never held while evaluating
	answer    *Answer
	read      incumbent.Index // the answer is right at this index
	evaluated time.Time
	pending   bool // queued, deferred or running
	waits     []*QueryWait
}

// Want says what a wait on a query waits for.
type Want struct {
	AtLeast incumbent.Index // the answer is right at this index or later
	After   incumbent.Index // the answer changed after this index; 0: any answer
}

// Told is how a wait on a query ends.
type Told struct {
	Answer *Answer         // nil only with an error, or if cancelled before the first evaluation
	Read   incumbent.Index // the answer is right at this index
	Err    error           // Unavailable: the hub closed
}

// QueryWait is one who waits for a query.
type QueryWait struct {
	query *Query
	want  Want
	fire  func(Told)
	told  Told
	slot  int        // in query.waits; -1 once out of it
	ahead *IndexWait // kicks the query when AtLeast is reached; nil if it was there
}

// Wait calls fire once, on one of the hub's goroutines: as soon as the query
// has an answer that satisfies want, or the hub closes. A result that has been
// there for others is told at once if nothing it depends on has changed. The
// error is Overloaded or Unavailable, and fire is then never called.
func (q *Query) Wait(want Want, fire func(Told)) (*QueryWait, error) {
	h := q.hub
	if err := h.admit(); err != nil {
		return nil, err
	}
	w := &QueryWait{query: q, want: want, fire: fire}
	if want.AtLeast > h.Index() {
		// Nothing the query depends on need change for this index to come.
		var err error
		if w.ahead, err = h.Reached(want.AtLeast, func(Fired) { q.kick() }); err != nil {
			h.count.listeners.Add(-1)
			return nil, err
		}
	}
	q.mu.Lock()
	w.slot = len(q.waits)
	q.waits = append(q.waits, w)
	told := q.judge(q.waits[w.slot:])
	q.mu.Unlock()
	h.ready(told...)
	return w, nil
}

// Cancel ends the wait and reports whether it did: if so, fire will never be
// called, and what is known so far is returned.
func (w *QueryWait) Cancel() (Told, bool) {
	q := w.query
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.slot < 0 {
		return Told{}, false
	}
	if w.ahead != nil {
		w.ahead.Cancel()
	}
	q.refresh()
	q.remove(w)
	q.hub.count.listeners.Add(-1)
	return Told{Answer: q.answer, Read: q.read}, true
}

// WaitContext is Wait for a caller with a goroutine to block. When the context
// ends it returns what is known so far and the context's cause.
func (q *Query) WaitContext(ctx context.Context, want Want) (Told, error) {
	c := make(chan Told, 1)
	w, err := q.Wait(want, func(t Told) { c <- t })
	if err != nil {
		return Told{}, err
	}
	select {
	case t := <-c:
		return t, t.Err
	case <-ctx.Done():
	}
	if t, ok := w.Cancel(); ok {
		return t, context.Cause(ctx)
	}
	t := <-c
	return t, t.Err
}

// matched tells the waiter, whose wait is over.
func (w *QueryWait) matched() bool {
	w.query.hub.count.listeners.Add(-1)
	w.fire(w.told)
	return true
}

// matched says that something the query depends on changed.
func (q *Query) matched() bool {
	q.kick()
	return false // the waits are woken, and counted, one by one
}

// kick looks at all waits again.
func (q *Query) kick() {
	q.mu.Lock()
	told := q.judge(q.waits)
	q.mu.Unlock()
	q.hub.ready(told...)
}

// refresh moves read on if nothing the answer depends on has changed since,
// and reports whether that is so. Called with q.mu held.
func (q *Query) refresh() (current, closed bool) {
	h := q.hub
	h.mu.RLock()
	defer h.mu.RUnlock()
	if q.answer == nil || h.closed || q.cur.pending() {
		return false, h.closed
	}
	q.read = max(q.read, h.index)
	return true, false
}

// judge takes out of the query's waits those among ws that are over, and sees
// to an evaluation if any wait needs one. Called with q.mu held.
func (q *Query) judge(ws []*QueryWait) (over []listener) {
	current, closed := q.refresh()
	for i := len(ws) - 1; i >= 0; i-- { // remove moves the last one
		w := ws[i]
		switch {
		case closed:
			w.told = Told{Err: errClosed()}
		case q.answer != nil && q.read >= w.want.AtLeast && (w.want.After == 0 || q.answer.Changed > w.want.After):
			w.told = Told{Answer: q.answer, Read: q.read}
		default:
			continue
		}
		q.remove(w)
		over = append(over, w)
	}
	if !current && !closed && len(q.waits) > 0 {
		q.schedule()
	}
	return over
}

func (q *Query) remove(w *QueryWait) {
	last := q.waits[len(q.waits)-1]
	q.waits[w.slot], last.slot = last, w.slot
	q.waits[len(q.waits)-1] = nil
	q.waits = q.waits[:len(q.waits)-1]
	w.slot = -1
}

// schedule queues an evaluation, at once if the last one is long enough ago.
func (q *Query) schedule() {
	if q.pending {
		return
	}
	q.pending = true
	h := q.hub
	wait := h.limits.Load().QueryInterval - h.now().Sub(q.evaluated)
	if q.answer == nil || wait <= 0 {
		h.queries.due.put(q)
		return
	}
	h.after(wait, func() { h.queries.due.put(q) })
}

// evaluate is the loop of one goroutine that evaluates queries.
func (h *Hub) evaluate() {
	for {
		q, ok := h.queries.due.take()
		if !ok {
			return
		}
		q.run()
	}
}

// run evaluates the query if somebody still waits for it.
func (q *Query) run() {
	h := q.hub
	h.mu.RLock()
	view, index, head, closed := h.view, h.index, h.hist.head, h.closed
	h.mu.RUnlock()
	q.mu.Lock()
	idle := len(q.waits) == 0 || closed
	q.pending = !idle
	q.mu.Unlock()
	if idle {
		return
	}
	res := q.spec.Eval(view)
	h.count.evals.Add(1)

	q.mu.Lock()
	q.accept(res, index)
	q.cur.seen.Store(head)
	q.read, q.evaluated, q.pending = max(q.read, index), h.now(), false
	told := q.judge(q.waits)
	q.mu.Unlock()
	h.ready(told...)
}

// accept makes the result the answer, unless it is the one already there.
func (q *Query) accept(res Result, index incumbent.Index) {
	changed := res.Modified
	if changed == 0 || changed > index {
		changed = index
	}
	if old := q.answer; old != nil {
		if q.spec.Equal(old.Value, res.Value) {
			return
		}
		if changed <= old.Changed {
			changed = index // something went away: what is left was changed earlier
		}
	}
	q.answer = &Answer{Value: res.Value, Changed: changed, size: res.Size}
}
