package incumbent

import (
	"strings"
	"testing"
)

func TestHasMoreValues(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int // its values, lists and objects counted once more when they are begun
	}{
		{`1`, 1}, {`[1,2,3]`, 4}, {`{"a":1,"b":[2,3]}`, 5}, {`"[,{"`, 1}, {`["\\",1]`, 3}, {`["\"[,",1]`, 3},
	} {
		padded := []byte(c.text + strings.Repeat(" ", 10))
		for most := range 8 {
			if got, want := HasMoreValues(padded, most), c.n > max(most, 1); got != want && most > 0 {
				t.Errorf("%s: more than %d: %v", c.text, most, got)
			}
		}
	}
	if HasMoreValues([]byte(`[[[`), 3) {
		t.Error("three bytes have more than three values")
	}
}
