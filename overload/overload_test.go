package overload

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

func TestWhoIsRefusedComesBackAtDifferentTimes(t *testing.T) {
	times := map[time.Duration]bool{}
	for range 100 {
		e := Errorf("%d wait", 7)
		if e.Kind != incumbent.Overloaded || e.Message != "7 wait" || e.RetryAfter < Retry/2 || e.RetryAfter > Retry*3/2 {
			t.Fatalf("%+v", e)
		}
		times[e.RetryAfter] = true
	}
	if len(times) < 90 {
		t.Errorf("%d of 100 times are different", len(times))
	}
}
