package client

import (
	"context"
	"errors"
	"iter"
	"sort"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// watchSpeaksEvery is how often a member says something in a watch at the least:
// a progress mark if there is nothing else.
const watchSpeaksEvery = 10 * time.Second

// WatchOptions say what to watch and from where.
type WatchOptions struct {
	Name   incumbent.Name  // empty namespace and model: the defaults
	Prefix bool            // Name.Lease is a prefix; empty: all of the model
	After  incumbent.Index // resume after this index; 0: begin with what is there
}

// Watch yields what changes, in order, each once and without a gap, all of one
// index together, and goes on with another member when one fails. What is there
// at the beginning may come in parts. It ends with ctx, or with an error: of kind
// Compacted when the history back to the last index it saw is gone, or the cluster
// has no such index (watch again without After), or one that trying again cannot
// help.
func (c *Client) Watch(ctx context.Context, opts WatchOptions) iter.Seq2[*apiv1.WatchResponse, error] {
	return func(yield func(*apiv1.WatchResponse, error) bool) {
		after := uint64(opts.After)
		for pause := minPause; ; pause = min(2*pause, maxPause) {
			more, err := c.watchOnce(ctx, opts, &after, &pause, yield)
			if !more || ctx.Err() != nil {
				return
			}
			if !retryable(err) {
				yield(nil, err)
				return
			}
			if sleep(ctx, jitter(pause, err)) != nil {
				return
			}
		}
	}
}

// watchOnce follows one stream. more is false when the caller has had enough.
func (c *Client) watchOnce(ctx context.Context, opts WatchOptions, after *uint64, pause *time.Duration, yield func(*apiv1.WatchResponse, error) bool) (more bool, err error) {
	if len(c.members.urls) > 1 {
		// A watch that resumes may be silent for good reason, so another call
		// finds out whether the member is there, and prefers another if not.
		if err := c.learn(ctx); err != nil {
			return true, err
		}
	}
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	stream, err := c.leases.Watch(ctx, connect.NewRequest(&apiv1.WatchRequest{
		Name: apiName(opts.Name), Prefix: opts.Prefix, AfterIndex: *after,
	}))
	if err != nil {
		return true, AsError(err)
	}
	defer stream.Close()
	// With nowhere else to go, a member that stands still is waited for.
	listen := func() bool { return stream.Receive() }
	if len(c.members.urls) > 1 {
		listen = func() bool {
			t := time.AfterFunc(c.watchSilence, func() { silent(errSilent) })
			defer t.Stop()
			return stream.Receive()
		}
	}
	i, _ := c.members.current()
	var whole Whole // what was not when a stream breaks is sent again by the next
	for listen() {
		m := stream.Msg()
		*pause = minPause
		// A snapshot may come in parts: only its end says where to go on from.
		if m.ProgressIndex > 0 {
			*after = m.ProgressIndex
			c.saw(m.ProgressIndex)
		}
		if m = whole.Add(m); m != nil && !yield(m, nil) {
			return false, nil
		}
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		c.members.leave(i)
		return true, incumbent.Errorf(incumbent.Unavailable, "%w", errSilent)
	}
	if err := stream.Err(); err != nil {
		return true, AsError(err)
	}
	return true, incumbent.Errorf(incumbent.Unavailable, "the watch ended")
}

// Whole puts together what a watch sends in pieces, for who calls
// [Client.Leases] itself: all changes of one index are handed on at once. The
// zero value is for the beginning of a watch; resume one, with a new Whole, after
// the last progress index.
type Whole struct {
	held []*apiv1.LeaseEvent // above the progress index so far
}

// Add takes the next message and returns what is whole with it; nil if nothing
// is. Parts of a snapshot it hands on as they are.
func (w *Whole) Add(m *apiv1.WatchResponse) *apiv1.WatchResponse {
	if m.Snapshot || !m.More && len(w.held) == 0 {
		return m
	}
	events := append(w.held, m.Events...)
	n := sort.Search(len(events), func(i int) bool { return events[i].Index > m.ProgressIndex })
	w.held = events[n:]
	if n == 0 {
		return nil
	}
	return &apiv1.WatchResponse{Events: events[:n:n], ProgressIndex: m.ProgressIndex}
}
