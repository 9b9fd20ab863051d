package lease

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// The index counts commands, not what brings them: two grants of one batch have
// different tokens, and two results different indexes.
func TestTokensOfOneBatchDiffer(t *testing.T) {
	s := New()
	var cmds [][]byte
	for _, name := range []string{"a", "b", "c"} {
		claim := ClaimCommand{Name: incumbent.Name{Namespace: "n", Model: "m", Lease: name}, Holder: "h", TTL: time.Minute}
		cmds = append(cmds, claim.Encode(core.Meta{}))
	}
	results := make([]core.Result, len(cmds))
	s.Apply(cmds, results)
	for i, r := range results {
		want := incumbent.Index(i + 1)
		if r.Err != nil || r.Index != want || AnswerOf(r).Lease.Token != incumbent.Token(want) {
			t.Errorf("grant %d: index %d, lease %+v, %v", i, r.Index, AnswerOf(r).Lease, r.Err)
		}
	}
	if s.Index() != incumbent.Index(len(cmds)) {
		t.Errorf("index %d after %d commands", s.Index(), len(cmds))
	}
}
