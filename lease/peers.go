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

// send hands frames to the peers, those for one member that stand together as
// one.
func (s *Service) send(fs []Frame) {
	for len(fs) > 0 {
		n := 0
		for n < len(fs) && fs[n].To == fs[0].To {
			s.bytes = append(s.bytes, fs[n].Data)
			n++
		}
		taken := 0
		if s.peers != nil {
			taken = s.peers.SendApps(fs[0].To, s.bytes)
		}
		for _, f := range fs[taken:n] {
			s.engine.Unsent(f)
		}
		clear(s.bytes)
		s.bytes, fs = s.bytes[:0], fs[n:]
	}
}
