package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Keys and values: closed loops whose workers have a connection each.

// Lengths of values.
const (
	numberBytes   = 8         // of what tells one value from another, at its start
	maxValueBytes = 512 << 10 // the servers' limit
)

// keyWorker has one request under way.
type keyWorker struct {
	*run
	conn  keyConn
	does  func(*keyWorker) error
	key   string
	value []byte
	n     int    // calls so far
	last  uint64 // index of its last change
}

// keyCallers are workers that call for keys of their own, which are there before if they
// are to be prepared.
func keyCallers(call func(*keyWorker) error, prepared bool) func(context.Context, *run) (*callers, error) {
	return func(ctx context.Context, r *run) (*callers, error) {
		set := &callers{all: make([]caller, r.sc.Closed.Workers), retries: true}
		conns, err := r.dialKeyConns(ctx)
		if err != nil {
			closeAll(conns)
			return set, err
		}
		tag := newTag()
		set.conns = len(conns)
		return set, inParallel(ctx, len(set.all), func(i int) error {
			w := r.newKeyWorker(conns[i%len(conns)], fmt.Sprintf("%s/%d", tag, i))
			set.all[i], w.does = w, call
			if prepared {
				return w.put()
			}
			return nil
		})
	}
}

func (w *keyWorker) call(context.Context, int) error { return w.does(w) }

// turnedAway is the record of calls that a server at its limit turned away before it
// did anything: they are repeated when it says, and divide no other figure.
const turnedAway = "turned away"

// overloadOf returns how long a server that is overloaded wants the caller to wait.
func overloadOf(err error) (wait time.Duration, overloaded bool) {
	var typed *incumbent.Error
	if !errors.As(err, &typed) || typed.Kind != incumbent.Overloaded {
		return 0, false
	}
	return typed.RetryAfter, true
}

// newTag makes names of one run its own.
func newTag() string { return incumbent.NewSessionID().String()[:8] }

// dialKeyConns opens what the workers share. Calls have a connection each.
func (r *run) dialKeyConns(ctx context.Context) ([]keyConn, error) {
	cfg := r.sc.Closed
	n := cfg.Workers
	if cfg.Streams > 0 && !cfg.Calls {
		n = cfg.Streams
	}
	conns := make([]keyConn, n)
	return conns, inParallel(ctx, n, func(i int) error {
		if cfg.Calls {
			c, err := r.dialCalls(ctx, i)
			if err == nil {
				conns[i] = c
			}
			return err
		}
		s, err := r.dialKeyStream(ctx, i%len(r.clients), i)
		if err == nil {
			conns[i] = s
		}
		return err
	})
}

// dialKeys makes a worker that calls over a connection of its own.
func (r *run) dialKeys(ctx context.Context, i int, key string) (*keyWorker, error) {
	conn, err := r.dialCalls(ctx, i)
	if err != nil {
		return nil, err
	}
	return r.newKeyWorker(conn, key), nil
}

func (r *run) newKeyWorker(conn keyConn, key string) *keyWorker {
	return &keyWorker{run: r, conn: conn, key: key, value: bytes.Repeat([]byte("v"), r.sc.Closed.ValueBytes)}
}

func (w *keyWorker) close() { w.conn.close() }

// change puts what nobody has put before.
func (w *keyWorker) change() error {
	w.n++
	binary.BigEndian.PutUint64(w.value, uint64(w.n))
	return w.put()
}

// put changes the worker's key.
func (w *keyWorker) put() error {
	return w.write(&apiv1.PutRequest{Key: w.key, Value: w.value})
}

// create puts a key that nobody has put.
func (w *keyWorker) create() error {
	w.n++
	return w.write(&apiv1.PutRequest{Key: fmt.Sprintf("%s/%d", w.key, w.n), Value: w.value, Condition: &apiv1.PutRequest_IfIndex{}})
}

func (w *keyWorker) write(req *apiv1.PutRequest) error {
	a, err := w.conn.ask(&apiv1.ClientFrame{Request: &apiv1.ClientFrame_Put{Put: req}})
	if err != nil {
		return err
	}
	res := a.GetPut()
	if res.GetIndex() <= w.last {
		w.check.Violate("%s: a change of index %d after one of index %d", req.Key, res.GetIndex(), w.last)
	}
	w.last = res.GetIndex()
	return nil
}

// get reads the worker's key.
func (w *keyWorker) get(stale bool) error {
	a, err := w.conn.ask(&apiv1.ClientFrame{Request: &apiv1.ClientFrame_GetKey{GetKey: &apiv1.GetKeyRequest{Key: w.key, Stale: stale}}})
	if err != nil {
		return err
	}
	if value := a.GetGetKey().GetEntry().GetValue(); !bytes.Equal(value, w.value) {
		w.check.Violate("%s: read %d bytes that nobody put", w.key, len(value))
	}
	return nil
}
