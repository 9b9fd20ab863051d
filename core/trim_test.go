package core

import (
	"fmt"
	"testing"
)

// Forgetting kept results costs as much for each of them, however many they are.
func TestForgettingResultsIsLinear(t *testing.T) {
	trim := func(n int) uint64 {
		s := New()
		for i := range n {
			s.Apply([][]byte{CheckpointCommand{}.Encode(Meta{KeyID: fmt.Append(nil, i), KeyBase: s.index})}, make([]Result, 1))
		}
		before := s.steps
		s.Apply([][]byte{TrimKeysCommand{Through: s.index}.Encode(Meta{})}, make([]Result, 1))
		if s.kept.Len() != 0 {
			t.Errorf("%d results are left", s.kept.Len())
		}
		return s.steps - before
	}
	const n = 5000
	if one, two := trim(n), trim(2*n); one < n || two > 2*one+16 {
		t.Errorf("%d steps for %d, %d for twice as many", one, n, two)
	}
}
