package client

import (
	"fmt"
	"strings"
	"testing"

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
