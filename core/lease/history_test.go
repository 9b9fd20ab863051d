package lease

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// someChange is a change of a history, with numbers and texts of any size, zero often.
func someChange(r *rand.Rand) LeaseChange {
	number := func(bits int) uint64 { return r.Uint64() >> (64 - bits) * uint64(r.IntN(2)) }
	text := func() string { return strings.Repeat("x", r.IntN(200)*r.IntN(2)) }
	return LeaseChange{
		Index: incumbent.Index(number(r.IntN(63) + 1)), What: What(1 + r.IntN(int(numWhats)-1)),
		Holder: text(), Token: incumbent.Token(number(r.IntN(63) + 1)),
		Origin: &core.Origin{At: core.AtMillis(int64(number(40))), Door: text(), Address: text(), Principal: text()},
		Late:   time.Duration(number(30)) * time.Millisecond, By: text(),
	}
}

// A history is read as it was made, and what it counts is found out without reading it only
// where that makes no difference.
func TestHistoryModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var past []byte
		var want []LeaseChange
		counted := 0
		for range r.IntN(MaxHistory + 1) {
			c := someChange(r)
			if r.IntN(8) == 0 {
				c = LeaseChange{What: c.What, Origin: &core.Origin{}}
			}
			was := len(past)
			past, want = c.append(past), append(want, c)
			n := countedBytes(c.parts())
			if took := len(past) - was; n > took+maxUncounted {
				t.Fatalf("%+v counts %d bytes and takes %d", c, n, took)
			}
			counted += n
		}
		// About what is left by the limit: there it matters.
		more := max(0, MaxHistoryBytes-counted-3+r.IntN(7))
		if got := withinBytes(past, more); got != (counted+more <= MaxHistoryBytes) {
			t.Fatalf("%d changes that count %d bytes and %d more: within the limit %v", len(want), counted, more, got)
		}
		l := &Lease{seldom: &seldom{past: past}, changes: uint8(len(want))}
		got := l.History()
		for i := range want {
			if *got[i].Origin != *want[i].Origin {
				t.Fatalf("change %d is of %+v, want %+v", i, got[i].Origin, want[i].Origin)
			}
			got[i].Origin = want[i].Origin
			if got[i] != want[i] {
				t.Fatalf("change %d is %+v, want %+v", i, got[i], want[i])
			}
		}
		of := What(1 + r.IntN(int(numWhats)-1))
		newest := What(0)
		for _, c := range want {
			if c.What <= of {
				newest = c.What
			}
		}
		if got := l.Newest(func(w What) bool { return w <= of }); got != newest {
			t.Fatalf("newest change up to %v: %v, want %v", of, got, newest)
		}
	}
}
