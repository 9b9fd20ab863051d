package native

import (
	"testing"

	"github.com/incumbent-dev/incumbent"
)

// What nobody reads of one principal's answers stops that one's reads alone, and what all
// do not read stops what is large. What has changed something is answered in any case, and
// then the next such call is refused before it is begun.
func TestG39_AnswersThatAreNotReadAreCounted(t *testing.T) {
	const page = 1 << 20
	u := &unsent{}
	takes := func(who string, n int64, refusable bool, want incumbent.Kind) {
		t.Helper()
		if got := incumbent.KindOf(u.take(who, n, refusable)); got != want {
			t.Errorf("%d bytes of %s behind %d: %v, want %v", n, who, u.bytes(), got, want)
		}
	}
	for range unsentEach / page {
		takes("agent:a", page, true, incumbent.OK)
	}
	takes("agent:a", 1, true, incumbent.Overloaded)
	if got := incumbent.KindOf(u.full("agent:a")); got != incumbent.Overloaded {
		t.Errorf("a change of who does not read: %v", got)
	}
	if err := u.full("agent:b"); err != nil {
		t.Error(err)
	}
	takes("agent:a", page, false, incumbent.OK)
	takes("agent:b", unsentEach-page, true, incumbent.OK)
	takes("agent:c", page, true, incumbent.Overloaded)
	takes("operator:o", page, true, incumbent.Overloaded)
	takes("agent:c", smallAnswer, true, incumbent.OK)
	u.give("agent:a", page)
	takes("agent:a", 1, true, incumbent.Overloaded)
	u.give("agent:a", unsentEach)
	takes("agent:c", unsentEach-smallAnswer, true, incumbent.OK)
	u.give("agent:b", unsentEach-page)
	u.give("agent:c", unsentEach)
	if n := u.bytes(); n != 0 || len(u.by) != 0 {
		t.Errorf("%d bytes are left, of %v", n, u.by)
	}
}
