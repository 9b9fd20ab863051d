package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// WatchKeysOptions say what to watch and from where.
type WatchKeysOptions struct {
	Key    string          // or, with Prefix, what keys begin with; empty: all of the namespace
	Prefix bool            // all keys that begin with Key
	After  incumbent.Index // resume after this index; 0: begin with what is there
	// Values says which values the entries have; the zero value: both, as they are and
	// as they were.
	Values apiv1.WatchedValues
	// Fields are those (value, flags, lock) of which one has to change; none: all
	// changes are told.
	Fields    []string
	StartOver bool // see [WatchOptions]
}

// Watch yields changes of keys as [Client.Watch] does those of leases.
func (k *KV) Watch(ctx context.Context, opts WatchKeysOptions) iter.Seq2[*apiv1.WatchKeysResponse, error] {
	w := &watching[apiv1.WatchKeysResponse, *apiv1.WatchKeysResponse]{
		c: k.c, after: uint64(opts.After), startOver: opts.StartOver,
		open: func(ctx context.Context, after uint64) (*connect.ServerStreamForClient[apiv1.WatchKeysResponse], error) {
			return k.c.keys.Watch(ctx, connect.NewRequest(&apiv1.WatchKeysRequest{
				Namespace: k.namespace, Key: opts.Key, Prefix: opts.Prefix, Values: opts.Values, Fields: opts.Fields, AfterIndex: after,
			}))
		},
		whole: func() func(*apiv1.WatchKeysResponse) *apiv1.WatchKeysResponse { return new(WholeKeys).Add },
	}
	return w.all(ctx)
}

// WholeKeys is [Whole] for who calls [Client.Keys] itself.
type WholeKeys struct{ pieces[*apiv1.KeyEvent] }

// Add is [Whole.Add].
func (w *WholeKeys) Add(m *apiv1.WatchKeysResponse) *apiv1.WatchKeysResponse {
	return joined(&w.pieces, m, m.Events, func(whole []*apiv1.KeyEvent) *apiv1.WatchKeysResponse {
		return &apiv1.WatchKeysResponse{Events: whole, ProgressIndex: m.ProgressIndex}
	})
}
