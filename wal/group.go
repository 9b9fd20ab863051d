package wal

import "fmt"

// group is what the log knows of one raft group: enough to refuse what no
// correct raft ever writes. The same rules hold when records are written and
// when they are read back, so what was accepted can be recovered.
type group struct {
	hs   HardState
	mark SnapshotMark
	last uint64 // index of the last entry, or of the mark
}

// entry takes the entry at index i, which replaces everything from i on.
func (g *group) entry(i uint64) error {
	switch {
	case i <= g.mark.Index:
		return fmt.Errorf("entry %d lies within the snapshot at %d", i, g.mark.Index)
	case i <= g.hs.Commit:
		return fmt.Errorf("entry %d replaces a committed one: commit is %d", i, g.hs.Commit)
	case i > g.last+1:
		return fmt.Errorf("entry %d leaves a gap after %d", i, g.last)
	}
	g.last = i
	return nil
}

// entries takes several that follow one another.
func (g *group) entries(es []Entry) error {
	if len(es) == 0 {
		return nil
	}
	if err := g.entry(es[0].Index); err != nil {
		return err
	}
	for i := 1; i < len(es); i++ {
		if es[i].Index != es[i-1].Index+1 {
			return fmt.Errorf("entry %d follows %d in one batch", es[i].Index, es[i-1].Index)
		}
	}
	g.last = es[len(es)-1].Index
	return nil
}

func (g *group) hardState(hs HardState) error {
	switch {
	case hs.Term < g.hs.Term:
		return fmt.Errorf("term falls from %d to %d", g.hs.Term, hs.Term)
	case hs.Term == g.hs.Term && g.hs.Vote != 0 && hs.Vote != g.hs.Vote:
		return fmt.Errorf("vote of term %d changes from %d to %d", hs.Term, g.hs.Vote, hs.Vote)
	case hs.Commit < g.hs.Commit:
		return fmt.Errorf("commit falls from %d to %d", g.hs.Commit, hs.Commit)
	case hs.Commit > g.last:
		return fmt.Errorf("commit %d is beyond the last entry %d", hs.Commit, g.last)
	}
	g.hs = hs
	return nil
}

// take takes a snapshot, of the member's own or received.
func (g *group) take(m SnapshotMark, replaces bool) error {
	if len(m.File) > MaxSnapshotName || m.Bytes < 0 {
		return fmt.Errorf("snapshot %q of %d bytes: name is longer than %d bytes, or the length negative", m.File, m.Bytes, MaxSnapshotName)
	}
	if replaces {
		return g.replace(m)
	}
	return g.snapshot(m)
}

// snapshot takes a snapshot of what the log holds, committed.
func (g *group) snapshot(m SnapshotMark) error {
	if m.Index < g.mark.Index || m.Index > g.hs.Commit {
		return fmt.Errorf("snapshot at %d is not between the one at %d and commit %d", m.Index, g.mark.Index, g.hs.Commit)
	}
	g.mark = m
	return nil
}

// replace takes a snapshot that another member sent in place of the entries.
// Its index is committed, whether the hard state says so yet or not.
func (g *group) replace(m SnapshotMark) error {
	if m.Index <= g.hs.Commit {
		return fmt.Errorf("received snapshot at %d is not beyond commit %d", m.Index, g.hs.Commit)
	}
	g.mark, g.last, g.hs.Commit = m, m.Index, m.Index
	return nil
}
