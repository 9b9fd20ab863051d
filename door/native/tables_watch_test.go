package native

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/watch"
)

// overTables are the ways to watch: each returns what gives the next message, or the
// error that the watch ended with.
var overTables = map[string]func(m *member, r *pb.WatchTablesRequest) func() (*pb.WatchTablesResponse, error){
	"stream": func(m *member, r *pb.WatchTablesRequest) func() (*pb.WatchTablesResponse, error) {
		r.Database = "Pets"
		w := m.dial()
		w.send(watchTablesFrame(7, r))
		return func() (*pb.WatchTablesResponse, error) {
			f := w.next()
			if f.Id != 7 {
				m.tb.Fatalf("got %v", f)
			}
			if k, _ := incumbent.ParseKind(f.Error.GetKind()); f.Error != nil {
				return nil, incumbent.Errorf(k, "%s", f.Error.Message)
			}
			return f.GetWatchTables(), nil
		}
	},
	"proto": tableCalls(),
	"json":  tableCalls(connect.WithProtoJSON()),
	"grpc":  tableCalls(connect.WithGRPC()),
}

func watchTablesFrame(id uint64, r *pb.WatchTablesRequest) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_WatchTables{WatchTables: r}}
}

func tableCalls(o ...connect.ClientOption) func(m *member, r *pb.WatchTablesRequest) func() (*pb.WatchTablesResponse, error) {
	return func(m *member, r *pb.WatchTablesRequest) func() (*pb.WatchTablesResponse, error) {
		return m.watchTables(r, o...)
	}
}

func (m *member) watchTables(r *pb.WatchTablesRequest, o ...connect.ClientOption) func() (*pb.WatchTablesResponse, error) {
	m.tb.Helper()
	r.Database = "Pets"
	s, err := incumbentv1connect.NewTableServiceClient(http.DefaultClient, m.url, o...).Watch(m.tb.Context(), connect.NewRequest(r))
	if err != nil {
		m.tb.Fatal(err)
	}
	m.tb.Cleanup(func() { _ = s.Close() })
	return func() (*pb.WatchTablesResponse, error) {
		if s.Receive() {
			return s.Msg(), nil
		}
		return nil, incumbent.Errorf(kindOf(s.Err()), "%w", s.Err())
	}
}

// petIDs are uuids of rows that tests insert.
func petID(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", i) }

// told are the rows that a message tells of, as TABLE, the last digits of the uuid and
// what became of it.
func told(r *pb.WatchTablesResponse) []string {
	var list []string
	for _, e := range r.Events {
		if len(e.Rows) == 0 {
			list = append(list, e.What)
		}
		for _, c := range e.Rows {
			what := "changed"
			switch {
			case e.What == present:
				what = present
			case c.Row == "":
				what = "gone"
			case c.Previous == "":
				what = "new"
			}
			list = append(list, fmt.Sprint(c.Table, " ", strings.TrimLeft(c.Uuid[24:], "0"), " ", what))
		}
	}
	return list
}

// A watcher of rows names the columns, or the rows, it wants to be woken for: other
// changes wake nobody, and are not told of with those that do.
func TestG19_WatchersOfTablesAreWokenForTheirColumns(t *testing.T) {
	const (
		cat, dog, ball = 1, 2, 3
		rename         = `[{"op":"update","table":"Pet","where":[["name","==","cat"]],"row":{"name":"tom"}},{"op":"update","table":"Pet","where":[["name","==","dog"]],"row":{"name":"rex"}}]`
		ages           = `[{"op":"update","table":"Pet","where":[["_uuid","==",["uuid","%s"]]],"row":{"age":%d}},{"op":"update","table":"Pet","where":[["_uuid","==",["uuid","%s"]]],"row":{"name":"%s"}}]`
		toy            = `[{"op":"update","table":"Toy","where":[],"row":{"name":"%s"}}]`
		fish           = `[{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"fish"}}]`
		gone           = `[{"op":"delete","table":"Pet","where":[["name","==","fish"]]}]`
	)
	for name, open := range overTables {
		for _, tt := range []struct {
			r     *pb.WatchTablesRequest
			begin []string
			told  [][]string // of the steps below in which something is
		}{
			{&pb.WatchTablesRequest{Fields: []string{"Pet/age"}}, []string{present, "Pet 1 present", "Pet 2 present"}, [][]string{1: {"Pet 1 changed"}, 2: {"Pet 2 changed"}, 4: {"Pet 4 new"}, 5: {"Pet 4 gone"}, 6: {"schema"}}},
			{&pb.WatchTablesRequest{Fields: []string{"Pet/_uuid"}}, []string{present, "Pet 1 present", "Pet 2 present"}, [][]string{4: {"Pet 4 new"}, 5: {"Pet 4 gone"}, 6: {"schema"}}},
			{&pb.WatchTablesRequest{Tables: []string{"Toy"}, Fields: []string{"Pet/age", "Pet/_uuid"}}, []string{present, "Pet 1 present", "Pet 2 present", "Toy 3 present"}, [][]string{1: {"Pet 1 changed"}, 2: {"Pet 2 changed"}, 3: {"Toy 3 changed"}, 4: {"Pet 4 new"}, 5: {"Pet 4 gone"}, 6: {"schema"}}},
			{&pb.WatchTablesRequest{Tables: []string{"Toy"}}, []string{present, "Toy 3 present"}, [][]string{3: {"Toy 3 changed"}, 6: {"schema"}}},
			{&pb.WatchTablesRequest{Fields: []string{"Toy"}}, []string{present, "Toy 3 present"}, [][]string{3: {"Toy 3 changed"}, 6: {"schema"}}},
			{&pb.WatchTablesRequest{Rows: []string{petID(cat)}}, []string{present, "Pet 1 present"}, [][]string{0: {"Pet 1 changed"}, 1: {"Pet 1 changed"}, 2: {"Pet 1 changed"}, 6: {"schema"}}},
			{&pb.WatchTablesRequest{Rows: []string{petID(ball), petID(4), petID(ball)}}, []string{present, "Toy 3 present"}, [][]string{3: {"Toy 3 changed"}, 4: {"Pet 4 new"}, 5: {"Pet 4 gone"}, 6: {"schema"}}},
			{&pb.WatchTablesRequest{Rows: []string{petID(cat)}, Fields: []string{"Pet/age"}}, []string{present, "Pet 1 present"}, [][]string{1: {"Pet 1 changed"}, 6: {"schema"}}},
			{&pb.WatchTablesRequest{Rows: []string{petID(cat)}, Tables: []string{"Toy"}}, []string{present}, [][]string{6: {"schema"}}},
		} {
			t.Run(fmt.Sprint(name, " ", tt.r.Tables, tt.r.Fields, tt.r.Rows), func(t *testing.T) {
				m := newPets(t)
				m.mustTransact(fmt.Sprintf(`[{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"cat","age":3,"toys":["uuid","%s"]}},{"op":"insert","table":"Toy","uuid":"%[2]s","row":{"name":"ball"}},{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"dog","age":5}}]`,
					petID(cat), petID(ball), petID(dog)))
				readers := m.group.Hub().Stats().Readers
				next := open(m, proto.CloneOf(tt.r))
				r, err := next()
				if err != nil || !r.Snapshot || !slices.Equal(told(r), tt.begin) {
					t.Fatalf("begins with %v, %v; want %v", told(r), err, tt.begin)
				}
				eventually(t, "it watches", func() bool { return m.group.Hub().Stats().Readers == readers+1 })
				before, steps := m.group.Hub().Stats().Wakes, uint64(0)
				for i, step := range []string{
					rename,
					fmt.Sprintf(ages, petID(cat), 4, petID(dog), "leo"),
					fmt.Sprintf(ages, petID(dog), 6, petID(cat), "max"),
					fmt.Sprintf(toy, "rope"),
					fmt.Sprintf(fish, petID(4)),
					gone,
					"",
				} {
					if step != "" {
						m.mustTransact(step)
					} else if _, err := m.tables().DefineSchema(t.Context(), connect.NewRequest(&pb.DefineSchemaRequest{Convert: true, Schema: strings.Replace(petsSchema, `"age"`, `"tail":{"type":"boolean"},"age"`, 1)})); err != nil {
						t.Fatal(err)
					}
					var want []string
					if i < len(tt.told) {
						want = tt.told[i]
					}
					if want == nil {
						continue // whom it wakes is counted with the next step
					}
					r, err := next()
					if err != nil || len(r.Events) != 1 || !slices.Equal(told(r), want) {
						t.Fatalf("step %d: told %v, %v; want %v", i, r, err, want)
					}
					steps++
					// A reader that has not gone to sleep yet finds the change without being woken.
					if n := m.group.Hub().Stats().Wakes - before; n > steps {
						t.Fatalf("step %d: woken %d times, told %d", i, n, steps)
					}
				}
			})
		}
	}
}

// What watches with columns and rows tell is what one of everything tells, less the rows
// that they are not about: from a snapshot on and from any index, with any transactions.
func TestG15_G16_WatchesOfColumnsAgreeWithThoseOfAll(t *testing.T) {
	m := newPets(t, func(c *Config) { c.ProgressEvery = time.Millisecond })
	random := rand.New(rand.NewPCG(3, 4))
	busy := func() uint64 {
		for range 200 {
			var ops []string
			for range 1 + random.IntN(4) {
				id := petID(1 + random.IntN(9))
				where := fmt.Sprintf(`"table":"Pet","where":[["_uuid","==",["uuid","%s"]]]`, id)
				switch random.IntN(6) {
				case 0:
					ops = append(ops, fmt.Sprintf(`{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"%s","age":%d}}`, id, id, random.IntN(3))) // fails if it is there
				case 1:
					ops = append(ops, `{"op":"delete",`+where+`}`)
				case 2:
					toy := petID(20 + random.IntN(3))
					ops = append(ops, fmt.Sprintf(`{"op":"mutate",%s,"mutations":[["toys","insert",["uuid","%s"]]]}`, where, toy), `{"op":"update","table":"Toy","where":[],"row":{"name":"`+fmt.Sprint(random.IntN(4))+`"}}`)
				case 3:
					ops = append(ops, fmt.Sprintf(`{"op":"update",%s,"row":{"name":"%s"}}`, where, fmt.Sprint("n", random.IntN(1000))))
				default:
					ops = append(ops, fmt.Sprintf(`{"op":"update",%s,"row":{"age":%d}}`, where, random.IntN(3)))
				}
			}
			for i := range 3 {
				if random.IntN(4) == 0 {
					ops = append(ops, fmt.Sprintf(`{"op":"insert","table":"Toy","uuid":"%s","row":{}}`, petID(20+i)))
				}
			}
			if _, err := m.transact("["+strings.Join(ops, ",")+"]", nil); err != nil {
				t.Fatal(err)
			}
		}
		m.mustTransact(`[{"op":"delete","table":"Pet","where":[]}]`)
		return m.mustTransact(fmt.Sprintf(`[{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"last"}}]`, petID(1))).Index
	}
	requests := []*pb.WatchTablesRequest{
		{},
		{Tables: []string{"Toy"}},
		{Fields: []string{"Pet/age"}},
		{Fields: []string{"Pet/_uuid"}},
		{Fields: []string{"Pet/name", "Toy"}},
		{Tables: []string{"Pet", "Toy"}, Fields: []string{"Pet/toys"}},
		{Fields: []string{"Pet", "Pet/age"}},
		{Fields: []string{"Pet/_version"}},
		{Rows: []string{petID(1), petID(5), petID(21)}},
		{Rows: []string{petID(2), petID(3)}, Fields: []string{"Pet/age"}},
		{Rows: []string{petID(3), petID(20)}, Tables: []string{"Toy"}},
		{Rows: []string{petID(4), petID(20)}, Fields: []string{"Pet/_uuid", "Toy/name"}},
	}
	type followed struct {
		rows []*pb.RowChange
		at   uint64
	}
	follow := func(next func() (*pb.WatchTablesResponse, error), until uint64) (all []followed) {
		t.Helper()
		for at := uint64(0); at < until; {
			r, err := next()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range r.Events {
				if !r.Snapshot && len(e.Rows) == 0 && e.What == "changed" {
					t.Errorf("an event without rows: %v", e)
				}
				if !r.Snapshot {
					all = append(all, followed{e.Rows, e.Index})
				}
			}
			at = max(at, r.ProgressIndex)
		}
		return all
	}
	first := m.hubIndex()
	middle := busy()
	var open []func() (*pb.WatchTablesResponse, error)
	for i, r := range requests {
		open = append(open, overTables[slices.Sorted(maps.Keys(overTables))[(i+1)%len(overTables)]](m, proto.CloneOf(r)))
		if b, err := open[len(open)-1](); err != nil || !b.Snapshot {
			t.Fatal(b, err)
		}
	}
	end := busy()
	agree := func(what string, from uint64, next func(i int) func() (*pb.WatchTablesResponse, error)) {
		t.Helper()
		all := follow(m.watchTables(&pb.WatchTablesRequest{AfterIndex: from}), end)
		if len(all) == 0 {
			t.Fatal("nothing happened")
		}
		for i, r := range requests {
			var want []followed
			for _, e := range all {
				rows := slices.DeleteFunc(slices.Clone(e.rows), func(c *pb.RowChange) bool { return !asks(t, r, c) })
				if len(rows) > 0 {
					want = append(want, followed{rows, e.at})
				}
			}
			got := follow(next(i), end)
			if !slices.EqualFunc(got, want, func(a, b followed) bool {
				return a.at == b.at && slices.EqualFunc(a.rows, b.rows, func(x, y *pb.RowChange) bool { return proto.Equal(x, y) })
			}) {
				t.Errorf("%s, %v: %d events, want %d", what, r, len(got), len(want))
			}
		}
	}
	agree("behind a snapshot", middle, func(i int) func() (*pb.WatchTablesResponse, error) { return open[i] })
	for _, from := range []uint64{first, middle, first + random.Uint64N(end-first)} {
		agree("resumed", from, func(i int) func() (*pb.WatchTablesResponse, error) {
			r := proto.CloneOf(requests[i])
			r.AfterIndex = from
			return overTables[slices.Sorted(maps.Keys(overTables))[i%len(overTables)]](m, r)
		})
	}
}

// asks says naively whether a request is about a change.
func asks(t *testing.T, r *pb.WatchTablesRequest, c *pb.RowChange) bool {
	t.Helper()
	if len(r.Rows) > 0 && !slices.Contains(r.Rows, c.Uuid) {
		return false
	}
	is, was := map[string]any{}, map[string]any{}
	for text, row := range map[string]*map[string]any{c.Row: &is, c.Previous: &was} {
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), row); err != nil {
			t.Fatal(err)
		}
		(*row)["_uuid"] = c.Uuid
	}
	narrowed := false
	for _, f := range r.Fields {
		of, column, parted := strings.Cut(f, "/")
		if of != c.Table {
			continue
		}
		narrowed = true
		if !parted && !maps.EqualFunc(is, was, reflect.DeepEqual) || parted && !reflect.DeepEqual(is[column], was[column]) {
			return true
		}
	}
	return !narrowed && (len(r.Tables)+len(r.Fields) == 0 || slices.Contains(r.Tables, c.Table))
}

// A watch of columns resumes where its history is, as any other.
func TestG16_WatchesOfColumnsFromWhatIsNotThere(t *testing.T) {
	m := newPets(t)
	at := m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"cat","age":3}}]`).Index
	for _, r := range []*pb.WatchTablesRequest{{Fields: []string{"Pet/age"}}, {Rows: []string{petID(1)}}} {
		r.AfterIndex = at + 1
		for name, open := range overTables {
			if got, err := open(m, r)(); incumbent.KindOf(err) != incumbent.Compacted || !strings.Contains(err.Error(), "does not exist yet") {
				t.Errorf("%s, %v: %v, %v", name, r, got, err)
			}
		}
	}
	m.group.Hub().SetLimits(watch.Limits{HistoryBytes: 1})
	m.mustTransact(`[{"op":"update","table":"Pet","where":[],"row":{"age":4}}]`)
	m.mustTransact(`[{"op":"update","table":"Pet","where":[],"row":{"age":5}}]`)
	for _, r := range []*pb.WatchTablesRequest{{Fields: []string{"Pet/age"}}, {Rows: []string{petID(1)}}} {
		r.AfterIndex = at
		for name, open := range overTables {
			if got, err := open(m, r)(); incumbent.KindOf(err) != incumbent.Compacted || !strings.Contains(err.Error(), "are gone") {
				t.Errorf("%s, %v: %v, %v", name, r, got, err)
			}
		}
	}
}

func TestWatchesOfColumnsThatCannotBe(t *testing.T) {
	m := newPets(t)
	many := func(n int, s string) (list []string) {
		for range n {
			list = append(list, s)
		}
		return list
	}
	for _, tt := range []struct {
		kind incumbent.Kind
		r    *pb.WatchTablesRequest
	}{
		{incumbent.NotFound, &pb.WatchTablesRequest{Tables: []string{"Fish"}}},
		{incumbent.NotFound, &pb.WatchTablesRequest{Fields: []string{"Fish"}}},
		{incumbent.NotFound, &pb.WatchTablesRequest{Fields: []string{"Fish/name"}}},
		{incumbent.NotFound, &pb.WatchTablesRequest{Fields: []string{"Pet/age", "Pet/tail"}}},
		{incumbent.NotFound, &pb.WatchTablesRequest{Fields: []string{"Toy/age"}, Rows: []string{petID(1)}}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Tables: []string{"Pet rows/Toy/_version"}}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Fields: []string{""}}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Fields: []string{"Pet/"}}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Fields: []string{"Pet/age/x"}}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Fields: []string{"Pet/a\x00rows/Toy/name"}}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Fields: []string{"Pet/" + strings.Repeat("a", 1021)}}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Fields: many(maxFields+1, "Pet/age")}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Rows: []string{"cat"}}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Rows: many(maxWatchedRows+1, petID(1))}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Tables: many(maxFields+1, "Pet"), Rows: many(1, petID(1))}},
		{incumbent.Invalid, &pb.WatchTablesRequest{Tables: many(maxFields+1, "Pet"), Fields: many(1, "Pet/age")}},
	} {
		for name, open := range overTables {
			if got, err := open(m, proto.CloneOf(tt.r))(); incumbent.KindOf(err) != tt.kind {
				t.Errorf("%s, %v: %v, %v; want %v", name, tt.r, got, err, tt.kind)
			}
		}
	}
	for _, r := range []*pb.WatchTablesRequest{
		{Fields: many(maxFields, "Pet/age"), Tables: many(maxFields, "Toy"), Rows: many(maxWatchedRows, petID(1))},
		{Tables: many(maxFields+1, "Toy")},
	} {
		if got, err := m.watchTables(r)(); err != nil || !got.Snapshot {
			t.Errorf("%v: %v, %v", r, got, err)
		}
	}
}

// With catching up a watch goes on where the history is gone: with the rows that it is about
// and that have changed, or, if one of those is gone, with all of them; and so it does where
// the schema is another.
func TestG16_WatchesOfTablesCatchUp(t *testing.T) {
	later := strings.Replace(petsSchema, `"age"`, `"tail":{"type":"boolean"},"age"`, 1)
	for name, open := range overTables {
		t.Run(name, func(t *testing.T) {
			m := newPets(t)
			for i, pet := range []string{"cat", "dog", "fish"} {
				m.mustTransact(fmt.Sprintf(`[{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"%s"}}]`, petID(i+1), pet))
			}
			age := func(pet string, age int) {
				m.mustTransact(fmt.Sprintf(`[{"op":"update","table":"Pet","where":[["name","==","%s"]],"row":{"age":%d}}]`, pet, age))
			}
			rename := func(pet, name string) {
				m.mustTransact(fmt.Sprintf(`[{"op":"update","table":"Pet","where":[["name","==","%s"]],"row":{"name":"%s"}}]`, pet, name))
			}
			define := func(schema string) {
				if _, err := m.tables().DefineSchema(t.Context(), connect.NewRequest(&pb.DefineSchemaRequest{Convert: true, Schema: schema})); err != nil {
					t.Fatal(err)
				}
			}
			r := &pb.WatchTablesRequest{Fields: []string{"Pet/age"}, CatchUp: true}
			next := open(m, proto.CloneOf(r))
			expect := func(what string, snapshot bool, want ...string) (at uint64) {
				t.Helper()
				for {
					got, err := next()
					if err != nil {
						t.Fatal(what, err)
					}
					if got.Snapshot == snapshot && got.First == snapshot && slices.Equal(told(got), want) {
						return got.ProgressIndex
					}
					if len(got.Events) > 0 || got.Snapshot {
						t.Fatalf("%s: got %v", what, got)
					}
				}
			}
			at := expect("what is there", true, present, "Pet 1 present", "Pet 2 present", "Pet 3 present")
			age("cat", 1)
			expect("a change", false, "Pet 1 changed")
			age("fish", 1)
			expect("another", false, "Pet 3 changed")
			rename("dog", "rex") // unasked
			m.forgetHistory()
			resume := func() {
				r.AfterIndex = at
				next = open(m, proto.CloneOf(r))
			}
			resume()
			at = expect("what has changed", false, "Pet 1 present", "Pet 3 present")
			rename("rex", "dog")
			m.forgetHistory()
			resume()
			expect("nothing has changed", false)
			age("cat", 2)
			expect("a change then", false, "Pet 1 changed")
			m.mustTransact(`[{"op":"delete","table":"Pet","where":[["name","==","fish"]]}]`)
			expect("one that goes", false, "Pet 3 gone")
			m.forgetHistory()
			resume()
			at = expect("after a deletion", true, present, "Pet 1 present", "Pet 2 present")
			define(later)
			expect("another schema", true, present, "Pet 1 present", "Pet 2 present")
			m.forgetHistory()
			resume()
			expect("another schema since", true, present, "Pet 1 present", "Pet 2 present")
			if _, err := m.tables().DropDatabase(t.Context(), connect.NewRequest(&pb.DropDatabaseRequest{Database: "Pets"})); err != nil {
				t.Fatal(err)
			}
			expect("a database that is gone", true)
			define(petsSchema)
			expect("and comes again", true, present)
			age("nobody", 1)
			m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"cat","age":3}}]`)
			if got, err := next(); err != nil || len(got.Events) != 1 || len(got.Events[0].Rows) != 1 || got.Events[0].Rows[0].Previous != "" {
				t.Errorf("a row of it: %v, %v", got, err)
			}
		})
	}
}

// A change that is too large for a stream comes in pieces, as the rows are by then, to who
// catches up, and ends the watch of who does not; smaller ones go through.
func TestG18_ChangesTooLargeForAStream(t *testing.T) {
	m := newPets(t)
	m.mustTransact(fmt.Sprintf(`[{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"cat","age":1}}]`, petID(1)))
	after := m.index()
	open := overTables["stream"]
	nexts := map[bool]func() (*pb.WatchTablesResponse, error){}
	for _, catchUp := range []bool{false, true} {
		nexts[catchUp] = open(m, &pb.WatchTablesRequest{Fields: []string{"Pet/age", "Pet/name"}, CatchUp: catchUp, AfterIndex: after})
		if r, err := nexts[catchUp](); err != nil || len(r.Events) > 0 {
			t.Fatal(r, err)
		}
	}
	const rows = 8
	var ops []string
	for i := range rows {
		ops = append(ops, fmt.Sprintf(`{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"%s"}}`, petID(2+i), strings.Repeat(fmt.Sprint(i), maxStreamEvent/rows)))
	}
	if size := len(strings.Join(ops, ",")); size < maxStreamEvent {
		t.Fatal(size)
	}
	for i := 0; i < len(ops); i += rows / 2 { // each fits into a request, and into a stream
		m.mustTransact("[" + strings.Join(ops[i:i+rows/2], ",") + "]")
	}
	for catchUp, next := range nexts {
		for n := 0; n < rows; {
			r, err := next()
			if err != nil {
				t.Fatal(catchUp, err)
			}
			n += len(told(r))
		}
	}
	m.mustTransact(`[{"op":"update","table":"Pet","where":[],"row":{"age":2}}]`)
	if r, err := nexts[false](); incumbent.KindOf(err) != incumbent.TooLarge {
		t.Errorf("without catching up: %v, %v", r, err)
	}
	var shown []string
	for len(shown) <= rows {
		r, err := nexts[true]()
		if err != nil || r.Snapshot || proto.Size(r) > maxStreamEvent {
			t.Fatalf("%v, a message of %d bytes", err, proto.Size(r))
		}
		shown = append(shown, told(r)...)
	}
	for i, s := range shown {
		if want := fmt.Sprintf("Pet %d present", i+1); s != want {
			t.Errorf("shown %s, want %s", s, want)
		}
	}
	m.mustTransact(`[{"op":"update","table":"Pet","where":[["age","<",3],["_uuid","==",["uuid","` + petID(1) + `"]]],"row":{"age":3}}]`)
	if r, err := nexts[true](); err != nil || !slices.Equal(told(r), []string{"Pet 1 changed"}) {
		t.Errorf("then: %v, %v", r, err)
	}
}

func TestStreamsEndWatchesOfTables(t *testing.T) {
	m := newPets(t)
	w := m.dial()
	w.send(watchTablesFrame(7, &pb.WatchTablesRequest{Database: "Pets"}))
	if f := w.next(); !f.GetWatchTables().GetSnapshot() {
		t.Fatalf("got %v", f)
	}
	w.ok(&pb.ClientFrame{Id: 8, Request: &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: 7}}})
	m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"cat"}}]`)
	w.ok(beatMessage(9)) // and nothing was told
	if f := w.ask(watchTablesFrame(10, &pb.WatchTablesRequest{Database: "Pets", Fields: []string{"Pet/tail"}})); f.Error.GetKind() != "not_found" {
		t.Errorf("no such column: %v", f)
	}
	m.let("agent:*", auth.Rule{State: auth.Tables, Namespace: "default", Prefix: "Others", Verbs: auth.See})
	m.as(agentA())
	if f := m.dial().ask(watchTablesFrame(11, &pb.WatchTablesRequest{Database: "Pets"})); f.Error.GetKind() != "denied" {
		t.Errorf("whom no policy lets: %v", f)
	}
}

// TestAWatchOfTablesIsGivenUpMeanwhile: what a member does not know it looks for once more in a
// confirmed state, and a client that ends the watch meanwhile is not told of it for ever after.
func TestAWatchOfTablesIsGivenUpMeanwhile(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newPets(t, func(c *Config) { c.Admission = lanes })
	confirmed := make(chan func(error), 1)
	m.door.confirm = func(done func(error)) { confirmed <- done }
	w := m.dial()
	w.send(watchTablesFrame(5, &pb.WatchTablesRequest{Database: "Pets", Tables: []string{"Unknown"}}))
	done := <-confirmed
	w.ok(&pb.ClientFrame{Id: 6, Request: &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: 5}}})
	done(nil)
	eventually(t, "its place is free", func() bool { return m.door.lanes.Stats()[admit.Watches].Inflight == 0 })
	if n := m.door.WaitingBytes(); n != 0 || m.door.watches.len() != 0 {
		t.Errorf("%d bytes wait, %d watches are open", n, m.door.watches.len())
	}
	w.send(watchTablesFrame(7, &pb.WatchTablesRequest{Database: "Pets", Tables: []string{"Unknown"}}))
	(<-confirmed)(nil)
	if f := w.next(); f.Id != 7 || f.Error.GetKind() != incumbent.NotFound.String() {
		t.Errorf("%v", f)
	}
}
