package ovs

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func typeOf(t testing.TB, column string) *Type {
	t.Helper()
	table, _ := testSchema(t).Table("A")
	return &table.Column(column).Type
}

func datum(t testing.TB, column, text string) Datum {
	t.Helper()
	d, err := ParseDatum(parseText(t, text), typeOf(t, column), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", column, text, err)
	}
	return d
}

func TestMutations(t *testing.T) {
	const least, most = "-9223372036854775808", "9223372036854775807"
	for _, c := range []struct{ column, was, mutation, want string }{
		{"i", "-7", `["i","%=",4]`, "-3"},
		{"i", "-7", `["i","/=",4]`, "-1"},
		{"i", "-7", `["i","*=",-4]`, "28"},
		{"i", "7", `["i","-=",9]`, "-2"},
		{"i", "0", `["i","-=",` + least + `]`, `range error: Result of "-=" operation is out of range.`},
		{"i", "-1", `["i","-=",` + least + `]`, most},
		{"i", most, `["i","+=",0]`, most},
		{"i", most, `["i","+=",1]`, `range error: Result of "+=" operation is out of range.`},
		{"i", least, `["i","-=",1]`, `range error: Result of "-=" operation is out of range.`},
		{"i", least, `["i","/=",-1]`, `range error: Result of "/=" operation is out of range.`},
		{"i", least, `["i","%=",-1]`, `range error: Result of "%=" operation is out of range.`},
		{"i", least, `["i","*=",-1]`, `range error: Result of "*=" operation is out of range.`},
		{"i", "4294967296", `["i","*=",2147483648]`, `range error: Result of "*=" operation is out of range.`},
		{"i", "-4294967296", `["i","*=",2147483648]`, least},
		{"i", "1", `["i","/=",0]`, "domain error: Division by zero."},
		{"i", "1", `["i","%=",0]`, "domain error: Division by zero."},
		{"r", "1", `["r","/=",0]`, "domain error: Division by zero."},
		{"r", "1e308", `["r","*=",1e308]`, `range error: Result of "*=" operation is out of range.`},
		{"r", "1", `["r","/=",4]`, "0.25"},
		{"rng", "1", `["rng","+=",11]`, "constraint violation: 12 is not in the valid range 0 to 10 (inclusive)"},
		{"oi", `["set",[]]`, `["oi","+=",11]`, `["set",[]]`},
		{"si", `["set",[1,2,3]]`, `["si","+=",1]`, `["set",[2,3,4]]`},
		{"si", `["set",[1,2,3]]`, `["si","*=",-1]`, `["set",[-3,-2,-1]]`},
		{"si", `["set",[1,2,3]]`, `["si","*=",0]`, `constraint violation: Result of "*=" operation contains duplicates.`},
		{"si", `["set",[1,2,3]]`, `["si","insert",4]`, "constraint violation: Attempted to store 4 elements in set of up to 3 integers."},
		{"si", `["set",[1,3]]`, `["si","insert",["set",[2,3]]]`, `["set",[1,2,3]]`},
		{"si", `["set",[1,2,3]]`, `["si","delete",["set",[0,1,3,4,5]]]`, "2"},
		{"s1", `"x"`, `["s1","delete","x"]`, "constraint violation: Attempted to store 0 elements in set of 1 or more strings."},
		{"m", `["map",[["a","1"]]]`, `["m","insert",["map",[["a","2"],["b","3"]]]]`, `["map",[["a","1"],["b","3"]]]`},
		{"m", `["map",[["a","1"],["b","3"]]]`, `["m","delete",["map",[["a","2"],["b","3"]]]]`, `["map",[["a","1"]]]`},
		{"m", `["map",[["a","1"],["b","3"]]]`, `["m","delete",["set",["a","c"]]]`, `["map",[["b","3"]]]`},
		{"m", `["map",[["a","1"],["b","3"]]]`, `["m","delete","b"]`, `["map",[["a","1"]]]`},
		{"mi", `["map",[["a",1],["b",2]]]`, `["mi","insert",["map",[["c",3]]]]`, "constraint violation: Attempted to store 3 elements in map of up to 2 (string, integer) pairs."},
	} {
		table, _ := testSchema(t).Table("A")
		m, err := ParseMutation(table, parseText(t, c.mutation), nil)
		if err != nil {
			t.Errorf("%s: %v", c.mutation, err)
			continue
		}
		was := datum(t, c.column, c.was)
		got, err := m.Apply(typeOf(t, c.column), was)
		text := string(got.AppendJSON(nil, typeOf(t, c.column)))
		if err != nil {
			text = err.Error()
		}
		if text != c.want {
			t.Errorf("%s of %s is %s, want %s", c.mutation, c.was, text, c.want)
		}
		if again := datum(t, c.column, c.was); !was.Equal(again) {
			t.Errorf("%s changes its argument %s", c.mutation, c.was)
		}
	}
}

func TestConditions(t *testing.T) {
	table, _ := testSchema(t).Table("A")
	for _, c := range []struct {
		column, value, condition string
		want                     bool
	}{
		{"i", "1", `["i","<",2]`, true},
		{"i", "2", `["i","<",2]`, false},
		{"i", "2", `["i","<=",2]`, true},
		{"i", "2", `["i",">",2]`, false},
		{"i", "3", `["i",">",2]`, true},
		{"i", "2", `["i",">=",2]`, true},
		{"i", "1", `["i",">=",2]`, false},
		{"i", "2", `["i","==",2]`, true},
		{"i", "2", `["i","!=",2]`, false},
		{"i", "2", `["i","includes",2]`, true},
		{"i", "2", `["i","excludes",2]`, false},
		{"i", "2", `true`, true},
		{"i", "2", `false`, false},
		{"r", "0.5", `["r","<",1]`, true},
		{"oi", `["set",[]]`, `["oi","<",2]`, false},
		{"oi", `["set",[]]`, `["oi",">=",2]`, false},
		{"oi", `1`, `["oi","<",2]`, true},
		{"oi", `["set",[]]`, `["oi","!=",2]`, true},
		{"oi", `["set",[]]`, `["oi","==",["set",[]]]`, true},
		{"si", `["set",[1,2,3]]`, `["si","includes",["set",[1,3]]]`, true},
		{"si", `["set",[1,2,3]]`, `["si","includes",["set",[1,4]]]`, false},
		{"si", `["set",[1,2,3]]`, `["si","excludes",["set",[4,5,6,7]]]`, true},
		{"si", `["set",[1,2,3]]`, `["si","excludes",["set",[3,4]]]`, false},
		{"m", `["map",[["a","1"],["b","2"]]]`, `["m","includes",["map",[["a","1"]]]]`, true},
		{"m", `["map",[["a","1"],["b","2"]]]`, `["m","includes",["map",[["a","2"]]]]`, false},
		{"m", `["map",[["a","1"],["b","2"]]]`, `["m","excludes",["map",[["a","2"]]]]`, true},
		{"m", `["map",[["a","1"],["b","2"]]]`, `["m","excludes",["map",[["a","1"],["z","0"]]]]`, false},
		{"_uuid", `["uuid","00000000-0000-0000-0000-000000000001"]`, `["_uuid","==",["uuid","00000000-0000-0000-0000-000000000001"]]`, true},
		{"_uuid", `["uuid","00000000-0000-0000-0000-000000000001"]`, `["_version","==",["uuid","00000000-0000-0000-0000-000000000001"]]`, false},
		{"_version", `["uuid","00000000-0000-0000-0000-000000000001"]`, `["_version","!=",["uuid","00000000-0000-0000-0000-000000000001"]]`, false},
	} {
		cond, err := ParseCondition(table, parseText(t, c.condition), nil)
		if err != nil {
			t.Errorf("%s: %v", c.condition, err)
			continue
		}
		r := &Row{Columns: make([]Datum, len(table.Columns))}
		d := datum(t, c.column, c.value)
		switch i := table.Column(c.column).Index(); i {
		case ColumnUUID:
			r.UUID = d.Keys[0].UUID()
		case ColumnVersion:
			r.Version = d.Keys[0].UUID()
		default:
			r.Columns[i] = d
		}
		if got := cond.Holds(r); got != c.want {
			t.Errorf("%s of %s is %v", c.condition, c.value, got)
		}
		if c.condition[0] == '[' && string(cond.AppendJSON(nil, table)) != c.condition {
			t.Errorf("%s is printed as %s", c.condition, cond.AppendJSON(nil, table))
		}
	}
}

// drawDatum draws a datum of a type without constraints, of a few different elements.
func drawDatum(t *rapid.T, typ *Type, label string) Datum {
	atom := func(k Kind) Atom {
		n := rapid.Int64Range(0, 7).Draw(t, label)
		switch k {
		case Integer:
			return IntegerAtom(n - 3 + math.MaxInt64*(n%2))
		case Real:
			return RealAtom(float64(n-3) / 4)
		case Boolean:
			return BooleanAtom(n%2 == 1)
		case String:
			return StringAtom([]string{"", "a", "b", "é\n", "\"", "long enough for a length of two bytes? no", "Z", "aa"}[n])
		}
		return UUIDAtom(UUID{byte(n), 9: byte(n)})
	}
	var d Datum
	n := rapid.IntRange(typ.Min, min(typ.Max, 6)).Draw(t, label+" size")
	for range n {
		k := atom(typ.Key.Kind)
		if at, there := d.Find(k); !there {
			one := Datum{Keys: []Atom{k}}
			if typ.IsMap() {
				one.Values = []Atom{atom(typ.Value.Kind)}
			}
			d = d.Union(one)
			_ = at
		}
	}
	return d
}

func drawType(t *rapid.T) *Type {
	typ := &Type{Key: unconstrained(Kind(rapid.IntRange(1, 5).Draw(t, "key")))}
	if rapid.Bool().Draw(t, "map") {
		typ.Value = unconstrained(Kind(rapid.IntRange(1, 5).Draw(t, "value")))
	}
	typ.Min = rapid.IntRange(0, 1).Draw(t, "min")
	typ.Max = rapid.SampledFrom([]int{1, 6, Unlimited}).Draw(t, "max")
	return typ
}

// What changes one datum into another, applied to it, gives the other; and all
// forms of a datum give it back.
func TestDifferencesAndForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t)
		a, b := drawDatum(t, typ, "a"), drawDatum(t, typ, "b")
		if err := a.Check(typ); err != nil {
			t.Fatalf("%v: %v", a, err)
		}
		diff := Diff(a, b, typ)
		got, err := ApplyDiff(a, diff, typ)
		if err != nil || !got.Equal(b) {
			t.Fatalf("%v with %v is %v, want %v: %v", a, diff, got, b, err)
		}
		if typ.Max > 1 && a.Equal(b) != (len(diff.Keys) == 0) {
			t.Fatalf("%v and %v differ in %v", a, b, diff)
		}
		v, jerr := ParseJSON(string(a.AppendJSON(nil, typ)))
		if jerr != nil {
			t.Fatal(jerr)
		}
		if c, err := ParseDatum(v, typ, nil); err != nil || !c.Equal(a) {
			t.Fatalf("%v is %s in JSON, that is %v: %v", a, a.AppendJSON(nil, typ), c, err)
		}
		bin := a.AppendBinary(nil)
		c, rest, ok := DecodeDatum(append(bin, 1, 2, 3))
		if !ok || len(rest) != 3 || !c.Equal(a) {
			t.Fatalf("%v is %x, that is %v: %v, rest %d", a, bin, c, ok, len(rest))
		}
		if u := a.Union(b); !u.Includes(a) || !u.fits(typ) || !u.Without(b).Excludes(b) {
			t.Fatalf("%v and %v are %v", a, b, u)
		}
		if CompareDatums(a, b) != -CompareDatums(b, a) || (CompareDatums(a, b) == 0) != a.Equal(b) {
			t.Fatalf("order of %v and %v: %d", a, b, CompareDatums(a, b))
		}
	})
}

func TestRowsAreReadAsTheyAreWritten(t *testing.T) {
	table, _ := testSchema(t).Table("A")
	rapid.Check(t, func(t *rapid.T) {
		r := &Row{UUID: UUID{1}, Version: UUID{2}}
		for _, c := range table.Columns {
			d := c.Default
			if rapid.Bool().Draw(t, c.Name+" is set") {
				d = drawDatum(t, &c.Type, c.Name)
			}
			r.Columns = append(r.Columns, d)
		}
		b := r.AppendBinary(nil)
		got, ok := DecodeRow(b, table)
		if !ok || string(got.AppendBinary(nil)) != string(b) || got.UUID != r.UUID || got.Version != r.Version {
			t.Fatalf("%x is read as %v, %v", b, got, ok)
		}
		for i, d := range got.Columns {
			if !d.Equal(r.Columns[i]) || !d.Equal(got.Datum(i)) {
				t.Fatalf("column %d: %v, want %v", i, d, r.Columns[i])
			}
		}
		if _, ok := DecodeRow(b[:len(b)-1], table); ok {
			t.Fatal("a row that is cut short is read")
		}
		if _, ok := DecodeRow(append(b, 0), table); ok {
			t.Fatal("a row with something behind it is read")
		}
	})
}

func TestOperationsMeanWhatTheySay(t *testing.T) {
	s := testSchema(t)
	ops := parseOps(t, s, `{"op":"insert","table":"A","row":{"name":"x","ref":["named-uuid","b"],"_uuid":["uuid","00000000-0000-0000-0000-0000000000ff"]}},
		{"op":"insert","table":"B","uuid-name":"b","row":{"e":"p"}},
		{"op":"insert","table":"B","uuid":"00000000-0000-0000-0000-0000000000aa","uuid-name":"c","row":{"e":"q"}},
		{"op":"mutate","table":"A","where":[["name","==","x"],["_uuid","!=",["named-uuid","c"]]],"mutations":[["wref","insert",["named-uuid","c"]]]},
		{"op":"wait","table":"A","where":[],"columns":["name"],"until":"!=","rows":[{"name":"y"}],"timeout":1.0},
		{"op":"select","table":"B","where":[],"sort":["x","_uuid"]},
		{"op":"comment","comment":"ünïcode"},{"op":"assert","lock":"l"},{"op":"commit","durable":true},{"op":"abort"}`)
	a, _ := s.Table("A")
	b := ops[1].UUID
	if ops[0].UUID == b || ops[0].UUID.IsZero() || b.IsZero() {
		t.Errorf("uuids %s and %s", ops[0].UUID, b)
	}
	want := []ColumnValue{{a.Column("name").Index(), Datum{Keys: []Atom{StringAtom("x")}}}, {a.Column("ref").Index(), Datum{Keys: []Atom{UUIDAtom(b)}}}}
	if d := cmp.Diff(want, ops[0].Row, cmp.AllowUnexported(Atom{})); d != "" {
		t.Error(d)
	}
	given := UUIDAtom(UUID{15: 0xaa})
	if !ops[2].Given || UUIDAtom(ops[2].UUID) != given || ops[3].Where[1].Arg.Keys[0] != given || ops[3].Mutations[0].Arg.Keys[0] != given {
		t.Errorf("a uuid that was given is not where its name is: %+v", ops[3])
	}
	if w := ops[4]; w.Equal || !w.HasTimeout || w.Timeout.Milliseconds() != 1 || len(w.Rows) != 1 || len(w.Columns) != 1 {
		t.Errorf("the wait is %+v", w)
	}
	if q := ops[5]; cmp.Diff(q.Columns, []int{ColumnVersion, ColumnUUID, 0, 1}) != "" || cmp.Diff(q.Sort, []int{ColumnUUID, 1}) != "" {
		t.Errorf("the select is %+v", q)
	}
	if ops[6].Text != "ünïcode" || ops[7].Text != "l" || !ops[8].Durable || ops[9].Op != OpAbort {
		t.Errorf("%+v", ops[6:])
	}
}

func TestParsingStopsAtTheFirstError(t *testing.T) {
	ops := parseOps(t, testSchema(t), `{"op":"comment","comment":"a"},{"op":"foo"},{"op":"abort"}`)
	if len(ops) != 3 || ops[0].Op != OpComment || ops[1].Op != OpFail || ops[2].Op != OpComment ||
		ops[1].Err.Details != `Parsing ovsdb operation 2 of 3 failed: No operation "foo"` {
		t.Errorf("%+v", ops)
	}
}

func TestErrorsOfExecution(t *testing.T) {
	for want, e := range map[string]*Error{
		`{"details":"\"where\" clause test failed","error":"timed out"}`:   TimedOutError(0),
		`{"details":"\"wait\" timed out after 12 ms","error":"timed out"}`: TimedOutError(12e6),
		`{"details":"Asserted lock l not held.","error":"not owner"}`:      NotOwnerError("l"),
		`{"details":"aborted by request","error":"aborted"}`:               AbortedError(),
		`{"details":"This UUID would duplicate a UUID already present within the table or deleted within the same transaction.","error":"duplicate uuid","syntax":"\"00000000-0000-0000-0000-000000000000\""}`: DuplicateUUIDError(UUID{}),
	} {
		if got := string(e.AppendJSON(nil)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
