package server

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
)

// A member that describes itself knows its record of a moment ago: what it writes
// then takes no promotion back.
func TestAPromotionOutlivesAnOldDescription(t *testing.T) {
	first := open(t, memberConfig(t, "n1"))
	cfg := memberConfig(t, "n2")
	cfg.JoinToken, cfg.Learner = tokenOf(t, first), true
	second := open(t, cfg)
	var old core.Member // as the learner sees itself before it is promoted
	until(t, "n2 is recorded as a learner, at both", func() bool {
		old = second.self()
		return old.Learner && len(first.engine.View().Members()) == 2
	})
	if _, err := (operator{first}).PromoteMember(testContext(t), &apiv1.PromoteMemberRequest{Member: "n2"}); err != nil {
		t.Fatal(err)
	}
	old.Version = "newer"
	if _, err := second.propose(testContext(t), core.PutMemberCommand{Member: old}); err != nil {
		t.Fatal(err)
	}
	if got, _ := second.engine.View().Member(second.id); got.Learner || got.Version != "newer" {
		t.Errorf("after its own description the member is %+v", got)
	}
	until(t, "n2 votes", func() bool { return len(voting(first)) == 2 })
}

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
