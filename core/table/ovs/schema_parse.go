package ovs

import (
	"math"
	"slices"
	"strings"
)

// ParseSchema parses a schema and checks it.
func ParseSchema(text []byte) (*Schema, *Error) {
	v, err := ParseJSON(string(text))
	if err != nil {
		return nil, err
	}
	return SchemaOf(v)
}

// SchemaOf makes a schema of its document, as [ParseSchema] does.
func SchemaOf(v Value) (*Schema, *Error) {
	m := open(v, "database schema")
	name, _ := m.member("name", anID)
	version, hasVersion := m.member("version", aText|optional)
	cksum, _ := m.member("cksum", aText|optional)
	tables, _ := m.member("tables", anObject)
	if err := m.finish(); err != nil {
		return nil, err
	}
	if hasVersion && !isVersion(version.text) {
		return nil, syntaxError(v, "schema version %q not in format x.y.z", version.text)
	}
	s := &Schema{Name: strings.Clone(name.text), Version: strings.Clone(version.text), Cksum: strings.Clone(cksum.text), byName: map[string]int{}}
	if tables.Members() > MaxTables {
		return nil, Errorf(ResourcesExhausted, "a schema has at most %d tables, not %d", MaxTables, tables.Members())
	}
	for i := range tables.Members() {
		name, t := tables.MemberAt(i)
		if err := checkName(v, name); err != nil {
			return nil, err
		}
		table, err := parseTable(strings.Clone(name), t)
		if err != nil {
			return nil, err
		}
		s.Tables = append(s.Tables, table)
	}
	if err := s.link(); err != nil {
		return nil, err
	}
	s.JSON = s.appendJSON(nil)
	return s, nil
}

// isVersion reports whether s is x.y.z.
func isVersion(s string) bool {
	parts := strings.Split(s, ".")
	for _, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			return false
		}
	}
	return len(parts) == 3
}

func checkName(v Value, name string) *Error {
	switch {
	case strings.HasPrefix(name, "_"):
		return syntaxError(v, "names beginning with \"_\" are reserved")
	case !IsID(name):
		return syntaxError(v, "name must be a valid id")
	}
	return nil
}

// link gives tables their places, and references the tables they are to.
func (s *Schema) link() *Error {
	slices.SortFunc(s.Tables, func(a, b *Table) int { return strings.Compare(a.Name, b.Name) })
	roots := false
	for i, t := range s.Tables {
		t.index = i
		s.byName[t.Name] = i
		roots = roots || t.isRoot
	}
	for _, t := range s.Tables {
		t.IsRoot = t.isRoot || !roots
		for _, c := range t.Columns {
			if err := s.linkBase(c, &c.Type.Key, "key"); err != nil {
				return err
			}
			if err := s.linkBase(c, &c.Type.Value, "value"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Schema) linkBase(c *Column, b *BaseType, part string) *Error {
	b.Table = -1
	if b.Ref == NoRef {
		return nil
	}
	t, i := s.Table(b.RefTable)
	if t == nil {
		return Errorf(SyntaxError, "column %s %s refers to undefined table %s", c.Name, part, b.RefTable)
	}
	b.Table = i
	return nil
}

func parseTable(name string, v Value) (*Table, *Error) {
	m := open(v, "table schema for table "+name)
	columns, _ := m.member("columns", anObject)
	mutable, hasMutable := m.member("mutable", aBoolean|optional)
	maxRows, hasMax := m.member("maxRows", anInteger|optional)
	isRoot, _ := m.member("isRoot", aBoolean|optional)
	indexes, _ := m.member("indexes", anArray|optional)
	if err := m.finish(); err != nil {
		return nil, err
	}
	t := &Table{Name: name, MaxRows: math.MaxInt, isRoot: isRoot.kind == True, byName: map[string]int{}}
	if hasMax {
		if maxRows.Int() <= 0 {
			return nil, syntaxError(v, "maxRows must be at least 1")
		}
		if maxRows.Int() < math.MaxUint32 {
			t.MaxRows = int(maxRows.Int())
		}
	}
	switch n := columns.Members(); {
	case n == 0:
		return nil, syntaxError(v, "table must have at least one column")
	case n > MaxColumns:
		return nil, Errorf(ResourcesExhausted, "a table has at most %d columns, not %d", MaxColumns, n)
	}
	for i := range columns.Members() {
		name, c := columns.MemberAt(i)
		if err := checkName(v, name); err != nil {
			return nil, err
		}
		column, err := parseColumn(strings.Clone(name), c)
		if err != nil {
			return nil, err
		}
		column.Mutable = column.Mutable && (!hasMutable || mutable.kind == True)
		t.Columns = append(t.Columns, column)
	}
	slices.SortFunc(t.Columns, func(a, b *Column) int { return strings.Compare(a.Name, b.Name) })
	for i, c := range t.Columns {
		c.index = i
		t.byName[c.Name] = i
	}
	return t, t.parseIndexes(v, indexes)
}

func (t *Table) parseIndexes(v, indexes Value) *Error {
	for _, e := range indexes.Elements() {
		columns, err := parseColumns(t, e)
		if err != nil {
			return err
		}
		if len(columns) == 0 {
			return syntaxError(v, "index must have at least one column")
		}
		for _, i := range columns {
			if c := t.At(i); c.Ephemeral {
				return syntaxError(v, "ephemeral columns (such as %s) may not be indexed", c.Name)
			}
		}
		t.Indexes = append(t.Indexes, columns)
	}
	return nil
}

// parseColumns parses an array of different names of columns.
func parseColumns(t *Table, v Value) ([]int, *Error) {
	list := make([]int, 0, len(v.list))
	for _, e := range v.list {
		if v.kind != Array || e.kind != Text {
			return nil, syntaxError(v, "array of distinct column names expected")
		}
		c := t.Column(e.text)
		if c == nil {
			return nil, syntaxError(v, "%s is not a valid column name", e.text)
		}
		list = append(list, c.index)
	}
	seen := slices.Sorted(slices.Values(list))
	if v.kind != Array || len(slices.Compact(seen)) < len(list) {
		return nil, syntaxError(v, "array of distinct column names expected")
	}
	return list, nil
}

func parseColumn(name string, v Value) (*Column, *Error) {
	m := open(v, "schema for column "+name)
	mutable, _ := m.member("mutable", aBoolean|optional)
	ephemeral, _ := m.member("ephemeral", aBoolean|optional)
	typ, _ := m.member("type", aText|anObject)
	if err := m.finish(); err != nil {
		return nil, err
	}
	t, err := parseType(typ)
	if err != nil {
		return nil, err
	}
	c := &Column{Name: name, Type: t, Default: Default(&t), Mutable: mutable.kind != False, Ephemeral: ephemeral.kind == True}
	c.defaultError = c.Default.checkConstraints(&t)
	return c, nil
}

func parseType(v Value) (t Type, err *Error) {
	t = Type{Min: 1, Max: 1}
	if v.kind == Text {
		t.Key, err = parseBase(v)
		return t, err
	}
	m := open(v, "ovsdb type")
	key, _ := m.member("key", aText|anObject)
	value, isMap := m.member("value", aText|anObject|optional)
	least, hasMin := m.member("min", anInteger|optional)
	most, hasMax := m.member("max", anInteger|aText|optional)
	if err := m.finish(); err != nil {
		return t, err
	}
	if t.Key, err = parseBase(key); err != nil {
		return t, err
	}
	if isMap {
		if t.Value, err = parseBase(value); err != nil {
			return t, err
		}
	}
	if hasMin {
		if t.Min, err = parseCount(least); err != nil {
			return t, err
		}
	}
	switch {
	case hasMax && most.kind == Text && most.text == "unlimited":
		t.Max = Unlimited
	case hasMax:
		if t.Max, err = parseCount(most); err != nil {
			return t, err
		}
	}
	if t.Min > 1 || t.Max < 1 {
		return t, syntaxError(v, "ovsdb type fails constraint checks")
	}
	return t, nil
}

func parseCount(v Value) (int, *Error) {
	if v.kind != NumberInteger || v.Int() < 0 || v.Int() > math.MaxUint32 {
		return 0, syntaxError(v, "bad min or max value")
	}
	return int(v.Int()), nil
}

func parseBase(v Value) (b BaseType, err *Error) {
	if v.kind == Text {
		return parseKind(v)
	}
	m := open(v, "ovsdb type")
	typ, ok := m.member("type", aText)
	if !ok {
		return b, m.finish()
	}
	if b, err = parseKind(typ); err != nil {
		return b, err
	}
	if enum, ok := m.member("enum", 1<<Null|aBoolean|anInteger|aReal|aText|anArray|optional); ok {
		d, err := ParseDatum(enum, &Type{Key: unconstrained(b.Kind), Min: 1, Max: Unlimited}, nil)
		if err != nil {
			return b, err
		}
		b.Enum = d.Keys
		return b, m.finish()
	}
	switch b.Kind {
	case Integer:
		err = b.parseIntegers(v, &m)
	case Real:
		err = b.parseReals(v, &m)
	case String:
		err = b.parseLengths(v, &m)
	case UUIDKind:
		err = b.parseReference(v, &m)
	}
	if err != nil {
		return b, err
	}
	return b, m.finish()
}

func parseKind(v Value) (BaseType, *Error) {
	i := slices.Index(kindNames[:], v.text)
	if i <= 0 {
		return BaseType{}, syntaxError(v, "%q is not an atomic-type", v.text)
	}
	return unconstrained(Kind(i)), nil
}

func (t *BaseType) parseIntegers(v Value, m *members) *Error {
	if least, ok := m.member("minInteger", anInteger|optional); ok {
		t.MinInteger = least.Int()
	}
	if most, ok := m.member("maxInteger", anInteger|optional); ok {
		t.MaxInteger = most.Int()
	}
	if t.MinInteger > t.MaxInteger {
		return syntaxError(v, "minInteger exceeds maxInteger")
	}
	return nil
}

func (t *BaseType) parseReals(v Value, m *members) *Error {
	if least, ok := m.member("minReal", anInteger|aReal|optional); ok {
		t.MinReal = least.Float()
	}
	if most, ok := m.member("maxReal", anInteger|aReal|optional); ok {
		t.MaxReal = most.Float()
	}
	if t.MinReal > t.MaxReal {
		return syntaxError(v, "minReal exceeds maxReal")
	}
	return nil
}

func (t *BaseType) parseLengths(v Value, m *members) *Error {
	for _, limit := range []struct {
		name string
		to   *int
	}{{"minLength", &t.MinLength}, {"maxLength", &t.MaxLength}} {
		n, ok := m.member(limit.name, anInteger|optional)
		if !ok {
			continue
		}
		if n.Int() < 0 || n.Int() > math.MaxUint32 {
			return syntaxError(n, "%s out of valid range 0 to %d", limit.name, uint32(math.MaxUint32))
		}
		*limit.to = int(n.Int())
	}
	if t.MinLength > t.MaxLength {
		return syntaxError(v, "minLength exceeds maxLength")
	}
	return nil
}

func (t *BaseType) parseReference(v Value, m *members) *Error {
	table, ok := m.member("refTable", anID|optional)
	if !ok {
		return nil
	}
	t.RefTable, t.Ref = strings.Clone(table.text), Strong
	kind, ok := m.member("refType", aText|optional)
	switch {
	case !ok || kind.text == "strong":
	case kind.text == "weak":
		t.Ref = Weak
	default:
		return syntaxError(v, "refType must be \"strong\" or \"weak\" (not %q)", kind.text)
	}
	return nil
}
