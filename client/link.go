package client

import (
	"bufio"
	"context"
	"sync"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// link is one stream with its unanswered requests.
type link struct {
	stream *Stream
	done   chan struct{} // closed when the stream has ended; err is set before

	mu      sync.Mutex // protects the rest; held for map operations only
	next    uint64
	pending map[uint64]chan *apiv1.ServerFrame
	err     error
}

// dial opens a link and serves it until it ends. Events, which answer no
// request, go to event on the reading goroutine.
func (c *Client) dial(ctx context.Context, event func(*link, *apiv1.ServerFrame)) (*link, error) {
	stream, r, err := c.DialStream(ctx, StreamOptions{})
	if err != nil {
		return nil, err
	}
	return newLink(stream, r, event), nil
}

func newLink(stream *Stream, r *bufio.Reader, event func(*link, *apiv1.ServerFrame)) *link {
	l := &link{stream: stream, done: make(chan struct{}), pending: make(map[uint64]chan *apiv1.ServerFrame)}
	go func() {
		err := stream.Serve(r, func(f *apiv1.ServerFrame) {
			if f.Id == 0 {
				event(l, f)
				return
			}
			l.answer(f)
		})
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		close(l.done)
	}()
	return l
}

func (l *link) answer(f *apiv1.ServerFrame) {
	l.mu.Lock()
	ch := l.pending[f.Id]
	delete(l.pending, f.Id)
	l.mu.Unlock()
	if ch != nil {
		ch <- f // has room for the one answer
	}
}

// post sends frames as one message and returns where each answer will arrive.
func (l *link) post(frames ...*apiv1.ClientFrame) ([]chan *apiv1.ServerFrame, error) {
	answers := make([]chan *apiv1.ServerFrame, len(frames))
	l.mu.Lock()
	for i, f := range frames {
		l.next++
		f.Id = l.next
		answers[i] = make(chan *apiv1.ServerFrame, 1)
		l.pending[f.Id] = answers[i]
	}
	l.mu.Unlock()
	if err := l.stream.Send(frames...); err != nil {
		l.stream.Close()
		return nil, incumbent.Errorf(incumbent.Unknown, "stream to %s: %w", l.stream.Member(), err)
	}
	return answers, nil
}

// call sends one frame and waits for its answer. An error of kind Unknown says
// that the link ended first.
func (l *link) call(ctx context.Context, f *apiv1.ClientFrame) (*apiv1.ServerFrame, error) {
	answers, err := l.post(f)
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answers[0]:
		return a, DetailError(a.Error)
	case <-l.done:
		return nil, incumbent.Errorf(incumbent.Unknown, "%w", l.cause())
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.pending, f.Id) // the link may live on for long
		l.mu.Unlock()
		select {
		case a := <-answers[0]: // it was there already
			return a, DetailError(a.Error)
		default:
			return nil, ctx.Err()
		}
	}
}

func (l *link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) close() { l.stream.Close() }
