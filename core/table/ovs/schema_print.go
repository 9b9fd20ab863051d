package ovs

import (
	"math"
	"strconv"
)

// list appends elements with commas between them.
type list struct {
	b    []byte
	more bool
}

func (l *list) element() {
	if l.more {
		l.b = append(l.b, ',')
	}
	l.more = true
}

// member appends the name of a member, whose value the caller appends to l.b.
func (l *list) member(name string) {
	l.element()
	l.b = append(AppendString(l.b, name), ':')
}

func (l *list) text(name, value string) {
	l.member(name)
	l.b = AppendString(l.b, value)
}

// appendJSON appends the schema's document: members sorted, what is at its default
// left out.
func (s *Schema) appendJSON(b []byte) []byte {
	l := list{b: append(b, '{')}
	if s.Cksum != "" {
		l.text("cksum", s.Cksum)
	}
	l.text("name", s.Name)
	l.member("tables")
	tables := list{b: append(l.b, '{')}
	for _, t := range s.Tables {
		tables.member(t.Name)
		tables.b = t.appendJSON(tables.b)
	}
	l.b = append(tables.b, '}')
	if s.Version != "" {
		l.text("version", s.Version)
	}
	return append(l.b, '}')
}

func (t *Table) appendJSON(b []byte) []byte {
	l := list{b: append(b, '{')}
	l.member("columns")
	columns := list{b: append(l.b, '{')}
	for _, c := range t.Columns {
		columns.member(c.Name)
		columns.b = c.appendJSON(columns.b)
	}
	l.b = append(columns.b, '}')
	if len(t.Indexes) > 0 {
		l.member("indexes")
		l.b = t.appendIndexes(l.b)
	}
	if t.isRoot {
		l.member("isRoot")
		l.b = append(l.b, "true"...)
	}
	if t.MaxRows != math.MaxInt {
		l.member("maxRows")
		l.b = strconv.AppendInt(l.b, int64(t.MaxRows), 10)
	}
	return append(l.b, '}')
}

func (t *Table) appendIndexes(b []byte) []byte {
	all := list{b: append(b, '[')}
	for _, index := range t.Indexes {
		all.element()
		one := list{b: append(all.b, '[')}
		for _, i := range index {
			one.element()
			one.b = AppendString(one.b, t.At(i).Name)
		}
		all.b = append(one.b, ']')
	}
	return append(all.b, ']')
}

func (c *Column) appendJSON(b []byte) []byte {
	l := list{b: append(b, '{')}
	if c.Ephemeral {
		l.member("ephemeral")
		l.b = append(l.b, "true"...)
	}
	if !c.Mutable {
		l.member("mutable")
		l.b = append(l.b, "false"...)
	}
	l.member("type")
	l.b = c.Type.appendJSON(l.b)
	return append(l.b, '}')
}

func (t *Type) appendJSON(b []byte) []byte {
	if t.IsScalar() && t.Key.isBare() {
		return AppendString(b, t.Key.Kind.String())
	}
	l := list{b: append(b, '{')}
	l.member("key")
	l.b = t.Key.appendJSON(l.b)
	switch {
	case t.Max == Unlimited:
		l.text("max", "unlimited")
	case t.Max != 1:
		l.member("max")
		l.b = strconv.AppendInt(l.b, int64(t.Max), 10)
	}
	if t.Min != 1 {
		l.member("min")
		l.b = strconv.AppendInt(l.b, int64(t.Min), 10)
	}
	if t.IsMap() {
		l.member("value")
		l.b = t.Value.appendJSON(l.b)
	}
	return append(l.b, '}')
}

// isBare reports whether there is nothing to say but the kind.
func (t *BaseType) isBare() bool {
	return len(t.Enum) == 0 && t.Ref == NoRef && t.MinInteger == math.MinInt64 && t.MaxInteger == math.MaxInt64 &&
		math.IsInf(t.MinReal, -1) && math.IsInf(t.MaxReal, 1) && t.MinLength == 0 && t.MaxLength == math.MaxUint32
}

func (t *BaseType) appendJSON(to []byte) []byte {
	if t.isBare() {
		return AppendString(to, t.Kind.String())
	}
	l := list{b: append(to, '{')}
	if len(t.Enum) > 0 {
		l.member("enum")
		l.b = Datum{Keys: t.Enum}.AppendJSON(l.b, &Type{Key: *t, Max: Unlimited})
	}
	if t.MaxInteger != math.MaxInt64 {
		l.member("maxInteger")
		l.b = strconv.AppendInt(l.b, t.MaxInteger, 10)
	}
	if t.MaxLength != math.MaxUint32 {
		l.member("maxLength")
		l.b = strconv.AppendInt(l.b, int64(t.MaxLength), 10)
	}
	if !math.IsInf(t.MaxReal, 1) {
		l.member("maxReal")
		l.b = strconv.AppendFloat(l.b, t.MaxReal, 'g', -1, 64)
	}
	if t.MinInteger != math.MinInt64 {
		l.member("minInteger")
		l.b = strconv.AppendInt(l.b, t.MinInteger, 10)
	}
	if t.MinLength != 0 {
		l.member("minLength")
		l.b = strconv.AppendInt(l.b, int64(t.MinLength), 10)
	}
	if !math.IsInf(t.MinReal, -1) {
		l.member("minReal")
		l.b = strconv.AppendFloat(l.b, t.MinReal, 'g', -1, 64)
	}
	if t.Ref != NoRef {
		l.text("refTable", t.RefTable)
		if t.Ref == Weak {
			l.text("refType", "weak")
		}
	}
	l.text("type", t.Kind.String())
	return append(l.b, '}')
}
