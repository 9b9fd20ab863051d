package ovs

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ParseJSON parses one JSON text. Of members of one name the last counts. Numbers
// are 64-bit integers or reals; texts are UTF-8 without a zero byte. What it
// returns aliases s. Its errors have name "syntax error" and no Syntax.
func ParseJSON(s string) (Value, *Error) { return parse(s, false) }

// ParseMessage is [ParseJSON] of what a client sends: a text that is no UTF-8 is Garbled, so
// that what is wrong with it is said of where it stands, and is no text for whoever wants
// one. In it, and in the name of a member, each run of bytes that are none is a question
// mark, which takes no more room, and stands in no name that is known.
func ParseMessage(s string) (Value, *Error) { return parse(s, true) }

func parse(s string, garbled bool) (Value, *Error) {
	p := jsonParser{s: s, garbled: garbled, stack: make([]Value, 0, roomFor(s, shallow))}
	v, ok := p.value(0)
	if ok {
		p.space()
		if p.at == len(s) {
			return v, nil
		}
		p.bad("trailing garbage at end of input")
	}
	return Value{}, Errorf(SyntaxError, "offset %d: %s", p.at, p.problem)
}

type jsonParser struct {
	s       string
	garbled bool // texts may be
	at      int
	problem string
	values  int     // so far
	stack   []Value // of the arrays and objects that are not at their end
	arena   []Value // room for the lists of those that are
}

// How many values get room at once: for lists, at least and at most, and on the
// stack, until there are more in one another. Short texts get less room: most messages
// of idle connections are answers to echoes.
const (
	leastArena   = 32
	mostArena    = 1024
	shallow      = 32
	bytesOfValue = 6 // of the text, as few have
)

// roomFor is for how many values there is room, of most, where a text begins.
func roomFor(s string, most int) int { return min(most, 1+len(s)/bytesOfValue) }

func (p *jsonParser) bad(problem string) (Value, bool) {
	p.problem = problem
	return Value{}, false
}

func (p *jsonParser) space() {
	for p.at < len(p.s) {
		switch p.s[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next skips spaces and returns the next byte, 0 at the end.
func (p *jsonParser) next() byte {
	p.space()
	if p.at == len(p.s) {
		return 0
	}
	return p.s[p.at]
}

func (p *jsonParser) value(depth int) (Value, bool) {
	if p.values++; p.values > MaxValues {
		return p.bad("more than " + strconv.Itoa(MaxValues) + " values")
	}
	switch c := p.next(); {
	case c == '"':
		return p.text()
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case strings.HasPrefix(p.s[p.at:], "true"):
		p.at += 4
		return Value{kind: True}, true
	case strings.HasPrefix(p.s[p.at:], "false"):
		p.at += 5
		return Value{kind: False}, true
	case strings.HasPrefix(p.s[p.at:], "null"):
		p.at += 4
		return Value{}, true
	}
	return p.bad("syntax error")
}

// take moves what is on the stack from from into a list of its own.
func (p *jsonParser) take(from int) []Value {
	n := len(p.stack) - from
	if n == 0 {
		return nil
	}
	if cap(p.arena)-len(p.arena) < n {
		p.arena = make([]Value, 0, max(n, min(mostArena, max(roomFor(p.s, leastArena), 2*cap(p.arena)))))
	}
	start := len(p.arena)
	p.arena = append(p.arena, p.stack[from:]...)
	p.stack = p.stack[:from]
	return p.arena[start:len(p.arena):len(p.arena)]
}

func (p *jsonParser) array(depth int) (Value, bool) {
	if depth == MaxDepth {
		return p.bad("input exceeds maximum nesting depth")
	}
	from := len(p.stack)
	p.at++
	if p.next() == ']' {
		p.at++
		return Value{kind: Array}, true
	}
	for {
		v, ok := p.value(depth + 1)
		if !ok {
			return v, false
		}
		p.stack = append(p.stack, v)
		switch p.next() {
		case ',':
			p.at++
		case ']':
			p.at++
			return Value{kind: Array, list: p.take(from)}, true
		default:
			return p.bad("syntax error expecting ',' or ']'")
		}
	}
}

func (p *jsonParser) object(depth int) (Value, bool) {
	if depth == MaxDepth {
		return p.bad("input exceeds maximum nesting depth")
	}
	from := len(p.stack)
	p.at++
	if p.next() == '}' {
		p.at++
		return Value{kind: Object}, true
	}
	for {
		if p.next() != '"' {
			return p.bad("syntax error parsing object expecting string")
		}
		name, ok := p.text()
		if !ok {
			return Value{}, false
		}
		if p.next() != ':' {
			return p.bad("syntax error parsing object expecting ':'")
		}
		p.at++
		v, ok := p.value(depth + 1)
		if !ok {
			return v, false
		}
		p.stack = append(p.stack, Value{kind: Text, text: name.text}, v)
		switch p.next() {
		case ',':
			p.at++
		case '}':
			p.at++
			p.lastWins(from)
			return Value{kind: Object, list: p.take(from)}, true
		default:
			return p.bad("syntax error expecting ',' or '}'")
		}
	}
}

// fewMembers are compared with one another; more are looked up.
const fewMembers = 16

// lastWins leaves, of members of one name, the place of the first and the value of
// the last.
func (p *jsonParser) lastWins(from int) {
	members := p.stack[from:]
	if len(members) > 2*fewMembers {
		p.lastOfMany(from)
		return
	}
	kept := 0
next:
	for i := 0; i < len(members); i += 2 {
		for j := 0; j < kept; j += 2 {
			if members[j].text == members[i].text {
				members[j+1] = members[i+1]
				continue next
			}
		}
		members[kept], members[kept+1] = members[i], members[i+1]
		kept += 2
	}
	p.stack = p.stack[:from+kept]
}

func (p *jsonParser) lastOfMany(from int) {
	members, kept := p.stack[from:], 0
	at := make(map[string]int, len(members)/2)
	for i := 0; i < len(members); i += 2 {
		if j, ok := at[members[i].text]; ok {
			members[j+1] = members[i+1]
			continue
		}
		at[members[i].text] = kept
		members[kept], members[kept+1] = members[i], members[i+1]
		kept += 2
	}
	p.stack = p.stack[:from+kept]
}

// number reads a number: as an integer if that is what it is, even with a point or
// an exponent.
func (p *jsonParser) number() (Value, bool) {
	from := p.at
	digits := func() int {
		start := p.at
		for p.at < len(p.s) && p.s[p.at] >= '0' && p.s[p.at] <= '9' {
			p.at++
		}
		return p.at - start
	}
	if p.s[p.at] == '-' {
		p.at++
	}
	first := p.at
	if n := digits(); n == 0 || n > 1 && p.s[first] == '0' {
		return p.bad("leading zeros not allowed")
	}
	integral := true
	if p.at < len(p.s) && p.s[p.at] == '.' {
		integral = false
		p.at++
		if digits() == 0 {
			return p.bad("decimal point must be followed by digit")
		}
	}
	if p.at < len(p.s) && p.s[p.at]|0x20 == 'e' {
		integral = false
		p.at++
		if p.at < len(p.s) && (p.s[p.at] == '+' || p.s[p.at] == '-') {
			p.at++
		}
		if digits() == 0 {
			return p.bad("exponent must contain at least one digit")
		}
	}
	text := p.s[from:p.at]
	if integral {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return integerValue(n), true
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return p.bad("number outside valid range")
	}
	// Below 2⁵³ the real says which integer was written; above, digits decide.
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return integerValue(int64(f)), true
	}
	if n, ok := exactInteger(text); ok && !integral {
		return integerValue(n), true
	}
	return Value{kind: NumberReal, bits: math.Float64bits(f)}, true
}

func integerValue(n int64) Value { return Value{kind: NumberInteger, bits: uint64(n)} }

// exactInteger reads a number with a point or an exponent as an integer, if it is one.
func exactInteger(text string) (int64, bool) {
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		if err != nil || n < -20 || n > 20 {
			return 0, false
		}
		mantissa, exponent = text[:i], n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	fraction = strings.TrimRight(fraction, "0")
	digits, exponent := whole+fraction, exponent-len(fraction)
	if exponent < 0 {
		short := strings.TrimRight(digits, "0")
		if len(digits)-len(short) < -exponent {
			return 0, false
		}
		digits, exponent = digits[:len(digits)+exponent], 0
	}
	if len(digits)+exponent > 40 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits+strings.Repeat("0", exponent), 10, 64)
	return n, err == nil
}

// text reads a string.
func (p *jsonParser) text() (Value, bool) {
	p.at++
	from := p.at
	for i := from; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			if s := p.s[from:i]; utf8.ValidString(s) {
				p.at = i + 1
				return Value{kind: Text, text: s}, true
			}
			return p.noText(p.s[from:i], i)
		case c == '\\':
			return p.escaped(from, i)
		case c < ' ':
			p.at = i
			return p.bad("unescaped control character in string")
		}
	}
	p.at = len(p.s)
	return p.bad("unexpected end of input in quoted string")
}

// noText is a string that is no UTF-8, and ends at i.
func (p *jsonParser) noText(s string, i int) (Value, bool) {
	p.at = i + 1
	if !p.garbled {
		return p.bad("invalid UTF-8 sequence in string")
	}
	return Value{kind: Garbled, text: strings.ToValidUTF8(s, "?")}, true
}

// escaped reads the rest of a string whose first escape is at i.
func (p *jsonParser) escaped(from, i int) (Value, bool) {
	b := make([]byte, 0, min(len(p.s)-from, 64))
	fail := func(problem string) (Value, bool) {
		p.at = i
		return p.bad(problem)
	}
	for ; i < len(p.s); i++ {
		c := p.s[i]
		switch {
		case c == '"':
			b = append(b, p.s[from:i]...)
			if !utf8.Valid(b) {
				return p.noText(string(b), i)
			}
			p.at = i + 1
			return Value{kind: Text, text: string(b)}, true
		case c < ' ':
			return fail("unescaped control character in string")
		case c != '\\':
			continue
		}
		b = append(b, p.s[from:i]...)
		r, n := unescape(p.s[i:])
		if n == 0 {
			return fail("bad escape in string")
		}
		if r == 0 {
			return fail("null bytes not supported in quoted strings")
		}
		b = utf8.AppendRune(b, r)
		from, i = i+n, i+n-1
	}
	return fail("unexpected end of input in quoted string")
}

// unescape reads the escape that s begins with, and returns how long it is, 0 if
// it is none.
func unescape(s string) (rune, int) {
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case '"', '\\', '/':
		return rune(s[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return unescapeUnicode(s)
	}
	return 0, 0
}

func unescapeUnicode(s string) (rune, int) {
	r, ok := hex4(s)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, ok := hex4(s[6:])
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// hex4 reads \uXXXX.
func hex4(s string) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for i := 2; i < 6; i++ {
		d := unhex(s[i])
		if d > 15 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}
