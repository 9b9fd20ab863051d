package engine

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/watch"
)

// Leases is the hub's kind of topics about leases. Their events carry a
// *core.Change.
const Leases watch.Kind = 1

// changeBytes is what keeping a change costs besides its texts: the change and
// the lease's record, which history shares with the state in most cases.
const changeBytes = 256

// LeaseTopic is the topic that changes of a lease are published under.
func LeaseTopic(n incumbent.Name) watch.Topic {
	return watch.Topic{Kind: Leases, Scope: [2]string{n.Namespace, n.Model}, Name: n.Lease}
}

// eventsOf turns changes of leases into events of the hub. Changes of sessions
// reach their clients through the leader's clock.
func eventsOf(changes []core.Change) []*watch.Event {
	n := 0
	for i := range changes {
		if changes[i].Lease != nil {
			n++
		}
	}
	// One array for all: history drops them together, as it does the changes.
	made, topics := make([]watch.Event, n), make([]watch.Topic, n)
	events := make([]*watch.Event, 0, n)
	for i := range changes {
		c := &changes[i]
		if c.Lease == nil {
			continue
		}
		k := len(events)
		topics[k] = LeaseTopic(c.Lease.Name)
		made[k] = watch.Event{Index: c.Index, Topics: topics[k : k+1 : k+1], Payload: c, Size: sizeOf(c.Lease)}
		events = append(events, &made[k])
	}
	return events
}

func sizeOf(l *core.Lease) int {
	return changeBytes + len(l.Name.Lease) + len(l.Holder) + len(l.Origin.Address)
}
