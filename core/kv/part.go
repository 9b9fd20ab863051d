package kv

import (
	"bytes"
	"encoding/json"
	"reflect"
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
func (Family) PartsChanged(before, after any, parts []core.Part) bool {
	o, _ := before.(*Entry)
	n, _ := after.(*Entry)
	if o == n || o != nil && n != nil && bytes.Equal(o.Value, n.Value) {
		return false
	}
	was, small := o.document()
	is, alsoSmall := n.document()
	if !small || !alsoSmall {
		return true
	}
	return slices.ContainsFunc(parts, func(p core.Part) bool {
		x, had := partOf(was, p.Name)
		y, has := partOf(is, p.Name)
		return had != has || !reflect.DeepEqual(x, y)
	})
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

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// partOf finds a part of a document.
func partOf(doc any, name string) (part any, there bool) {
	for token := range strings.SplitSeq(name, "/") {
		switch d := doc.(type) {
		case map[string]any:
			if doc, there = d[unescape.Replace(token)]; !there {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(d) {
				return nil, false
			}
			doc = d[i]
		default:
			return nil, false
		}
	}
	return doc, true
}
