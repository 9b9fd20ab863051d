package ovs

// ParseRow parses a row with the uuid that it has, as files of databases have rows: an
// object of columns, of which those that are left out are at their default.
func ParseRow(t *Table, id string, v Value) (*Row, *Error) {
	u, ok := ParseUUID(id)
	if !ok {
		return nil, Errorf(SyntaxError, "\"%s\" is not a valid UUID", id)
	}
	if v.kind != Object {
		return nil, syntaxError(v, "a row is an object")
	}
	r := &Row{UUID: u, Columns: make([]Datum, len(t.Columns))}
	for i, c := range t.Columns {
		r.Columns[i] = c.Default
	}
	for i := range v.Members() {
		name, value := v.MemberAt(i)
		c := t.Column(name)
		if c == nil || c.index < 0 {
			return nil, errorAt(v, UnknownColumn, "table %s has no column %s", t.Name, name)
		}
		d, err := ParseDatum(value, &c.Type, nil)
		if err != nil {
			return nil, err
		}
		r.Columns[c.index] = d
	}
	return r, nil
}
