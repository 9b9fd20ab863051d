package bench

import (
	"context"
	"sync"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/client"
)

// keyConn carries requests about keys: one at a time for each who asks.
type keyConn interface {
	// ask sends a request and waits for its answer. A refusal is a refusedCall.
	ask(f *apiv1.ClientFrame) (*apiv1.ServerFrame, error)
	close()
}

// keyStream is a stream that any number of workers ask over.
type keyStream struct {
	stream *client.Stream
	done   chan struct{} // closed when the stream has ended; err is set before
	err    error

	mu      sync.Mutex // protects the rest; held for map operations only
	next    uint64
	pending map[uint64]chan *apiv1.ServerFrame
}

// dialKeyStream opens stream i, to a member.
func (r *run) dialKeyStream(ctx context.Context, member, i int) (*keyStream, error) {
	stream, reader, err := r.clients[member].DialStream(ctx, client.StreamOptions{Local: r.source(i), ReadBuffer: readBuffer})
	if err != nil {
		return nil, err
	}
	s := &keyStream{stream: stream, done: make(chan struct{}), pending: map[uint64]chan *apiv1.ServerFrame{}}
	go func() {
		s.err = broken(stream.Serve(reader, s.answer))
		close(s.done)
	}()
	return s, nil
}

func (s *keyStream) answer(f *apiv1.ServerFrame) {
	s.mu.Lock()
	ch := s.pending[f.Id]
	delete(s.pending, f.Id)
	s.mu.Unlock()
	if ch != nil {
		ch <- f // has room for the one answer
	}
}

func (s *keyStream) ask(f *apiv1.ClientFrame) (*apiv1.ServerFrame, error) {
	ch := make(chan *apiv1.ServerFrame, 1)
	s.mu.Lock()
	s.next++
	f.Id = s.next
	s.pending[f.Id] = ch
	s.mu.Unlock()
	if err := s.stream.Send(f); err != nil {
		return nil, broken(err)
	}
	select {
	case a := <-ch:
		if a.Error != nil {
			return nil, refusedCall{client.DetailError(a.Error)}
		}
		return a, nil
	case <-s.done:
		return nil, s.err
	}
}

func (s *keyStream) close() { s.stream.Close() }

// ask is a unary call.
func (c *callConn) ask(f *apiv1.ClientFrame) (*apiv1.ServerFrame, error) {
	switch r := f.Request.(type) {
	case *apiv1.ClientFrame_Put:
		out := &apiv1.ServerFrame_Put{Put: &apiv1.PutResponse{}}
		err := c.call(incumbentv1connect.KeyValueServicePutProcedure, r.Put, out.Put)
		return &apiv1.ServerFrame{Answer: out}, err
	case *apiv1.ClientFrame_GetKey:
		out := &apiv1.ServerFrame_GetKey{GetKey: &apiv1.GetKeyResponse{}}
		err := c.call(incumbentv1connect.KeyValueServiceGetProcedure, r.GetKey, out.GetKey)
		return &apiv1.ServerFrame{Answer: out}, err
	case *apiv1.ClientFrame_Txn:
		out := &apiv1.ServerFrame_Txn{Txn: &apiv1.TxnResponse{}}
		err := c.call(incumbentv1connect.TransactionServiceTxnProcedure, r.Txn, out.Txn)
		return &apiv1.ServerFrame{Answer: out}, err
	}
	return nil, incumbent.Errorf(incumbent.Internal, "there is no call for %T", f.Request)
}
