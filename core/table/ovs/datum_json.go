package ovs

import (
	"math"
	"strconv"
)

// ParseDatum parses a datum of type t and checks it. named resolves the names of
// new rows; without it there are none.
func ParseDatum(v Value, t *Type, named func(string) UUID) (Datum, *Error) {
	if !t.IsMap() && !isTagged(v, "set") {
		a, err := parseAtom(v, &t.Key, named)
		if err != nil {
			return Datum{}, err
		}
		return Datum{Keys: []Atom{a}}, nil
	}
	class := "set"
	if t.IsMap() {
		class = "map"
	}
	inner, err := unwrap(v, class, Array)
	if err != nil {
		return Datum{}, err
	}
	if err := checkMembers(v, class, len(inner.list), t); err != nil {
		return Datum{}, err
	}
	if len(inner.list) == 0 {
		return Datum{}, nil
	}
	d := Datum{Keys: make([]Atom, 0, len(inner.list))}
	if t.IsMap() {
		d.Values = make([]Atom, 0, len(inner.list))
	}
	for _, e := range inner.list {
		if err := d.parseElement(e, t, named); err != nil {
			return Datum{}, err
		}
	}
	return d, d.sort()
}

func (d *Datum) parseElement(e Value, t *Type, named func(string) UUID) *Error {
	key := e
	if t.IsMap() {
		if e.kind != Array || len(e.list) != 2 {
			return syntaxError(e, "expected 2-element array")
		}
		key = e.list[0]
	}
	a, err := parseAtom(key, &t.Key, named)
	if err != nil {
		return err
	}
	d.Keys = append(d.Keys, a)
	if !t.IsMap() {
		return nil
	}
	a, err = parseAtom(e.list[1], &t.Value, named)
	d.Values = append(d.Values, a)
	return err
}

// checkMembers reports whether t allows n elements.
func checkMembers(v Value, class string, n int, t *Type) *Error {
	switch {
	case n >= t.Min && n <= t.Max:
		return nil
	case t.Min == 1 && t.Max == 1:
		return syntaxError(v, "%s must have exactly one member but %d are present", class, n)
	}
	// Where there is no limit, clients are told one all the same.
	return syntaxError(v, "%s must have %d to %d members but %d are present", class, t.Min, min(t.Max, math.MaxUint32), n)
}

func isTagged(v Value, tag string) bool {
	return v.kind == Array && len(v.list) > 0 && v.list[0].kind == Text && v.list[0].text == tag
}

// unwrap returns what stands behind a tag.
func unwrap(v Value, tag string, kind ValueKind) (Value, *Error) {
	if isTagged(v, tag) && len(v.list) == 2 && v.list[1].kind == kind {
		return v.list[1], nil
	}
	name := "string"
	if kind == Array {
		name = "array"
	}
	return Value{}, syntaxError(v, "expected [%q, <%s>]", tag, name)
}

// parseAtom parses an atom and checks its constraints.
func parseAtom(v Value, t *BaseType, named func(string) UUID) (a Atom, err *Error) {
	switch {
	case t.Kind == Integer && v.kind == NumberInteger:
		a = IntegerAtom(v.Int())
	case t.Kind == Real && (v.kind == NumberInteger || v.kind == NumberReal):
		a = RealAtom(v.Float())
	case t.Kind == Boolean && (v.kind == True || v.kind == False):
		a = BooleanAtom(v.kind == True)
	case t.Kind == String && v.kind == Text:
		a = StringAtom(v.text)
	case t.Kind == String && v.kind == Garbled:
		return a, Errorf(ConstraintError, "not a valid UTF-8 string")
	case t.Kind == UUIDKind:
		u, err := parseUUIDValue(v, named)
		return UUIDAtom(u), err
	default:
		return a, syntaxError(v, "expected %s", t.Kind)
	}
	return a, t.check(a)
}

func parseUUIDValue(v Value, named func(string) UUID) (UUID, *Error) {
	if named != nil && isTagged(v, "named-uuid") && len(v.list) == 2 && v.list[1].kind == Text {
		if !IsID(v.list[1].text) {
			return UUID{}, syntaxError(v, "named-uuid string is not a valid <id>")
		}
		return named(v.list[1].text), nil
	}
	text, err := unwrap(v, "uuid", Text)
	if err != nil {
		return UUID{}, err
	}
	u, ok := ParseUUID(text.text)
	if !ok {
		return UUID{}, syntaxError(v, "\"%s\" is not a valid UUID", text.text)
	}
	return u, nil
}

// AppendJSON appends the datum: one element bare, else ["set",[…]] or ["map",[…]].
func (d Datum) AppendJSON(b []byte, t *Type) []byte {
	switch {
	case t.IsMap():
		b = append(b, `["map",[`...)
	case len(d.Keys) == 1:
		return d.Keys[0].AppendJSON(b)
	default:
		b = append(b, `["set",[`...)
	}
	for i, k := range d.Keys {
		if i > 0 {
			b = append(b, ',')
		}
		if d.Values == nil {
			b = k.AppendJSON(b)
			continue
		}
		b = k.AppendJSON(append(b, '['))
		b = d.Values[i].AppendJSON(append(b, ','))
		b = append(b, ']')
	}
	return append(b, "]]"...)
}

// AppendJSON appends the atom.
func (a Atom) AppendJSON(b []byte) []byte {
	switch a.kind {
	case Integer:
		return strconv.AppendInt(b, a.Int(), 10)
	case Real:
		return appendReal(b, a.Float())
	case Boolean:
		return strconv.AppendBool(b, a.Bool())
	case String:
		return AppendString(b, a.s)
	case UUIDKind:
		b = append(b, `["uuid","`...)
		b = a.UUID().AppendText(b)
		return append(b, `"]`...)
	}
	return append(b, "null"...)
}
