//go:build race || invariants

package core

// checkAlways and checkEvery bound what checking costs: a small state is checked
// after every batch, a large one after every 256th.
const (
	checkAlways = 2000 // lease records, places in queues, and records of families that it was told of
	checkEvery  = 256  // batches
)

// assertInvariants stops the process on a broken invariant.
func (s *State) assertInvariants() {
	if s.names.Len()+s.places.Len()+s.records > checkAlways && s.batches%checkEvery != 0 {
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
