package watch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

// queryModel plays queries on a table against evaluating every query at every change.
type queryModel struct {
	hub     *Hub
	queries *Queries[*table]
	view    *table
	said    map[string]incumbent.Index // since when each query's result is what it is
	was     map[string]string          // results as they are
	evals   map[string]int
	due     map[string]bool // what a query read changed after it was evaluated
	waits   []*queryModelWait
}

type queryModelWait struct {
	params string
	want   Want
	query  *Query[*table]
	wait   *QueryWait[*table]
	told   []Told
}

var queryScope = [2]string{"ns", "m"}

// queryParams are the queries: a row, rows below a prefix, the first rows from a name
// on, and one whose second look depends on what the first has found.
var queryParams = rapid.Custom(func(t *rapid.T) string {
	verb := rapid.SampledFrom([]string{"row", "prefix", "page", "follow"}).Draw(t, "verb")
	return verb + " " + modelNames.Draw(t, "name")
})

// answerOf is the result of a query; what it reads is noted.
func answerOf(v *table, reads *Reads, params string) string {
	verb, name, _ := strings.Cut(params, " ")
	row := func(name string) string {
		reads.Note(Exact(topic(name)))
		n, there := v.rows[name]
		return fmt.Sprint(name, there, n, ";")
	}
	switch verb {
	case "row":
		return row(name)
	case "prefix":
		reads.Note(Prefix(1, queryScope, name))
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(v.rows)) {
			if strings.HasPrefix(k, name) {
				fmt.Fprint(&b, k, v.rows[k], ";")
			}
		}
		return b.String()
	case "page":
		for _, k := range slices.Sorted(maps.Keys(v.rows)) {
			if k >= name {
				reads.Note(Range(1, queryScope, name, k+"\x00"))
				return fmt.Sprint(k, v.rows[k])
			}
		}
		reads.Note(Range(1, queryScope, name, ""))
		return "none"
	}
	first := row(name)
	if v.rows[name]%2 == 1 {
		return first + row("b")
	}
	return first + row("abc")
}

// touches reports whether a change of a row is of what a query reads of a view.
func touches(v *table, params, row string) bool {
	var reads Reads
	answerOf(v, &reads, params)
	return slices.ContainsFunc(reads.list, func(s Selector) bool { return s.Matches(topic(row)) })
}

// TestG19_G21_QueriesMatchNaiveEvaluation changes rows, asks and waits at random. What
// a query tells must be what evaluating it anew gives; a wait ends exactly when its own
// result is another; a query is evaluated exactly if something that it has read has
// changed since, and somebody waits.
func TestG19_G21_QueriesMatchNaiveEvaluation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &queryModel{
			view: &table{at: 1}, said: map[string]incumbent.Index{}, was: map[string]string{},
			evals: map[string]int{}, due: map[string]bool{},
		}
		now := time.Unix(0, 0)
		later := func() time.Time { now = now.Add(DefaultQueryInterval); return now }
		m.hub = New(Config{Manual: true, Now: later, Limits: Limits{HistoryBytes: 4000}}, 1)
		m.queries = NewQueries(m.hub, func() *table { return m.view })
		t.Repeat(map[string]func(*rapid.T){
			"change": m.change,
			"wait":   m.wait,
			"enough": m.enough,
			"cancel": m.cancel,
			"":       func(*rapid.T) {},
		})
		for _, w := range m.waits {
			w.wait.Cancel()
			w.query.Release()
		}
		m.hub.Close()
	})
}

// change sets or removes rows at one index.
func (m *queryModel) change(t *rapid.T) {
	before := m.view
	v := &table{rows: maps.Clone(before.rows), at: before.at + 1}
	if v.rows == nil {
		v.rows = map[string]int{}
	}
	var events []*Event
	var names []string
	for range rapid.IntRange(0, 3).Draw(t, "rows") {
		name := modelNames.Draw(t, "row")
		names = append(names, name)
		if v.rows[name] = rapid.IntRange(0, 3).Draw(t, "to"); v.rows[name] == 0 {
			delete(v.rows, name)
		}
		events = append(events, event(v.at, name))
	}
	if rapid.Bool().Draw(t, "shared") {
		var topics []Topic
		for _, name := range names {
			topics = append(topics, topic(name))
		}
		s := NewShared(topics, 0)
		for _, e := range events {
			e.Topics, e.Shared = []Topic{{Kind: 9}}, s
		}
	}
	waited := map[string]bool{}
	for _, w := range m.waits {
		waited[w.params] = waited[w.params] || len(w.told) == 0
	}
	evals := maps.Clone(m.evals)
	for params := range m.evals {
		m.due[params] = m.due[params] || slices.ContainsFunc(names, func(n string) bool { return touches(before, params, n) })
	}
	m.view = v
	m.hub.Publish(v.at, events)
	m.hub.Turn()
	m.settle(t, waited, evals)
}

// settle checks what has happened since the queries had been evaluated so often.
func (m *queryModel) settle(t *rapid.T, waited map[string]bool, evals map[string]int) {
	for params := range m.evals {
		want := evals[params]
		if waited[params] && m.due[params] {
			want++
			m.due[params] = false
		}
		if m.evals[params] != want {
			t.Fatalf("%q was evaluated %d times, want %d", params, m.evals[params], want)
		}
		// Naively: the result as it is now. A query nobody waits for says that when it
		// is asked next.
		if now := answerOf(m.view, nil, params); waited[params] && now != m.was[params] {
			m.was[params], m.said[params] = now, m.view.at
		}
	}
	for _, w := range m.waits {
		m.judge(t, w)
	}
}

func (m *queryModel) judge(t *rapid.T, w *queryModelWait) {
	now, since := answerOf(m.view, nil, w.params), m.said[w.params]
	ends := w.want.After == 0 && w.want.Not == Hash{} || w.want.After != 0 && since > w.want.After ||
		w.want.Not != Hash{} && hashOf(now) != w.want.Not
	switch {
	case len(w.told) > 1:
		t.Fatalf("%q was told %d times", w.params, len(w.told))
	case len(w.told) == 0 && ends:
		t.Fatalf("%q waits for %+v, and is %q since %d", w.params, w.want, now, since)
	case len(w.told) == 1 && w.told[0].Read == m.view.at:
		if x := w.told[0]; !ends || x.Answer.Value != now || x.Answer.Changed != since {
			t.Fatalf("%q, waiting for %+v, was told %+v at %d; it is %q since %d", w.params, w.want, x.Answer, m.view.at, now, since)
		}
	case len(w.told) == 1 && w.told[0].Read > m.view.at:
		t.Fatalf("%q was told of index %d", w.params, w.told[0].Read)
	}
}

func hashOf(s string) Hash {
	d := NewDigest()
	d.Text(s)
	return d.Sum()
}

// wait asks, or blocks until the result is another.
func (m *queryModel) wait(t *rapid.T) {
	w := &queryModelWait{params: queryParams.Draw(t, "query")}
	now := answerOf(m.view, nil, w.params)
	switch rapid.IntRange(0, 2).Draw(t, "for") {
	case 0:
		w.want.After = incumbent.Index(rapid.IntRange(1, int(m.view.at)).Draw(t, "after"))
	case 1:
		w.want.Not = hashOf(now)
	}
	if _, known := m.was[w.params]; !known {
		// A query that nobody has held since it began knows of no earlier change.
		m.was[w.params], m.said[w.params], m.due[w.params] = now, m.view.at, true
		m.evals[w.params] = 0
	}
	evals := maps.Clone(m.evals)
	var err error
	w.query, err = m.queries.Query(QuerySpec[*table]{
		Key: QueryKey{Kind: 1, Params: w.params},
		Eval: func(v *table, reads *Reads) Result {
			m.evals[w.params]++
			text := answerOf(v, reads, w.params)
			return Result{Value: text, Hash: hashOf(text), Size: len(text)}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.wait, err = w.query.Wait(w.want, func(x Told) { w.told = append(w.told, x) }); err != nil {
		t.Fatal(err)
	}
	m.waits = append(m.waits, w)
	m.hub.Turn()
	m.settle(t, map[string]bool{w.params: true}, evals)
}

// enough has a wait, over or not, end with what there is.
func (m *queryModel) enough(t *rapid.T) {
	if len(m.waits) == 0 {
		t.Skip("nobody waits")
	}
	w := m.waits[rapid.IntRange(0, len(m.waits)-1).Draw(t, "wait")]
	waited, evals := map[string]bool{w.params: len(w.told) == 0}, maps.Clone(m.evals)
	w.want = Want{}
	w.wait.Enough()
	m.hub.Turn()
	m.settle(t, waited, evals)
}

// cancel withdraws a wait, over or not.
func (m *queryModel) cancel(t *rapid.T) {
	if len(m.waits) == 0 {
		t.Skip("nobody waits")
	}
	i := rapid.IntRange(0, len(m.waits)-1).Draw(t, "wait")
	w := m.waits[i]
	if ok := w.wait.Cancel(); ok != (len(w.told) == 0) {
		t.Fatalf("cancelled: %v, told %d times", ok, len(w.told))
	}
	w.query.Release()
	m.waits = slices.Delete(m.waits, i, i+1)
}
