package ovsdb

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent/histogram"
)

// bounds of the durations of transactions, in seconds.
var bounds = []float64{.001, .0025, .01, .025, .05, .1, .25, 1, 2.5, 10, 60}

// counts are the door's numbers. All are written from any goroutine.
type counts struct {
	connections  atomic.Int64  // accepted and not closed
	monitors     atomic.Int64  // that are told of changes
	refused      atomic.Uint64 // connections that were not let in, or ended, for want of room
	noTLS        atomic.Uint64
	unknown      atomic.Uint64 // connections of who may not connect
	malformed    atomic.Uint64 // connections that ended because of what came on them
	silent       atomic.Uint64 // connections that ended because nothing came
	slow         atomic.Uint64 // connections that were cut off because they did not read
	probes       atomic.Uint64
	updates      atomic.Uint64 // told to monitors
	encoded      atomic.Uint64 // different ones among them
	resumed      atomic.Uint64 // monitors that were told what they had missed
	transactions [numOutcomes]atomic.Uint64
	took         *histogram.Durations // transactions that did not wait for a change
	requests     []atomic.Uint64      // by the number of their method; the first are of none
}

func (n *counts) init() {
	n.requests = make([]atomic.Uint64, len(methods)+1)
	n.took = histogram.New(bounds)
}

// transacted counts a transaction.
func (n *counts) transacted(t *txn, how outcome, now time.Time) {
	n.transactions[how].Add(1)
	if !t.waited && how != given {
		n.took.Observe(now.Sub(t.came))
	}
}

// asked counts a request.
func (n *counts) asked(m *method) {
	if m == nil {
		n.requests[0].Add(1)
		return
	}
	n.requests[m.number].Add(1)
}

// outcome is how a transaction ended.
type outcome uint8

const (
	committed outcome = iota // through the log
	idle                     // it changed nothing, and was answered by a confirmed state
	failed                   // an operation failed, or what was to be held did not
	unsettled                // it is not known, or nobody led
	given                    // the client gave it up
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"committed", "idle", "failed", "unsettled", "canceled"}

// Count is how often something of a closed set was so.
type Count struct {
	Name string
	N    uint64
}

// Stats are the door's numbers; labels are from closed sets and all there from the
// start.
type Stats struct {
	Connections  int              // accepted and not closed
	Monitors     int              // that are told of changes
	Refused      uint64           // connections that were not let in for want of room, or ended as their client may not have another monitor
	NoTLS        uint64           // handshakes that did not succeed
	Unknown      uint64           // connections of who may not connect
	Malformed    uint64           // connections that ended because of what came on them
	Silent       uint64           // connections that ended because nothing came
	Slow         uint64           // connections that were cut off because they did not read
	Probes       uint64           // requests for an echo
	Updates      uint64           // told to monitors
	Encoded      uint64           // different ones among them
	Resumed      uint64           // monitors that were told what they had missed
	Transactions []Count          // by how they ended
	Took         histogram.Counts // transactions that were answered and did not wait for a change
	Requests     []Count          // by method
}

// PartialBytes is how much connections have beyond a little each of messages that have
// not come whole, and of those that are not answered.
func (d *Door) PartialBytes() int64 { return d.underWay.Taken() }

// UnsentBytes is how much waits for readers, beyond a little of each.
func (d *Door) UnsentBytes() int64 { return d.unsent.room.Taken() }

// WishBytes is what the conditions of monitors cost.
func (d *Door) WishBytes() int64 { return d.wishes.Taken() }

// Stats returns the numbers of the moment.
func (d *Door) Stats() Stats {
	n := &d.counts
	s := Stats{
		Connections: d.Connections(), Monitors: int(n.monitors.Load()), Took: n.took.Counts(), Refused: n.refused.Load(), NoTLS: n.noTLS.Load(), Unknown: n.unknown.Load(), Malformed: n.malformed.Load(),
		Silent: n.silent.Load(), Slow: n.slow.Load(), Probes: n.probes.Load(), Updates: n.updates.Load(), Encoded: n.encoded.Load(), Resumed: n.resumed.Load(),
		Requests: []Count{{"unknown", n.requests[0].Load()}},
	}
	for i := range n.transactions {
		s.Transactions = append(s.Transactions, Count{outcomeNames[i], n.transactions[i].Load()})
	}
	for name, m := range methods {
		s.Requests = append(s.Requests, Count{name, n.requests[m.number].Load()})
	}
	slices.SortFunc(s.Requests[1:], func(a, b Count) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return s
}
