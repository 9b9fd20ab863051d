package juju

import (
	"bytes"
	"encoding/json"
)

// Juju's own client writes each request the same way: its keys in one order and
// in lower case, its strings without escapes. Reading these here takes a fifth of
// the time of encoding/json, which in a storm of connections is a fiftieth of all.
// Whatever else is left to that package, so nothing is read in two ways:
// FuzzPlain compares.

// plain reads text that is expected to the letter. What it returns is of use if
// bad is still false at the end.
type plain struct {
	rest []byte
	bad  bool
}

// has takes the text if it is next.
func (p *plain) has(text string) bool {
	rest, ok := bytes.CutPrefix(p.rest, []byte(text))
	p.rest = rest
	return ok
}

func (p *plain) must(text string) { p.bad = !p.has(text) || p.bad }

// str takes a string of printable ASCII without escapes.
func (p *plain) str() string {
	p.must(`"`)
	n := 0
	for n < len(p.rest) && p.rest[n] != '"' {
		if c := p.rest[n]; c < ' ' || c > '~' || c == '\\' {
			break
		}
		n++
	}
	s := string(p.rest[:n])
	p.rest = p.rest[n:]
	p.must(`"`)
	return s
}

// The most digits that every number of a type can have.
const (
	floatDigits = 15 // of float64
	intDigits   = 9  // of int, which has 32 bits on some machines
)

// number takes a whole number of at most so many digits.
func (p *plain) number(digits int) (v uint64) {
	n := 0
	for ; n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9'; n++ {
		v = v*10 + uint64(p.rest[n]-'0')
	}
	p.bad = p.bad || n == 0 || n > digits || p.rest[0] == '0'
	p.rest = p.rest[n:]
	return v
}

// plainRequest reads a request; false if encoding/json is to do it.
func plainRequest(b []byte) (r request, ok bool) {
	p := plain{rest: bytes.TrimRight(b, " \t\r\n")}
	p.must(`{"request-id":`)
	r.ID = p.number(floatDigits)
	p.must(`,"type":`)
	r.Facade = p.str()
	if p.has(`,"version":`) {
		r.Version = int(p.number(intDigits)) //nolint:gosec // it has so few digits
	}
	if p.has(`,"id":`) {
		r.Object = p.str()
	}
	p.must(`,"request":`)
	r.Method = p.str()
	p.must(`,"params":`)
	params, whole := bytes.CutSuffix(p.rest, []byte("}"))
	if p.bad || !whole || !bytes.HasPrefix(params, []byte("{")) || !bytes.HasSuffix(params, []byte("}")) || !json.Valid(params) {
		return request{}, false
	}
	r.Params = bytes.Clone(params)
	return r, true
}

// plainClaim reads the params of a claim for one unit; false if encoding/json is
// to do it.
func plainClaim(params []byte) (c claimParam, ok bool) {
	p := plain{rest: params}
	p.must(`{"params":[{"application-tag":`)
	c.Application = p.str()
	p.must(`,"unit-tag":`)
	c.Unit = p.str()
	p.must(`,"duration":`)
	c.Duration = float64(p.number(floatDigits)) // a fraction of a second is left to encoding/json
	p.must(`}]}`)
	if p.bad || len(p.rest) > 0 {
		return claimParam{}, false
	}
	return c, true
}
