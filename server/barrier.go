package server

import "sync/atomic"

// barrier calls done once everything that had arrived at any socket before was
// handed on: at those of clients, parked or served by net/http, and at those of
// members, who gather for theirs.
func (s *Server) barrier(done func()) {
	parts := []func(func()){s.park.Barrier, s.arrivals.Barrier, s.transport.Barrier}
	var left atomic.Int32
	left.Store(int32(len(parts)))
	for _, begin := range parts {
		begin(func() {
			if left.Add(-1) == 0 {
				done()
			}
		})
	}
}
