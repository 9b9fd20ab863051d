package ovs

// Row is a row of a table. It never changes once shared.
type Row struct {
	UUID, Version UUID
	Columns       []Datum // one for each of the table's columns
}

// Datum returns that of a column, also of [ColumnUUID] and [ColumnVersion].
func (r *Row) Datum(column int) Datum {
	switch column {
	case ColumnUUID:
		return Datum{Keys: []Atom{UUIDAtom(r.UUID)}}
	case ColumnVersion:
		return Datum{Keys: []Atom{UUIDAtom(r.Version)}}
	}
	return r.Columns[column]
}
