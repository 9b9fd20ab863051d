package main

import (
	"slices"
	"testing"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// Rows are brought in as the first index of their table has them, else by their uuids.
func TestRowsAreImportedInOrder(t *testing.T) {
	s, err := ovs.ParseSchema([]byte(`{"name":"D","version":"1.0.0","tables":{
"A":{"columns":{"n":{"type":"string"},"m":{"type":"integer"}},"indexes":[["n","m"],["m"]]},"B":{"columns":{"n":{"type":"string"}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	row := func(of *ovs.Table, id byte, n string, m int64) *ovs.Row {
		r := &ovs.Row{UUID: ovs.UUID{id}, Columns: make([]ovs.Datum, len(of.Columns))}
		r.Columns[of.Column("n").Index()] = ovs.Datum{Keys: []ovs.Atom{ovs.StringAtom(n)}}
		if c := of.Column("m"); c != nil {
			r.Columns[c.Index()] = ovs.Datum{Keys: []ovs.Atom{ovs.IntegerAtom(m)}}
		}
		return r
	}
	for _, c := range []struct {
		table string
		want  []byte
	}{{"A", []byte{3, 4, 2, 1}}, {"B", []byte{1, 2, 3, 4}}} {
		of, _ := s.Table(c.table)
		rows := map[ovs.UUID]*ovs.Row{}
		for _, r := range []*ovs.Row{row(of, 1, "c", 0), row(of, 2, "b", 9), row(of, 3, "a", 1), row(of, 4, "a", 2)} {
			rows[r.UUID] = r
		}
		var got []byte
		for _, r := range inOrder(of, rows) {
			got = append(got, r.UUID[0])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("rows of %s come as %v, want %v", c.table, got, c.want)
		}
	}
}
