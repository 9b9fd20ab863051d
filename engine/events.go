package engine

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
	"github.com/incumbent-dev/incumbent/watch"
)

// Leases is the hub's kind of topics about leases. Their events carry a
// *core.Change. The kinds of families are their numbers.
const Leases watch.Kind = 1

// changeBytes is what keeping a change costs besides its texts: the change and
// the lease's record, which history shares with the state in most cases.
const changeBytes = 256

// LeaseTopic is the topic that changes of a lease are published under.
func LeaseTopic(n incumbent.Name) watch.Topic {
	return watch.Topic{Kind: Leases, Scope: [2]string{n.Namespace, n.Model}, Name: n.Lease}
}

// FamilyTopic is the topic that changes of a family are published under. Their
// events carry a *core.Change.
func FamilyTopic(family wire.Number, t core.Topic) watch.Topic {
	return watch.Topic{Kind: watch.Kind(family), Scope: t.Scope, Name: t.Name}
}

// told reports whether watchers are told of a change. Those of sessions reach
// their clients through the leader's clock.
func told(c *core.Change) bool {
	return c.Lease != nil || c.Family != nil && c.Family.Told()
}

// topicOf is the topic and the size of a change that watchers are told of.
func topicOf(c *core.Change) (t watch.Topic, size int) {
	if c.Lease != nil {
		return LeaseTopic(c.Lease.Name), sizeOf(c.Lease)
	}
	return FamilyTopic(c.Family.Family, c.Family.Topic), changeBytes + c.Family.Size
}

// eventsOf turns changes into events of the hub.
func eventsOf(changes []core.Change) []*watch.Event {
	n := 0
	for i := range changes {
		if told(&changes[i]) {
			n++
		}
	}
	// One array for all: history drops them together, as it does the changes.
	made, topics := make([]watch.Event, n), make([]watch.Topic, n)
	events := make([]*watch.Event, 0, n)
	for i := range changes {
		c := &changes[i]
		if !told(c) {
			continue
		}
		topic, size := topicOf(c)
		k := len(events)
		topics[k] = topic
		made[k] = watch.Event{Index: c.Index, Topics: topics[k : k+1 : k+1], Payload: c, Size: size}
		events = append(events, &made[k])
	}
	return events
}

func sizeOf(l *core.Lease) int {
	n := changeBytes + len(l.Name.Lease) + len(l.Holder) + len(l.Origin.Address)
	for _, p := range l.Pins {
		n += len(p)
	}
	return n
}
