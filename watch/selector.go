package watch

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// Kind tells families of topics apart: leases, keys, services, tables …
// Who publishes gives the numbers.
type Kind uint8

// Topic is something one can watch: a name within a scope of a kind, such as
// lease "db/0" in namespace and model.
type Topic struct {
	Kind  Kind
	Scope [2]string
	Name  string
}

// Field is a field of the records that changes of a kind are about: 0 to
// [MaxField]. Who publishes gives the numbers.
type Field uint8

// MaxField is the greatest number of a field.
const MaxField = 63

// Fields is a set of fields.
type Fields uint64

// With returns the set with a field.
func (s Fields) With(f Field) Fields { return s | 1<<f }

// Has reports whether a field is in the set.
func (s Fields) Has(f Field) bool { return s>>f&1 == 1 }

// Differences says what differs between the record that was and the one that is, of
// the events that a hub is given. It is asked while events are published, and only
// of kinds that somebody selects by field or value.
type Differences interface {
	// Changed returns the fields that differ.
	Changed(e *Event) Fields
	// Values appends to a list what a field was and is, as far as there was and is a
	// record: of each record, where an event is about several.
	Values(e *Event, f Field, list []string) []string
	// PartsChanged returns what reports whether one of some parts of fields differs. It is
	// called once for an event that is looked at, by however many selectors with parts, so
	// that what has to be decoded is decoded once. Nobody keeps what it returns, nor, then,
	// what it has decoded: the history costs no more for it.
	PartsChanged(e *Event) func(Parts) bool
}

// Parts are parts of fields: of any record that an event is about, or only of those of
// which a field was or is a value.
type Parts struct {
	Names string // what they mean says who publishes
	Where bool   // only of records of which Field was or is Value
	Field Field
	Value string
}

// Selector picks events by their topics, by the fields that changed, and by what a
// field was or is. Selectors are comparable.
type Selector struct {
	match  match
	topic  Topic
	to     string // of a range: names before it; "": it has no end
	fields Fields // of which one has changed, or of parts; neither: whether or not
	parts  string // of fields; "": none
	where  bool   // field was or is value
	field  Field
	value  string
}

type match uint8

const (
	matchExact match = iota
	matchRange
	matchScope
	matchKind
)

// Exact selects the events of one topic.
func Exact(t Topic) Selector { return Selector{match: matchExact, topic: t} }

// Range selects the topics of a scope whose names are from or greater, and less than
// to; "": there is no end.
func Range(k Kind, scope [2]string, from, to string) Selector {
	if from == "" && to == "" {
		return Scope(k, scope)
	}
	return Selector{match: matchRange, topic: Topic{k, scope, from}, to: to}
}

// Prefix selects the topics of a scope whose name begins with prefix.
func Prefix(k Kind, scope [2]string, prefix string) Selector {
	return Range(k, scope, prefix, Behind(prefix))
}

// Behind returns the least name that is greater than all that begin with prefix; "":
// there is none.
func Behind(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}

// Scope selects all topics of a scope.
func Scope(k Kind, scope [2]string) Selector {
	return Selector{match: matchScope, topic: Topic{Kind: k, Scope: scope}}
}

// All selects all topics of a kind.
func All(k Kind) Selector { return Selector{match: matchKind, topic: Topic{Kind: k}} }

// Changing returns the selector of those events in which one of the fields changed;
// no fields: of all.
func (s Selector) Changing(fields Fields) Selector {
	s.fields = fields
	return s
}

// ChangingParts returns the selector that picks, besides what one with fields does, also
// events in which one of some parts of fields changed: see [Differences].
func (s Selector) ChangingParts(parts string) Selector {
	s.parts = parts
	return s
}

// Where returns the selector of those events of which the field was or is value; if the
// selector names parts, of those in which they changed in a record with the value. A hub
// finds who selects so by the value: how many values are asked for costs a publish
// nothing.
func (s Selector) Where(f Field, value string) Selector {
	s.where, s.field, s.value = true, f, value
	return s
}

// conditional reports whether it looks at more than topics.
func (s *Selector) conditional() bool { return s.where || s.fields != 0 || s.parts != "" }

// bounds are the names it picks within its scope or kind.
func (s *Selector) bounds() (from, to string) {
	switch s.match {
	case matchExact:
		return s.topic.Name, s.topic.Name + "\x00"
	case matchRange:
		return s.topic.Name, s.to
	}
	return "", ""
}

// has reports whether a name is in its bounds.
func (s *Selector) has(name string) bool {
	from, to := s.bounds()
	return name >= from && (to == "" || name < to)
}

// Matches reports whether the selector picks the topic, of an event that satisfies its
// conditions.
func (s *Selector) Matches(t Topic) bool {
	switch {
	case t.Kind != s.topic.Kind:
		return false
	case s.match == matchKind:
		return true
	case t.Scope != s.topic.Scope:
		return false
	case s.match == matchExact:
		return t.Name == s.topic.Name
	}
	return s.has(t.Name)
}

// Picks reports whether the selector picks the event. d is asked for its conditions;
// without one, no event satisfies any.
func (s *Selector) Picks(d Differences, e *Event) bool {
	if !slices.ContainsFunc(e.Topics, s.Matches) && !e.Shared.some(s) {
		return false
	}
	x := difference{of: d, event: e}
	return x.satisfies(s)
}

// difference is an event while it is looked at, perhaps for many selectors: what
// changed is found out once.
type difference struct {
	of           Differences
	event        *Event
	changed      Fields
	known        bool
	partsChanged func(Parts) bool // nil: nobody has asked yet
	list         []string         // room for values
}

func (x *difference) satisfies(s *Selector) bool {
	return x.changing(s) && (!s.where || x.hasValue(s.field, s.value))
}

// changing reports whether one of the fields or parts of a selector changed.
func (x *difference) changing(s *Selector) bool {
	if s.fields == 0 && s.parts == "" {
		return true
	}
	if !x.known && x.of != nil {
		x.changed = x.of.Changed(x.event)
	}
	x.known = true
	return x.changed&s.fields != 0 || x.changed != 0 && s.parts != "" && x.changedIn(Parts{s.parts, s.where, s.field, s.value})
}

func (x *difference) changedIn(p Parts) bool {
	if x.partsChanged == nil {
		x.partsChanged = x.of.PartsChanged(x.event)
	}
	return x.partsChanged(p)
}

func (x *difference) hasValue(f Field, value string) bool {
	return slices.Contains(x.values(f), value)
}

// values are good until it is called again.
func (x *difference) values(f Field) []string {
	if x.of != nil {
		clear(x.list)
		x.list = x.of.Values(x.event, f, x.list[:0])
	}
	return x.list
}

// validate refuses what no event can satisfy, and fields that there cannot be.
func (s *Selector) validate() error {
	if s.field > MaxField {
		return incumbent.Errorf(incumbent.Invalid, "field %d is over %d", s.field, MaxField)
	}
	if s.match == matchRange && s.to != "" && s.topic.Name >= s.to {
		return incumbent.Errorf(incumbent.Invalid, "the range from %q to %q has no names", s.topic.Name, s.to)
	}
	return nil
}
