package watch

import (
	"container/list"
	"reflect"
	"sync"

	"github.com/incumbent-dev/incumbent"
)

const queryBytes = 1024 // what a query costs besides its key and result

// queries finds the queries in use, and keeps those nobody holds, for whoever
// asks the same next, while they cost no more than they may.
type queries struct {
	due *queue[*Query] // to be evaluated

	mu        sync.Mutex // protects what follows and each query's refs; taken before a query's mu and the hub's
	byKey     map[QueryKey]*Query
	idle      *list.List // longest idle first
	idleBytes int64
}

func (s *queries) init() {
	s.due = newQueue[*Query]()
	s.byKey = map[QueryKey]*Query{}
	s.idle = list.New()
}

func (s *queries) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}

// Query returns the query of spec's key, shared with everybody who uses that
// key: specs of one key must mean the same. The error is Invalid, Overloaded
// or Unavailable.
func (h *Hub) Query(spec QuerySpec) (*Query, error) {
	if len(spec.Topics) == 0 || spec.Eval == nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "a query needs topics and an evaluation")
	}
	if spec.Equal == nil {
		spec.Equal = reflect.DeepEqual
	}
	s := &h.queries
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byKey[spec.Key]
	if q == nil {
		q = &Query{hub: h, spec: spec}
		q.cur.current = true
		if err := h.attach(&q.cur, q, spec.Topics, 0); err != nil {
			return nil, err
		}
		s.byKey[spec.Key] = q
	}
	if q.idle != nil {
		s.unidle(q)
	}
	q.refs++
	return q, nil
}

// Release says that the caller no longer uses the query; its own waits are
// over or cancelled. It may be called once for each call of [Hub.Query].
func (q *Query) Release() {
	h := q.hub
	s := &h.queries
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.refs--; q.refs > 0 {
		return
	}
	q.idle = s.idle.PushBack(idleQuery{q, q.bytes()})
	s.idleBytes += q.idle.Value.(idleQuery).bytes
	for limit := h.limits.Load().IdleQueryBytes; s.idleBytes > limit; {
		oldest := s.idle.Front().Value.(idleQuery).query
		s.unidle(oldest)
		delete(s.byKey, oldest.spec.Key)
		h.detach(&oldest.cur)
	}
}

type idleQuery struct {
	query *Query
	bytes int64
}

func (s *queries) unidle(q *Query) {
	s.idleBytes -= s.idle.Remove(q.idle).(idleQuery).bytes
	q.idle = nil
}

func (q *Query) bytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := queryBytes + len(q.spec.Key.Params) + len(q.spec.Key.Rights)
	if q.answer != nil {
		n += q.answer.size
	}
	return int64(n)
}
