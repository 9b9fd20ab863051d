package lease

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Nothing issued before a restore or a recovery, known to it or not, is reached
// again by what is issued behind an epoch.
func TestG03_G14_EpochExceedsWhatWasLost(t *testing.T) {
	const epochBits = 40 // as core has them
	rapid.Check(t, func(t *rapid.T) {
		source := New()
		raise := func(to incumbent.Index) { source.apply(core.RaiseIndexCommand{To: to}.Encode(core.Meta{})) }
		raise(incumbent.Index(rapid.Uint64Range(0, core.MaxIndex>>1).Draw(t, "index")))
		restored := restart(t, source)
		raise(source.Index() + incumbent.Index(rapid.Uint64Range(0, 1<<epochBits-2).Draw(t, "commands that the snapshot misses")))
		claim := ClaimCommand{Name: parseName("a"), Holder: "ann", TTL: incumbent.MinTTL}.Encode(core.Meta{})
		theirs, ours := make([]core.Result, 1), make([]core.Result, 2)
		source.Apply([][]byte{claim}, theirs)
		restored.Apply([][]byte{core.EpochCommand{}.Encode(core.Meta{}), claim}, ours)
		if ours[0].Err != nil || AnswerOf(ours[1]).Lease.Token <= AnswerOf(theirs[0]).Lease.Token {
			t.Fatalf("token %v, the source had granted %v", AnswerOf(ours[1]).Lease.Token, AnswerOf(theirs[0]).Lease.Token)
		}
		if restored.View().Index() <= source.View().Index() {
			t.Fatalf("index %v, the source had %v", restored.View().Index(), source.View().Index())
		}
		if got := uint64(restored.Index()); got>>epochBits <= uint64(theirs[0].Index)>>epochBits || got&(1<<epochBits-1) != 1 {
			t.Fatalf("index %#x", got)
		}
	})
}
