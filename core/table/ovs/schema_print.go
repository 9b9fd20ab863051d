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
func (b *BaseType) isBare() bool {
	return len(b.Enum) == 0 && b.Ref == NoRef && b.MinInteger == math.MinInt64 && b.MaxInteger == math.MaxInt64 &&
		math.IsInf(b.MinReal, -1) && math.IsInf(b.MaxReal, 1) && b.MinLength == 0 && b.MaxLength == math.MaxUint32
}

func (b *BaseType) appendJSON(to []byte) []byte {
	if b.isBare() {
		return AppendString(to, b.Kind.String())
	}
	l := list{b: append(to, '{')}
	if len(b.Enum) > 0 {
		l.member("enum")
		l.b = Datum{Keys: b.Enum}.AppendJSON(l.b, &Type{Key: *b, Max: Unlimited})
	}
	if b.MaxInteger != math.MaxInt64 {
		l.member("maxInteger")
		l.b = strconv.AppendInt(l.b, b.MaxInteger, 10)
	}
	if b.MaxLength != math.MaxUint32 {
		l.member("maxLength")
		l.b = strconv.AppendInt(l.b, int64(b.MaxLength), 10)
	}
	if !math.IsInf(b.MaxReal, 1) {
		l.member("maxReal")
		l.b = strconv.AppendFloat(l.b, b.MaxReal, 'g', -1, 64)
	}
	if b.MinInteger != math.MinInt64 {
		l.member("minInteger")
		l.b = strconv.AppendInt(l.b, b.MinInteger, 10)
	}
	if b.MinLength != 0 {
		l.member("minLength")
		l.b = strconv.AppendInt(l.b, int64(b.MinLength), 10)
	}
	if !math.IsInf(b.MinReal, -1) {
		l.member("minReal")
		l.b = strconv.AppendFloat(l.b, b.MinReal, 'g', -1, 64)
	}
	if b.Ref != NoRef {
		l.text("refTable", b.RefTable)
		if b.Ref == Weak {
			l.text("refType", "weak")
		}
	}
	l.text("type", b.Kind.String())
	return append(l.b, '}')
}
