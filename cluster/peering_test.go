package cluster

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent/node"
)

// Only what the leader sent by way of raft says that it is alive. A refusal with
// its name on it is this member's own transport, which could not reach it.
func TestG23_ARefusalOfTheTransportIsNoWordOfTheLeader(t *testing.T) {
	const leader = 7
	raft, refusal := &pb.Message{}, &node.Refuse{}
	for name, tt := range map[string]struct {
		leader uint64
		ms     []node.Message
		want   bool
	}{
		"nothing":                    {leader, nil, false},
		"a message of raft":          {leader, []node.Message{{From: leader, Raft: raft}}, true},
		"one behind others":          {leader, []node.Message{{From: 8, Raft: raft}, {From: leader, Raft: raft}}, true},
		"another's":                  {leader, []node.Message{{From: 8, Raft: raft}}, false},
		"a refusal":                  {leader, []node.Message{{From: leader, Refuse: refusal}}, false},
		"a refusal beside another's": {leader, []node.Message{{From: leader, Refuse: refusal}, {From: 8, Raft: raft}}, false},
		"no leader is known":         {0, []node.Message{{From: 0, Raft: raft}}, false},
	} {
		if got := fromLeader(tt.leader, tt.ms); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
