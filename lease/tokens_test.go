package lease

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

func TestTokenTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newTokenTable(rapid.IntRange(0, 40).Draw(t, "room"))
		model := make(map[incumbent.Token]int32)
		// Few different tokens, so that gaps close over whole runs and around the end.
		tokens := rapid.Custom(func(t *rapid.T) incumbent.Token {
			return incumbent.Token(rapid.IntRange(1, 60).Draw(t, "token")) << rapid.SampledFrom([]int{0, 0, 40}).Draw(t, "shift")
		})
		for i := range rapid.IntRange(1, 400).Draw(t, "steps") {
			token := tokens.Draw(t, "token")
			if _, ok := model[token]; ok || rapid.Bool().Draw(t, "remove") {
				table.remove(token)
				delete(model, token)
			} else {
				table.put(token, int32(i))
				model[token] = int32(i)
			}
			got := make(map[incumbent.Token]int32)
			for token := range model {
				if slot, ok := table.get(token); ok {
					got[token] = slot
				}
			}
			if !maps.Equal(got, model) || table.len() != len(model) {
				t.Fatalf("table has %v (%d), want %v", got, table.len(), model)
			}
			other := tokens.Draw(t, "other")
			_, want := model[other]
			if _, ok := table.get(other); ok != want {
				t.Fatalf("token %d: found %v, want %v", other, ok, want)
			}
		}
		if _, ok := table.get(0); ok {
			t.Fatal("the table has the token that no lease has")
		}
	})
}
