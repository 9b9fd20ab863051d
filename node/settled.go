package node

// staleTail is the part of the log on disk that raft has given up and an append
// under way replaces: a new leader's entries in the place of uncommitted ones, or
// a snapshot in the place of all. Raft may know the new entries to be committed
// while the disk still has the old ones; a crash brings those back, and the next
// leader may lawfully cut them.
type staleTail struct {
	by     *Append // the last append that replaces something; nil: nothing is stale
	keeps  uint64  // entries behind this one are stale
	submit uint64  // last entry handed out for appending; 0: none since the last snapshot
}

// submits notes entries that are handed out behind a log that ends at last.
func (s *staleTail) submits(a *Append, last uint64) {
	first := a.Entries[0].GetIndex()
	if first <= max(s.submit, last) {
		s.replaces(a, first-1)
	}
	s.submit = a.Entries[len(a.Entries)-1].GetIndex()
}

// replaces notes an append that replaces all that is behind keeps.
func (s *staleTail) replaces(a *Append, keeps uint64) {
	if s.by == nil || keeps < s.keeps {
		s.keeps = keeps
	}
	s.by, s.submit = a, 0
}

// appended notes that an append, and all before it, is durable.
func (s *staleTail) appended(a *Append) {
	if s.by == a {
		s.by = nil
	}
}

// below returns the lower of index and the last entry that is not stale.
func (s *staleTail) below(index uint64) uint64 {
	if s.by == nil {
		return index
	}
	return min(index, s.keeps)
}
