package watch

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// spreads is the share of a wait, one in so many, by which it may last longer: waits
// that began together do not end together.
const spreads = 16

// QueryKey tells queries apart: who asks the same and may see the same shares
// the answer. Params must be a canonical form; Rights say what the caller's rules let
// the result show, not who the caller is.
type QueryKey struct {
	Kind   Kind
	Params string
	Rights string
}

// QuerySpec is a query.
type QuerySpec[V View] struct {
	Key QueryKey
	// Eval computes the result from a view, and notes all that it reads of it. It runs
	// on one of the hub's goroutines, for one change once.
	Eval func(view V, reads *Reads) Result
}

// Result is what an evaluation gives.
type Result struct {
	Value    any
	Hash     Hash            // of what the value says, save for indexes that move while nothing else does
	Modified incumbent.Index // of the newest change the value shows; 0: not known
	Size     int             // bytes that keeping the value costs
}

// Answer is a result that many share. It never changes.
type Answer struct {
	Value    any
	Hash     Hash
	Changed  incumbent.Index // the value is this since then, or since before the hub first looked
	modified incumbent.Index // as the result said
	made     *atomic.Uint64  // the hub's count of encodings
	cost                     // of what all queries cost
	encodings
}

// Encode returns the answer in encoding k, made once for all.
func (a *Answer) Encode(k Encoding, f func(value any) []byte) []byte {
	b, fresh := a.find(k, "").get(func() []byte { return f(a.Value) })
	if fresh {
		a.made.Add(1)
		a.charge(int64(len(b)))
	}
	return b
}

// Query is a query in use. Release it.
type Query[V View] struct {
	of   *Queries[V]
	spec QuerySpec[V]

	refs int           // under of.mu
	idle *list.Element // under of.mu: its place among those nobody holds

	// What the last evaluation has read, and the index of its view: under the hub's mu,
	// and changed by one evaluation at a time.
	reads []Selector
	legs  []leg
	gone  bool // nobody will use it again
	at    atomic.Uint64

	mu        sync.Mutex // protects what follows; never held while evaluating
	answer    *Answer
	forgotten bool            // an answer of an evaluation that was under way costs nothing
	read      incumbent.Index // the answer is right at this index
	evaluated time.Time
	busy      bool // an evaluation is queued, deferred or running
	waits     []*QueryWait[V]
}

// Want says what a wait on a query waits for.
type Want struct {
	AtLeast incumbent.Index // the answer is right at this index or later, however long that takes
	// The answer changed after this index, or has another hash; both zero: any answer.
	After incumbent.Index
	Not   Hash
	// For is how long to wait for that, and up to a sixteenth longer: then any answer
	// does. 0: for ever.
	For time.Duration
}

// accepts reports whether an answer that is right at an index ends the wait.
func (w *Want) accepts(a *Answer, read incumbent.Index) bool {
	if a == nil || read < w.AtLeast {
		return false
	}
	if w.After == 0 && w.Not == (Hash{}) {
		return true
	}
	return w.After != 0 && a.Changed > w.After || w.Not != (Hash{}) && a.Hash != w.Not
}

// Told is how a wait on a query ends.
type Told struct {
	Answer *Answer         // nil only with an error
	Read   incumbent.Index // the answer is right at this index
	Err    error           // Unavailable: the hub closed; Overloaded: there is no room for the first answer
}

// QueryWait is one who waits for a query.
type QueryWait[V View] struct {
	query *Query[V]
	want  Want // For is 0 once that is over
	fire  func(Told)
	told  Told
	slot  int         // in query.waits; -1 once out of it
	ahead *indexWait  // kicks the query when AtLeast is reached; nil if it was there
	stop  func() bool // of the clock that runs for want.For; nil: there is none
}

// Wait calls fire once, on one of the hub's goroutines: as soon as the query
// has an answer that satisfies want and is not older than what was published before,
// or the hub closes. A result that has been
// there for others is told at once if nothing it depends on has changed. The
// error is Overloaded or Unavailable, and fire is then never called.
func (q *Query[V]) Wait(want Want, fire func(Told)) (*QueryWait[V], error) {
	h := q.of.hub
	if err := h.admit(); err != nil {
		return nil, err
	}
	w := &QueryWait[V]{query: q, want: want, fire: fire}
	if at := h.Index(); want.AtLeast <= at {
		w.want.AtLeast = at // nobody is told less than was published when it asked
	} else {
		// Nothing the query depends on need change for this index to come.
		var err error
		if w.ahead, err = h.await(want.AtLeast, func(Fired) { q.kick() }); err != nil {
			h.count.listeners.Add(-1)
			return nil, err
		}
	}
	q.mu.Lock()
	w.slot = len(q.waits)
	q.waits = append(q.waits, w)
	h.count.queryWaits.Add(1)
	told := q.judge(q.waits[w.slot:])
	if w.slot >= 0 && want.For > 0 {
		w.stop = h.after(want.For+time.Duration(h.random(int64(want.For/spreads)+1)), w.Enough)
	}
	q.mu.Unlock()
	h.ready(told...)
	return w, nil
}

// Enough ends the wait with the answer there is, once that is right at the index that
// was asked for. One that is over stays so.
func (w *QueryWait[V]) Enough() {
	q := w.query
	q.mu.Lock()
	w.want = Want{AtLeast: w.want.AtLeast}
	var told []listener
	if w.slot >= 0 {
		told = q.judge(q.waits[w.slot : w.slot+1])
	}
	q.mu.Unlock()
	q.of.hub.ready(told...)
}

// Cancel ends the wait and reports whether it did: if so, fire will never be
// called.
func (w *QueryWait[V]) Cancel() bool {
	q := w.query
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.slot < 0 {
		return false
	}
	if w.ahead != nil {
		w.ahead.cancel()
	}
	q.remove(w)
	q.of.hub.count.listeners.Add(-1)
	return true
}

// matched tells the waiter, whose wait is over.
func (w *QueryWait[V]) matched() bool {
	w.query.of.hub.count.listeners.Add(-1)
	w.fire(w.told)
	return true
}

// matched says that something the query depends on changed.
func (q *Query[V]) matched() bool {
	q.kick()
	return false // the waits are woken, and counted, one by one
}

// pending reports whether something the query depends on has changed since it was
// evaluated. Called with the hub's mu held.
func (q *Query[V]) pending() bool {
	at := incumbent.Index(q.at.Load())
	for i := range q.legs {
		if q.legs[i].node.more.changed > at {
			return true
		}
	}
	return false
}

// kick looks at all waits again.
func (q *Query[V]) kick() {
	q.mu.Lock()
	told := q.judge(q.waits)
	q.mu.Unlock()
	q.of.hub.ready(told...)
}

// refresh moves read on if nothing the answer depends on has changed since,
// and reports whether that is so. Called with q.mu held.
func (q *Query[V]) refresh() (current, closed bool) {
	h := q.of.hub
	h.mu.RLock()
	defer h.mu.RUnlock()
	if q.answer == nil || h.closed || q.pending() {
		return false, h.closed
	}
	q.read = max(q.read, h.index)
	return true, false
}

// judge takes out of the query's waits those among ws that are over, and sees
// to an evaluation if any wait needs one. Called with q.mu held.
func (q *Query[V]) judge(ws []*QueryWait[V]) (over []listener) {
	current, closed := q.refresh()
	for i := len(ws) - 1; i >= 0; i-- { // remove moves the last one
		w := ws[i]
		switch {
		case closed:
			w.told = Told{Err: errClosed()}
		case w.want.accepts(q.answer, q.read):
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

func (q *Query[V]) remove(w *QueryWait[V]) {
	last := q.waits[len(q.waits)-1]
	q.waits[w.slot], last.slot = last, w.slot
	q.waits[len(q.waits)-1] = nil
	q.waits = q.waits[:len(q.waits)-1]
	w.slot = -1
	q.of.hub.count.queryWaits.Add(-1)
	if w.stop != nil {
		w.stop()
	}
}

// schedule queues an evaluation, at once if the last one is long enough ago.
func (q *Query[V]) schedule() {
	if q.busy {
		return
	}
	q.busy = true
	h := q.of.hub
	wait := h.limits.Load().QueryInterval - h.now().Sub(q.evaluated)
	if q.answer == nil || wait <= 0 {
		h.evals.put(q)
		return
	}
	h.after(wait, func() { h.evals.put(q) })
}

// evaluation is a query that is due.
type evaluation interface{ run() }

// evaluate is the loop of one goroutine that evaluates queries.
func (h *Hub) evaluate() {
	for {
		q, ok := h.evals.take()
		if !ok {
			return
		}
		q.run()
	}
}

// run evaluates the query if somebody still waits for it.
func (q *Query[V]) run() {
	h := q.of.hub
	q.mu.Lock()
	q.busy = len(q.waits) > 0 && !h.isClosed()
	wanted, first := q.busy, q.answer == nil
	q.mu.Unlock()
	if !wanted || first && q.refused() {
		return
	}
	var reads Reads
	view := q.of.view()
	res := q.spec.Eval(view, &reads)
	h.count.evals.Add(1)

	// The answer changes together with the index from which changes count against it:
	// whoever looked in between would take the answer before for one of this view.
	q.mu.Lock()
	unused := q.depend(reads.list, uint64(view.Index()))
	q.accept(res, view.Index())
	q.read, q.evaluated, q.busy = max(q.read, view.Index()), h.now(), false
	told := q.judge(q.waits)
	q.mu.Unlock()
	h.retire(unused)
	h.ready(told...)
}

// refused ends all waits on a query that has no answer yet, if there is no room for one: when
// they began there was, and before any is evaluated very many can begin.
func (q *Query[V]) refused() bool {
	s := q.of
	s.mu.Lock()
	err := s.makeRoom()
	s.mu.Unlock()
	if err == nil {
		return false
	}
	q.mu.Lock()
	q.busy = false
	var over []listener
	for len(q.waits) > 0 {
		w := q.waits[len(q.waits)-1]
		w.told = Told{Err: err}
		q.remove(w)
		over = append(over, w)
	}
	q.mu.Unlock()
	s.hub.ready(over...)
	return true
}

// depend takes the places from which the query is told of changes of what it has read
// of the view at an index. What has been published since then shows in them. It returns
// filters to be retired. Called with q.mu held.
func (q *Query[V]) depend(reads []Selector, at uint64) (unused []*node) {
	h := q.of.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	q.at.Store(at)
	if !q.gone && !slices.Equal(reads, q.reads) {
		legs := make([]leg, len(reads))
		for i, s := range reads {
			n := h.reg.node(s)
			if incumbent.Index(at) < h.floor { // what its chain had is gone
				n.more.changed = max(n.more.changed, h.floor)
			}
			legs[i].join(q, n)
		}
		unused = h.leave(q.legs)
		q.reads, q.legs = reads, legs
	}
	return unused
}

// forget gives the places up.
func (q *Query[V]) forget() {
	h := q.of.hub
	h.mu.Lock()
	unused := h.leave(q.legs)
	q.gone, q.reads, q.legs = true, nil, nil
	h.mu.Unlock()
	h.retire(unused)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgotten = true
	if q.answer != nil {
		q.answer.refund()
	}
}

// accept makes the result the answer, unless it is the one already there.
func (q *Query[V]) accept(res Result, index incumbent.Index) {
	changed := res.Modified
	if changed == 0 || changed > index {
		changed = index
	}
	if old := q.answer; old != nil {
		if old.Hash == res.Hash && old.modified == res.Modified {
			return
		}
		if changed <= old.Changed {
			changed = index // something went away: what is left was changed earlier
		}
	}
	before := q.answer
	q.answer = &Answer{Value: res.Value, Hash: res.Hash, Changed: changed, modified: res.Modified, made: &q.of.hub.count.encoded}
	if q.forgotten {
		return
	}
	q.answer.sum = &q.of.bytes
	q.answer.charge(int64(res.Size))
	if before != nil {
		before.refund()
	}
}
