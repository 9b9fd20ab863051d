package native

import (
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
)

// What nobody reads of one principal's answers stops that one's reads alone, and what all
// do not read stops what is large. What has changed something is answered in any case, and
// then the next such call is refused before it is begun.
func TestG39_AnswersThatAreNotReadAreCounted(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	if got := m.door.unsent.bound(); got != MaxUnsentBytes {
		t.Errorf("%d bytes are kept before anybody has said how much memory there is", got)
	}
	lanes.SetMemory(0, 256<<20)
	if got := m.door.unsent.bound(); got != 32<<20 {
		t.Errorf("%d bytes are kept of 256 MiB", got)
	}
	const page, each = 1 << 20, MaxUnsentBytes / unsentPart
	u := &unsent{bound: func() int64 { return MaxUnsentBytes }}
	takes := func(who string, n int64, refusable bool, want incumbent.Kind) {
		t.Helper()
		if got := incumbent.KindOf(u.take(who, n, refusable)); got != want {
			t.Errorf("%d bytes of %s behind %d: %v, want %v", n, who, u.bytes(), got, want)
		}
	}
	for range each / page {
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
	takes("agent:b", each-page, true, incumbent.OK)
	takes("agent:c", page, true, incumbent.Overloaded)
	takes("operator:o", page, true, incumbent.Overloaded)
	takes("agent:c", smallAnswer, true, incumbent.OK)
	u.give("agent:a", page)
	takes("agent:a", 1, true, incumbent.Overloaded)
	u.give("agent:a", each)
	takes("agent:c", each-smallAnswer, true, incumbent.OK)
	u.give("agent:b", each-page)
	u.give("agent:c", each)
	if n := u.bytes(); n != 0 || len(u.by) != 0 {
		t.Errorf("%d bytes are left, of %v", n, u.by)
	}
}
