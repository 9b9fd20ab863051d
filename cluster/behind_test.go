package cluster

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/node"
)

// A member is named once it is behind and has taken nothing for long: not one that takes what
// comes, however far behind it is, nor one that has all, nor one that was away until now, and
// one that needs a snapshot only after longer.
func TestWhoTakesNothingIsStuck(t *testing.T) {
	var p progress
	at := func(state node.State, commit, slow, idle uint64) node.Status {
		st := node.Status{}
		st.State, st.Commit = state, commit
		st.Peers = []node.PeerStatus{
			{ID: 2, Match: slow, Active: true},
			{ID: 3, Match: 10, Active: true},
			{ID: 4, Match: idle, Active: true},
			{ID: 5, Match: 10},
			{ID: 6, Match: 10, Active: true, Snapshot: true},
		}
		return st
	}
	now := time.Duration(0)
	for range 11 { // 3 takes nothing, of which there is more and more; 4 has nearly all
		p.look(at(node.Leader, 5000+uint64(now/time.Second), uint64(now/time.Second), 4900), now)
		now += time.Second
	}
	if got := p.stuck(now - time.Second); len(got) != 1 || got[3] != 10*time.Second {
		t.Errorf("stuck: %v", got)
	}
	if early, late := p.stuck(snapshotsAfter - 1)[6], p.stuck(snapshotsAfter)[6]; early != 0 || late != snapshotsAfter {
		t.Errorf("one that needs a snapshot is stuck after %v, and then %v", early, late)
	}
	p.look(at(node.Leader, 9000, 10, 4900), now)
	if got := p.stuck(now); len(got) != 1 || got[3] == 0 {
		t.Errorf("what 4 has not taken for a moment: %v", got)
	}
	p.look(at(node.Follower, 9000, 0, 0), now)
	if got := p.stuck(now + time.Hour); len(got) != 0 {
		t.Errorf("who does not lead knows of %v", got)
	}
}
