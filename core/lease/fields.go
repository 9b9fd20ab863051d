package lease

import (
	"slices"
	"strconv"
	"strings"
)

// Fields of leases, by which watchers select changes. A lease that was never claimed,
// or is forgotten, is one that is free.
const (
	FieldHolder   = iota // holder, token and session
	FieldTTL             // in milliseconds
	FieldPins            // joined by commas
	FieldOffered         // "true", "false"
	FieldCritical        // "true", "false"
	FieldRevoking        // "true", "false"
	FieldQueue           // how many wait
)

// Fields implements [core.Fielded].
func (Family) Fields() []string {
	return []string{"holder", "ttl", "pins", "offered", "critical", "revoking", "queue"}
}

// noLease stands for a lease of which there is no record.
var noLease = &Lease{seldom: nothingSeldom, Origin: noOrigin}

// recordOf returns a record of a change, noLease if there is none.
func recordOf(record any) *Lease {
	if l, _ := record.(*Lease); l != nil {
		return l
	}
	return noLease
}

// Changed implements [core.Fielded].
func (Family) Changed(before, after any) (fields uint64) {
	o, n := recordOf(before), recordOf(after)
	for f, differs := range [...]bool{
		FieldHolder:   o.Holder != n.Holder || o.Token != n.Token || o.Session != n.Session,
		FieldTTL:      o.TTL != n.TTL,
		FieldPins:     !slices.Equal(o.Pins, n.Pins),
		FieldOffered:  o.Offered != n.Offered,
		FieldCritical: o.Critical != n.Critical,
		FieldRevoking: o.Revoking != n.Revoking,
		FieldQueue:    o.Waiting != n.Waiting,
	} {
		if differs {
			fields |= 1 << f
		}
	}
	return fields
}

// Text implements [core.Fielded]. That of a lease without a record is there, too.
func (Family) Text(record any, field int) (string, bool) {
	l := recordOf(record)
	switch field {
	case FieldHolder:
		return l.Holder, true
	case FieldTTL:
		return strconv.FormatInt(l.TTL.Milliseconds(), 10), true
	case FieldPins:
		return strings.Join(l.Pins, ","), true
	case FieldOffered:
		return strconv.FormatBool(l.Offered), true
	case FieldCritical:
		return strconv.FormatBool(l.Critical), true
	case FieldRevoking:
		return strconv.FormatBool(l.Revoking), true
	}
	return strconv.Itoa(int(l.Waiting)), true
}
