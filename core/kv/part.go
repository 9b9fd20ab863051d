package kv

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// A value that is JSON has parts, named by JSON pointers (RFC 6901) without the first
// slash: "charm/url" is the member url of the member charm. They are looked at where a
// change is published, and decide nothing but who is told of it.

// Limits of parts.
const (
	MaxPartBytes   = 1024     // of a part's name
	MaxPartedBytes = 64 << 10 // of a value; the parts of a larger one change whenever it does
)

// ValidatePart implements [core.Parted]: of values alone.
func (Family) ValidatePart(field int, name string) error {
	switch {
	case field != fieldValue:
		return incumbent.Errorf(incumbent.Invalid, "only a value has parts")
	case len(name) > MaxPartBytes:
		return incumbent.Errorf(incumbent.Invalid, "the name of a part has %d bytes; %d are allowed", len(name), MaxPartBytes)
	case !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return incumbent.Errorf(incumbent.Invalid, "the name of a part is UTF-8 without zero bytes")
	}
	return nil
}

// PartsChanged implements [core.Parted].
func (f Family) PartsChanged(before, after any, parts []core.Part) bool {
	return f.Compare(before, after)(parts)
}

// Compare returns PartsChanged of two records, which may be called any number of times:
// both values are decoded and compared here, once, and a call only finds its parts in them.
func (Family) Compare(before, after any) func(parts []core.Part) bool {
	o, _ := before.(*Entry)
	n, _ := after.(*Entry)
	if o == n || o != nil && n != nil && bytes.Equal(o.Value, n.Value) {
		return func([]core.Part) bool { return false }
	}
	was, small := o.document()
	is, alsoSmall := n.document()
	if !small || !alsoSmall {
		return func([]core.Part) bool { return true }
	}
	_, where := compareValues(was, is)
	return func(parts []core.Part) bool {
		return slices.ContainsFunc(parts, func(p core.Part) bool { return where.has(was, is, p.Name) })
	}
}

// document is what a value says as JSON; nil: it is none. small: it could be looked at.
func (e *Entry) document() (doc any, small bool) {
	if e == nil {
		return nil, true
	}
	if len(e.Value) > MaxPartedBytes {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(e.Value))
	d.UseNumber() // 2^53 and the number after it are not the same
	if err := d.Decode(&doc); err != nil || d.More() {
		return nil, true
	}
	return doc, true
}

// difference is between two values that have members, objects or arrays both, and are not
// the same: the members that are so in turn, by their names. nil: there is none. It says
// of each part whether it differs, however large that is, and of many within each other.
type difference map[string]difference

// compareValues reports whether two values are the same, and where they differ if both have
// members.
func compareValues(was, is any) (same bool, where difference) {
	if size(was) < 0 || size(is) < 0 {
		return was == is, nil
	}
	_, object := was.(map[string]any)
	_, too := is.(map[string]any)
	same = object == too && size(was) == size(is)
	for name, x := range members(was) {
		y, there := member(is, name)
		if !there {
			same = false
			continue
		}
		alike, below := compareValues(x, y)
		same = same && alike
		if below == nil {
			continue
		}
		if where == nil {
			where = difference{}
		}
		where[name] = below
	}
	if !same && where == nil {
		where = difference{}
	}
	return same, where
}

// has reports whether a part differs of two documents, between which the difference is.
func (d difference) has(was, is any, part string) bool {
	had, has := true, true
	for name := range strings.SplitSeq(part, "/") {
		if strings.Contains(name, "~") {
			name = unescape.Replace(name)
		}
		was, had = member(was, name)
		is, has = member(is, name)
		d = d[name]
		if !had && !has {
			return false
		}
	}
	switch {
	case had != has:
		return true
	case size(was) >= 0 && size(is) >= 0:
		return d != nil
	}
	return was != is
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// size is how many members a value has; -1: it can have none.
func size(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return len(v)
	case []any:
		return len(v)
	}
	return -1
}

// members are those of an object, and of an array by their indexes.
func members(v any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		switch v := v.(type) {
		case map[string]any:
			for name, x := range v {
				if !yield(name, x) {
					return
				}
			}
		case []any:
			for i, x := range v {
				if !yield(strconv.Itoa(i), x) {
					return
				}
			}
		}
	}
}

// member finds the member of a name, which of an array is an index as RFC 6901 has it: in
// one form only.
func member(v any, name string) (x any, there bool) {
	switch v := v.(type) {
	case map[string]any:
		x, there = v[name]
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(v) || name[0] == '+' || name[0] == '-' || name[0] == '0' && len(name) > 1 {
			return nil, false
		}
		return v[i], true
	}
	return x, there
}
