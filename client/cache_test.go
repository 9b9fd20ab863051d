package client

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// An entry that has none of the parts that a cache follows goes from it nevertheless.
func TestACacheOfPartsForgetsWhatIsGone(t *testing.T) {
	for _, value := range []string{"{}", "no JSON"} {
		c := clientOf(t, startServer(t, serverConfig(t)).URL())
		keys := c.KV("")
		mustPut(t, keys, "app/x", value)
		app := NewKeyCache("", WatchKeysOptions{Key: "app/", Prefix: true, Fields: []string{"value/charm/url"}})
		openSession(t, c, SessionConfig{Follow: []Following{app}})
		until(t, app, func() bool { return app.Index() > 0 })
		if app.Get("app/x") == nil {
			t.Fatalf("%s is not shown at the beginning", value)
		}
		if _, err := keys.Delete(testContext(t), "app/x"); err != nil {
			t.Fatal(err)
		}
		mustPut(t, keys, "app/marker", `{"charm":{"url":"ch:x-1"}}`)
		until(t, app, func() bool { return app.Get("app/marker") != nil })
		if e := app.Get("app/x"); e != nil {
			t.Errorf("%s is still there: %v", value, e)
		}
	}
}

// So does an instance without the pair of the meta that a cache follows, also to another
// service.
func TestACacheOfPairsForgetsInstances(t *testing.T) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	register := func(id, name string, meta map[string]string) {
		t.Helper()
		r := &apiv1.RegisterRequest{Node: &apiv1.Node{Name: "a", Address: "10.0.0.1"}, Service: &apiv1.Service{Id: id, Name: name, Meta: meta}}
		if _, err := c.Catalog().Register(testContext(t), connect.NewRequest(r)); err != nil {
			t.Fatal(err)
		}
	}
	register("ends", "web", nil)
	register("moves", "web", nil)
	fields := []string{"meta/version"}
	web, db := NewServiceCache(WatchServiceOptions{Service: "web", Fields: fields}), NewServiceCache(WatchServiceOptions{Service: "db", Fields: fields})
	openSession(t, c, SessionConfig{Follow: []Following{web, db}})
	until(t, web, func() bool { return instancesOf(web) == "ends moves" })
	until(t, db, func() bool { return db.Index() > 0 })
	if _, err := c.Catalog().Deregister(testContext(t), connect.NewRequest(&apiv1.DeregisterRequest{Node: "a", ServiceId: "ends"})); err != nil {
		t.Fatal(err)
	}
	register("moves", "db", nil)
	register("marker", "web", map[string]string{"version": "1"})
	register("marker2", "db", map[string]string{"version": "1"})
	until(t, web, func() bool { return strings.Contains(instancesOf(web), "marker") })
	until(t, db, func() bool { return strings.Contains(instancesOf(db), "marker2") })
	if w, d := instancesOf(web), instancesOf(db); w != "marker" || d != "marker2 moves" {
		t.Errorf("web has %s, db has %s", w, d)
	}
}

// A check that moves to another instance of a service is that one's in each cache of it, also
// where its status is as before.
func TestACheckThatMovesIsWhereItIs(t *testing.T) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	register := func(id, check string) {
		t.Helper()
		r := &apiv1.RegisterRequest{
			Node: &apiv1.Node{Name: "a", Address: "10.0.0.1"}, Service: &apiv1.Service{Id: id, Name: "web"},
			Checks: []*apiv1.Check{{Id: check, Status: apiv1.CheckStatus_CHECK_STATUS_PASSING}},
		}
		if _, err := c.Catalog().Register(testContext(t), connect.NewRequest(r)); err != nil {
			t.Fatal(err)
		}
	}
	register("1", "up")
	register("2", "other")
	web := NewServiceCache(WatchServiceOptions{Service: "web", Fields: []string{"status"}})
	openSession(t, c, SessionConfig{Follow: []Following{web}})
	until(t, web, func() bool { return len(web.Checks("a", "1")) == 1 && len(web.Checks("a", "2")) == 1 })
	register("2", "up")
	register("1", "marker")
	until(t, web, func() bool { return slices.Contains(checkIDs(web, "1"), "marker") })
	if one, two := checkIDs(web, "1"), checkIDs(web, "2"); !slices.Equal(one, []string{"marker"}) || !slices.Equal(two, []string{"other", "up"}) {
		t.Errorf("1 has the checks %q, 2 has %q", one, two)
	}
}

func checkIDs(c *ServiceCache, id string) (ids []string) {
	for _, check := range c.Checks("a", id) {
		ids = append(ids, check.Id)
	}
	return ids
}

func instancesOf(c *ServiceCache) string {
	var ids []string
	for _, s := range c.Services() {
		ids = append(ids, s.Id)
	}
	return strings.Join(ids, " ")
}

// A row goes from a cache of a column that its table no longer has.
func TestACacheOfAColumnThatIsGoneForgetsRows(t *testing.T) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	define, transact := petsOf(t, c)
	define(petsSchema)
	transact(fmt.Sprintf(`[{"op":"insert","table":"Pet","uuid":"%s","row":{"name":"cat"}}]`, petID(1)))
	pets := NewTableCache("", WatchTablesOptions{Database: "Pets", Fields: []string{"Pet/age"}})
	openSession(t, c, SessionConfig{Follow: []Following{pets}})
	until(t, pets, func() bool { return len(pets.Rows()) == 1 })
	define(strings.Replace(petsSchema, `,"age":{"type":"integer"}`, "", 1))
	until(t, pets, func() bool { return len(pets.Rows()) == 1 && !strings.Contains(pets.Rows()[0].Row, "age") })
	transact(`[{"op":"delete","table":"Pet","where":[]}]`)
	until(t, pets, func() bool { return len(pets.Rows()) == 0 })
}

// Parts alone are followed with membership, and a whole field brings it along.
func TestWhatACacheAsksFor(t *testing.T) {
	for _, tt := range []struct{ fields, want []string }{
		{nil, nil},
		{[]string{"value"}, []string{"value"}},
		{[]string{"value/a", "flags"}, []string{"value/a", "flags"}},
		{[]string{"value/a", "value/b"}, []string{"value/a", "value/b", "membership"}},
	} {
		got := NewKeyCache("", WatchKeysOptions{Key: "k", Fields: tt.fields}).request(0).GetWatchKeys().GetFields()
		if !slices.Equal(got, tt.want) {
			t.Errorf("with %q: %q, want %q", tt.fields, got, tt.want)
		}
	}
}
