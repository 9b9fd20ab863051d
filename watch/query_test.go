package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
)

// table is rows of names and numbers that a query reads.
type table struct {
	rows map[string]int
	at   incumbent.Index
}

func (v *table) Index() incumbent.Index { return v.at }

type queried struct {
	*Hub
	*Queries[*table]
	view  atomic.Pointer[table]
	evals int
}

func newQueried(l Limits) *queried {
	q := &queried{Hub: New(Config{Limits: l, Random: func(int64) int64 { return 0 }}, 1)}
	q.view.Store(&table{at: 1})
	q.Queries = NewQueries(q.Hub, q.view.Load)
	return q
}

// set publishes a changed row.
func (q *queried) set(name string, n int) {
	was := q.view.Load()
	rows := maps.Clone(was.rows)
	if rows == nil {
		rows = map[string]int{}
	}
	rows[name] = n
	i := was.at + 1
	q.view.Store(&table{rows, i})
	q.Publish(i, []*Event{event(i, name)})
	synctest.Wait()
}

// row is a query that shows one row, of all of which it reads.
func (q *queried) row(t *testing.T, name string) *Query[*table] {
	t.Helper()
	query, err := q.Query(QuerySpec[*table]{
		Key: QueryKey{Kind: 1, Params: name},
		Eval: func(view *table, reads *Reads) Result {
			q.evals++ // synctest and one query at a time: no race
			reads.Note(Scope(1, [2]string{"ns", "m"}))
			d := NewDigest()
			d.Uint(uint64(view.rows[name]))
			return Result{Value: view.rows[name], Hash: d.Sum()}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return query
}

// WaitContext is Wait for a caller with a goroutine to block. When the context
// ends it returns what is known so far and the context's cause.
func (q *Query[V]) WaitContext(ctx context.Context, want Want) (Told, error) {
	c := make(chan Told, 1)
	w, err := q.Wait(want, func(t Told) { c <- t })
	if err != nil {
		return Told{}, err
	}
	select {
	case t := <-c:
		return t, t.Err
	case <-ctx.Done():
	}
	if w.Cancel() {
		return Told{}, context.Cause(ctx)
	}
	t := <-c
	return t, t.Err
}

func TestG21_OneEvaluationAndEncodingPerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{})
		defer h.Close()
		const watchers = 2000
		var told, encoded atomic.Int64
		for range watchers {
			q := h.row(t, "db")
			defer q.Release()
			var again func(Told)
			again = func(x Told) {
				if x.Err != nil {
					return
				}
				told.Add(1)
				x.Answer.Encode(1, func(any) []byte { encoded.Add(1); return nil })
				if _, err := q.Wait(Want{After: x.Answer.Changed}, again); err != nil {
					t.Error(err)
				}
			}
			if _, err := q.Wait(Want{}, again); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for i := range 5 {
			h.set("db", i+1)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if h.evals != 6 || encoded.Load() != 6 || told.Load() != 6*watchers {
			t.Errorf("%d evaluations, %d encodings, %d told; want 6, 6, %d", h.evals, encoded.Load(), told.Load(), 6*watchers)
		}
		if s := h.Stats(); s.Evaluations != 6 || s.Queries != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestG21_AtMostOneEvaluationPerIntervalUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{QueryInterval: 50 * time.Millisecond})
		defer h.Close()
		q := h.row(t, "db")
		defer q.Release()
		var last Told
		var again func(Told)
		again = func(x Told) {
			if last = x; x.Err == nil {
				q.Wait(Want{After: x.Answer.Changed}, again)
			}
		}
		q.Wait(Want{}, again)
		for i := range 1000 {
			h.set("db", i+1)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if h.evals < 19 || h.evals > 22 {
			t.Errorf("%d evaluations in a second of changes every millisecond", h.evals)
		}
		if last.Answer.Value != 1000 {
			t.Errorf("the last change was not told: %v", last.Answer.Value)
		}
	})
}

func TestG19_WakesOnlyWhenItsOwnResultChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{})
		defer h.Close()
		q := h.row(t, "db")
		defer q.Release()
		h.set("db", 7)
		first, err := q.WaitContext(t.Context(), Want{})
		if err != nil || first.Answer.Value != 7 {
			t.Fatalf("%+v, %v", first, err)
		}
		var told []Told
		w, _ := q.Wait(Want{After: first.Answer.Changed}, func(x Told) { told = append(told, x) })
		for i := range 10 {
			h.set("web", i) // a topic it depends on, not its result
			time.Sleep(time.Second)
		}
		if len(told) > 0 {
			t.Fatalf("woken with %v", told)
		}
		// Its wait ends: the same answer, right at a later index.
		w.Enough()
		synctest.Wait()
		if len(told) != 1 || told[0].Answer != first.Answer || told[0].Read != h.Index() {
			t.Errorf("what there is, enough: %+v at %d", told, h.Index())
		}
		if w.Cancel() {
			t.Error("cancelled when it was over")
		}
		h.set("db", 8)
		time.Sleep(time.Second)
		if len(told) > 1 {
			t.Errorf("fired after it was over: %+v", told)
		}
		next, err := q.WaitContext(t.Context(), Want{After: first.Answer.Changed})
		if err != nil || next.Answer.Value != 8 || next.Answer.Changed <= first.Answer.Changed {
			t.Errorf("%+v, %v", next, err)
		}
	})
}

// A wait by hash is woken by another result, not by an evaluation that gives an equal
// one; and each wait ends when its time is over, with what there is then.
func TestG19_WaitsByHashEndWithTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{})
		defer h.Close()
		q := h.row(t, "db")
		defer q.Release()
		h.set("db", 7)
		first, _ := q.WaitContext(t.Context(), Want{})
		began := time.Now()
		told := make(chan Told, 10)
		wait := func() {
			if _, err := q.Wait(Want{Not: first.Answer.Hash, For: time.Minute}, func(x Told) { told <- x }); err != nil {
				t.Fatal(err)
			}
		}
		wait()
		for range 5 {
			h.set("db", 7) // evaluated, and equal
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if h.evals != 6 || len(told) > 0 {
			t.Fatalf("%d evaluations, %d told", h.evals, len(told))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if x := <-told; x.Answer != first.Answer || x.Read != h.Index() || x.Err != nil {
			t.Fatalf("told %+v after %v", x, time.Since(began))
		}
		wait()
		h.set("db", 8)
		time.Sleep(time.Second)
		synctest.Wait()
		if x := <-told; x.Answer.Value != 8 {
			t.Errorf("told %+v", x)
		}
		time.Sleep(time.Hour) // the clock of the wait that is over does nothing
		synctest.Wait()
		if len(told) != 0 || h.Stats().Listeners != 1 {
			t.Errorf("%d told, %d listeners", len(told), h.Stats().Listeners)
		}
	})
}

// Waits that began together do not end together.
func TestG19_WaitsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{})
		defer h.Close()
		h.random = func(n int64) int64 { return n - 1 }
		q := h.row(t, "db")
		defer q.Release()
		first, _ := q.WaitContext(t.Context(), Want{})
		began := time.Now()
		if _, err := q.WaitContext(t.Context(), Want{Not: first.Answer.Hash, For: 16 * time.Minute}); err != nil || time.Since(began) != 17*time.Minute {
			t.Errorf("ended after %v: %v", time.Since(began), err)
		}
	})
}

// Beyond its limit what a query has read is remembered by kind.
func TestReadsAreBounded(t *testing.T) {
	var r Reads
	for i := range 3 * MaxReads {
		r.Note(Exact(topic(fmt.Sprint(i))))
		r.Note(Exact(topic(fmt.Sprint(i))))
		if len(r.list) > MaxReads+1 {
			t.Fatalf("%d are remembered", len(r.list))
		}
	}
	if !slices.ContainsFunc(r.list, func(s Selector) bool { return s == All(1) }) {
		t.Error("what was read first is forgotten")
	}
}

func TestQueryIsNotEvaluatedWhileNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{})
		defer h.Close()
		q := h.row(t, "db")
		q.WaitContext(t.Context(), Want{})
		q.Release()
		for i := range 10 {
			h.set("db", i)
			time.Sleep(time.Second)
		}
		if h.evals != 1 {
			t.Errorf("%d evaluations", h.evals)
		}
		// The result of who was here before is kept, and made anew when stale.
		q = h.row(t, "db")
		defer q.Release()
		x, _ := q.WaitContext(t.Context(), Want{})
		y, _ := q.WaitContext(t.Context(), Want{AtLeast: h.Index()})
		if h.evals != 2 || x.Answer != y.Answer && x.Answer.Value == y.Answer.Value {
			t.Errorf("%d evaluations, %+v then %+v", h.evals, x, y)
		}
		if y.Answer.Value != 9 {
			t.Errorf("got %v", y.Answer.Value)
		}
	})
}

func TestG14_QueryWaitsForAnIndexFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{})
		defer h.Close()
		q := h.row(t, "db")
		defer q.Release()
		h.set("db", 1)
		var told []Told
		q.Wait(Want{AtLeast: 3}, func(x Told) { told = append(told, x) })
		lost, _ := q.Wait(Want{AtLeast: 1 << 60}, func(x Told) { told = append(told, x) })
		time.Sleep(time.Second)
		if len(told) > 0 {
			t.Fatalf("told %+v at index 1", told)
		}
		h.view.Store(&table{h.view.Load().rows, 3})
		h.Publish(3, nil) // nothing the query depends on
		synctest.Wait()
		if len(told) != 1 || told[0].Read < 3 || told[0].Answer.Value != 1 {
			t.Errorf("told %+v", told)
		}
		lost.Cancel()
		if s := h.Stats(); s.Listeners != 1 {
			t.Errorf("%d listeners, want the query itself", s.Listeners)
		}
	})
}

// While an evaluation ends, whoever looks finds the answer before and that it is not
// current, or the new one: never the answer before as one of the new view.
func TestG22_AnAnswerIsOfTheViewThatItIsSaidToBeOf(t *testing.T) {
	h := newQueried(Limits{})
	defer h.Close()
	evaluating, goOn := make(chan struct{}), make(chan struct{})
	q, err := h.Query(QuerySpec[*table]{
		Key: QueryKey{Kind: 1, Params: "db"},
		Eval: func(view *table, reads *Reads) Result {
			if view.at > 1 {
				close(evaluating)
				<-goOn
			}
			reads.Note(Exact(topic("db")))
			return Result{Value: view.rows["db"], Modified: view.at}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Release()
	if first, err := q.WaitContext(t.Context(), Want{}); err != nil || first.Answer.Value != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	h.view.Store(&table{map[string]int{"db": 7}, 2})
	h.Publish(2, []*Event{event(2, "db")})
	told := make(chan Told, 1)
	if _, err := q.Wait(Want{AtLeast: 2}, func(x Told) { told <- x }); err != nil {
		t.Fatal(err)
	}
	<-evaluating
	q.mu.Lock() // the evaluation can end, and its result not be accepted
	close(goOn)
	for range 100 { // what is done without mu is done by then
		if q.at.Load() != 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if current, _ := q.refresh(); current || q.read >= 2 {
		t.Errorf("the answer %v is taken for one of index %d", q.answer.Value, q.read)
	}
	q.mu.Unlock()
	if x := <-told; x.Answer == nil || x.Answer.Value != 7 || x.Read < 2 {
		t.Errorf("told %+v", x)
	}
}

func TestQueryAnswersSayWhenTheyChanged(t *testing.T) {
	h := newQueried(Limits{})
	defer h.Close()
	q := &Query[*table]{of: h.Queries}
	var got []incumbent.Index
	for i, r := range []Result{
		{Value: "a", Hash: Hash{'a'}, Modified: 3}, // index 10: the rows say since when
		{Value: "a", Hash: Hash{'a'}, Modified: 3}, // 11: the same
		{Value: "b", Hash: Hash{'b'}, Modified: 12},
		{Value: "c", Hash: Hash{'c'}, Modified: 3},  // 13: the newest row went away
		{Value: "d", Hash: Hash{'d'}},               // 14: not known
		{Value: "e", Hash: Hash{'e'}, Modified: 99}, // 15: nonsense
	} {
		q.accept(r, incumbent.Index(10+i))
		got = append(got, q.answer.Changed)
	}
	if diff := cmp.Diff([]incumbent.Index{3, 3, 12, 13, 14, 15}, got); diff != "" {
		t.Error(diff)
	}
}

func TestIdleQueriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{IdleQueryBytes: 10 * (queryBytes + 1)})
		defer h.Close()
		for i := range 50 {
			q := h.row(t, string(rune('A'+i)))
			q.WaitContext(t.Context(), Want{})
			q.Release()
		}
		if s := h.Stats(); s.Queries != 10 || s.Listeners != 10 {
			t.Errorf("stats %+v", s)
		}
		h.row(t, "A").Release()
		if h.evals != 50 {
			t.Errorf("%d evaluations", h.evals)
		}
	})
}

// Results that nobody holds give way to a query that is new, rather than keep it out.
func TestIdleQueriesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{QueryBytes: 2 * (queryBytes + 1)})
		defer h.Close()
		held := h.row(t, "A")
		defer held.Release()
		for _, key := range []string{"B", "C", "B"} {
			q := h.row(t, key)
			q.WaitContext(t.Context(), Want{})
			q.Release()
		}
		if s := h.Stats(); s.Queries != 2 { // what is held, and the last
			t.Errorf("stats %+v", s)
		}
	})
}

// Very many queries may begin before the first of them is evaluated: those for whose results
// there is no room by then are refused.
func TestG39_QueriesThatBeganAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, queries = 1 << 20, 50
		h := newQueried(Limits{QueryBytes: 4 * size})
		defer h.Close()
		gate, told := make(chan struct{}), make(chan Told, queries)
		for i := range queries {
			q, err := h.Query(QuerySpec[*table]{Key: QueryKey{Kind: 1, Params: fmt.Sprint(i)}, Eval: func(v *table, reads *Reads) Result {
				<-gate
				reads.Note(Scope(1, [2]string{"ns", "m"}))
				return Result{Value: v, Size: size}
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer q.Release()
			if _, err := q.Wait(Want{}, func(got Told) { told <- got }); err != nil {
				t.Fatal(err)
			}
		}
		close(gate)
		answered, refused := 0, 0
		for range queries {
			if got := <-told; got.Err == nil {
				answered++
			} else if incumbent.KindOf(got.Err) == incumbent.Overloaded {
				refused++
			}
		}
		if got := h.Bytes(); answered < 3 || answered+refused != queries || got > 8*size {
			t.Errorf("%d answered, %d refused, %d bytes", answered, refused, got)
		}
	})
}

// What results cost is counted with their encodings, and given back; when it is more than it
// may be those who use a query go on, and no other is begun.
func TestResultsOfQueriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, encoded = 1000, 300
		own := int64(queryBytes + len("A"))
		h := newQueried(Limits{IdleQueryBytes: 1, QueryBytes: 2*own + size + encoded})
		defer h.Close()
		sized := func(key string) (*Query[*table], error) {
			return h.Query(QuerySpec[*table]{Key: QueryKey{Kind: 1, Params: key}, Eval: func(v *table, reads *Reads) Result {
				reads.Note(Scope(1, [2]string{"ns", "m"}))
				return Result{Value: v, Size: size}
			}})
		}
		a, err := sized("A")
		if err != nil {
			t.Fatal(err)
		}
		told, err := a.WaitContext(t.Context(), Want{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			told.Answer.Encode(1, func(any) []byte { return make([]byte, encoded) })
		}
		if got, want := h.Bytes(), own+size+encoded; got != want {
			t.Errorf("one query costs %d, want %d", got, want)
		}
		b, err := sized("B")
		if err != nil {
			t.Fatal(err)
		}
		var e *incumbent.Error
		if _, err := sized("C"); !errors.As(err, &e) || e.Kind != incumbent.Overloaded || !strings.Contains(e.Hint, "another member") {
			t.Errorf("a query over the limit: %+v", err)
		}
		if again, err := sized("A"); err != nil {
			t.Errorf("one that is there: %v", err)
		} else {
			again.Release()
		}
		b.Release()
		a.Release()
		told.Answer.Encode(2, func(any) []byte { return make([]byte, encoded) })
		if got := h.Bytes(); got != 0 {
			t.Errorf("no query costs %d", got)
		}
	})
}

func TestBusiestCountsUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueried(Limits{})
		defer q.Close()
		a, b := q.row(t, "a"), q.row(t, "b")
		q.row(t, "b")
		other, err := q.Query(QuerySpec[*table]{Key: QueryKey{Kind: 1, Params: "b", Rights: "fewer"}, Eval: b.spec.Eval})
		if err != nil {
			t.Fatal(err)
		}
		all := func(Kind, string) bool { return true }
		if got, want := q.Busiest(5, all), []QueryUse{{1, "b", 3}, {1, "a", 1}}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got, want := q.Busiest(1, all), []QueryUse{{1, "b", 3}}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got, want := q.Busiest(5, func(_ Kind, params string) bool { return params == "a" }), []QueryUse{{1, "a", 1}}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		a.Release()
		other.Release()
		if got, want := q.Busiest(5, all), []QueryUse{{1, "b", 2}}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestCloseTellsQueryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newQueried(Limits{})
		q := h.row(t, "db")
		x, _ := q.WaitContext(t.Context(), Want{})
		var told Told
		q.Wait(Want{After: x.Answer.Changed}, func(x Told) { told = x })
		h.Close()
		if incumbent.KindOf(told.Err) != incumbent.Unavailable {
			t.Errorf("told %+v", told)
		}
		if _, err := q.Wait(Want{}, func(x Told) { told = x }); err == nil && incumbent.KindOf(told.Err) != incumbent.Unavailable {
			t.Errorf("told %+v after close", told)
		}
		if _, err := h.Query(QuerySpec[*table]{Eval: func(*table, *Reads) Result { return Result{} }}); !errors.Is(err, &incumbent.Error{Kind: incumbent.Unavailable}) {
			t.Errorf("a query after close: %v", err)
		}
	})
}
