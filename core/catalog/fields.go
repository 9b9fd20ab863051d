package catalog

import (
	"slices"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Numbers of the fields that watchers select changes by.
const (
	fieldNode    = iota
	fieldService // its name
	fieldStatus  // of a check
	fieldOutput  // of a check
	fieldAddress // of a node or a service
	fieldPort
	fieldTags // joined by commas
	fieldMeta // key=value, joined by commas
	fieldOther
	fieldMembership
)

var fieldNames = []string{"node", "service", "status", "output", "address", "port", "tags", "meta", "other", "membership"}

var _ core.Parted = Family{}

// Fields implements [core.Fielded].
func (Family) Fields() []string { return fieldNames }

// Changed implements [core.Fielded].
func (f Family) Changed(before, after any) (changed uint64) {
	if before == nil || after == nil || renamed(before, after) {
		return 1<<len(fieldNames) - 1
	}
	for i := range fieldOther {
		o, _ := f.Text(before, i)
		if n, _ := f.Text(after, i); n != o {
			changed |= 1 << i
		}
	}
	if changed == 0 {
		changed = 1 << fieldOther
	}
	return changed
}

// renamed reports whether a service has another name, or a check is another service's, or
// that of another instance: it goes from those who watch the one and comes to those who
// watch the other.
func renamed(before, after any) bool {
	switch o := before.(type) {
	case *Service:
		n, is := after.(*Service)
		return is && !incumbent.Alike(o.Name, n.Name)
	case *Check:
		n, is := after.(*Check)
		return is && (!incumbent.Alike(o.ServiceName, n.ServiceName) || !incumbent.Alike(o.ServiceID, n.ServiceID))
	}
	return false
}

// Text implements [core.Fielded]. A record says nothing of what it does not have.
func (Family) Text(record any, field int) (text string, there bool) {
	switch r := record.(type) {
	case *Node:
		return r.text(field)
	case *Service:
		return r.text(field)
	case *Check:
		return r.text(field)
	case *Session:
		return r.Node, field == fieldNode
	}
	return "", false
}

func (n *Node) text(field int) (string, bool) {
	switch field {
	case fieldNode:
		return n.Name, true
	case fieldAddress:
		return n.Address, true
	case fieldMeta:
		return pairText(n.Meta), true
	}
	return "", false
}

func (s *Service) text(field int) (string, bool) {
	switch field {
	case fieldNode:
		return s.Node, true
	case fieldService:
		return s.Name, true
	case fieldAddress:
		return s.Address, true
	case fieldPort:
		return strconv.Itoa(int(s.Port)), true
	case fieldTags:
		return strings.Join(s.Tags, ","), true
	case fieldMeta:
		return pairText(s.Meta), true
	}
	return "", false
}

func (c *Check) text(field int) (string, bool) {
	switch field {
	case fieldNode:
		return c.Node, true
	case fieldService:
		return c.ServiceName, true
	case fieldStatus:
		return c.Status.String(), true
	case fieldOutput:
		return c.Output, true
	case fieldTags:
		return strings.Join(c.ServiceTags, ","), true
	}
	return "", false
}

// ValidatePart implements [core.Parted]: the parts of meta are its keys.
func (Family) ValidatePart(field int, name string) error {
	switch {
	case field != fieldMeta:
		return incumbent.Errorf(incumbent.Invalid, "only meta has parts")
	case len(name) > MaxPairKeyBytes || strings.Contains(name, "\x00"):
		return incumbent.Errorf(incumbent.Invalid, "%.100q cannot be a key of meta", name)
	}
	return nil
}

// PartsChanged implements [core.Parted].
func (Family) PartsChanged(before, after any, parts []core.Part) bool {
	was, is := metaOf(before), metaOf(after)
	return slices.ContainsFunc(parts, func(p core.Part) bool { return find(was, p.Name) != find(is, p.Name) })
}

func metaOf(record any) []Pair {
	switch r := record.(type) {
	case *Node:
		return r.Meta
	case *Service:
		return r.Meta
	}
	return nil
}

// find is the pair of a key; the zero Pair: there is none.
func find(pairs []Pair, key string) Pair {
	for _, p := range pairs {
		if p.Key == key {
			return p
		}
	}
	return Pair{}
}

func pairText(pairs []Pair) string {
	list := make([]string, 0, len(pairs))
	for _, p := range pairs {
		list = append(list, p.Key+"="+p.Value)
	}
	return strings.Join(list, ",")
}
