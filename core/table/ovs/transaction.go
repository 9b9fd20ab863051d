package ovs

import (
	"slices"
	"time"
)

// maxTimeout is the longest time that a wait may name; longer ones are as good as
// for ever.
const maxTimeout = 1 << 40 // ms

// ParseTransaction parses the operations of a transaction (the params behind the
// name of the database) and checks them against the schema. New uuids are taken
// from uuid. Parsing ends with the first operation that has an error of its own,
// as [OpFail]: those before it are still to be executed, for their results, and
// those behind it, which are not looked at, stand as comments and are not reached. It fails as a whole only if there
// are more than [MaxOperations].
// Texts in what it returns alias what was parsed.
func ParseTransaction(s *Schema, ops []Value, uuid func() UUID) ([]Operation, *Error) {
	if len(ops) > MaxOperations {
		return nil, Errorf(ResourcesExhausted, "a transaction has at most %d operations, not %d", MaxOperations, len(ops))
	}
	p := transactionParser{schema: s, uuid: uuid}
	p.resolve = p.named
	list := make([]Operation, 0, len(ops))
	for i, v := range ops {
		list = append(list, Operation{})
		if err := p.operation(v, i+1, len(ops), &list[i]); err != nil {
			list[i] = Operation{Op: OpFail, Err: err}
			for range ops[i+1:] {
				list = append(list, Operation{Op: OpComment})
			}
			break
		}
	}
	return list, nil
}

type transactionParser struct {
	schema  *Schema
	uuid    func() UUID
	symbols map[string]*symbol
	resolve func(string) UUID // named
}

// symbol is the name of a row of this transaction.
type symbol struct {
	uuid    UUID
	created bool // an insert had it as uuid-name
}

func (p *transactionParser) symbol(name string) *symbol {
	y, ok := p.symbols[name]
	if !ok {
		if p.symbols == nil {
			p.symbols = map[string]*symbol{}
		}
		y = &symbol{uuid: p.uuid()}
		p.symbols[name] = y
	}
	return y
}

// named returns the uuid of a name that may be given to a row only later, or never:
// then it is that of no row.
func (p *transactionParser) named(name string) UUID { return p.symbol(name).uuid }

// operation parses one operation. What its members are is said before what is in
// them, as clients are used to.
func (p *transactionParser) operation(v Value, at, of int, o *Operation) *Error {
	m := members{v: v, what: "ovsdb operation", at: at, of: of}
	if v.kind != Object {
		m.fail("Object expected.")
		return m.err
	}
	op, ok := m.member("op", anID)
	if !ok {
		return m.err
	}
	switch op.text {
	case "insert":
		return p.insert(&m, o)
	case "select":
		return p.query(&m, o)
	case "update":
		return p.update(&m, o)
	case "mutate":
		return p.mutate(&m, o)
	case "delete":
		return p.remove(&m, o)
	case "wait":
		return p.wait(&m, o)
	case "commit":
		o.Op = OpCommit
		durable, _ := m.member("durable", aBoolean)
		o.Durable = durable.kind == True
	case "abort":
		o.Op = OpAbort
	case "comment":
		o.Op = OpComment
		text, _ := m.member("comment", aText|aGarbled)
		o.Text = text.text
	case "assert":
		o.Op = OpAssert
		lock, _ := m.member("lock", anID)
		o.Text = lock.text
	default:
		m.fail("No operation \"%s\"", op.text)
	}
	return m.finish()
}

func (p *transactionParser) table(m *members, o *Operation) *Table {
	name, ok := m.member("table", anID)
	if !ok {
		return nil
	}
	t, i := p.schema.Table(name.text)
	if t == nil {
		m.fail("No table named %s.", name.text)
	}
	o.Table = i
	return t
}

func (p *transactionParser) insert(m *members, o *Operation) *Error {
	o.Op = OpInsert
	t := p.table(m, o)
	id, given := m.member("uuid", aText|optional)
	name, isNamed := m.member("uuid-name", anID|optional)
	row, _ := m.member("row", anObject)
	if err := m.finish(); err != nil {
		return err
	}
	if o.Given = given; given {
		u, ok := ParseUUID(id.text)
		if !ok {
			return syntaxError(id, "bad uuid")
		}
		o.UUID = u
	}
	switch {
	case isNamed:
		y := p.symbol(name.text)
		if y.created {
			return errorAt(name, DuplicateUUIDName, "This \"uuid-name\" appeared on an earlier \"insert\" operation.")
		}
		y.created = true
		if given {
			y.uuid = o.UUID
		}
		o.UUID = y.uuid
	case !given:
		o.UUID = p.uuid()
	}
	values, err := p.row(t, row)
	if err != nil {
		return err
	}
	// What a row's uuid is, its insert says; what version, the commit.
	o.Row = slices.DeleteFunc(values, func(v ColumnValue) bool { return v.Column < 0 })
	return checkDefaults(t, o.Row)
}

// checkDefaults returns an error if a column that is left out may not have its
// default.
func checkDefaults(t *Table, row []ColumnValue) *Error {
	for i, c := range t.Columns {
		if len(row) > 0 && row[0].Column == i {
			row = row[1:]
			continue
		}
		if err := c.defaultError; err != nil {
			return err
		}
	}
	return nil
}

func (p *transactionParser) update(m *members, o *Operation) *Error {
	o.Op = OpUpdate
	t := p.table(m, o)
	where, _ := m.member("where", anArray)
	row, _ := m.member("row", anObject)
	if err := m.finish(); err != nil {
		return err
	}
	var err *Error
	if o.Row, err = p.row(t, row); err != nil {
		return err
	}
	for _, v := range o.Row {
		if c := t.At(v.Column); !c.Mutable {
			return errorAt(m.v, ConstraintError, "Cannot update immutable column %s in table %s.", c.Name, t.Name)
		}
	}
	return p.where(t, where, o)
}

func (p *transactionParser) mutate(m *members, o *Operation) *Error {
	o.Op = OpMutate
	t := p.table(m, o)
	where, _ := m.member("where", anArray)
	mutations, _ := m.member("mutations", anArray)
	if err := m.finish(); err != nil {
		return err
	}
	if err := atMost(len(mutations.list), "mutations"); err != nil {
		return err
	}
	o.Mutations = make([]Mutation, len(mutations.list))
	for i, v := range mutations.list {
		var err *Error
		if o.Mutations[i], err = ParseMutation(t, v, p.resolve); err != nil {
			return err
		}
	}
	return p.where(t, where, o)
}

func (p *transactionParser) remove(m *members, o *Operation) *Error {
	o.Op = OpDelete
	t := p.table(m, o)
	where, _ := m.member("where", anArray)
	if err := m.finish(); err != nil {
		return err
	}
	return p.where(t, where, o)
}

func (p *transactionParser) query(m *members, o *Operation) *Error {
	o.Op = OpSelect
	t := p.table(m, o)
	where, _ := m.member("where", anArray)
	columns, some := m.member("columns", anArray|optional)
	sort, _ := m.member("sort", anArray|optional)
	err := m.finish()
	if err == nil {
		err = p.where(t, where, o)
	}
	if err == nil {
		o.Columns, err = p.columns(t, columns, some)
	}
	if err == nil && len(sort.list) > 0 {
		o.Sort, err = p.columns(t, sort, true)
	}
	return err
}

func (p *transactionParser) wait(m *members, o *Operation) *Error {
	o.Op = OpWait
	timeout, limited := m.member("timeout", anInteger|optional)
	where, _ := m.member("where", anArray)
	columns, some := m.member("columns", anArray|optional)
	until, _ := m.member("until", aText)
	rows, _ := m.member("rows", anArray)
	t := p.table(m, o)
	err := m.finish()
	if err == nil {
		err = p.where(t, where, o)
	}
	if err == nil {
		o.Columns, err = p.columns(t, columns, some)
	}
	if err != nil {
		return err
	}
	if limited && timeout.Int() < 0 {
		return syntaxError(timeout, "timeout must be nonnegative")
	}
	o.HasTimeout, o.Timeout = limited, time.Duration(min(timeout.Int(), maxTimeout))*time.Millisecond
	if o.Equal = until.text == "=="; !o.Equal && until.text != "!=" {
		return syntaxError(until, "\"until\" must be \"==\" or \"!=\"")
	}
	o.Rows = make([][]ColumnValue, len(rows.list))
	for i, v := range rows.list {
		if o.Rows[i], err = p.row(t, v); err != nil {
			return err
		}
	}
	return nil
}

// atMost returns an error if an operation has more conditions or mutations than it may.
func atMost(n int, what string) *Error {
	if n <= MaxConditions {
		return nil
	}
	return Errorf(ResourcesExhausted, "an operation has %d %s: limit MaxConditions is %d", n, what, MaxConditions)
}

func (p *transactionParser) where(t *Table, v Value, o *Operation) (err *Error) {
	if err := atMost(len(v.list), "conditions"); err != nil {
		return err
	}
	o.Where = make([]Condition, len(v.list))
	for i, e := range v.list {
		if o.Where[i], err = ParseCondition(t, e, p.resolve); err != nil {
			return err
		}
	}
	return nil
}

// columns parses a list of columns; without one it is all of them.
func (p *transactionParser) columns(t *Table, v Value, some bool) ([]int, *Error) {
	if !some {
		all := make([]int, 0, len(t.Columns)+2)
		for i := ColumnVersion; i < len(t.Columns); i++ {
			all = append(all, i)
		}
		return all, nil
	}
	list, err := parseColumns(t, v)
	slices.Sort(list)
	return list, err
}

func (p *transactionParser) row(t *Table, v Value) ([]ColumnValue, *Error) {
	if v.kind != Object {
		return nil, syntaxError(v, "row must be JSON object")
	}
	row := make([]ColumnValue, 0, v.Members())
	for i := range v.Members() {
		name, e := v.MemberAt(i)
		c := t.Column(name)
		if c == nil {
			return nil, errorAt(v, UnknownColumn, "No column %s in table %s.", name, t.Name)
		}
		d, err := ParseDatum(e, &c.Type, p.resolve)
		if err != nil {
			return nil, err
		}
		row = append(row, ColumnValue{c.index, d})
	}
	slices.SortFunc(row, func(a, b ColumnValue) int { return a.Column - b.Column })
	return row, nil
}

// DuplicateUUIDError is the error of an insert whose uuid is not new.
func DuplicateUUIDError(u UUID) *Error {
	return &Error{
		Name: DuplicateUUID, Syntax: string(AppendString(nil, u.String())),
		Details: "This UUID would duplicate a UUID already present within the table or deleted within the same transaction.",
	}
}

// TimedOutError is the error of a wait that does not hold and has no time left,
// after waiting so long.
func TimedOutError(waited time.Duration) *Error {
	if waited <= 0 {
		return Errorf(TimedOut, "\"where\" clause test failed")
	}
	return Errorf(TimedOut, "\"wait\" timed out after %d ms", waited.Milliseconds())
}

// NotOwnerError is the error of an assert of a lock that is not held.
func NotOwnerError(lock string) *Error {
	return Errorf(NotOwner, "Asserted lock %s not held.", lock)
}

// AbortedError is the error of an abort.
func AbortedError() *Error { return Errorf(Aborted, "aborted by request") }
