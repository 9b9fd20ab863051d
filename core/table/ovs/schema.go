package ovs

// Indexes of the columns that every table has. All others are 0 and above.
const (
	ColumnUUID    = -1 // _uuid
	ColumnVersion = -2 // _version
)

// Schema describes a database. It never changes once parsed.
type Schema struct {
	Name    string
	Version string   // x.y.z, empty if the document has none
	Cksum   string   // as the document has it
	Tables  []*Table // sorted by name; an operation's table is an index into it
	JSON    []byte   // canonical text: members sorted, defaults left out

	byName map[string]int
}

// Table describes a table.
type Table struct {
	Name    string
	Columns []*Column // sorted by name, without _uuid and _version; rows have one datum each in this order
	MaxRows int       // at least 1; math.MaxInt if not limited
	IsRoot  bool      // rows stay without being referred to; true for all tables if no table of the schema says so
	Indexes [][]int   // columns whose values together are unique, in the order of the document

	index  int
	isRoot bool // as the document has it
	byName map[string]int
}

// Column describes a column.
type Column struct {
	Name      string
	Type      Type
	Ephemeral bool // need not survive; of a column that refers weakly or strongly it is said by the document all the same
	Mutable   bool
	Default   Datum // shared

	index        int
	defaultError *Error // what is wrong with the default, if its constraints do not allow it
}

// The columns that every table has.
var (
	columnUUID    = &Column{Name: "_uuid", Type: Type{Key: unconstrained(UUIDKind), Min: 1, Max: 1}, index: ColumnUUID}
	columnVersion = &Column{Name: "_version", Type: Type{Key: unconstrained(UUIDKind), Min: 1, Max: 1}, index: ColumnVersion, Ephemeral: true}
)

// Table returns the table of a name and its index, nil if there is none.
func (s *Schema) Table(name string) (*Table, int) {
	i, ok := s.byName[name]
	if !ok {
		return nil, -1
	}
	return s.Tables[i], i
}

// Index is the column's place in its table, or [ColumnUUID] or [ColumnVersion].
func (c *Column) Index() int { return c.index }

// Index is the table's place in its schema.
func (t *Table) Index() int { return t.index }

// Column returns the column of a name, also _uuid and _version, nil if there is none.
func (t *Table) Column(name string) *Column {
	if i, ok := t.byName[name]; ok {
		return t.Columns[i]
	}
	switch name {
	case columnUUID.Name:
		return columnUUID
	case columnVersion.Name:
		return columnVersion
	}
	return nil
}

// At returns the column of an index, nil if there is none.
func (t *Table) At(i int) *Column {
	switch {
	case i >= 0 && i < len(t.Columns):
		return t.Columns[i]
	case i == ColumnUUID:
		return columnUUID
	case i == ColumnVersion:
		return columnVersion
	}
	return nil
}
