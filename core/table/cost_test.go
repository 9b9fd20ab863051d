package table

import (
	"math"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// What rows share is not compared, however large it is.
func TestWhatIsSharedIsNotCompared(t *testing.T) {
	const atoms, times, less = 1 << 18, 10, 100
	set := func() []ovs.Datum {
		d := ovs.Datum{Keys: make([]ovs.Atom, atoms)}
		for i := range d.Keys {
			d.Keys[i] = ovs.IntegerAtom(int64(i))
		}
		return []ovs.Datum{d}
	}
	a, b := set(), set()
	took := func(b []ovs.Datum) time.Duration { // at best, for others are running, too
		best := time.Duration(math.MaxInt64)
		for range times {
			began := time.Now()
			if compareKeys(a, b) != 0 {
				t.Fatal("they differ")
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	if shared, apart := took(a), took(b); shared > apart/less {
		t.Errorf("it takes %v, apart %v", shared, apart)
	}
}
