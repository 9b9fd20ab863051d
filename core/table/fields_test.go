package table

import (
	"fmt"
	"testing"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

const fieldsSchema = `{"name":"D","tables":{
"A":{"columns":{"n":{"type":"integer"},"s":{"type":"string"}}},
"B":{"columns":{"n":{"type":"integer"}}}}}`

// What changed in a change of many rows is found by table, column and uuid.
func TestPartsOfAChange(t *testing.T) {
	s, bad := ovs.ParseSchema([]byte(fieldsSchema))
	if bad != nil {
		t.Fatal(bad)
	}
	row := func(id byte, columns ...ovs.Atom) *Row {
		r := &Row{UUID: ovs.UUID{id}}
		for _, a := range columns {
			r.Columns = append(r.Columns, ovs.Datum{Keys: []ovs.Atom{a}})
		}
		return r
	}
	n, text := ovs.IntegerAtom, ovs.StringAtom
	c := &Change{under: s, Rows: []RowChange{
		{0, row(1, n(1), text("x")), row(1, n(2), text("x"))},
		{0, row(2, n(1), text("x")), row(2, n(1), text("y"))},
		{1, nil, row(1, n(1))},
		{1, row(3, n(1)), nil},
	}}
	another := &Change{Schema: s}
	part := func(name string) []core.Part { return []core.Part{{Field: FieldRows, Name: name}} }
	for _, tt := range []struct {
		part string
		any  bool
		rows []byte // in which it changed
	}{
		{"A/n", true, []byte{1}},
		{"A/s", true, []byte{2}},
		{"A/_version", true, []byte{1, 2}},
		{"A/_uuid", false, nil},
		{"B/n", true, []byte{1, 3}},
		{"B/_uuid", true, []byte{1, 3}},
		{"B/s", true, []byte{1, 3}},
		{"C/n", false, nil},
	} {
		if got := (Family{}).PartsChanged(c, c, part(tt.part)); got != tt.any {
			t.Errorf("%s changed: %v", tt.part, got)
		}
		var rows []byte
		for id := range byte(5) {
			if (Family{}).PartsChangedOf(c, part(tt.part), FieldRow, RowText(ovs.UUID{id})) {
				rows = append(rows, id)
			}
		}
		if string(rows) != string(tt.rows) {
			t.Errorf("%s changed in the rows %v, want %v", tt.part, rows, tt.rows)
		}
		if (Family{}).PartsChanged(another, another, part(tt.part)) {
			t.Errorf("%s changed with the schema", tt.part)
		}
	}
	if got, want := fmt.Sprintf("%x", (Family{}).Texts(nil, c, FieldRow)), fmt.Sprintf("%x", []string{RowText(ovs.UUID{1}), RowText(ovs.UUID{2}), RowText(ovs.UUID{1}), RowText(ovs.UUID{3})}); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	for change, want := range map[*Change]uint64{c: 1<<FieldRows | 1<<FieldRow, another: 1 << FieldSchema} {
		if got := (Family{}).Changed(change, change); got != want {
			t.Errorf("changed: %b, want %b", got, want)
		}
	}
}
