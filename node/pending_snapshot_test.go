package node

import (
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestPendingAtAReceivedSnapshot has proposals wait in different places when a
// snapshot replaces the log: those that it cannot contain wait on.
func TestPendingAtAReceivedSnapshot(t *testing.T) {
	for name, tc := range map[string]struct {
		index, term uint64 // of the snapshot
		unknown     []string
	}{
		// Member 1 has appended b and d in term 2, at 4 and 5; c is not appended yet.
		"between the two":        {index: 4, term: 3, unknown: []string{"b"}},
		"behind both":            {index: 9, term: 5, unknown: []string{"b", "d"}},
		"of an earlier term all": {index: 9, term: 1},
	} {
		c := three(t)
		c.cut[1] = true
		for _, cmd := range []string{"b", "d"} {
			c.propose(1, Proposal{Command: []byte(cmd)})
			c.ready(1)
		}
		term := c.members[1].Status().Term
		if term != 2 {
			t.Fatalf("leader of term %d", term)
		}
		for c.append(1) {
			c.ready(1)
		}
		c.log.Reset()
		meta := SnapshotMeta{Index: tc.index, Term: tc.term, ConfState: pb.EnsureConfState(&pb.ConfState{Voters: []uint64{1, 2, 3}})}
		m := snapshotMessage(meta, term+4)
		if !c.members[1].StepSnapshot(m) {
			t.Fatalf("%s: raft did not take the snapshot", name)
		}
		c.propose(1, Proposal{Command: []byte("c")})
		c.ready(1)
		for c.append(1) {
			c.ready(1)
		}
		var got []string
		for _, line := range strings.Split(c.log.String(), "\n") {
			if cmd, rest, ok := strings.Cut(strings.TrimPrefix(line, "1: "), " -> "); ok && strings.HasPrefix(rest, "unknown") {
				got = append(got, cmd)
			} else if ok {
				t.Errorf("%s: %s", name, line)
			}
		}
		if !slices.Equal(got, tc.unknown) {
			t.Errorf("%s: answered Unknown: %v, want %v", name, got, tc.unknown)
		}
	}
}
