package consul

import (
	"strconv"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/health"
)

// An output that changes while the status does not is written at most once in some minutes;
// of no number of checks more is remembered than is bounded.
func TestG39_OutputsAreWrittenNowAndThen(t *testing.T) {
	var o outputs
	c := &catalog.Check{ID: "C", Output: "first"}
	at := time.Duration(0)
	written := func(id, output string) bool {
		c.ID = id
		return !o.settled(c, output, int64(at), 0.5)
	}
	const usual = health.DefaultOutputEvery * 3 / 4
	for _, x := range []struct {
		after  time.Duration
		id     string
		output string
		want   bool
	}{
		{0, "C", "second", true}, {time.Second, "c", "third", false}, {0, "c", "first", true}, // which writes nothing
		{0, "other", "second", true}, {usual - 2*time.Second, "C", "fourth", false}, {time.Second, "C", "fourth", true}, {0, "C", "fifth", false},
	} {
		if at += x.after; written(x.id, x.output) != x.want {
			t.Errorf("%q of %s after %v: written %v, want %v", x.output, x.id, at, !x.want, x.want)
		}
	}
	for i := range 2*maxOutputs + 10 {
		if !written("n"+strconv.Itoa(i), "x") {
			t.Fatalf("the first of check %d is not written", i)
		}
	}
	if n := len(o.until); n > maxOutputs {
		t.Errorf("%d checks are remembered", n)
	}
	if c.Output = ""; !written("n1", "x") {
		t.Error("the first output of a check waits")
	}
}
