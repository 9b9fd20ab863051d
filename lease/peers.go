package lease

// SetSelf says which member this one is, where that is known only after New.
func (s *Service) SetSelf(id uint64) { s.self.Store(id) }

// Receive takes a frame from another member. It never blocks and does not keep
// the frame. What is malformed, or finds no room, is dropped and counted: whoever
// sent it sends it again.
func (s *Service) Receive(from uint64, b []byte) {
	f := s.frames.Get().(*frame) //nolint:forcetypeassert // the pool holds nothing else
	if s.peers == nil || from == s.self.Load() || !f.decode(b) || !s.in.postFrame(received{from, f}) {
		s.dropped.Add(1)
		s.recycle(f)
	}
}

func (s *Service) recycle(f *frame) {
	f.reset()
	s.frames.Put(f)
}

// send hands frames to the peers.
func (s *Service) send(fs []Frame) {
	for _, f := range fs {
		if s.peers == nil || !s.peers.SendApp(f.To, f.Data) {
			s.engine.Unsent(f)
		}
	}
}
