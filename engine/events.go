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

// sharedFrom is how many further topics of a change are shared with others that have the
// same slice: fewer cost as little, and are found faster.
const sharedFrom = 64

// eventsOf turns changes into events of the hub. What changes have in common is kept once.
func eventsOf(changes []core.Change) []*watch.Event {
	n, more := 0, 0
	for i := range changes {
		if c := &changes[i]; told(c) {
			n++
			if also := len(c.Family.Also); also < sharedFrom {
				more += also
			}
		}
	}
	// One array for all: history drops them together, as it does the changes.
	made, topics := make([]watch.Event, n), make([]watch.Topic, 0, n+more)
	events := make([]*watch.Event, 0, n)
	var shared sharings
	for i := range changes {
		c := &changes[i]
		if !told(c) {
			continue
		}
		k, from := len(events), len(topics)
		topics = append(topics, FamilyTopic(c.Family.Family, c.Family.Topic))
		made[k] = watch.Event{Index: c.Index, Payload: c, Size: changeBytes + c.Family.Size}
		if len(c.Family.Also) >= sharedFrom {
			made[k].Shared = shared.of(c.Family)
		} else {
			topics = appendFurther(topics, c.Family)
			made[k].Size += alsoBytes * len(c.Family.Also)
		}
		made[k].Topics = topics[from:len(topics):len(topics)]
		events = append(events, &made[k])
	}
	return events
}

// appendFurther appends the further topics of a change.
func appendFurther(list []watch.Topic, c *core.FamilyChange) []watch.Topic {
	for _, t := range c.Also {
		list = append(list, FamilyTopic(c.Family, t))
	}
	return list
}

// sharings are the shared topics of the changes of a batch.
type sharings map[sharing]*watch.Shared

type sharing struct {
	family wire.Number
	first  *core.Topic // of the slice
	topics int
}

// of are the further topics of a change, of which there are some.
func (s *sharings) of(c *core.FamilyChange) *watch.Shared {
	key := sharing{c.Family, &c.Also[0], len(c.Also)}
	if (*s)[key] == nil {
		if *s == nil {
			*s = sharings{}
		}
		(*s)[key] = watch.NewShared(appendFurther(make([]watch.Topic, 0, len(c.Also)), c), alsoBytes*len(c.Also))
	}
	return (*s)[key]
}
