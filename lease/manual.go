package lease

// Manual is a service without a goroutine: whoever drives it says when the loop
// takes a turn, with Options.Clock for the time. For simulation.
type Manual struct{ *Service }

// NewManual returns a service that the caller drives. Run must not be called.
func NewManual(o Options, raft Raft) (*Manual, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	s.raft = raft
	return &Manual{s}, nil
}

// Turn lets the loop take all that waits and look at the clock.
func (m *Manual) Turn() {
	select {
	case <-m.in.wake:
	default:
	}
	m.turn()
	m.publish()
}

// VouchedTerm returns the term for whose leader a frame vouches, if it does.
func VouchedTerm(data []byte) (term uint64, vouched bool) {
	var f frame
	vouched = f.decode(data) && f.vouched
	return f.term, vouched
}

// Busy reports whether something waits for a turn.
func (m *Manual) Busy() bool { return len(m.in.wake) > 0 }

// Waiting returns what was taken and not answered yet: calls, batches of extensions of
// this member's clients, extensions, and frames of other members. Each has its limit
// (MaxQueuedReleases and so on).
func (m *Manual) Waiting() (calls, batches, extensions, frames int) {
	m.in.mu.Lock()
	defer m.in.mu.Unlock()
	l := &m.in.load
	return l.calls, l.batches, l.extensions, l.frames
}
