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
	// Fields are those (holder, ttl, pins, offered, critical, revoking, queue) of which
	// one has to change; none: all changes are told.
	Fields []string
	// StartOver has the watch begin anew with what is there, when the history back to
	// the last index it saw is gone, instead of ending: the first message of that has
	// First set, and changes between were not told.
	StartOver bool
}

// Watch yields what changes, in order, each once and without a gap, all of one
// index together, and goes on with another member when one fails. What is there
// at the beginning may come in parts; one with First set begins it, anew if a part
// was yielded before. It ends with ctx, or with an error: of kind
// Compacted when the history back to the last index it saw is gone, or the cluster
// has no such index (watch again without After, or see StartOver), or one that
// trying again cannot help.
func (c *Client) Watch(ctx context.Context, opts WatchOptions) iter.Seq2[*apiv1.WatchResponse, error] {
	w := &watching[apiv1.WatchResponse, *apiv1.WatchResponse]{
		c: c, after: uint64(opts.After), startOver: opts.StartOver,
		open: func(ctx context.Context, after uint64) (*connect.ServerStreamForClient[apiv1.WatchResponse], error) {
			return c.leases.Watch(ctx, connect.NewRequest(&apiv1.WatchRequest{
				Name: apiName(opts.Name), Prefix: opts.Prefix, Fields: opts.Fields, AfterIndex: after,
			}))
		},
		whole: func() func(*apiv1.WatchResponse) *apiv1.WatchResponse { return new(Whole).Add },
	}
	return w.all(ctx)
}

// watchMessage is what the messages of all watches have.
type watchMessage interface {
	GetProgressIndex() uint64
	GetSnapshot() bool
	GetMore() bool
	GetFirst() bool
}

// watching is one watch of a client, over as many streams as it takes.
type watching[T any, M interface {
	*T
	watchMessage
}] struct {
	c         *Client
	after     uint64 // everything up to here was yielded
	startOver bool
	open      func(ctx context.Context, after uint64) (*connect.ServerStreamForClient[T], error)
	whole     func() func(M) M // puts the pieces of one stream together, as [Whole.Add]
}

// all is what the watch yields, as [Client.Watch] says.
func (w *watching[T, M]) all(ctx context.Context) iter.Seq2[M, error] {
	return func(yield func(M, error) bool) {
		anew := *w // it may be ranged over more than once
		anew.follow(ctx, yield)
	}
}

func (w *watching[T, M]) follow(ctx context.Context, yield func(M, error) bool) {
	w.c.budget.first(1)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		more, err := w.once(ctx, &pause, yield)
		if !more || ctx.Err() != nil {
			return
		}
		switch {
		case w.startOver && incumbent.KindOf(err) == incumbent.Compacted:
			w.after = 0
		case !retryable(err):
			yield(nil, err)
			return
		}
		if sleep(ctx, jitter(pause, err)) != nil {
			return
		}
		for incumbent.KindOf(err) == incumbent.Overloaded && !w.c.budget.repeat(w.c.clock()) {
			if sleep(ctx, jitter(maxPause, nil)) != nil {
				return
			}
		}
	}
}

// once follows one stream. more is false when the caller has had enough.
func (w *watching[T, M]) once(ctx context.Context, pause *time.Duration, yield func(M, error) bool) (more bool, err error) {
	c := w.c
	if c.members.several() {
		// A watch that resumes may be silent for good reason, so another call
		// finds out whether the member is there, and prefers another if not.
		if err := c.learn(ctx); err != nil {
			return true, err
		}
	}
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	call := watchSafety()
	ctx = context.WithValue(ctx, safetyKey{}, call)
	stream, err := w.open(ctx, w.after)
	if err != nil {
		return true, AsError(err)
	}
	defer stream.Close()
	// With nowhere else to go, a member that stands still is waited for.
	listen := func() bool { return stream.Receive() }
	if c.members.several() {
		listen = func() bool {
			t := time.AfterFunc(c.watchSilence, func() { silent(errSilent) })
			defer t.Stop()
			return stream.Receive()
		}
	}
	whole := w.whole() // what was not when a stream breaks is sent again by the next
	for listen() {
		m := M(stream.Msg())
		*pause = minPause
		// A snapshot may come in parts: only its end says where to go on from.
		if m.GetProgressIndex() > 0 {
			w.after = m.GetProgressIndex()
			c.saw(w.after)
		}
		if m = whole(m); m != nil && !yield(m, nil) {
			return false, nil
		}
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		c.members.leave(call.member.Load()) // by now another may be preferred
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
type Whole struct{ pieces[*apiv1.LeaseEvent] }

// Add takes the next message and returns what is whole with it; nil if nothing
// is. Parts of a snapshot it hands on as they are.
func (w *Whole) Add(m *apiv1.WatchResponse) *apiv1.WatchResponse {
	return joined(&w.pieces, m, m.Events, func(whole []*apiv1.LeaseEvent) *apiv1.WatchResponse {
		return &apiv1.WatchResponse{Events: whole, ProgressIndex: m.ProgressIndex}
	})
}

// pieces are changes that are held back until all of their index are there.
type pieces[E interface{ GetIndex() uint64 }] struct {
	held []E // above the progress index so far
}

// joined takes the next message, with its changes, and returns what is whole with it, made
// by of; nil if nothing is.
func joined[E interface{ GetIndex() uint64 }, T any, M interface {
	*T
	watchMessage
}](p *pieces[E], m M, next []E, of func(whole []E) M) M {
	whole, all := p.add(m, next)
	switch {
	case all:
		return m
	case len(whole) == 0:
		return nil
	}
	return of(whole)
}

// add takes the next message, with its changes, and returns those that are whole with it:
// all of the message, and no others?
func (p *pieces[E]) add(m watchMessage, next []E) (whole []E, all bool) {
	if m.GetFirst() {
		p.held = nil // the snapshot says what came of it
	}
	if m.GetSnapshot() || !m.GetMore() && len(p.held) == 0 {
		return next, true
	}
	events := append(p.held, next...)
	n := sort.Search(len(events), func(i int) bool { return events[i].GetIndex() > m.GetProgressIndex() })
	p.held = events[n:]
	return events[:n:n], false
}
