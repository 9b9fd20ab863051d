package ovs

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// testSchema has a column of each kind of type: testdata/test.ovsschema.
func testSchema(t testing.TB) *Schema {
	t.Helper()
	text, err := os.ReadFile("testdata/test.ovsschema")
	if err != nil {
		t.Fatal(err)
	}
	s, e := ParseSchema(text)
	if e != nil {
		t.Fatal(e)
	}
	return s
}

// counter gives uuids in order.
func counter() func() UUID {
	n := byte(0)
	return func() UUID {
		n++
		return UUID{15: n}
	}
}

func parseText(t testing.TB, text string) Value {
	t.Helper()
	v, err := ParseJSON(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// parseOps parses operations, and checks that the binary form of each says the same.
func parseOps(t testing.TB, s *Schema, text string) []Operation {
	t.Helper()
	ops, err := ParseTransaction(s, parseText(t, "["+text+"]").Elements(), counter())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, o := range ops {
		if o.Op == OpFail {
			continue
		}
		b := o.AppendBinary(nil)
		got, ok := DecodeOperation(b, s)
		if !ok {
			t.Fatalf("%s: is not decoded from %x", text, b)
		}
		if again := got.AppendBinary(nil); string(again) != string(b) {
			t.Fatalf("%s: %x becomes %x", text, b, again)
		}
	}
	return ops
}

// The file has operations, and the error that ovsdb-server answers them with, where
// it follows from the schema alone.
func TestOperationsFailAsClientsAreUsedTo(t *testing.T) {
	text, err := os.ReadFile("testdata/operations.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		ops := parseOps(t, testSchema(t), lines[i])
		got := "ok"
		for _, o := range ops {
			if o.Op == OpFail {
				got = string(o.Err.AppendJSON(nil))
			}
		}
		if want := strings.TrimSpace(lines[i+1]); got != want {
			t.Errorf("%s\n got %s\nwant %s", lines[i], got, want)
		}
	}
}

func TestSchemasArePrintedAsTheyAreParsed(t *testing.T) {
	s := testSchema(t)
	again, err := ParseSchema(s.JSON)
	if err != nil || string(again.JSON) != string(s.JSON) {
		t.Fatalf("%v\n%s", err, cmp.Diff(string(s.JSON), string(again.JSON)))
	}
	text, _ := os.ReadFile("testdata/test.ovsschema")
	// The document says nothing that is a default but the minimum and maximum of one.
	want := string(parseText(t, string(text)).AppendSorted(nil))
	want = strings.NewReplacer(`,"max":1,`, ",", `,"min":1}`, "}").Replace(want)
	if d := cmp.Diff(want, string(s.JSON)); d != "" {
		t.Error(d)
	}
}

func TestBadSchemas(t *testing.T) {
	column := func(typ string) string {
		return `{"name":"a","tables":{"a":{"columns":{"x":{"type":` + typ + `}}}}}`
	}
	for text, want := range map[string]string{
		`1`:                                      "Parsing database schema failed: Object expected.",
		`{}`:                                     "Required 'name' member is missing.",
		`{"name":"1","tables":{}}`:               "Type mismatch for member 'name'.",
		`{"name":"a","tables":{},"version":"1"}`: `schema version "1" not in format x.y.z`,
		`{"name":"a","tables":{},"foo":1}`:       "Member 'foo' is present but not allowed here.",
		`{"name":"a","tables":{"_a":{"columns":{}}}}`:                                                         `names beginning with "_" are reserved`,
		`{"name":"a","tables":{"1a":{"columns":{}}}}`:                                                         "name must be a valid id",
		`{"name":"a","tables":{"a":{"columns":{}}}}`:                                                          "table must have at least one column",
		`{"name":"a","tables":{"a":{"maxRows":0,"columns":{"x":{"type":"integer"}}}}}`:                        "maxRows must be at least 1",
		`{"name":"a","tables":{"a":{"indexes":[1],"columns":{"x":{"type":"integer"}}}}}`:                      "array of distinct column names expected",
		`{"name":"a","tables":{"a":{"indexes":[[]],"columns":{"x":{"type":"integer"}}}}}`:                     "index must have at least one column",
		`{"name":"a","tables":{"a":{"indexes":[["y"]],"columns":{"x":{"type":"integer"}}}}}`:                  "y is not a valid column name",
		`{"name":"a","tables":{"a":{"indexes":[["x","x"]],"columns":{"x":{"type":"integer"}}}}}`:              "array of distinct column names expected",
		`{"name":"a","tables":{"a":{"indexes":[["x"]],"columns":{"x":{"type":"integer","ephemeral":true}}}}}`: "ephemeral columns (such as x) may not be indexed",
		column(`"int"`):                       "\"int\" is not an atomic-type",
		column(`{}`):                          "Required 'key' member is missing.",
		column(`{"key":"void"}`):              "\"void\" is not an atomic-type",
		column(`{"key":"integer","min":2}`):   "ovsdb type fails constraint checks",
		column(`{"key":"integer","min":-1}`):  "bad min or max value",
		column(`{"key":"integer","max":0}`):   "ovsdb type fails constraint checks",
		column(`{"key":"integer","max":"z"}`): "bad min or max value",
		column(`{"key":{"type":"integer","minInteger":3,"maxInteger":1}}`): "minInteger exceeds maxInteger",
		column(`{"key":{"type":"real","minReal":3,"maxReal":1}}`):          "minReal exceeds maxReal",
		column(`{"key":{"type":"string","minLength":3,"maxLength":1}}`):    "minLength exceeds maxLength",
		column(`{"key":{"type":"string","minLength":-3}}`):                 "minLength out of valid range 0 to 4294967295",
		column(`{"key":{"type":"integer","minReal":3}}`):                   "Member 'minReal' is present but not allowed here.",
		column(`{"key":{"type":"string","enum":["set",[]]}}`):              "set must have 1 to 4294967295 members but 0 are present",
		column(`{"key":{"type":"string","enum":["set",["a","a"]]}}`):       "set contains duplicate",
		column(`{"key":{"type":"uuid","refTable":"b"}}`):                   "column x key refers to undefined table b",
		column(`{"key":{"type":"uuid","refTable":"a","refType":"x"}}`):     `refType must be "strong" or "weak" (not "x")`,
		column(`{"key":{"type":"uuid","refType":"weak"}}`):                 "Member 'refType' is present but not allowed here.",
	} {
		s, err := ParseSchema([]byte(text))
		if err == nil {
			t.Errorf("%s is a schema: %s", text, s.JSON)
		} else if !strings.HasSuffix(err.Details, want) {
			t.Errorf("%s: %q, want %q", text, err.Details, want)
		}
	}
}

func TestRootsByDefault(t *testing.T) {
	s := testSchema(t)
	a, _ := s.Table("A")
	b, _ := s.Table("B")
	if !a.IsRoot || b.IsRoot {
		t.Errorf("A is a root: %v, B: %v", a.IsRoot, b.IsRoot)
	}
	s, err := ParseSchema([]byte(strings.Replace(string(s.JSON), `"isRoot":true,`, "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range s.Tables {
		if !table.IsRoot {
			t.Errorf("%s is no root where no table says that it is one", table.Name)
		}
	}
}

// Each condition and each mutation is work for each row, so that an operation has no more
// of them than clients do.
func TestG39_OperationsAreBounded(t *testing.T) {
	s, bad := ParseSchema([]byte(`{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"}}}}}`))
	if bad != nil {
		t.Fatal(bad)
	}
	list := func(one string, n int) string { return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]" }
	for _, op := range []struct{ text, one string }{
		{`{"op":"update","table":"T","where":LIST,"row":{"n":1}}`, `true`},
		{`{"op":"delete","table":"T","where":LIST}`, `["n","!=",0]`},
		{`{"op":"select","table":"T","where":LIST}`, `["n","!=",0]`},
		{`{"op":"wait","table":"T","where":LIST,"columns":["n"],"until":"==","rows":[]}`, `["n","!=",0]`},
		{`{"op":"mutate","table":"T","where":LIST,"mutations":[]}`, `["n","!=",0]`},
		{`{"op":"mutate","table":"T","where":[],"mutations":LIST}`, `["n","+=",1]`},
	} {
		for n, want := range map[int]string{MaxConditions: "", MaxConditions + 1: ResourcesExhausted} {
			ops, err := ParseTransaction(s, parseText(t, "["+strings.Replace(op.text, "LIST", list(op.one, n), 1)+"]").Elements(), counter())
			if err != nil || len(ops) != 1 {
				t.Fatalf("%s: %v", op.text, err)
			}
			got := ""
			if ops[0].Op == OpFail {
				got = ops[0].Err.Name
			}
			if got != want {
				t.Errorf("%d of %s in %s: %q, want %q", n, op.one, op.text, got, want)
			}
		}
	}
}

// What excludes much is found out from whichever has less, which says the same.
func TestExcludesMuch(t *testing.T) {
	set := func(keys ...int64) (d Datum) {
		for _, k := range keys {
			d.Keys = append(d.Keys, IntegerAtom(k))
		}
		return d
	}
	pairs := func(d Datum, values ...int64) Datum { return Datum{d.Keys, set(values...).Keys} }
	for _, tt := range []struct {
		a, b Datum
		want bool
	}{
		{set(), set(1, 2), true},
		{set(3), set(1, 2), true},
		{set(2), set(1, 2), false},
		{pairs(set(2), 7), pairs(set(1, 2), 7, 8), true},
		{pairs(set(2), 8), pairs(set(1, 2), 7, 8), false},
	} {
		if a, b := tt.a.Excludes(tt.b), tt.b.Excludes(tt.a); a != tt.want || b != tt.want {
			t.Errorf("%v excludes %v: %v and %v, want %v", tt.a, tt.b, a, b, tt.want)
		}
	}
}

// A datum of its own does not keep the text that it was parsed from.
func TestClonesKeepNoMessage(t *testing.T) {
	text := `["map",[["key","value"]]]`
	typ := Type{Key: unconstrained(String), Value: unconstrained(String), Max: 1}
	d, err := ParseDatum(parseText(t, text), &typ, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := d.Clone()
	if !c.Equal(d) {
		t.Errorf("the clone of %v is %v", d, c)
	}
	for i, list := range [][2][]Atom{{d.Keys, c.Keys}, {d.Values, c.Values}} {
		if unsafe.StringData(list[0][0].s) == unsafe.StringData(list[1][0].s) {
			t.Errorf("text %d is the same", i)
		}
	}
}
