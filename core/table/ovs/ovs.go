// Package ovs has the values of an OVSDB database (RFC 7047, and what today's
// servers and clients have added) and what is computed from them: schemas and
// types, atoms and datums with their JSON, conditions, mutations, operations of
// transactions parsed and checked against a schema, their binary form for the log
// and the snapshot, and the differences that monitors send. It keeps no state and
// executes nothing: core/table does, on rows of its own.
//
// *Invariants*: a [Datum] is sorted by key, has no key twice and all its atoms are
// of the kinds of its column's type; one that is shared never changes. Parsing is
// done once, at the member that was asked; what it made means the same on every
// member whatever their clocks and random numbers, for all new uuids are in it.
package ovs

import (
	"encoding/binary"
	"encoding/hex"
)

// Limits of what is parsed and decoded.
const (
	MaxDepth      = 1000    // arrays and objects in one another, in JSON
	MaxValues     = 5000000 // in one JSON text: each takes 56 bytes of memory, and its text perhaps two
	MaxTables     = 4096    // of a schema
	MaxColumns    = 4096    // of a table
	MaxOperations = 1 << 20 // of a transaction
	MaxConditions = 100     // of an operation, and as many mutations: each is work for each row that is looked at
	MaxElements   = 1 << 24 // of a datum; the size of what holds it bounds it sooner
)

// UUID names a row, or one of its versions.
type UUID [16]byte

// IsZero reports whether u is the default of a column of uuids.
func (u UUID) IsZero() bool { return u == UUID{} }

func (u UUID) String() string { return string(u.AppendText(nil)) }

// AppendText appends the 36 characters of u.
func (u UUID) AppendText(b []byte) []byte {
	var t [36]byte
	hex.Encode(t[:8], u[:4])
	hex.Encode(t[9:13], u[4:6])
	hex.Encode(t[14:18], u[6:8])
	hex.Encode(t[19:23], u[8:10])
	hex.Encode(t[24:], u[10:])
	t[8], t[13], t[18], t[23] = '-', '-', '-', '-'
	return append(b, t[:]...)
}

// ParseUUID reads the 36 characters of a uuid, in either case.
func ParseUUID(s string) (u UUID, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	at := 0
	for i := 0; i < len(s); {
		if s[i] == '-' && (i == 8 || i == 13 || i == 18 || i == 23) {
			i++
			continue
		}
		hi, lo := unhex(s[i]), unhex(s[i+1])
		if hi > 15 || lo > 15 {
			return UUID{}, false
		}
		u[at] = hi<<4 | lo
		at++
		i += 2
	}
	return u, true
}

func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

func (u UUID) words() (hi, lo uint64) {
	return binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
}

// IsID reports whether s may name a column, a table, a row of a transaction or a
// lock: a letter or _, then letters, digits and _.
func IsID(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
