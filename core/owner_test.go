package core

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Whether a session owns a critical lease follows its leases through what changes
// whose they are and how critical.
func TestSessionCritical(t *testing.T) {
	s := New()
	one, other := incumbent.SessionID{15: 1}, incumbent.SessionID{15: 2}
	name := incumbent.Name{Namespace: "n", Model: "m", Lease: "a"}
	plain := incumbent.Name{Namespace: "n", Model: "m", Lease: "b"}
	for i, step := range []struct {
		cmd        Command
		one, other bool
	}{
		{OpenSessionCommand{ID: one, TTL: time.Minute}, false, false},
		{OpenSessionCommand{ID: other, TTL: time.Minute}, false, false},
		{ClaimCommand{Name: plain, Holder: "h", Session: one}, false, false},
		{ClaimCommand{Name: name, Holder: "h", Session: one, Critical: true}, true, false},
		{ClaimCommand{Name: name, Holder: "h", Session: one}, false, false},
		{ClaimCommand{Name: name, Holder: "h", Session: one, Critical: true}, true, false},
		{ClaimCommand{Name: name, Holder: "k", Session: other, Wait: true, Critical: true}, true, false},
		{ReleaseCommand{Name: name, Holder: "h", Session: one}, false, true},
		{CloseSessionCommand{ID: other}, false, false},
	} {
		results := make([]Result, 1)
		s.Apply([][]byte{step.cmd.Encode(Meta{})}, results)
		if results[0].Err != nil && results[0].Err.Kind != incumbent.OK {
			t.Fatalf("step %d: %v", i, results[0].Err)
		}
		v := s.View()
		if got := v.SessionCritical(one); got != step.one {
			t.Errorf("step %d: %v, want %v", i, got, step.one)
		}
		if got := v.SessionCritical(other); got != step.other {
			t.Errorf("step %d: the other %v, want %v", i, got, step.other)
		}
	}
}
