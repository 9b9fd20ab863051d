package server

import (
	"sync"
	"sync/atomic"
)

// barrier calls done once everything that had arrived at any socket before was
// handed on: at those of clients, parked or served by net/http, and at those of
// members, who gather for theirs.
func (s *Server) barrier(done func()) {
	parts := []func(func()){s.parkBarrier, s.arrivals.Barrier, s.transport.Barrier}
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

// parkBarrier is that of the connections that are parked, and then of what Consul's door has
// read from them and not handed on, which may stand behind much else: it is waited for as
// long as for half a request of other clients, see arrivals.
func (s *Server) parkBarrier(done func()) {
	s.park.Barrier(func() {
		if s.consul == nil {
			done()
			return
		}
		var passed atomic.Bool
		pass := sync.OnceFunc(func() {
			passed.Store(true)
			done()
		})
		looks := 0
		var look func()
		look = func() {
			switch {
			case passed.Load():
			case looks == mostLooks:
				pass()
			default:
				looks++
				s.arrivals.after(lookEvery, look)
			}
		}
		s.consul.door.Barrier(pass)
		look()
	})
}
