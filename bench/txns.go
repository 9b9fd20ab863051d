package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Beside is a client that commits a large transaction, or takes a backup, every now and
// then while the workers go on: what those notice of it is measured.
type Beside struct {
	Backups    bool     `yaml:"backups"`     // it takes backups
	Restore    bool     `yaml:"restore"`     // afterwards a new cluster is made of one, and compared
	Operations int      `yaml:"operations"`  // of a transaction
	ValueBytes int      `yaml:"value_bytes"` // that each of them stores
	Every      Duration `yaml:"every"`       // from the beginning of one to the next; the last one is waited for
}

// maxTxnOps is the servers' limit.
const maxTxnOps = 10_000

func (b *Beside) validate() error {
	if b == nil {
		return nil
	}
	if b.Restore && !b.Backups {
		return fmt.Errorf("closed.beside.restore needs backups")
	}
	if b.Backups {
		if b.Operations != 0 || b.Every <= 0 {
			return fmt.Errorf("closed.beside: backups go without operations, and every must be positive")
		}
		return nil
	}
	if b.Operations < 0 || b.Operations > maxTxnOps || b.ValueBytes < numberBytes || b.ValueBytes > maxValueBytes || b.Every <= 0 {
		return fmt.Errorf("closed.beside: operations must be 0 to %d, value_bytes %d to %d, and every positive", maxTxnOps, numberBytes, maxValueBytes)
	}
	return nil
}

// beside does what goes on beside the workers until ctx ends.
func (r *run) beside(ctx context.Context, b *Beside) error {
	switch {
	case b == nil:
	case b.Backups:
		return r.backupBeside(ctx, b)
	case b.Operations > 0:
		return r.commitBeside(ctx, b)
	}
	return nil
}

// commitBeside commits transactions until ctx ends.
func (r *run) commitBeside(ctx context.Context, b *Beside) error {
	w, err := r.dialKeys(ctx, 0, "beside/"+newTag())
	if err != nil {
		return err
	}
	w.value = make([]byte, b.ValueBytes)
	defer context.AfterFunc(ctx, w.conn.close)()
	record := r.rec.op("txn")
	next := time.NewTicker(time.Duration(b.Every))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		if err := r.timed(ctx, record, func() error { return w.txn(b.Operations, false) }); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// txn puts so many keys of the worker's, all or none; guarded: if each of them is as
// this worker left it.
func (w *keyWorker) txn(operations int, guarded bool) error {
	w.n++
	binary.BigEndian.PutUint64(w.value, uint64(w.n))
	req := &apiv1.TxnRequest{Then: make([]*apiv1.TxnOperation, operations)}
	for i := range operations {
		key := fmt.Sprintf("%s/%d", w.key, i)
		req.Then[i] = &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Put{Put: &apiv1.PutRequest{Key: key, Value: w.value}}}
		if guarded {
			req.Conditions = append(req.Conditions, &apiv1.Condition{Is: &apiv1.Condition_Key{Key: &apiv1.KeyCondition{
				Key: key, Is: &apiv1.KeyCondition_ModifiedIndex{ModifiedIndex: w.last},
			}}})
		}
	}
	a, err := w.conn.ask(&apiv1.ClientFrame{Request: &apiv1.ClientFrame_Txn{Txn: req}})
	if err != nil {
		return err
	}
	res := a.GetTxn()
	switch {
	case !res.GetSucceeded() || len(res.GetResults()) != operations:
		w.check.Violate("%s: condition %d does not hold, though nobody else puts these keys; %d results", w.key, res.GetUnmet(), len(res.GetResults()))
	case res.GetIndex() <= w.last:
		w.check.Violate("%s: a transaction of index %d after one of index %d", w.key, res.GetIndex(), w.last)
	}
	w.last = res.GetIndex()
	return nil
}
