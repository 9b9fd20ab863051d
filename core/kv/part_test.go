package kv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent/core"
)

func part(name string) []core.Part { return []core.Part{{Field: fieldValue, Name: name}} }

func valued(value string) *Entry { return &Entry{Value: []byte(value)} }

// What differs is found in one comparison; it agrees with looking each part up in both
// documents and comparing them there.
func TestPartsAgreeWithNaiveLookups(t *testing.T) {
	names := rapid.SampledFrom([]string{"", "a", "b", "0", "1", "00", "+0", "-0", "~0", "~1", "/", "~"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		scalar := rapid.SampledFrom([]any{nil, true, false, "", "a", 0, 1})
		if depth == 0 {
			return scalar
		}
		return rapid.OneOf(scalar,
			rapid.Map(rapid.SliceOfN(value(depth-1), 0, 3), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(names, value(depth-1), 0, 3), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		was := value(3).Draw(t, "was")
		is := value(3).Draw(t, "is")
		if rapid.Bool().Draw(t, "within the same") { // else most differ at their beginnings
			was, is = map[string]any{"a": []any{was, "x"}, "b": is}, map[string]any{"a": []any{is, "x"}, "b": is}
		}
		before, after := encoded(t, was), encoded(t, is)
		changed := Family{}.Compare(valued(before), valued(after))
		for range 20 {
			name := strings.Join(rapid.SliceOfN(names, 1, 4).Draw(t, "part"), "/")
			x, had := naivePart(decoded(t, before), name)
			y, has := naivePart(decoded(t, after), name)
			if got, want := changed(part(name)), had != has || !reflect.DeepEqual(x, y); got != want {
				t.Fatalf("part %q of %s and %s: changed is %v", name, before, after, got)
			}
		}
	})
}

func encoded(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func decoded(t *rapid.T, s string) (v any) {
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// naivePart finds a part of a document.
func naivePart(doc any, name string) (part any, there bool) {
	for token := range strings.SplitSeq(name, "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch d := doc.(type) {
		case map[string]any:
			if doc, there = d[token]; !there {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(d) || strconv.Itoa(i) != token {
				return nil, false
			}
			doc = d[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// What costs something to look at is looked at once: a part is then found without
// decoding anything, and without comparing what is large.
func TestPartsAreFoundWithoutDecoding(t *testing.T) {
	const units, deep = 1000, 400
	list := make([]int, units)
	doc := func(changes int) string {
		nested := strings.Repeat(`{"n":`, deep) + fmt.Sprint(changes) + strings.Repeat("}", deep)
		return fmt.Sprintf(`{"units":%s,"deep":%s,"changes":%d}`, strings.Join(strings.Fields(fmt.Sprint(list)), ","), nested, changes)
	}
	before, after := valued(doc(1)), valued(doc(2))
	if !json.Valid(before.Value) {
		t.Fatalf("it is no JSON: %s", before.Value)
	}
	changed := Family{}.Compare(before, after)
	lists := map[bool][][]core.Part{
		true:  {part("changes"), part("deep"), part("deep" + strings.Repeat("/n", deep/2)), part("deep" + strings.Repeat("/n", deep))},
		false: {part("units"), part("units/7"), part("units/1000"), part("none"), part("deep" + strings.Repeat("/n", deep/2) + "/m")},
	}
	allocated := testing.AllocsPerRun(10, func() {
		for want, lists := range lists {
			for _, l := range lists {
				if changed(l) != want {
					t.Errorf("part %.40q: changed is not %v", l[0].Name, want)
				}
			}
		}
	})
	if allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// A value that cannot be looked at changes in all its parts, and one that is as it was in none.
func TestPartsOfWhatIsNotLookedAt(t *testing.T) {
	large := `"` + strings.Repeat("x", MaxPartedBytes) + `"`
	for _, tt := range []struct {
		name          string
		before, after any
		want          bool
	}{
		{"it comes", (*Entry)(nil), valued(`{"a":1}`), true},
		{"it goes", valued(`{"a":1}`), (*Entry)(nil), true},
		{"it comes without the part", nil, valued(`{"b":1}`), false},
		{"another form of the same", valued(`{"a":1}`), valued(` {"a": 1}`), false},
		{"the same", valued(large), valued(large), false},
		{"it becomes too large", valued(`{"a":1}`), valued(large), true},
		{"it becomes no JSON", valued(`{"a":1}`), valued(`{"a":1`), true},
		{"it becomes other than JSON", valued(`{`), valued(`{{`), false},
	} {
		if got := (Family{}).PartsChanged(tt.before, tt.after, part("a")); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
