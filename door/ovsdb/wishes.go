package ovsdb

import (
	"cmp"
	"slices"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// selectNames are the kinds of changes as clients select them.
var selectNames = [numKinds]string{initial: "initial", insert: "insert", remove: "delete", modify: "modify"}

// selectsIn reads which kinds of changes a client selects.
func selectsIn(v ovs.Value) (selects, *ovs.Error) {
	if v.Kind() != ovs.Object {
		return 0, syntaxError("select is an object")
	}
	out := everything
	for i := range v.Members() {
		name, value := v.MemberAt(i)
		k := slices.Index(selectNames[:], name)
		switch {
		case k < 0:
			return 0, syntaxError("a monitor does not select %q", name)
		case value.Kind() == ovs.False:
			out &^= 1 << k
		case value.Kind() != ovs.True:
			return 0, syntaxError("%s is selected or not", name)
		}
	}
	return out, nil
}

func syntaxError(format string, args ...any) *ovs.Error {
	return ovs.Errorf(ovs.SyntaxError, format, args...)
}

// wishes reads what a client wants of tables.
func (x *shape) wishes(v ovs.Value, method version) ([]wish, *ovs.Error) {
	if v.Kind() != ovs.Object {
		return nil, syntaxError("what is monitored is an object of tables")
	}
	out := make([]wish, 0, v.Members())
	for i := range v.Members() {
		name, want := v.MemberAt(i)
		t, at := x.schema.Table(name)
		if t == nil {
			return nil, syntaxError("no table named %s", name)
		}
		w := wish{table: at}
		if err := w.read(t, want, method); err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b wish) int { return cmp.Compare(a.table, b.table) })
	return out, nil
}

// requestsIn is one request of a table, or several.
func requestsIn(v ovs.Value) []ovs.Value {
	if v.Kind() == ovs.Array {
		return v.Elements()
	}
	return []ovs.Value{v}
}

// read reads what a client wants of a table.
func (w *wish) read(t *ovs.Table, v ovs.Value, method version) *ovs.Error {
	chosen := map[int]selects{}
	for _, want := range requestsIn(v) {
		if want.Kind() != ovs.Object {
			return syntaxError("what is monitored of table %s is an object", t.Name)
		}
		if err := w.readOne(t, want, method, chosen); err != nil {
			return err
		}
	}
	if err := w.order(t); err != nil {
		return err
	}
	for c, s := range chosen {
		w.columns = append(w.columns, shown{c, s})
	}
	slices.SortFunc(w.columns, func(a, b shown) int { return cmp.Compare(a.column, b.column) })
	return nil
}

func (w *wish) readOne(t *ovs.Table, v ovs.Value, method version, chosen map[int]selects) *ovs.Error {
	columns, err := columnsIn(t, v)
	if err != nil {
		return err
	}
	which := everything
	if s, there := v.Member("select"); there {
		if which, err = selectsIn(s); err != nil {
			return err
		}
	}
	w.selects |= which
	for _, c := range columns {
		if _, twice := chosen[c]; twice {
			return syntaxError("column %s is mentioned more than once", t.At(c).Name)
		}
		chosen[c] = which
	}
	where, narrows := v.Member("where")
	if narrows && method == plain {
		return syntaxError("this kind of monitor has no conditions")
	}
	for i := range v.Members() {
		if name, _ := v.MemberAt(i); name != "columns" && name != "select" && name != "where" {
			return syntaxError("a monitor of a table has no member %q", name)
		}
	}
	return w.narrow(t, where, narrows)
}

// columnsIn are the columns that a client names; if it names none, all but that of the
// row's id.
func columnsIn(t *ovs.Table, v ovs.Value) ([]int, *ovs.Error) {
	names, there := v.Member("columns")
	var out []int
	if !there {
		out = append(out, ovs.ColumnVersion)
		for i := range t.Columns {
			out = append(out, i)
		}
		return out, nil
	}
	if names.Kind() != ovs.Array {
		return nil, syntaxError("columns are an array of names")
	}
	for _, name := range names.Elements() {
		c := t.Column(name.Text())
		if c == nil {
			return nil, syntaxError("no column %s in table %s", name.Append(nil), t.Name)
		}
		out = append(out, c.Index())
	}
	return out, nil
}

// narrow adds conditions, of which one is to hold; none of them: all rows are wanted.
func (w *wish) narrow(t *ovs.Table, where ovs.Value, there bool) *ovs.Error {
	if there && where.Kind() != ovs.Array {
		return syntaxError("conditions are an array")
	}
	clauses := where.Elements()
	w.all = w.all || len(clauses) == 0
	for _, clause := range clauses {
		switch clause.Kind() {
		case ovs.True:
			w.all = true
			continue
		case ovs.False:
			continue
		}
		c, err := ovs.ParseCondition(t, clause, nil)
		if err != nil {
			return err
		}
		w.where = append(w.where, c)
	}
	if w.all {
		w.where = nil
	}
	return nil
}

// order puts the conditions in order, each once, so that they are found by what rows have,
// and keeps them without the message that they came in. Its error says that too many can
// not be found so: each of these is work for each row.
func (w *wish) order(t *ovs.Table) *ovs.Error {
	slices.SortFunc(w.where, compareConditions)
	w.where = slices.CompactFunc(w.where, func(a, b ovs.Condition) bool { return compareConditions(a, b) == 0 })
	others := 0
	for i := range w.where {
		c := &w.where[i]
		c.Arg = c.Arg.Clone()
		if !looksUp(c) {
			others++
		}
	}
	if others > ovs.MaxConditions {
		return ovs.Errorf(ovs.ResourcesExhausted, "of table %s a monitor has at most %d conditions that are not == or includes of one value", t.Name, ovs.MaxConditions)
	}
	w.where = slices.Clip(w.where)
	return nil
}

// checkChange returns nil if what a client says of a table's conditions has nothing but these, and
// columns: else it would be taken for one that says none, and all rows would be told.
func checkChange(t *ovs.Table, v ovs.Value) *ovs.Error {
	if v.Kind() != ovs.Object {
		return syntaxError("a change of the conditions of table %s is an object", t.Name)
	}
	for i := range v.Members() {
		switch name, value := v.MemberAt(i); {
		case name != "columns" && name != "where":
			return syntaxError("a change of the conditions of table %s has no member %q", t.Name, name)
		case name == "columns" && value.Kind() != ovs.Array:
			return syntaxError("columns are an array of names")
		}
	}
	return nil
}

// changed is wishes with other conditions for some tables: those that are said last of each,
// as of ovsdb-server. Where none are said they stay what they were.
func (x *shape) changed(was []wish, v ovs.Value) ([]wish, *ovs.Error) {
	if v.Kind() != ovs.Object {
		return nil, syntaxError("conditions are an object of tables")
	}
	out := slices.Clone(was)
	for i := range v.Members() {
		name, want := v.MemberAt(i)
		t, at := x.schema.Table(name)
		k := slices.IndexFunc(out, func(w wish) bool { return w.table == at })
		if t == nil || k < 0 {
			return nil, syntaxError("the monitor has no table %s", name)
		}
		if want.Kind() != ovs.Array {
			return nil, syntaxError("the conditions of table %s are in an array", name)
		}
		w := &out[k]
		for _, one := range want.Elements() {
			if err := checkChange(t, one); err != nil {
				return nil, err
			}
			w.where, w.all = nil, false
			where, there := one.Member("where")
			if err := w.narrow(t, where, there); err != nil {
				return nil, err
			}
			if err := w.order(t); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
