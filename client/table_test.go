package client

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

const petsSchema = `{"name":"Pets","version":"1.0.0","tables":{
"Pet":{"isRoot":true,"indexes":[["name"]],"columns":{"name":{"type":"string"},"age":{"type":"integer"}}}}}`

// petID is the uuid of a row.
func petID(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", i) }

// A watch of columns and rows goes on over broken connections and yields each change that
// it asked for once, and no other.
func TestG16_WatchOfColumnsResumes(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	ctx, tables := testContext(t), clientOf(t, s.URL()).Tables("")
	if _, err := tables.Define(ctx, petsSchema, false); err != nil {
		t.Fatal(err)
	}
	transact := func(ops string) {
		t.Helper()
		if res, err := tables.Transact(ctx, "Pets", ops); err != nil || res.Failed {
			t.Fatal(res, err)
		}
	}
	transact(fmt.Sprintf(`[{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"cat"}},{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"dog"}}]`, petID(1), petID(2)))
	const changes = 12
	seen, last := 0, uint64(0)
	for m, err := range clientOf(t, r.url()).Tables("").Watch(ctx, WatchTablesOptions{Database: "Pets", Fields: []string{"Pet/age"}, Rows: []string{petID(2)}}) {
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Events) == 0 {
			continue // a progress mark
		}
		for _, e := range m.Events {
			if m.Snapshot {
				continue
			}
			seen++
			if e.Index <= last || len(e.Rows) != 1 || e.Rows[0].Uuid != petID(2) || !strings.Contains(e.Rows[0].Row, fmt.Sprintf(`"age":%d`, seen)) {
				t.Fatalf("behind index %d, change %d: %v", last, seen, e)
			}
			last = e.Index
		}
		if seen == changes {
			break
		}
		// The next changes happen while the watch is cut off.
		if seen%3 == 1 {
			r.cut()
		}
		transact(fmt.Sprintf(`[{"op":"update","table":"Pet","where":[["name","==","cat"]],"row":{"age":%d}}]`, seen+1))
		transact(fmt.Sprintf(`[{"op":"update","table":"Pet","where":[["_uuid","==",["uuid","%s"]]],"row":{"name":"dog%d"}}]`, petID(2), seen))
		transact(fmt.Sprintf(`[{"op":"update","table":"Pet","where":[],"row":{"age":%d}}]`, seen+1))
	}
	if seen != changes {
		t.Errorf("%d changes", seen)
	}
	for kind, o := range map[incumbent.Kind]WatchTablesOptions{
		incumbent.NotFound: {Database: "Pets", Fields: []string{"Pet/tail"}},
		incumbent.Invalid:  {Database: "Pets", Rows: []string{"cat"}},
	} {
		for m, err := range tables.Watch(ctx, o) {
			if incumbent.KindOf(err) != kind {
				t.Errorf("%v: %v, %v", o, m, err)
			}
			break
		}
	}
}

func shownRows(c *TableCache) (list []string) {
	for _, r := range c.Rows() {
		_, row, _ := strings.Cut(r.Row, `"age"`)
		list = append(list, r.Table+" "+strings.TrimLeft(r.Uuid[24:], "0")+" age"+row)
	}
	return list
}

// petsOf returns what gives a server the database Pets with a schema, and what changes it.
func petsOf(t *testing.T, c *Client) (define, transact func(string)) {
	tables := c.Tables("")
	define = func(schema string) {
		t.Helper()
		if _, err := tables.Define(testContext(t), schema, true); err != nil {
			t.Fatal(err)
		}
	}
	transact = func(ops string) {
		t.Helper()
		if res, err := tables.Transact(testContext(t), "Pets", ops); err != nil || res.Failed {
			t.Fatal(res, err)
		}
	}
	return define, transact
}

// What a session follows of a database is what there is, also behind a restart of its
// member, another schema and the end of the database; what is wrong is said alone.
func TestASessionFollowsRows(t *testing.T) {
	cfg := serverConfig(t)
	s := startServer(t, cfg)
	cfg.Listen = s.URL()[len("http://"):]
	c := clientOf(t, s.URL())
	ctx, tables := testContext(t), c.Tables("")
	define, transact := petsOf(t, c)
	age := func(name string, age int) {
		t.Helper()
		transact(fmt.Sprintf(`[{"op":"update","table":"Pet","where":[["name","==","%s"]],"row":{"age":%d}}]`, name, age))
	}
	define(petsSchema)
	transact(fmt.Sprintf(`[{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"cat"}},{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"dog"}}]`, petID(1), petID(2)))
	ages := NewTableCache("", WatchTablesOptions{Database: "Pets", Fields: []string{"Pet/age"}})
	dog := NewTableCache("", WatchTablesOptions{Database: "Pets", Rows: []string{petID(2)}})
	wrong := NewTableCache("", WatchTablesOptions{Database: "Pets", Fields: []string{"Pet/tail"}})
	openSession(t, c, SessionConfig{TTL: time.Minute, Follow: []Following{ages, dog, wrong}})
	shows := func(c *TableCache, want ...string) {
		t.Helper()
		until(t, c, func() bool { return c.Index() > 0 && slices.Equal(shownRows(c), want) })
	}
	shows(ages, `Pet 1 age:0,"name":"cat"}`, `Pet 2 age:0,"name":"dog"}`)
	shows(dog, `Pet 2 age:0,"name":"dog"}`)
	until(t, wrong, func() bool { return incumbent.KindOf(wrong.Err()) == incumbent.NotFound })
	transact(`[{"op":"update","table":"Pet","where":[["name","==","dog"]],"row":{"name":"rex"}}]`)
	age("cat", 1)
	shows(ages, `Pet 1 age:1,"name":"cat"}`, `Pet 2 age:0,"name":"dog"}`) // as when the age changed last
	shows(dog, `Pet 2 age:0,"name":"rex"}`)
	unchanged := ages.Rows()[1]

	stopServer(t, s)
	startServer(t, cfg)
	age("cat", 2)
	shows(ages, `Pet 1 age:2,"name":"cat"}`, `Pet 2 age:0,"name":"dog"}`)
	if ages.Rows()[1] != unchanged {
		t.Error("what had not changed was sent again")
	}
	age("rex", 2)
	shows(dog, `Pet 2 age:2,"name":"rex"}`)
	if r := dog.Rows()[0]; r.Previous != "" || dog.Row("Pet", petID(2)) != r.Row || dog.Row("Pet", petID(1)) != "" {
		t.Errorf("the row is %v", r)
	}
	define(strings.Replace(petsSchema, `"name":{"type":"string"}`, `"name":{"type":"string"},"tail":{"type":"boolean"}`, 1))
	shows(dog, `Pet 2 age:2,"name":"rex","tail":false}`)
	transact(`[{"op":"delete","table":"Pet","where":[["name","==","rex"]]}]`)
	shows(dog)
	shows(ages, `Pet 1 age:2,"name":"cat","tail":false}`)
	if err := tables.Drop(ctx, "Pets", false); err != nil {
		t.Fatal(err)
	}
	shows(ages)
}
