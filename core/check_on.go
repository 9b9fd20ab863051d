//go:build race || invariants

package core

// These bound what checking costs, in sessions, results that are kept, and records of
// families that it was told of: a state of fewer than checkRecords is
// checked after every batch, a larger one so much less often that a batch costs as much,
// and one of more than checkMost after every 256th. What is broken stays so.
const (
	checkRecords = 64
	checkMost    = 2000
	checkEvery   = 256 // batches
)

// assertInvariants stops the process on a broken invariant.
func (s *State) assertInvariants() {
	n := s.sessions.Len() + s.kept.Len() + s.records
	for _, f := range s.families {
		if a, ok := f.tables.(Agreeing); ok {
			n += a.Indexed()
		}
	}
	every := uint64(1 + n/checkRecords)
	if n > checkMost {
		every = checkEvery
	}
	if s.batches%every != 0 {
		return
	}
	if err := s.check(); err != nil {
		panic("core: broken invariant: " + err.Error())
	}
}

// spoil overwrites what nobody may have kept.
func spoil(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}
