package core

import (
	"errors"
	"fmt"
	"testing"

	"github.com/incumbent-dev/incumbent"
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

// A command the base of whose key is older than what is kept is refused with a base from
// which on all is known; one with that base is executed, if it carries the same key, too.
func TestARefusalForTheBaseOfAKeyNamesANewOne(t *testing.T) {
	s, one := New(), make([]Result, 1)
	apply := func(base incumbent.Index) error {
		s.Apply([][]byte{CheckpointCommand{}.Encode(Meta{KeyID: []byte("k"), KeyBase: base})}, one)
		if one[0].Err == nil {
			return nil
		}
		return one[0].Err
	}
	for range 3 {
		s.Apply([][]byte{CheckpointCommand{}.Encode(Meta{})}, one)
	}
	s.Apply([][]byte{TrimKeysCommand{Through: s.index}.Encode(Meta{})}, one)
	var window OutsideWindow
	if err := apply(1); incumbent.KindOf(err) != incumbent.Unknown || !errors.As(err, &window) {
		t.Fatalf("with an old base: %v", err)
	}
	if window.Index != s.index {
		t.Errorf("it names %d at index %d", window.Index, s.index)
	}
	if err := apply(window.Index); err != nil {
		t.Errorf("with the base that the refusal names: %v", err)
	}
}
