package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// Catalog returns the calls on nodes, services and checks. Their errors are those of
// connect; [AsError] makes *incumbent.Error of them.
func (c *Client) Catalog() incumbentv1connect.CatalogServiceClient { return c.catalog }

// WatchServiceOptions says which instances to watch.
type WatchServiceOptions struct {
	Namespace string // "": the default one
	Service   string
	After     incumbent.Index // resume behind it; 0: begin with what is there
	Fields    []string        // only changes of these; none: all
	StartOver bool            // see [WatchOptions]
}

// WatchService yields changes of the instances of a service, of their nodes and of the
// checks of either, as [Client.Watch] does those of leases.
func (c *Client) WatchService(ctx context.Context, opts WatchServiceOptions) iter.Seq2[*apiv1.WatchServiceResponse, error] {
	w := &watching[apiv1.WatchServiceResponse, *apiv1.WatchServiceResponse]{
		c: c, after: uint64(opts.After), startOver: opts.StartOver,
		open: func(ctx context.Context, after uint64) (*connect.ServerStreamForClient[apiv1.WatchServiceResponse], error) {
			return c.catalog.WatchService(ctx, connect.NewRequest(&apiv1.WatchServiceRequest{
				Namespace: opts.Namespace, Service: opts.Service, Fields: opts.Fields, AfterIndex: after,
			}))
		},
		whole: func() func(*apiv1.WatchServiceResponse) *apiv1.WatchServiceResponse { return new(wholeCatalog).add },
	}
	return w.all(ctx)
}

// wholeCatalog is [Whole] of the events of a catalog.
type wholeCatalog struct{ pieces[*apiv1.CatalogEvent] }

func (w *wholeCatalog) add(m *apiv1.WatchServiceResponse) *apiv1.WatchServiceResponse {
	return joined(&w.pieces, m, m.Events, func(whole []*apiv1.CatalogEvent) *apiv1.WatchServiceResponse {
		return &apiv1.WatchServiceResponse{Events: whole, ProgressIndex: m.ProgressIndex}
	})
}
