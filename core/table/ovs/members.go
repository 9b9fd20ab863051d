package ovs

import (
	"fmt"
	"slices"
)

// kinds is a set of kinds of JSON values.
type kinds uint16

const (
	anInteger kinds = 1 << NumberInteger
	aReal     kinds = 1 << NumberReal
	aText     kinds = 1 << Text
	anArray   kinds = 1 << Array
	anObject  kinds = 1 << Object
	aGarbled  kinds = 1 << Garbled
	aBoolean  kinds = 1<<True | 1<<False
	anID      kinds = 1 << 14 // a text that is an id
	optional  kinds = 1 << 15 // the member may be missing
)

// members takes an object apart, member by member, and keeps the first error, in
// the words that clients know.
type members struct {
	v      Value
	what   string // what the object is, in errors
	at, of int    // its place among others, from 1; of is 0 if there are none
	asked  [8]string
	names  int
	found  int
	err    *Error
}

func open(v Value, what string) members {
	m := members{v: v, what: what}
	if v.kind != Object {
		m.fail("Object expected.")
	}
	return m
}

func (m *members) fail(format string, args ...any) {
	if m.err != nil {
		return
	}
	what := m.what
	if m.of > 0 {
		what = fmt.Sprintf("%s %d of %d", what, m.at, m.of)
	}
	m.err = Errorf(SyntaxError, "Parsing %s failed: %s", what, fmt.Sprintf(format, args...))
	if m.v.kind == Object {
		m.err.Syntax = string(m.v.AppendSorted(nil))
	}
}

// member returns a member, false if it is not there or of none of the kinds.
func (m *members) member(name string, want kinds) (Value, bool) {
	m.asked[m.names] = name
	m.names++
	v, ok := m.v.Member(name)
	if !ok {
		if want&optional == 0 {
			m.fail("Required '%s' member is missing.", name)
		}
		return v, false
	}
	m.found++
	if want&(1<<v.kind) == 0 && (want&anID == 0 || v.kind != Text || !IsID(v.text)) {
		m.fail("Type mismatch for member '%s'.", name)
		return v, false
	}
	return v, true
}

// finish returns the first error, that of members that nobody asked for if there
// is no other.
func (m *members) finish() *Error {
	if m.err != nil || m.found == m.v.Members() {
		return m.err
	}
	var more []string
	for i := range m.v.Members() {
		if name, _ := m.v.MemberAt(i); !slices.Contains(m.asked[:m.names], name) {
			more = append(more, name)
		}
	}
	first := slices.Min(more)
	switch len(more) {
	case 1:
		m.fail("Member '%s' is present but not allowed here.", first)
	case 2:
		m.fail("Member '%s' and 1 other member are present but not allowed here.", first)
	default:
		m.fail("Member '%s' and %d other members are present but not allowed here.", first, len(more)-1)
	}
	return m.err
}
