package lists

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

type reads = map[string][]int

type appends = map[string]int

func TestWhatHasNoOrderIsFound(t *testing.T) {
	for what, c := range map[string]struct {
		history History
		want    string // part of the error; "": there is none
	}{
		"nothing": {nil, ""},
		"one after the other": {History{
			{Called: 1, Return: 2, Appends: appends{"a": 1}},
			{Called: 3, Return: 4, Reads: reads{"a": {1}}, Appends: appends{"a": 2}},
			{Called: 5, Return: 6, Reads: reads{"a": {1, 2}}},
		}, ""},
		"at the same time": {History{
			{Called: 1, Return: 9, Appends: appends{"a": 1}},
			{Called: 2, Return: 3, Reads: reads{"a": nil}},
			{Called: 4, Return: 5, Reads: reads{"a": {1}}},
		}, ""},
		"a read that is stale": {History{
			{Called: 1, Return: 2, Appends: appends{"a": 1}},
			{Called: 3, Return: 4, Reads: reads{"a": nil}},
			{Called: 5, Return: 6, Reads: reads{"a": {1}}},
		}, "no order"},
		"a write that is lost": {History{
			{Called: 1, Return: 2, Appends: appends{"a": 1}},
			{Called: 3, Return: 4, Reads: reads{"a": nil}},
		}, "no order"},
		"an update that is lost": {History{
			{Called: 1, Return: 9, Reads: reads{"a": nil}, Appends: appends{"a": 1}},
			{Called: 1, Return: 9, Reads: reads{"a": nil}, Appends: appends{"a": 2}},
			{Called: 10, Return: 11, Reads: reads{"a": {1, 2}}},
		}, "no order"},
		"a skew of two writes": {History{
			{Called: 1, Return: 9, Reads: reads{"a": nil, "b": nil}, Appends: appends{"a": 1}},
			{Called: 1, Return: 9, Reads: reads{"a": nil, "b": nil}, Appends: appends{"b": 2}},
			{Called: 10, Return: 11, Reads: reads{"a": {1}, "b": {2}}},
		}, "no order"},
		"half of a transaction": {History{
			{Called: 1, Return: 9, Appends: appends{"a": 1, "b": 2}},
			{Called: 1, Return: 9, Reads: reads{"a": {1}, "b": nil}},
			{Called: 10, Return: 11, Reads: reads{"a": {1}, "b": {2}}},
		}, "no order"},
		"two orders": {History{
			{Called: 1, Return: 9, Appends: appends{"a": 1}},
			{Called: 1, Return: 9, Appends: appends{"a": 2}},
			{Called: 1, Return: 9, Reads: reads{"a": {1}}},
			{Called: 1, Return: 9, Reads: reads{"a": {2, 1}}},
		}, "elsewhere"},
		"what failed": {History{
			{Called: 1, Return: 9, Failed: true, Appends: appends{"a": 1}},
			{Called: 1, Return: 9, Reads: reads{"a": {1}}},
		}, "failed to be"},
		"what nobody appended": {History{{Called: 1, Return: 9, Reads: reads{"a": {1}}}}, "nobody"},
		"twice": {History{
			{Called: 1, Return: 2, Appends: appends{"a": 1}},
			{Called: 3, Return: 9, Reads: reads{"a": {1, 1}}},
		}, "twice"},
		"an unknown outcome that nobody has seen": {History{
			{Called: 1, Return: Unknown, Reads: reads{"a": nil}, Appends: appends{"a": 1}},
			{Called: 3, Return: 9, Reads: reads{"a": nil}},
		}, ""},
		"one that took effect late": {History{
			{Called: 1, Return: Unknown, Reads: reads{"a": {2}}, Appends: appends{"a": 1}},
			{Called: 3, Return: 4, Appends: appends{"a": 2}},
			{Called: 5, Return: 9, Reads: reads{"a": {2, 1}}},
		}, ""},
		"one that took effect before it was called": {History{
			{Called: 5, Return: Unknown, Appends: appends{"a": 1}},
			{Called: 3, Return: 4, Reads: reads{"a": {1}}},
		}, "no order"},
	} {
		err := c.history.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// A history that was made in order has one; the same with one read put back has none,
// unless what it did not see was appended at the same time.
func TestWhatWasMadeInOrderHasOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 200 {
		state := map[string][]int{}
		var h History
		for n := range 60 {
			at := int64(10 * n)
			x := &Txn{Client: n % 5, Called: at - rng.Int64N(15), Return: at + rng.Int64N(15), Reads: reads{}, Appends: appends{}}
			for _, key := range []string{"a", "b", "c"} {
				if rng.IntN(2) == 0 {
					x.Reads[key] = slices.Clone(state[key])
				}
				if rng.IntN(3) == 0 {
					x.Appends[key] = 10*n + int(key[0]-'a')
					state[key] = append(slices.Clone(state[key]), x.Appends[key])
				}
			}
			h = append(h, x)
		}
		if err := h.Check(); err != nil {
			t.Fatal(err)
		}
		late := h[40+rng.IntN(20)]
		for key, list := range late.Reads {
			late.Reads[key] = list[:len(list)/2]
		}
		if h.Check() != nil {
			found++
		}
	}
	if found < 150 {
		t.Errorf("%d of 200 histories with a stale read were found", found)
	}
}
