package ovs

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`[1,"a",null,true,{"b":[1.5e3,-0.0]}]`, `"\u00e9\ud83d\ude00\n"`, `{"a":1,"a":2}`, `[[[`, "1e22", "10026001000101002.2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ParseJSON(text)
		if err != nil {
			return
		}
		b := v.AppendSorted(nil)
		again, err := ParseJSON(string(b))
		if err != nil {
			t.Fatalf("%q is printed as %s: %v", text, b, err)
		}
		c := again.AppendSorted(nil)
		if bytes.Contains(b, []byte("e+")) {
			// A large real is printed with 15 digits, and that read as the integer it is.
			last := parseText(t, string(c))
			b, c = c, last.AppendSorted(nil)
		}
		if !bytes.Equal(b, c) {
			t.Fatalf("%q is printed as %s, that as %s", text, b, c)
		}
	})
}

func FuzzDatum(f *testing.F) {
	s := testSchema(f)
	for _, text := range []string{`1`, `0.25`, `["set",[3,1,2]]`, `["map",[["b","1"],["a","é"]]]`, `["uuid","0d8a47b3-86fa-4c33-9c48-829982886b86"]`, `["named-uuid","a"]`, `"b b"`} {
		for i := range 4 {
			f.Add(text, uint8(i*6))
		}
	}
	f.Fuzz(func(t *testing.T, text string, column uint8) {
		v, jerr := ParseJSON(text)
		if jerr != nil {
			return
		}
		typ := &s.Tables[0].Columns[int(column)%len(s.Tables[0].Columns)].Type
		d, err := ParseDatum(v, typ, func(string) UUID { return UUID{1} })
		if err != nil {
			return
		}
		if err := d.Check(typ); err != nil {
			t.Fatalf("%s is %v: %v", text, d, err)
		}
		c, rest, ok := DecodeDatum(d.AppendBinary(nil))
		if !ok || len(rest) > 0 || !c.Equal(d) {
			t.Fatalf("%v becomes %v", d, c)
		}
		again, err := ParseDatum(parseText(t, string(d.AppendJSON(nil, typ))), typ, nil)
		if typ.Key.Kind != Real && (err != nil || !again.Equal(d)) {
			t.Fatalf("%v is %s, that is %v: %v", d, d.AppendJSON(nil, typ), again, err)
		}
	})
}

// corpus has the operations of testdata/operations.txt.
func corpus(f *testing.F) (list []string) {
	text, err := os.ReadFile("testdata/operations.txt")
	if err != nil {
		f.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if i%2 == 0 && line != "" {
			list = append(list, line)
		}
	}
	return list
}

func FuzzTransaction(f *testing.F) {
	s := testSchema(f)
	for _, line := range corpus(f) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ParseJSON("[" + text + "]"); err == nil {
			parseOps(t, s, text)
		}
	})
}

func FuzzOperation(f *testing.F) {
	s := testSchema(f)
	for _, line := range corpus(f) {
		for _, o := range parseOps(f, s, line) {
			if o.Op != OpFail {
				f.Add(o.AppendBinary(nil))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, ok := DecodeOperation(b, s)
		if !ok {
			return
		}
		bin := o.AppendBinary(nil)
		again, ok := DecodeOperation(bin, s)
		if !ok || !bytes.Equal(bin, again.AppendBinary(nil)) {
			t.Fatalf("%x is %+v, that is %x", b, o, bin)
		}
		execute(s, &o)
	})
}

// execute does what whoever executes an operation does with it: nothing that was
// decoded may make it panic.
func execute(s *Schema, o *Operation) {
	if o.Op >= OpCommit {
		return
	}
	table := s.Tables[o.Table]
	r := &Row{Columns: make([]Datum, len(table.Columns))}
	for i, c := range table.Columns {
		r.Columns[i] = c.Default
	}
	for i := range o.Where {
		o.Where[i].Holds(r)
	}
	for _, v := range o.Row {
		if v.Column >= 0 {
			r.Columns[v.Column] = v.Value
		}
	}
	for i := range o.Mutations {
		m := &o.Mutations[i]
		if d, err := m.Apply(&table.Columns[m.Column].Type, r.Columns[m.Column]); err == nil {
			r.Columns[m.Column] = d
		}
	}
	for _, c := range o.Columns {
		r.Datum(c).AppendJSON(nil, &table.At(c).Type)
	}
}

func FuzzRow(f *testing.F) {
	table, _ := testSchema(f).Table("A")
	r := &Row{}
	for _, c := range table.Columns {
		r.Columns = append(r.Columns, c.Default)
	}
	f.Add(r.AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := DecodeRow(b, table); ok && !bytes.Equal(r.AppendBinary(nil), b) {
			t.Fatalf("%x is read as %v, which is %x", b, r, r.AppendBinary(nil))
		}
	})
}

const oneRow = `["T",{"op":"update","table":"A","where":[["_uuid","==",["uuid","0d8a47b3-86fa-4c33-9c48-829982886b86"]]],"row":{"ref":["set",[["uuid","550e8400-e29b-41d4-a716-446655440000"]]],"name":"port-1"}},` +
	`{"op":"comment","comment":"bound by a chassis"}]`

func BenchmarkParseOneRowUpdate(b *testing.B) {
	s, uuid := testSchema(b), counter()
	b.ReportAllocs()
	for b.Loop() {
		v, _ := ParseJSON(oneRow)
		if ops, _ := ParseTransaction(s, v.Elements()[1:], uuid); ops[1].Op != OpComment {
			b.Fatal(ops)
		}
	}
}

func BenchmarkParseEcho(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if v, _ := ParseJSON(`{"id":"echo","result":[],"error":null}`); v.Members() != 3 {
			b.Fatal(v)
		}
	}
}

func BenchmarkOperationInTheLog(b *testing.B) {
	s := testSchema(b)
	ops := parseOps(b, s, strings.TrimSuffix(strings.TrimPrefix(oneRow, `["T",`), "]"))
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = ops[0].AppendBinary(buf[:0])
		if _, ok := DecodeOperation(buf, s); !ok {
			b.Fatal("not decoded")
		}
	}
}
