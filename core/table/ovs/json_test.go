package ovs

import (
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	for text, want := range map[string]string{
		`1.0`: "1", `1e3`: "1000", `1.5e1`: "15", `-0`: "0", `-0.0`: "0", `0e99`: "0", `100e-2`: "1", `9007199254740993.0`: "9007199254740993",
		`9223372036854775807`: "9223372036854775807", `9223372036854775807.0`: "9223372036854775807", `-9223372036854775808`: "-9223372036854775808",
		`9223372036854775808`: "9.22337203685478e+18", `0.1`: "0.1", `1e22`: "1e+22", `1e-7`: "1e-07", `0.0001`: "0.0001", `0.00001`: "1e-05", `123456789.25`: "123456789.25",
		`0.3333333333333333333`: "0.333333333333333", `999999999999999.9`: "1e+15", `-1.5`: "-1.5", `1E300`: "1e+300", `5e-324`: "4.94065645841247e-324",
		` [ ] `: "[]", `{ }`: "{}", `[1,"a",null,true,false,{"b":[],"a":{}}]`: `[1,"a",null,true,false,{"a":{},"b":[]}]`,
		`{"a":1,"b":2,"a":3}`:        `{"a":3,"b":2}`,
		`"\u00e9\ud83d\ude00\/\"\\"`: `"é😀/\"\\"`,
		`"\b\f\n\r\t\u0001"`:         `"\b\f\n\r\t\u0001"`,
	} {
		if got := string(parseText(t, text).AppendSorted(nil)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{
		"", "[", "[1", "[1,", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{1:2}`, `"`, `"\`, `"\u12`, `"\ud800"`, `"\u0000"`, "\"\x01\"", "\"\xff\"",
		`"\x"`, "01", "-", "1.", "1e", "1e999", "tru", "1 2", "[1]]", "'a'", "+1", ".5",
		strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
	} {
		if v, err := ParseJSON(text); err == nil {
			t.Errorf("%.40q is JSON: %s", text, v.Append(nil))
		}
	}
	many := `[0` + strings.Repeat(",0", MaxValues-2)
	if _, err := ParseJSON(many + "]"); err != nil {
		t.Error(err)
	}
	if _, err := ParseJSON(many + ",0]"); err == nil {
		t.Errorf("a text may have more than %d values", MaxValues)
	}
	if _, err := ParseJSON(strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)); err != nil {
		t.Error(err)
	}
}

// A text of a message that is no UTF-8 is none, and what is left of it is.
func TestTextsThatAreNoUTF8(t *testing.T) {
	for text, want := range map[string]struct {
		kind ValueKind
		is   string
	}{
		`"a"`: {Text, `"a"`}, "\"a\xffb\"": {Garbled, `"a?b"`}, "\"\\n\xff\xfe\xff\"": {Garbled, `"\n?"`}, "\"\xed\xa0\x80\"": {Garbled, `"?"`},
		"{\"\xff\":1}": {Object, `{"?":1}`}, "[\"\xff\",\"\u00e9\"]": {Array, `["?","é"]`},
	} {
		v, err := ParseMessage(text)
		if err != nil || v.Kind() != want.kind || string(v.Append(nil)) != want.is {
			t.Errorf("%q is of kind %v: %s, %v", text, v.Kind(), v.Append(nil), err)
		}
		if _, err := ParseJSON(text); (err == nil) != strings.HasPrefix(want.is, `"a"`) {
			t.Errorf("%q is JSON: %v", text, err)
		}
	}
	for _, text := range []string{"\"\xff", "\"\xff\\", "\"\xff\x01\"", "\"\xff\\u0000\""} {
		if v, err := ParseMessage(text); err == nil {
			t.Errorf("%q is JSON: %s", text, v.Append(nil))
		}
	}
}

func TestTheLastOfManyMembersWins(t *testing.T) {
	for _, n := range []int{3, fewMembers, 3 * fewMembers} {
		var b strings.Builder
		b.WriteString(`{"x":0`)
		for i := range n {
			b.WriteString(`,"` + strings.Repeat("a", i+1) + `":1`)
		}
		b.WriteString(`,"x":7}`)
		v := parseText(t, b.String())
		if x, ok := v.Member("x"); !ok || x.Int() != 7 || v.Members() != n+1 {
			t.Errorf("of %d members %d are left, x is %d", n+2, v.Members(), x.Int())
		}
	}
}

func TestUUIDs(t *testing.T) {
	const text = "0D8a47b3-86fa-4c33-9c48-829982886b86"
	u, ok := ParseUUID(text)
	if !ok || u.String() != strings.ToLower(text) {
		t.Errorf("%v %s", ok, u)
	}
	for _, bad := range []string{"", text[:35], text + "0", strings.Replace(text, "-", "0", 1), strings.Replace(text, "8", "g", 1), strings.ReplaceAll(text, "-", ""), "0d8a47b-386fa-4c33-9c48-829982886b86"} {
		if u, ok := ParseUUID(bad); ok {
			t.Errorf("%q is %s", bad, u)
		}
	}
}
