package histogram

import (
	"maps"
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	d := New([]float64{.001, .5, 2})
	for _, took := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, 500 * time.Millisecond, 2 * time.Second, 2*time.Second + 1, time.Hour} {
		d.Observe(took)
	}
	c := d.Counts()
	if want := map[float64]uint64{.001: 2, .5: 4, 2: 5}; c.Count != 7 || !maps.Equal(c.Buckets, want) {
		t.Errorf("%d, %v: want 7, %v", c.Count, c.Buckets, want)
	}
	if want := 3604.502000002; c.Sum != want {
		t.Errorf("the sum is %v: want %v", c.Sum, want)
	}
}
