package incumbent

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFold(t *testing.T) {
	for name, want := range map[string]string{"": "", "web": "web", "Web": "web", "a-Z_09@[`{": "a-z_09@[`{", "ÄB": "Äb", "\u212a": "\u212a"} {
		if got := Fold(name); got != want {
			t.Errorf("%q folds to %q, expected %q", name, got, want)
		}
	}
}

func TestNamesAreOneAsTheyFold(t *testing.T) {
	names := rapid.StringOf(rapid.SampledFrom([]rune("aAbBzZ@[`{\x00ÄäK")))
	rapid.Check(t, func(t *rapid.T) {
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		want := strings.Compare(Fold(a), Fold(b))
		if got := CompareNames(a, b); got != want {
			t.Fatalf("%q and %q compare to %d, as folded to %d", a, b, got, want)
		}
		if got := Alike(a, b); got != (want == 0) {
			t.Fatalf("%q and %q are alike: %v", a, b, got)
		}
	})
}
