package kv

import (
	"bytes"
	"strconv"

	"github.com/incumbent-dev/incumbent/core"
)

// Numbers of the fields that watchers select changes by.
const (
	fieldValue = iota
	fieldFlags
	fieldLock // session, lock index, on end, delay; and the end of a lock's delay
	fieldMembership
)

const allFields = 1<<fieldValue | 1<<fieldFlags | 1<<fieldLock | 1<<fieldMembership

var _ core.Parted = Family{}

// Fields implements [core.Fielded].
func (Family) Fields() []string { return []string{"value", "flags", "lock", "membership"} }

// Changed implements [core.Fielded].
func (Family) Changed(before, after any) uint64 {
	o, _ := before.(*Entry)
	n, _ := after.(*Entry)
	switch {
	case o == n: // the end of a delay
		return 1 << fieldLock
	case o == nil || n == nil:
		return allFields
	}
	var changed uint64
	if !bytes.Equal(o.Value, n.Value) {
		changed |= 1 << fieldValue
	}
	if o.Flags != n.Flags {
		changed |= 1 << fieldFlags
	}
	if o.Session != n.Session || o.LockIndex != n.LockIndex || o.OnEnd != n.OnEnd || o.Delay != n.Delay {
		changed |= 1 << fieldLock
	}
	return changed
}

// Text implements [core.Fielded]. The lock's is the session.
func (Family) Text(record any, field int) (text string, there bool) {
	e, _ := record.(*Entry)
	if e == nil {
		return "", false
	}
	switch field {
	case fieldValue:
		return string(e.Value), true
	case fieldFlags:
		return strconv.FormatUint(e.Flags, 10), true
	case fieldMembership:
		return "", true
	}
	return e.Session.String(), true
}
