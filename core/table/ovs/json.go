package ovs

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ValueKind is that of a JSON value.
type ValueKind uint8

// Kinds of JSON values. A number that is integral and has 64 bits is a
// NumberInteger, however it is written.
const (
	Null ValueKind = iota
	False
	True
	NumberInteger
	NumberReal
	Text
	Array
	Object
	Garbled // a text that is no UTF-8: see [ParseMessage]
)

// Value is a JSON value. Its texts may alias the text that was parsed.
type Value struct {
	kind ValueKind
	text string
	bits uint64
	list []Value // of an Array: elements; of an Object: names and values in turn
}

// Kind returns the kind.
func (v Value) Kind() ValueKind { return v.kind }

// Text returns a Text's, and of one that is Garbled what is left of it, which is UTF-8.
func (v Value) Text() string { return v.text }

// Int returns the number of a NumberInteger.
func (v Value) Int() int64 { return int64(v.bits) }

// Float returns that of a number of either kind.
func (v Value) Float() float64 {
	if v.kind == NumberInteger {
		return float64(v.Int())
	}
	return math.Float64frombits(v.bits)
}

// Elements returns those of an Array.
func (v Value) Elements() []Value {
	if v.kind != Array {
		return nil
	}
	return v.list
}

// Members returns how many an Object has.
func (v Value) Members() int {
	if v.kind != Object {
		return 0
	}
	return len(v.list) / 2
}

// MemberAt returns the name and the value of an Object's member, in the order of
// the text.
func (v Value) MemberAt(i int) (string, Value) { return v.list[2*i].text, v.list[2*i+1] }

// Member returns the value of an Object's member.
func (v Value) Member(name string) (Value, bool) {
	if v.kind != Object {
		return Value{}, false
	}
	for i := 0; i < len(v.list); i += 2 {
		if v.list[i].text == name {
			return v.list[i+1], true
		}
	}
	return Value{}, false
}

// Append appends the value as JSON, without spaces, members in the order of the text.
func (v Value) Append(b []byte) []byte { return v.append(b, false) }

// AppendSorted appends the value as JSON, without spaces, members by name.
func (v Value) AppendSorted(b []byte) []byte { return v.append(b, true) }

func (v Value) append(b []byte, sorted bool) []byte {
	switch v.kind {
	case Null:
		return append(b, "null"...)
	case False:
		return append(b, "false"...)
	case True:
		return append(b, "true"...)
	case NumberInteger:
		return strconv.AppendInt(b, v.Int(), 10)
	case NumberReal:
		return appendReal(b, v.Float())
	case Text, Garbled:
		return AppendString(b, v.text)
	case Array:
		b = append(b, '[')
		for i, e := range v.list {
			if i > 0 {
				b = append(b, ',')
			}
			b = e.append(b, sorted)
		}
		return append(b, ']')
	}
	order := make([]int, len(v.list)/2)
	for i := range order {
		order[i] = 2 * i
	}
	if sorted {
		slices.SortFunc(order, func(x, y int) int { return strings.Compare(v.list[x].text, v.list[y].text) })
	}
	b = append(b, '{')
	for i, at := range order {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, v.list[at].text)
		b = append(b, ':')
		b = v.list[at+1].append(b, sorted)
	}
	return append(b, '}')
}

// realDigits is how many significant digits of a real are written: those that any
// real has, as ovsdb-server writes them.
const realDigits = 15

// appendReal appends a real as C's %.15g does.
func appendReal(b []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.AppendInt(b, int64(f), 10)
	}
	var buf [32]byte
	text := strconv.AppendFloat(buf[:0], f, 'e', realDigits-1, 64)
	at := bytes.IndexByte(text, 'e')
	if at < 0 {
		return append(b, text...)
	}
	exponent, _ := strconv.Atoi(string(text[at+1:]))
	if exponent >= -4 && exponent < realDigits {
		text = strconv.AppendFloat(buf[:0], f, 'f', realDigits-1-exponent, 64)
		if bytes.IndexByte(text, '.') >= 0 {
			text = bytes.TrimRight(bytes.TrimRight(text, "0"), ".")
		}
		return append(b, text...)
	}
	b = append(b, bytes.TrimRight(bytes.TrimRight(text[:at], "0"), ".")...)
	return append(b, text[at:]...)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
