package engine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
	"github.com/incumbent-dev/incumbent/watch"
)

// Changing returns the selector of those events in which one of the fields, or parts of
// fields, of a kind changed that names name ("value", "value/charm/url"); Invalid if
// there is none of a name.
func Changing(s watch.Selector, kind watch.Kind, names []string) (watch.Selector, error) {
	known := fieldsOf(kind)
	var fields watch.Fields
	var parts []string
	for _, name := range names {
		field, part, parted := strings.Cut(name, "/")
		i := slices.Index(known, field)
		if i < 0 {
			return s, incumbent.Errorf(incumbent.Invalid, "%.100q is no field; there are %s", name, strings.Join(known, ", "))
		}
		if !parted {
			fields = fields.With(watch.Field(i))
			continue
		}
		f, _ := newDifferences()[wire.Number(kind)].(core.Parted)
		if f == nil {
			return s, incumbent.Errorf(incumbent.Invalid, "%.100q: %s has no parts", name, field)
		}
		if err := f.ValidatePart(i, part); err != nil {
			return s, err
		}
		parts = append(parts, strconv.Itoa(i)+"/"+part)
	}
	slices.Sort(parts) // whoever asks for the same is told together
	return s.Changing(fields).ChangingParts(strings.Join(slices.Compact(parts), partsEnd)), nil
}

// partsEnd stands between parts, none of which has it.
const partsEnd = "\x00"

func fieldsOf(kind watch.Kind) []string {
	if f := newDifferences()[wire.Number(kind)]; f != nil {
		return f.Fields()
	}
	return nil
}

// differences tell the hub what changed in the changes that its events carry: the
// families that have fields, by number.
type differences map[wire.Number]core.Fielded

var _ watch.Differences = differences{}

func newDifferences() differences {
	d := differences{}
	for _, f := range families() {
		if f, ok := f.(core.Fielded); ok {
			d[f.Number()] = f
		}
	}
	return d
}

// Changed implements [watch.Differences].
func (d differences) Changed(e *watch.Event) watch.Fields {
	c, ok := e.Payload.(*core.Change)
	if !ok || c.Family == nil {
		return 0
	}
	if f := d[c.Family.Family]; f != nil {
		return watch.Fields(f.Changed(c.Family.Before, c.Family.After))
	}
	return 0
}

// Values implements [watch.Differences].
func (d differences) Values(e *watch.Event, field watch.Field, list []string) []string {
	c, ok := e.Payload.(*core.Change)
	if !ok || c.Family == nil {
		return list
	}
	f := d[c.Family.Family]
	if f == nil {
		return list
	}
	if p, ok := f.(core.Plural); ok {
		return p.Texts(list, c.Family.After, int(field))
	}
	for _, record := range [...]any{c.Family.Before, c.Family.After} {
		if text, there := f.Text(record, int(field)); there {
			list = append(list, text)
		}
	}
	return list
}

// comparing is a family that has work with the parts of a change that is the same whoever
// asks about them.
type comparing interface {
	// Compare does that work, and returns [core.Parted.PartsChanged] of two records.
	Compare(before, after any) func(parts []core.Part) bool
}

// PartsChanged implements [watch.Differences]: of what [Changing] has put together.
func (d differences) PartsChanged(e *watch.Event) func(watch.Parts) bool {
	none := func(watch.Parts) bool { return false }
	c, ok := e.Payload.(*core.Change)
	if !ok || c.Family == nil {
		return none
	}
	f, ok := d[c.Family.Family].(core.Parted)
	if !ok {
		return none
	}
	before, after := c.Family.Before, c.Family.After
	changed := func(list []core.Part) bool { return f.PartsChanged(before, after, list) }
	if f, ok := f.(comparing); ok {
		changed = f.Compare(before, after)
	}
	plural, _ := f.(core.Plural)
	var list []core.Part // reused
	return func(of watch.Parts) bool {
		list = appendParts(list[:0], of.Names)
		if plural != nil && of.Where {
			return plural.PartsChangedOf(after, list, int(of.Field), of.Value)
		}
		return changed(list)
	}
}

// appendParts takes names apart that [Changing] has put together.
func appendParts(list []core.Part, names string) []core.Part {
	for p := range strings.SplitSeq(names, partsEnd) {
		field, name, _ := strings.Cut(p, "/")
		i, _ := strconv.Atoi(field) // it is ours
		list = append(list, core.Part{Field: i, Name: name})
	}
	return list
}
