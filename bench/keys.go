package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// Keys and values: closed loops whose workers have a connection each.

// Lengths of values.
const (
	numberBytes   = 8         // of what tells one value from another, at its start
	maxValueBytes = 512 << 10 // the servers' limit
)

// keyWorker has one call under way, on a connection of its own.
type keyWorker struct {
	*run
	conn  *callConn
	key   string
	value []byte
	n     int    // calls so far
	last  uint64 // index of its last change
}

// playKeys has workers call for keys of their own.
func playKeys(ctx context.Context, r *run, op *closedOp) error {
	r.setPhase("connecting")
	workers := make([]*keyWorker, r.sc.Closed.Workers)
	tag := newTag()
	defer func() {
		for _, w := range workers {
			w.close()
		}
	}()
	err := inParallel(ctx, len(workers), func(i int) (err error) {
		workers[i], err = r.dialKeys(ctx, i, fmt.Sprintf("%s/%d", tag, i))
		if err == nil && op.prepared {
			err = workers[i].put()
		}
		return err
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.agents = func() (int, int, int) { return 0, 0, len(workers) }
	r.mu.Unlock()
	record := r.rec.op(op.ops[0])
	var loops []func(context.Context) error
	for _, w := range workers {
		loops = append(loops, func(ctx context.Context) error {
			defer context.AfterFunc(ctx, w.conn.close)()
			for ctx.Err() == nil {
				err := r.timed(ctx, record, func() error { return op.call(w) })
				if _, refused := errors.AsType[refusedCall](err); err != nil && !refused {
					return err
				}
			}
			return nil
		})
	}
	return r.closed(ctx, loops)
}

// newTag makes names of one run its own.
func newTag() string { return incumbent.NewSessionID().String()[:8] }

func (r *run) dialKeys(ctx context.Context, i int, key string) (*keyWorker, error) {
	conn, err := r.dialCalls(ctx, i)
	if err != nil {
		return nil, err
	}
	return &keyWorker{run: r, conn: conn, key: key, value: bytes.Repeat([]byte("v"), r.sc.Closed.ValueBytes)}, nil
}

// close ends the worker's connection, if it has one.
func (w *keyWorker) close() {
	if w != nil {
		w.conn.close()
	}
}

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
	var res apiv1.PutResponse
	if err := w.conn.call(incumbentv1connect.KeyValueServicePutProcedure, req, &res); err != nil {
		return err
	}
	if res.Index <= w.last {
		w.check.Violate("%s: a change of index %d after one of index %d", req.Key, res.Index, w.last)
	}
	w.last = res.Index
	return nil
}

// get reads the worker's key.
func (w *keyWorker) get(stale bool) error {
	var res apiv1.GetKeyResponse
	if err := w.conn.call(incumbentv1connect.KeyValueServiceGetProcedure, &apiv1.GetKeyRequest{Key: w.key, Stale: stale}, &res); err != nil {
		return err
	}
	if !bytes.Equal(res.GetEntry().GetValue(), w.value) {
		w.check.Violate("%s: read %d bytes that nobody put", w.key, len(res.GetEntry().GetValue()))
	}
	return nil
}
