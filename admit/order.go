package admit

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
)

// Decision is what became of one request: one line of a record of admission.
type Decision struct {
	At   int64 // as the caller of Enter gave it
	Lane Lane
	Why  Reason // it was refused for; NumReasons: it was let in
}

// ReasonOf returns why a lane refused, given the error of [Controller.EnterFor];
// NumReasons: it did not.
func ReasonOf(l Lane, err error) Reason {
	if e, is := errors.AsType[*incumbent.Error](err); is && e.Kind == incumbent.Overloaded {
		for why := range NumReasons {
			if e.Message == message(l, why) {
				return why
			}
		}
	}
	return NumReasons
}

// Record checks the record of one member's decisions, in order of time, for guarantee
// 40: from the moment a lane refuses for want of room no lane before it lets anything
// in for an interval; nothing is let in at the very moment at which a lane behind it
// refuses for whatever reason, but for a client's having more than its share; and the
// last lane refuses nothing. The zero value is at the beginning of a record.
type Record struct {
	shut [numRanks]int64
	n    int
}

// Next takes the next decision of a record whose lanes are shut for an interval (in
// nanoseconds, [Limits].Interval), and returns an error if it breaks the order.
func (o *Record) Next(d Decision, interval int64) error {
	rank, n := rankOf[d.Lane], o.n
	o.n++
	switch {
	case d.Why == NumReasons:
		for r := rank + 1; r < numRanks; r++ {
			if o.shut[r] > d.At {
				return fmt.Errorf("decision %d: %s is let in at %d, while rank %d refuses until %d", n, d.Lane, d.At, r, o.shut[r])
			}
		}
	case rank == numRanks-1:
		return fmt.Errorf("decision %d: %s is refused for %s", n, d.Lane, d.Why)
	case d.Why == Share: // says nothing of others
	case d.Why == Delay:
		o.shut[rank] = max(o.shut[rank], d.At+interval)
	default:
		o.shut[rank] = max(o.shut[rank], d.At+1)
	}
	return nil
}

// Rank is where the lane stands in the order of refusal: lanes of one rank are refused
// alike, those of a lower one before. [Controller.Pressure] is a rank.
func (l Lane) Rank() int { return rankOf[l] }

// observedOrder counts what was let in although a lane behind it had refused for want of room
// between half an interval and a whole one before. The order is kept by what shuts ranks, and
// looked at here by what was done; [Record] does so where all decisions are kept. In the first
// half of an interval callers that read the clock before may overtake each other.
//
// Time is divided into quarters of the interval, and each rank remembers in which of the last
// four it has refused: however often it goes on to do so, a refusal three quarters ago is
// still known.
type observedOrder struct {
	quarters [numRanks][4]atomic.Int64 // that number is where it refused in it, 0: it did not
	broken   atomic.Uint64
}

// quarter numbers the quarters of intervals, from 4 on, so that none is 0 or before it.
func quarter(now int64, limits *Limits) int64 { return now/max(int64(limits.Interval)/4, 1) + 4 }

func (o *observedOrder) refused(rank int, now int64, limits *Limits) {
	q := quarter(now, limits)
	if at := &o.quarters[rank][q%4]; at.Load() != q { // most refusals come in a quarter that is known
		at.Store(q)
	}
}

func (o *observedOrder) letIn(rank int, now int64, limits *Limits) {
	q := quarter(now, limits) - 3
	for r := rank + 1; r < numRanks; r++ {
		if o.quarters[r][q%4].Load() == q {
			o.broken.Add(1)
			return
		}
	}
}
