package server

import (
	"testing"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
)

// A member that describes itself knows its record of a moment ago: what it writes
// then takes no promotion back.
func TestAPromotionOutlivesAnOldDescription(t *testing.T) {
	first := open(t, memberConfig(t, "n1"))
	cfg := memberConfig(t, "n2")
	cfg.JoinToken, cfg.Learner = tokenOf(t, first, cfg.Name), true
	second := open(t, cfg)
	var old core.Member // as the learner sees itself before it is promoted
	until(t, "n2 is recorded as a learner, at both", func() bool {
		old, _ = second.engine.View().Member(second.cluster.ID())
		return old.Learner && len(first.engine.View().Members()) == 2
	})
	if _, err := first.operator().PromoteMember(testContext(t), &apiv1.PromoteMemberRequest{Member: "n2"}); err != nil {
		t.Fatal(err)
	}
	old.Version = "newer"
	propose(t, second, core.PutMemberCommand{Member: old})
	if got, _ := second.engine.View().Member(second.cluster.ID()); got.Learner || got.Version != "newer" {
		t.Errorf("after its own description the member is %+v", got)
	}
	until(t, "n2 votes", func() bool { return len(voting(first)) == 2 })
}
