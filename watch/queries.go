package watch

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/overload"
)

const queryBytes = 1024 // what a query costs besides its key and result

// View is one state. It never changes.
type View interface {
	comparable
	// Index is that of the last change it shows.
	Index() incumbent.Index
}

// Queries are the shared queries on the views of one state. They find the queries in
// use, and keep those nobody holds, for whoever
// asks the same next, while they cost no more than they may.
type Queries[V View] struct {
	hub  *Hub
	view func() V

	mu        sync.Mutex // protects what follows and each query's refs; taken before a query's mu and the hub's
	byKey     map[QueryKey]*Query[V]
	idle      *list.List // longest idle first
	idleBytes int64

	bytes atomic.Int64 // what all queries cost: their answers, and those as encoded
}

// NewQueries returns the shared queries on what view returns: the newest state, never
// older than what was published to the hub.
func NewQueries[V View](h *Hub, view func() V) *Queries[V] {
	s := &Queries[V]{hub: h, view: view, byKey: map[QueryKey]*Query[V]{}, idle: list.New()}
	h.mu.Lock()
	h.ended = append(h.ended, s.kick)
	h.mu.Unlock()
	return s
}

// Bytes is what all queries cost: those in use, and those kept for whoever asks the same
// next.
func (s *Queries[V]) Bytes() int64 { return s.bytes.Load() }

// kick has all queries look at their waits.
func (s *Queries[V]) kick() {
	s.mu.Lock()
	all := make([]*Query[V], 0, len(s.byKey))
	for _, q := range s.byKey {
		all = append(all, q)
	}
	s.mu.Unlock()
	for _, q := range all {
		q.kick()
	}
}

// Query returns the query of spec's key, shared with everybody who uses that
// key: specs of one key must mean the same. The error is Invalid, Overloaded
// or Unavailable. Release it.
func (s *Queries[V]) Query(spec QuerySpec[V]) (*Query[V], error) {
	if spec.Eval == nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "a query needs an evaluation")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byKey[spec.Key]
	if q == nil {
		if s.hub.isClosed() {
			return nil, errClosed()
		}
		if err := s.makeRoom(); err != nil {
			return nil, err
		}
		if err := s.hub.admit(); err != nil {
			return nil, err
		}
		q = &Query[V]{of: s, spec: spec}
		s.byKey[spec.Key] = q
		s.bytes.Add(q.ownBytes())
		s.hub.count.queries.Add(1)
	}
	if q.idle != nil {
		s.unidle(q)
	}
	q.refs++
	return q, nil
}

// makeRoom forgets results that nobody uses while all of them take too much; Overloaded where
// the others leave no room. Called with s.mu held.
func (s *Queries[V]) makeRoom() error {
	limit := s.hub.limits.Load().QueryBytes
	if s.bytes.Load()-s.idleBytes < limit { // what is held leaves room
		for s.bytes.Load() >= limit && s.idle.Len() > 0 {
			s.forgetOldest()
		}
	}
	if s.bytes.Load() >= limit {
		return overload.Errorf("the results of shared reads take %d bytes, the limit", limit).
			WithHint("read less at a time, or at another member")
	}
	return nil
}

// Release says that the caller no longer uses the query; its own waits are
// over or cancelled. It may be called once for each call of [Queries.Query].
func (q *Query[V]) Release() {
	s := q.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.refs--; q.refs > 0 {
		return
	}
	q.idle = s.idle.PushBack(idleQuery[V]{q, q.bytes()})
	s.idleBytes += q.idle.Value.(idleQuery[V]).bytes
	for limit := s.hub.limits.Load().IdleQueryBytes; s.idleBytes > limit; {
		s.forgetOldest()
	}
}

// forgetOldest forgets the query that nobody has held for the longest time. With mu held.
func (s *Queries[V]) forgetOldest() {
	oldest := s.idle.Front().Value.(idleQuery[V]).query
	s.unidle(oldest)
	delete(s.byKey, oldest.spec.Key)
	s.bytes.Add(-oldest.ownBytes())
	s.hub.count.queries.Add(-1)
	s.hub.count.listeners.Add(-1)
	oldest.forget()
}

type idleQuery[V View] struct {
	query *Query[V]
	bytes int64
}

func (s *Queries[V]) unidle(q *Query[V]) {
	s.idleBytes -= s.idle.Remove(q.idle).(idleQuery[V]).bytes
	q.idle = nil
}

// ownBytes is what the query costs besides its answer.
func (q *Query[V]) ownBytes() int64 {
	return int64(queryBytes + len(q.spec.Key.Params) + len(q.spec.Key.Rights))
}

// bytes is what the query and its answer cost.
func (q *Query[V]) bytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.ownBytes()
	if q.answer != nil {
		n += q.answer.charged.Load()
	}
	return n
}
