package ovsdb

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Members are a set, however many there were.
func TestMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s members[int]
		model := map[int]bool{}
		most := rapid.IntRange(1, 4*fewMembers).Draw(t, "most")
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			x := rapid.IntRange(0, most).Draw(t, "x")
			if rapid.Bool().Draw(t, "add") {
				s.add(x)
				model[x] = true
			} else {
				s.remove(x)
				delete(model, x)
			}
			var want []int
			for x := range model {
				want = append(want, x)
			}
			slices.Sort(want)
			if got := slices.Sorted(slices.Values(s.list)); !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			if len(s.list) > 2*fewMembers && s.at == nil {
				t.Fatalf("%d elements are looked through", len(s.list))
			}
			for i, x := range s.list {
				if s.place(x) != i {
					t.Fatalf("%d is at %d, and looked for at %d", x, i, s.place(x))
				}
			}
		}
	})
}
