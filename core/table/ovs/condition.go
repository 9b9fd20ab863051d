package ovs

// Function is that of a condition. Numbers are part of the binary form.
type Function uint8

// Functions of conditions.
const (
	Never  Function = iota // the condition is false
	Always                 // the condition is true
	Less
	LessOrEqual
	Equal
	NotEqual
	GreaterOrEqual
	Greater
	Includes
	Excludes
	numFunctions
)

var functionNames = [...]string{"false", "true", "<", "<=", "==", "!=", ">=", ">", "includes", "excludes"}

func (f Function) String() string { return functionNames[f] }

// orders reports whether f compares numbers.
func (f Function) orders() bool {
	return f == Less || f == LessOrEqual || f == GreaterOrEqual || f == Greater
}

// Condition is one of a where. Without a column ([Never], [Always]) Column is 0.
type Condition struct {
	Column   int
	Function Function
	Arg      Datum
}

// ParseCondition parses one condition of a table: of a transaction, where named
// may resolve names of new rows, or of a monitor, where it is nil.
func ParseCondition(t *Table, v Value, named func(string) UUID) (Condition, *Error) {
	switch {
	case v.kind == True:
		return Condition{Function: Always}, nil
	case v.kind == False:
		return Condition{Function: Never}, nil
	case v.kind != Array || len(v.list) != 3 || v.list[0].kind != Text || v.list[1].kind != Text:
		return Condition{}, syntaxError(v, "Parse error in condition.")
	}
	col := t.Column(v.list[0].text)
	if col == nil {
		return Condition{}, errorAt(v, UnknownColumn, "No column %s in table %s.", v.list[0].text, t.Name)
	}
	c := Condition{Column: col.index}
	for f := Less; f < numFunctions; f++ {
		if functionNames[f] == v.list[1].text {
			c.Function = f
		}
	}
	if c.Function == Never {
		return c, Errorf(UnknownFunction, "No function named %s.", v.list[1].text)
	}
	typ, ok := c.Function.argType(&col.Type)
	if !ok {
		return c, syntaxError(v, "Type mismatch: \"%s\" operator may not be applied to column %s of type %s.", c.Function, col.Name, col.Type.English())
	}
	var err *Error
	c.Arg, err = ParseDatum(v.list[2], &typ, named)
	return c, err
}

// argType returns the type of the argument where a column is of type t, false if
// the function is none for such columns.
func (f Function) argType(t *Type) (Type, bool) {
	typ := *t
	switch {
	case f.orders():
		if !t.IsScalar() && !t.IsOptional() || t.Key.Kind != Integer && t.Key.Kind != Real {
			return typ, false
		}
		typ.Min = 1
	case f == Includes && !t.IsScalar():
		typ.Min = 0
	case f == Excludes && !t.IsScalar():
		typ.Min, typ.Max = 0, Unlimited
	}
	return typ, true
}

// Holds reports whether the condition holds for a row.
func (c *Condition) Holds(r *Row) bool {
	switch {
	case c.Function == Always:
		return true
	case c.Function == Never:
		return false
	case c.Column >= 0:
		return c.HoldsFor(r.Columns[c.Column])
	}
	// Rows have no datum of _uuid and _version: one is made where none has to be
	// kept.
	u := r.UUID
	if c.Column == ColumnVersion {
		u = r.Version
	}
	key := [1]Atom{UUIDAtom(u)}
	return c.HoldsFor(Datum{Keys: key[:]})
}

// HoldsFor reports whether the condition holds for a datum of its column.
func (c *Condition) HoldsFor(d Datum) bool {
	switch c.Function {
	case Always:
		return true
	case Equal:
		return d.Equal(c.Arg)
	case NotEqual:
		return !d.Equal(c.Arg)
	case Includes:
		return d.Includes(c.Arg)
	case Excludes:
		return d.Excludes(c.Arg)
	case Never:
		return false
	}
	// A number that is not there is neither less nor greater.
	if len(d.Keys) == 0 {
		return false
	}
	order := Compare(d.Keys[0], c.Arg.Keys[0])
	switch c.Function {
	case Less:
		return order < 0
	case LessOrEqual:
		return order <= 0
	case Greater:
		return order > 0
	}
	return order >= 0
}

// AppendJSON appends the condition of a table.
func (c *Condition) AppendJSON(b []byte, t *Table) []byte {
	if c.Function <= Always {
		return append(b, c.Function.String()...)
	}
	col := t.At(c.Column)
	b = AppendString(append(b, '['), col.Name)
	b = AppendString(append(b, ','), c.Function.String())
	b = c.Arg.AppendJSON(append(b, ','), &col.Type)
	return append(b, ']')
}
