package ovsdb

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

const conditionSchema = `{"name":"C","tables":{"R":{"isRoot":true,"columns":{
"n":{"type":{"key":"integer","min":0,"max":1}},"s":{"type":{"key":"string","min":0,"max":"unlimited"}},
"m":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}`

// randomValue is one of a column, as JSON.
func randomValue(r *rand.Rand, column string) string {
	texts := func(format string) string {
		var list []string
		for _, k := range r.Perm(5)[:r.IntN(4)] {
			list = append(list, strings.ReplaceAll(fmt.Sprintf(format, k), "V", fmt.Sprint(r.IntN(2))))
		}
		return strings.Join(list, ",")
	}
	switch {
	case column == "s":
		return `["set",[` + texts(`"k%d"`) + `]]`
	case column == "m":
		return `["map",[` + texts(`["k%d","V"]`) + `]]`
	case r.IntN(4) == 0:
		return `["set",[]]`
	}
	return fmt.Sprint(r.IntN(6))
}

// Whether one of conditions holds for a row is the same whether they are looked up or gone
// through.
func TestConditionsAreLookedUp(t *testing.T) {
	s, bad := ovs.ParseSchema([]byte(conditionSchema))
	if bad != nil {
		t.Fatal(bad)
	}
	seed := rand.Uint64() //nolint:gosec // any will do
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
	of, columns := s.Tables[0], []string{"n", "s", "m"}
	parse := func(text string) ovs.Value {
		v, bad := ovs.ParseJSON(text)
		if bad != nil {
			t.Fatalf("%s: %v", text, bad)
		}
		return v
	}
	for range 3000 {
		w := wish{}
		for range 1 + r.IntN(12) {
			column := columns[r.IntN(3)]
			functions := []string{"==", "==", "includes", "includes", "!=", "excludes", "<", ">="}
			c, bad := ovs.ParseCondition(of, parse(fmt.Sprintf(`[%q,%q,%s]`, column, functions[r.IntN(len(functions))], randomValue(r, column))), nil)
			if bad == nil { // some functions are none for some columns
				w.where = append(w.where, c)
			}
		}
		before := slices.Clone(w.where)
		if err := w.order(of); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			row := &ovs.Row{Columns: make([]ovs.Datum, len(of.Columns))}
			for _, name := range columns {
				c := of.Column(name)
				if row.Columns[c.Index()], bad = ovs.ParseDatum(parse(randomValue(r, name)), &c.Type, nil); bad != nil {
					t.Fatal(bad)
				}
			}
			want := slices.ContainsFunc(before, func(c ovs.Condition) bool { return c.Holds(row) })
			if got := holdsAny(w.where, row); got != want {
				t.Fatalf("%v for row %v: %v, want %v", before, row, got, want)
			}
		}
	}
}

// manyRows are rows of which it is counted how many are looked at.
type manyRows struct {
	contents
	rows   []*ovs.Row
	looked int
}

func (m *manyRows) Find(_ int, where []ovs.Condition, fn func(*ovs.Row) bool) {
	for _, r := range m.rows {
		m.looked++
		if holdsAll(where, r) && !fn(r) {
			return
		}
	}
}

func (*manyRows) Indexed(int, *ovs.Condition) bool { return false }

// Rows are looked at once, however many conditions a monitor has.
func TestG39_RowsAreLookedAtOnce(t *testing.T) {
	const n = 500
	s := &spec{}
	state := &manyRows{}
	for i := range int64(n) {
		d := ovs.Datum{Keys: []ovs.Atom{ovs.IntegerAtom(i)}}
		s.where = append(s.where, ovs.Condition{Function: ovs.Equal, Arg: d})
		state.rows = append(state.rows, &ovs.Row{Columns: []ovs.Datum{d}}, &ovs.Row{Columns: []ovs.Datum{{Keys: []ovs.Atom{ovs.IntegerAtom(-1 - i)}}}})
	}
	found := 0
	s.each(state, func(*ovs.Row) { found++ })
	if found != n || state.looked != 2*n {
		t.Errorf("found %d rows of %d, having looked at %d of %d", found, n, state.looked, 2*n)
	}
}

// conditions are those of a monitor of table Q, for numbers from one on.
func conditions(from, n int, function string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `["n","%s",%d],`, function, from+i)
	}
	return `{"Q":{"columns":["n"],"where":[` + strings.TrimSuffix(b.String(), ",") + `]}}`
}

// A monitor may ask for tens of thousands of values, as one does that wants the rows of so
// many others. Conditions that are each work for each row are few, and what is over does
// not count any more.
func TestG39_ConditionsOfMonitorsAreBounded(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	const many = 20_000
	c.call("transact", `["T",{"op":"insert","table":"Q","row":{"n":5}}]`)
	begin := func(id, what string) string { return c.call("monitor_cond", `["T","`+id+`",`+what+`]`) }
	if got := begin("m", conditions(0, ovs.MaxConditions+1, "!=")); !strings.Contains(got, `"error":"resources exhausted"`) {
		t.Errorf("conditions that are not looked up: %.200s", got)
	}
	const five = `{"Q":{"ID":{"initial":{"n":5}}}}`
	wantIDs(t, "as many as there may be", begin("l", conditions(0, ovs.MaxConditions, "<")), five)
	wantIDs(t, "many", begin("m", conditions(0, many, "==")), five)
	change := strings.Replace(strings.TrimSuffix(conditions(0, many+1, "=="), "}"), `{"Q":{"columns":["n"],`, `{"Q":[{`, 1) + "]}"
	want(t, "one more", c.call("monitor_cond_change", `["m","m",`+change+`]`), `{}`)
	kept := func() (n int64) {
		for _, c := range m.door.conns.All() {
			n += c.kept.Load()
		}
		return n
	}
	if n := kept(); n != (many+1+ovs.MaxConditions)*(conditionBytes+atomBytes) {
		t.Errorf("%d bytes count", n)
	}
	for _, id := range []string{"l", "m"} {
		want(t, "its end", c.call("monitor_cancel", `["`+id+`"]`), `{}`)
	}
	if n := kept(); n != 0 {
		t.Errorf("%d bytes count of monitors that are over", n)
	}
}

// What the conditions of all monitors of a connection cost is bounded, whichever it makes
// more.
func TestG39_ConditionsOfAConnectionAreBounded(t *testing.T) {
	d := &Door{}
	c := &conn{door: d, shares: admit.Who{Client: admit.KeyOf("c")}}
	of := func(bytes int) []wish {
		text := ovs.StringAtom(strings.Repeat("x", bytes-conditionBytes-atomBytes))
		return []wish{{where: []ovs.Condition{{Function: ovs.Equal, Arg: ovs.Datum{Keys: []ovs.Atom{text}}}}}}
	}
	one, other := &monitor{conn: c}, &monitor{conn: c}
	const most = maxConditionBytes
	for i, step := range []struct {
		of    *monitor
		bytes int
		fits  bool
	}{
		{one, most / 2, true},
		{other, most / 2, true},
		{one, most/2 + 1, false},
		{one, most / 2, true},
		{other, most/2 - 1, true},
		{one, most/2 + 1, true},
	} {
		if bad := step.of.keeps(of(step.bytes)); (bad == nil) != step.fits || bad != nil && faultOf(bad).Name != ovs.ResourcesExhausted {
			t.Errorf("step %d: %v", i, bad)
		}
	}
	for _, m := range []*monitor{one, other} {
		if _ = m.keeps(nil); m.kept != 0 {
			t.Errorf("%d bytes count of what is over", m.kept)
		}
	}
	if n, all := c.kept.Load(), d.WishBytes(); n != 0 || all != 0 {
		t.Errorf("%d bytes count, and %d of all", n, all)
	}
}

// So is what those of all connections cost; one client leaves room for others.
func TestConditionsOfAllConnectionsAreBounded(t *testing.T) {
	const most = MaxWishBytes / 4
	d := &Door{lanes: admit.Clocked{Controller: withRoom(t, most/4)}}
	text := ovs.StringAtom(strings.Repeat("x", 1<<20))
	wishes := []wish{{where: slices.Repeat([]ovs.Condition{{Function: ovs.Equal, Arg: ovs.Datum{Keys: []ovs.Atom{text}}}}, 60)}}
	keep := func(client string) (m *monitor, kept bool) {
		m = &monitor{conn: &conn{door: d, shares: admit.Who{Client: admit.KeyOf(client)}}}
		bad := m.keeps(wishes)
		if bad != nil && faultOf(bad).Name != ovs.ResourcesExhausted {
			t.Error(bad)
		}
		if n := m.conn.kept.Load(); (n == 0) == (bad == nil) {
			t.Errorf("%d bytes count on its connection: %v", n, bad)
		}
		return m, bad == nil
	}
	var all []*monitor
	for m, kept := keep("greedy"); kept; m, kept = keep("greedy") {
		all = append(all, m)
	}
	if n := d.WishBytes(); n < most/10*7 || n > most/10*9 {
		t.Errorf("one client has %d bytes", n)
	}
	if _, kept := keep("other"); !kept {
		t.Error("another has no room")
	}
	for _, m := range all {
		_ = m.keeps(nil)
	}
	if _, kept := keep("greedy"); !kept || d.WishBytes() != 2*costOf(wishes) {
		t.Errorf("what is over counts: %d bytes", d.WishBytes())
	}
}

// What is kept of a request that was answered does not keep its message.
func TestG39_NothingKeepsMessages(t *testing.T) {
	const each, n = 1 << 20, 20
	m := startWithSchema(t)
	c := m.dial()
	pad := strings.Repeat("x", each)
	padded := func(method, params string) string {
		c.write(`{"method":"` + method + `","params":` + params + `,"id":7,"pad":"` + pad + `"}`)
		return c.answer()
	}
	grown := func(what string, do func(i int)) {
		t.Helper()
		before := heap()
		for i := range n {
			do(i)
			m.tick(int(beatEvery / tickEvery)) // however long it takes, the locks' session lives
		}
		if after := heap(); after > before+each*n/2 {
			t.Errorf("%s: the heap has grown by %d KiB", what, (after-before)>>10)
		}
	}
	grown("locks", func(i int) {
		want(t, "a lock", padded("lock", fmt.Sprintf(`["a%d"]`, i)), `{"locked":true}`)
	})
	grown("monitors", func(i int) {
		want(t, "a monitor", padded("monitor_cond", fmt.Sprintf(`["T","m%d",{"P":{"columns":["name"],"where":[["name","==","a%d"]]}}]`, i, i)), `{}`)
	})
	grown("monitors with other conditions", func(i int) {
		want(t, "a change", padded("monitor_cond_change", fmt.Sprintf(`["m%d","m%d",{"P":[{"where":[["name","==","b%d"]]}]}]`, i, i, i)), `{}`)
	})
	grown("ids", func(i int) {
		long := fmt.Sprintf(`"%s%d"`, pad, i)
		for method, params := range map[string]string{
			"monitor_cond": `["T",` + long + `,{"P":{}}]`, "monitor_cond_change": `["m1",` + long + `,{}]`,
		} {
			if got := c.call(method, params); !strings.Contains(got, `"error":"resources exhausted"`) {
				t.Errorf("%s with a long id: %.200s", method, got)
			}
		}
	})
	runtime.KeepAlive(m)
}

// heap is what is on it that is still in use.
func heap() uint64 {
	var m runtime.MemStats
	for range 2 { // what has a finalizer goes with the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A message that has many values counts as what is made of them, as long as it is not
// answered. Where there is no room for them a small one is refused, and who sends a large one is
// cut off before anything is made of it.
func TestG47_ValuesCountAsBytes(t *testing.T) {
	const values = 100_000
	m := startWithSchema(t)
	c := m.dial()
	wait := func(n int) string {
		return ask("7", "transact", `["T",{"op":"wait","timeout":0,"table":"Q","where":[],"columns":["n"],"until":"!=","rows":[`+
			strings.TrimSuffix(strings.Repeat(`{},`, n), ",")+`]}]`)
	}
	m.group.Hold()
	c.write(wait(values))
	await(t, "its values count", func() bool { return m.door.PartialBytes() > values*valueBytes-smallMessage })
	m.group.Release()
	want(t, "its answer", c.answer(), `[{}]`)
	await(t, "nothing counts", func() bool { return m.door.PartialBytes() == 0 })

	m.door.SetLimits(Limits{MaxPartialBytes: values * valueBytes / 2})
	large := m.dial()
	_, _ = io.WriteString(large.conn, wait(values)) // it is cut off meanwhile
	large.ended()
	m.door.SetLimits(Limits{MaxPartialBytes: 1})
	c.write(wait(smallMessage / valueBytes))
	if got := c.answer(); !strings.Contains(got, `"error":"resources exhausted"`) {
		t.Errorf("without room: %.200s", got)
	}
	c.write(wait(10))
	want(t, "a small one", c.answer(), `[{}]`)
	await(t, "nothing counts any more", func() bool { return m.door.PartialBytes() == 0 })
}
