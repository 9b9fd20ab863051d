package engine

import (
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Of commands that a group is given all are applied, and the first refusal is told.
func TestTheFirstRefusalIsTold(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.CloseWatches()
	last := core.EpochCommand{}.Encode(core.Meta{})
	cmds := [][]byte{core.RemoveMemberCommand{ID: 7}.Encode(core.Meta{}), core.RemoveMemberCommand{}.Encode(core.Meta{}), last}
	if err := e.ApplyAll(cmds); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("one that is refused: %v", err)
	}
	before := e.View().Index()
	if !e.View().MemberGone(7) || before < core.NextEpoch(0) {
		t.Errorf("not all were applied: index %d", before)
	}
	if err := e.ApplyAll([][]byte{last}); err != nil || e.View().Index() <= before {
		t.Errorf("one that is taken: index %d after %d, %v", e.View().Index(), before, err)
	}
}
