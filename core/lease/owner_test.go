package lease

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Whether a session owns a critical lease follows its leases through what changes
// whose they are and how critical.
func TestSessionCritical(t *testing.T) {
	s := New()
	one, other := incumbent.SessionID{15: 1}, incumbent.SessionID{15: 2}
	name := incumbent.Name{Namespace: "n", Model: "m", Lease: "a"}
	plain := incumbent.Name{Namespace: "n", Model: "m", Lease: "b"}
	for i, step := range []struct {
		cmd        core.Command
		one, other bool
	}{
		{core.OpenSessionCommand{ID: one, TTL: time.Minute}, false, false},
		{core.OpenSessionCommand{ID: other, TTL: time.Minute}, false, false},
		{ClaimCommand{Name: plain, Holder: "h", Session: one}, false, false},
		{ClaimCommand{Name: name, Holder: "h", Session: one, Critical: true}, true, false},
		{ClaimCommand{Name: name, Holder: "h", Session: one}, false, false},
		{ClaimCommand{Name: name, Holder: "h", Session: one, Critical: true}, true, false},
		{ClaimCommand{Name: name, Holder: "k", Session: other, Wait: true, Critical: true}, true, false},
		{ReleaseCommand{Name: name, Holder: "h", Session: one}, false, true},
		{core.CloseSessionCommand{ID: other}, false, false},
	} {
		results := make([]core.Result, 1)
		s.Apply([][]byte{step.cmd.Encode(core.Meta{})}, results)
		if results[0].Err != nil && results[0].Err.Kind != incumbent.OK {
			t.Fatalf("step %d: %v", i, results[0].Err)
		}
		v := s.View()
		if got := Of(v).Critical(one); got != step.one {
			t.Errorf("step %d: %v, want %v", i, got, step.one)
		}
		if got := Of(v).Critical(other); got != step.other {
			t.Errorf("step %d: the other %v, want %v", i, got, step.other)
		}
	}
}
