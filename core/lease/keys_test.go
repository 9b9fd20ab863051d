package lease

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// What is kept of a refusal is its kind. Its text is no part of the state, so
// that a release may word it anew: members of both have the same hash, and tell
// a repeated request the same, from a log as from a snapshot.
func TestG27_KeptErrorsHaveNoTexts(t *testing.T) {
	for _, c := range []struct {
		cmd  core.Command
		want incumbent.Kind
	}{
		{ClaimCommand{Name: parseName("a"), Holder: "bob", TTL: time.Minute}, incumbent.Held},
		{ClaimCommand{Name: parseName("a"), Holder: "b b", TTL: time.Minute}, incumbent.Invalid},
		{ClaimCommand{Name: parseName("a"), Holder: "bob", Session: sessionID("gone")}, incumbent.Expired},
		{AcceptCommand{Token: 99}, incumbent.NotHolder},
		{RevokeCommand{Name: parseName("b")}, incumbent.NotFound},
		{RevokeCommand{Name: parseName("b"), Token: 3}, incumbent.Conflict},
		{core.OpenSessionCommand{ID: sessionID("s"), TTL: time.Hour}, incumbent.Exists},
		{core.CloseSessionCommand{ID: sessionID("s"), Reason: string(make([]byte, core.MaxReasonBytes+1))}, incumbent.TooLarge},
	} {
		s := New()
		for _, first := range []core.Command{
			core.OpenSessionCommand{ID: sessionID("s"), TTL: time.Minute},
			ClaimCommand{Name: parseName("a"), Holder: "ann", TTL: time.Minute},
		} {
			s.Apply([][]byte{first.Encode(core.Meta{})}, make([]core.Result, 1))
		}
		cmd := c.cmd.Encode(core.Meta{KeyID: []byte("key")})
		results := make([]core.Result, 2)
		s.Apply([][]byte{cmd, cmd}, results)
		told, again := results[0].Err, results[1].Err
		if told == nil || told.Kind != c.want || again == nil || again.Kind != c.want || !results[1].Replayed {
			t.Fatalf("%#v: %v, again: %v", c.cmd, told, again)
		}
		stored := snapshotBytes(t, s)
		if bytes.Contains(stored, []byte(told.Message)) || bytes.Contains(stored, []byte(again.Message)) {
			t.Errorf("%#v: the text of its error is part of the state", c.cmd)
		}
		restored := make([]core.Result, 1)
		restart(t, s).Apply([][]byte{cmd}, restored)
		if d := cmp.Diff(results[1], restored[0], sameLease); d != "" {
			t.Errorf("%#v: %s", c.cmd, d)
		}
	}
}
