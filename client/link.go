package client

import (
	"bufio"
	"context"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Limits of what goes over a link as one message. Servers take that much if nothing else is
// configured.
const (
	maxMessageBytes = 256 << 10
	maxFrames       = 1000 // a member takes 1,024
	frameHead       = 8    // bytes, at most, around a frame
)

// link is one stream with its unanswered requests.
type link struct {
	stream *Stream
	done   chan struct{} // closed when the stream has ended and all that came is handled; err is set before
	begun  atomic.Bool   // the session is attached to it, or was

	mu      sync.Mutex // protects the rest; held for map operations only
	next    uint64
	pending map[uint64]chan *apiv1.ServerFrame
	watches map[uint64]func(*apiv1.ServerFrame) // told of all under an id, on the reading goroutine
	err     error
}

// dial opens a link of the session, within [maxPatience], and serves it until it ends.
func (s *Session) dial(ctx context.Context, member *url.URL) (*link, error) {
	stream, r, err := s.c.streams(ctx, StreamOptions{Member: member, Timeout: maxPatience})
	if err != nil {
		return nil, err
	}
	l := newLink(stream, r, s.event)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(slices.DeleteFunc(s.links, (*link).over), l)
	return l, nil
}

// newLink serves a stream until it ends. Events, which answer no request, go to event on the
// reading goroutine.
func newLink(stream *Stream, r *bufio.Reader, event func(*link, *apiv1.ServerFrame)) *link {
	l := &link{stream: stream, done: make(chan struct{}), pending: make(map[uint64]chan *apiv1.ServerFrame), watches: make(map[uint64]func(*apiv1.ServerFrame))}
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
	ch, told := l.pending[f.Id], l.watches[f.Id]
	if waits := f.GetWaiting() != nil; !waits {
		delete(l.pending, f.Id)
		if f.Error != nil {
			delete(l.watches, f.Id) // that was its end
		}
	} else if ch == nil || len(ch) > 0 {
		ch, told = nil, nil // it is over, or was said before
	}
	if ch != nil {
		ch <- f // has room for it
	}
	l.mu.Unlock()
	if ch == nil && told != nil {
		told(f)
	}
}

// expect gives a frame that is about to be sent its id, and returns where its answer
// will arrive, and before it, perhaps, that it has to wait for it.
func (l *link) expect(f *apiv1.ClientFrame) chan *apiv1.ServerFrame {
	answer := make(chan *apiv1.ServerFrame, 2)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	f.Id = l.next
	l.pending[f.Id] = answer
	return answer
}

// listen is expect for a frame that is answered any number of times.
func (l *link) listen(f *apiv1.ClientFrame, told func(*apiv1.ServerFrame)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	f.Id = l.next
	l.watches[f.Id] = told
}

// forget hears no more of an id that was listened for.
func (l *link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches, id)
}

// send sends frames that have ids, in order: as one message, or as many as they need. With
// an error of kind Invalid nothing was sent: one of them fits into none, or cannot be encoded.
func (l *link) send(frames ...*apiv1.ClientFrame) error {
	messages, err := messagesOf(frames)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := l.stream.SendEncoded(m); err != nil {
			l.stream.Close()
			return incumbent.Errorf(incumbent.Unknown, "stream to %s: %w", l.stream.Member(), err)
		}
	}
	return nil
}

// messagesOf encodes frames, as messages of up to maxFrameBytes and maxFrames, save for a
// frame that is larger and fits into one alone. The error is of kind Invalid: a frame fits into
// no message, or has a text that is not UTF-8.
func messagesOf(frames []*apiv1.ClientFrame) (messages [][]byte, err error) {
	for len(frames) > 0 {
		n, size := 1, frameHead+proto.Size(frames[0])
		if size > maxMessageBytes {
			return nil, incumbent.Errorf(incumbent.Invalid, "the request has %d bytes, limit is %d", size, maxMessageBytes)
		}
		for ; n < min(len(frames), maxFrames); n++ {
			if size += frameHead + proto.Size(frames[n]); size > maxFrameBytes {
				break
			}
		}
		m, err := encoded(nil, frames[:n])
		if err != nil {
			return nil, err
		}
		messages, frames = append(messages, m), frames[n:]
	}
	return messages, nil
}

// post sends frames as send does, and returns where each answer will arrive.
func (l *link) post(frames ...*apiv1.ClientFrame) ([]chan *apiv1.ServerFrame, error) {
	answers := make([]chan *apiv1.ServerFrame, len(frames))
	for i, f := range frames {
		answers[i] = l.expect(f)
	}
	if err := l.send(frames...); err != nil {
		l.expectNone(frames)
		return nil, err
	}
	return answers, nil
}

// expectNone hears nothing of frames that were not sent.
func (l *link) expectNone(frames []*apiv1.ClientFrame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range frames {
		delete(l.pending, f.Id)
	}
}

// call sends one frame and waits for its answer. An error of kind Unknown says
// that the link ended first.
func (l *link) call(ctx context.Context, f *apiv1.ClientFrame) (*apiv1.ServerFrame, error) {
	answers, err := l.post(f)
	if err != nil {
		return nil, err
	}
	return l.await(ctx, f, answers[0])
}

// callFor is call for as long as that at most. Then the link is closed.
func (l *link) callFor(ctx context.Context, most time.Duration, f *apiv1.ClientFrame) (*apiv1.ServerFrame, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer l.closeIn(most)()
	return l.call(ctx, f)
}

// await waits for the answer to a frame that was sent.
func (l *link) await(ctx context.Context, f *apiv1.ClientFrame, answer <-chan *apiv1.ServerFrame) (*apiv1.ServerFrame, error) {
	select {
	case a := <-answer:
		return a, DetailError(a.Error)
	case <-l.done:
		return nil, incumbent.Errorf(incumbent.Unknown, "%w", l.cause())
	case <-ctx.Done():
		return l.late(ctx, f, answer)
	}
}

// late returns what has come for a frame whose time is over, or that nothing has: then
// nothing is heard of it any more, for the link may live on for long. What says that the
// answer will come later may have come: that one is heard of still.
func (l *link) late(ctx context.Context, f *apiv1.ClientFrame, answer <-chan *apiv1.ServerFrame) (*apiv1.ServerFrame, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case a := <-answer:
		return a, DetailError(a.Error)
	default:
		delete(l.pending, f.Id)
		return nil, ctx.Err()
	}
}

// awaitFor is await for as long as that at most.
func (l *link) awaitFor(ctx context.Context, most time.Duration, f *apiv1.ClientFrame, answer <-chan *apiv1.ServerFrame) (*apiv1.ServerFrame, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return l.await(ctx, f, answer)
}

func (l *link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) close() { l.stream.Close() }

// closeIn closes the link in that time, unless stop is called before: stop reports whether it
// was. It bounds a send: where a member stands still and takes nothing whoever sends waits, be
// it for another who sends, and the end of the link ends that.
func (l *link) closeIn(d time.Duration) (stop func() bool) { return time.AfterFunc(d, l.close).Stop }

// over reports whether the stream has ended.
func (l *link) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}
