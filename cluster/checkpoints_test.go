package cluster

import (
	"testing"

	"github.com/incumbent-dev/incumbent/node"
)

// Nothing written since the last checkpoint: no other one; and a member that is
// alone compares with nobody.
func TestCheckpointsOnlyWhenSomethingWasWritten(t *testing.T) {
	status := func(state node.State, ready bool) (st node.Status) {
		st.State, st.Ready = state, ready
		return st
	}
	for name, tt := range map[string]struct {
		state             node.State
		ready             bool
		members           int
		applied, compared uint64
		want              bool
	}{
		"written since":     {node.Leader, true, 2, 8, 7, true},
		"nothing written":   {node.Leader, true, 2, 7, 7, false},
		"alone":             {node.Leader, true, 1, 8, 7, false},
		"another one leads": {node.Follower, true, 2, 8, 7, false},
		"not caught up":     {node.Leader, false, 2, 8, 7, false},
	} {
		if got := checkpointDue(status(tt.state, tt.ready), tt.members, tt.applied, tt.compared); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
