package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

// decision is one line of a record of admission.
type decision struct {
	at   int64
	lane Lane
	why  Reason // it was refused for; NumReasons: it was let in
}

// checkOrder checks a record of one member's decisions, in order of time, for guarantee
// 40: from the moment a lane refuses for want of room no lane before it lets anything
// in for an interval; nothing is let in at the very moment at which a lane behind it
// refuses for whatever reason; and the last lane refuses nothing.
func checkOrder(record []decision, interval int64) error {
	var shut [numRanks]int64
	for i, d := range record {
		rank := rankOf[d.lane]
		switch {
		case d.why == NumReasons:
			for r := rank + 1; r < numRanks; r++ {
				if shut[r] > d.at {
					return fmt.Errorf("decision %d: %s is let in at %d, while rank %d refuses until %d", i, d.lane, d.at, r, shut[r])
				}
			}
		case rank == numRanks-1:
			return fmt.Errorf("decision %d: %s is refused for %s", i, d.lane, d.why)
		case d.why == Delay:
			shut[rank] = max(shut[rank], d.at+interval)
		default:
			shut[rank] = max(shut[rank], d.at+1)
		}
	}
	return nil
}

// recorded asks a controller and writes down what it decided.
func (c *Controller) recorded(record *[]decision, l Lane, now int64) (Ticket, bool) {
	ticket, err := c.Enter(l, 1, now)
	d := decision{now, l, NumReasons}
	if err != nil {
		d.why = Reason(slices.Index(c.messages[l][:], err.(*incumbent.Error).Message))
	}
	*record = append(*record, d)
	return ticket, err == nil
}

// Whatever comes, at whatever rates, and however short memory becomes: the record shows
// no lane that refuses while one before it lets in.
func TestG40_TheRecordShowsTheOrder(t *testing.T) {
	refusals := 0
	rapid.Check(t, func(t *rapid.T) {
		c, err := New(Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		each := int64(rapid.IntRange(500, 2000).Draw(t, "service µs")) * ms / 1000
		var weights [NumLanes]int
		sum := 0
		for l := range weights {
			weights[l] = rapid.IntRange(0, 10).Draw(t, Lane(l).String())
			sum += weights[l]
		}
		times := rapid.IntRange(1, 6).Draw(t, "times what can be done")
		var record []decision
		var free int64
		var running []finish
		for now := int64(0); now < 800*ms && sum > 0; now += 1 + int64(rng.ExpFloat64()*float64(each)/float64(times)) {
			for len(running) > 0 && running[0].at <= now {
				running[0].ticket.Done(running[0].at)
				running = running[1:]
			}
			if rng.IntN(2000) == 0 {
				c.SetMemory(int64(rng.IntN(110)), 100)
			}
			pick, lane := rng.IntN(sum), 0
			for ; pick >= weights[lane]; lane++ {
				pick -= weights[lane]
			}
			if ticket, ok := c.recorded(&record, Lane(lane), now); ok {
				free = max(free, now) + each
				running = append(running, finish{free, ticket})
			} else {
				refusals++
			}
		}
		if err := checkOrder(record, int64(DefaultInterval)); err != nil {
			t.Fatal(err)
		}
	})
	if refusals == 0 {
		t.Error("nothing was refused at all")
	}
}

func TestCheckOrder(t *testing.T) {
	const in, wide = NumReasons, int64(DefaultInterval)
	for name, record := range map[string][]decision{
		"a claim while extensions wait too long":    {{0, Extensions, Delay}, {wide - 1, Claims, in}},
		"a login while small work is out of memory": {{5, Small, Memory}, {5, Logins, in}},
		"critical work": {{0, Critical, Memory}},
	} {
		if checkOrder(record, wide) == nil {
			t.Errorf("%s: nothing is found", name)
		}
	}
	fine := []decision{{0, Extensions, Delay}, {1, Critical, in}, {1, Extensions, in}, {2, Claims, Order}, {wide, Claims, in}, {wide, Reads, Delay}, {wide, Logins, in}}
	if err := checkOrder(fine, wide); err != nil {
		t.Error(err)
	}
}
