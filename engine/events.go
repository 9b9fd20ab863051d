package engine

import (
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
	"github.com/incumbent-dev/incumbent/watch"
)

// changeBytes is what keeping a change costs besides what its family says.
const changeBytes = 256

// alsoBytes is what each further topic of a change costs.
const alsoBytes = 128

// FamilyTopic is the topic that changes of a family are published under: its number is
// the kind. Their events carry a *core.Change.
func FamilyTopic(family wire.Number, t core.Topic) watch.Topic {
	return watch.Topic{Kind: watch.Kind(family), Scope: t.Scope, Name: t.Name}
}

// told reports whether watchers are told of a change. Those of sessions reach
// their clients through the leader's clock.
func told(c *core.Change) bool {
	return c.Family != nil && c.Family.Told()
}

// appendTopics appends the topics of a change that watchers are told of.
func appendTopics(list []watch.Topic, c *core.Change) []watch.Topic {
	list = append(list, FamilyTopic(c.Family.Family, c.Family.Topic))
	for _, t := range c.Family.Also {
		list = append(list, FamilyTopic(c.Family.Family, t))
	}
	return list
}

// changeSize is what keeping such a change costs.
func changeSize(c *core.Change) int {
	return changeBytes + c.Family.Size + alsoBytes*len(c.Family.Also)
}

// eventsOf turns changes into events of the hub.
func eventsOf(changes []core.Change) []*watch.Event {
	n, more := 0, 0
	for i := range changes {
		if c := &changes[i]; told(c) {
			n++
			more += len(c.Family.Also)
		}
	}
	// One array for all: history drops them together, as it does the changes.
	made, topics := make([]watch.Event, n), make([]watch.Topic, 0, n+more)
	events := make([]*watch.Event, 0, n)
	for i := range changes {
		c := &changes[i]
		if !told(c) {
			continue
		}
		k, from := len(events), len(topics)
		topics = appendTopics(topics, c)
		made[k] = watch.Event{Index: c.Index, Topics: topics[from:len(topics):len(topics)], Payload: c, Size: changeSize(c)}
		events = append(events, &made[k])
	}
	return events
}
