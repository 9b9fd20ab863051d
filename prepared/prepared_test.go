package prepared

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// state is one with keys.
type state struct {
	t *testing.T
	*core.State
}

func newState(t *testing.T) state { return state{t, core.New(kv.Family{}, catalog.Family{})} }

func (s state) do(c core.Command) core.Result {
	results := make([]core.Result, 1)
	s.Apply([][]byte{c.Encode(core.Meta{})}, results)
	return results[0]
}

// change does something to the queries, and returns what stands against it.
func (s state) change(c Change) error {
	s.t.Helper()
	c.Of = "default"
	cmd, err := c.Command(s.View())
	if err != nil {
		return err
	}
	r := s.do(cmd)
	if r.Err != nil {
		return r.Err
	}
	if r.Txn.Unmet != 0 {
		s.t.Fatalf("condition %d does not hold", r.Txn.Unmet)
	}
	return nil
}

// create stores a query under an id that its number says.
func (s state) create(n byte, q Query) string {
	s.t.Helper()
	q.ID = incumbent.SessionID{n}.String()
	if err := s.change(Change{Will: &q}); err != nil {
		s.t.Fatal(err)
	}
	return q.ID
}

func (s state) keys() (names []string) {
	kv.Of(s.View()).Ascend(kv.Key{Namespace: Namespace("default")}, kv.Key{}, func(e *kv.Entry) bool {
		names = append(names, e.Name)
		return true
	})
	return names
}

func of(service string) Service { return Service{Service: service} }

// TestResolve: a name is found whatever its case, before any template; of templates the
// longest is.
func TestResolve(t *testing.T) {
	s := newState(t)
	web := s.create(1, Query{Name: "Web-1", Service: of("web")})
	any := s.create(2, Query{Template: Template{Type: PrefixMatch}, Service: of("any-${name.full}")})
	s.create(3, Query{Name: "web-", Template: Template{Type: PrefixMatch}, Service: of("${name.prefix}|${name.suffix}")})
	s.create(4, Query{Name: "web", Service: of("short")})
	for asked, want := range map[string]string{
		"web-1": "web", "WEB-1": "web", web: "web", "web-12": "web-|12", "web-": "web-|", "web": "short", "we": "any-we", "": "any-",
		"01000000-0000-0000-0000-00000000000f": "any-01000000-0000-0000-0000-00000000000f",
	} {
		q, err := Resolve(s.View(), "default", asked)
		if err != nil || q == nil || q.Service.Service != want {
			t.Errorf("%q: %+v, %v, want %s", asked, q, err, want)
		}
	}
	if _, err := Resolve(s.View(), "default", any); err != ErrTemplate {
		t.Errorf("a template by its id: %v", err)
	}
	if q, err := Resolve(s.View(), "other", "web"); q != nil || err != nil {
		t.Errorf("in another namespace: %v, %v", q, err)
	}
}

// TestALongName: to look up one that no query can have costs what the longest one does.
// Who asks need not have shown who it is.
func TestALongName(t *testing.T) {
	s := newState(t)
	s.create(1, Query{Name: "a", Template: Template{Type: PrefixMatch}, Service: of("web")})
	cost := func(name string) float64 {
		return testing.AllocsPerRun(1, func() {
			if q, err := Resolve(s.View(), "default", name); err != nil || q == nil {
				t.Errorf("%d bytes: %v, %v", len(name), q, err)
			}
		})
	}
	longest := strings.Repeat("a", kv.MaxKeyBytes-len(byName))
	if long, most := cost(strings.Repeat("a", 60<<10)), cost(longest); long > most+10 {
		t.Errorf("%v allocations, want %v", long, most)
	}
	s.create(2, Query{Name: longest, Service: of("longest")})
	for name, want := range map[string]string{longest: "longest", strings.ToUpper(longest): "longest", longest + "a": "web"} {
		if q, err := Resolve(s.View(), "default", name); err != nil || q == nil || q.Service.Service != want {
			t.Errorf("%d bytes: %+v, %v, want %s", len(name), q, err, want)
		}
	}
}

func TestTemplates(t *testing.T) {
	q := Query{Name: "geo-", Template: Template{Type: PrefixMatch, Regexp: "^geo-(.*?)-([^-]+)?$", RemoveEmptyTags: true}, Service: Service{
		Service: "${match(1)}", Near: "${name.full}", Tags: []string{"${ match( 2 ) }", "a${agent.segment}", "${match(9)}", "$${x}", "$"},
		NodeMeta: map[string]string{"k": "${name.suffix}"}, ServiceMeta: map[string]string{"${name.full}": "v"},
		Failover: Failover{Datacenters: []string{"${match(2)}"}, Targets: []Target{{Peer: "${match(0)}"}}},
	}}
	want := Service{
		Service: "web", Near: "geo-web-v1", Tags: []string{"v1", "a", "${x}", "$"},
		NodeMeta: map[string]string{"k": "web-v1"}, ServiceMeta: map[string]string{"${name.full}": "v"},
		Failover: Failover{Datacenters: []string{"v1"}, Targets: []Target{{Peer: "geo-web-v1"}}},
	}
	was, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.render("geo-web-v1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Service); diff != "" {
		t.Error(diff)
	}
	if is, _ := json.Marshal(q); string(is) != string(was) {
		t.Errorf("the template was changed: %s", is)
	}
	for text, want := range map[string]string{
		"${nonsense}": "Bad evaluation for '${nonsense}' in Service.Service: 1:3: unknown variable accessed: nonsense",
		"${match(x)}": "Bad evaluation for '${match(x)}' in Service.Service: 1:9: unknown variable accessed: x",
		"${name.full": "Bad format '${name.full' in Service.Service: parse error at 1:12: expected \"}\" but found end of string",
	} {
		q := Query{Name: "x", Template: Template{Type: PrefixMatch}, Service: of(text)}
		if err := q.Compile(); incumbent.KindOf(err) != incumbent.Invalid || !strings.HasSuffix(err.Error(), "failed compiling template: "+want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for what, bad := range map[string]Template{"type": {Type: "odd"}, "expression": {Type: PrefixMatch, Regexp: "(("}} {
		q := Query{Name: "x", Template: bad, Service: of("web")}
		if q.Compile() == nil {
			t.Errorf("a bad %s will do", what)
		}
	}
}

// TestChanges: a name is one query's, whatever happens to it, and nothing is left of what
// was deleted.
func TestChanges(t *testing.T) {
	s := newState(t)
	a := s.create(1, Query{Name: "a", Service: of("web")})
	refused := func(q Query, want string) {
		t.Helper()
		if q.ID == "" {
			q.ID = incumbent.SessionID{9}.String()
		}
		if err := s.change(Change{Will: &q, Was: ByID(s.View(), "default", q.ID)}); incumbent.KindOf(err) != incumbent.Exists || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused(Query{Name: "A", Service: of("web")}, "name 'A' aliases an existing query name")
	refused(Query{Name: a, Service: of("web")}, "name '"+a+"' aliases an existing query ID")
	if err := s.change(Change{Was: ByID(s.View(), "default", a), Will: &Query{ID: a, Name: "b", Service: of("web")}}); err != nil {
		t.Fatal(err)
	}
	s.create(2, Query{Name: "a", Template: Template{Type: PrefixMatch}, Service: of("web")})
	s.create(3, Query{Template: Template{Type: PrefixMatch}, Service: of("web")})
	refused(Query{Template: Template{Type: PrefixMatch}, Service: of("web")}, "a query template with an empty name already exists")
	refused(Query{ID: a, Name: "a", Service: of("web")}, "name 'a' aliases an existing query name")
	x := &auth.Principal{Kind: auth.Agent, Name: "x", Via: auth.Credential, Proof: auth.Proof{ID: "\xffsum", Ends: 7}}
	if err := s.change(Change{Was: ByID(s.View(), "default", a), Will: &Query{ID: a, Name: "B", Service: of("other")}, As: x}); err != nil {
		t.Fatal(err)
	}
	if q := ByID(s.View(), "default", a); q.Name != "B" || *q.As != *x || q.Token != Hidden || q.CreateIndex >= q.ModifyIndex {
		t.Errorf("%+v", q)
	}
	for n := range byte(3) {
		if err := s.change(Change{Was: ByID(s.View(), "default", incumbent.SessionID{n + 1}.String())}); err != nil {
			t.Error(err)
		}
	}
	if left := s.keys(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestAChangeOfWhatChangedDoesNothing: a command that another has overtaken finds so.
func TestAChangeOfWhatChangedDoesNothing(t *testing.T) {
	s := newState(t)
	one, other := Change{Of: "default", Will: &Query{ID: incumbent.SessionID{1}.String(), Name: "a", Service: of("one")}},
		Change{Of: "default", Will: &Query{ID: incumbent.SessionID{2}.String(), Name: "A", Service: of("other")}}
	first, err := one.Command(s.View())
	if err != nil {
		t.Fatal(err)
	}
	second, err := other.Command(s.View())
	if err != nil {
		t.Fatal(err)
	}
	if r := s.do(first); r.Err != nil || r.Txn.Unmet != 0 {
		t.Fatalf("%+v", r)
	}
	if r := s.do(second); r.Err != nil || r.Txn.Unmet == 0 {
		t.Fatalf("two queries have a name: %+v", r)
	}
}

// What was read of a query may be older than the state in which its change is made: another
// change in between would leave its name behind.
func TestAChangeOfAnOlderQueryDoesNothing(t *testing.T) {
	s := newState(t)
	id := s.create(1, Query{Name: "a", Service: of("web")})
	was := ByID(s.View(), "default", id)
	if err := s.change(Change{Was: was, Will: &Query{ID: id, Name: "b", Service: of("web")}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Change{{Of: "default", Was: was}, {Of: "default", Was: was, Will: &Query{ID: id, Name: "c", Service: of("web")}}, {Of: "default", Will: &Query{ID: id, Name: "d", Service: of("web")}}} {
		cmd, err := c.Command(s.View())
		if err != nil {
			t.Fatal(err)
		}
		if r := s.do(cmd); r.Err != nil || r.Txn.Unmet == 0 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// TestSessions: a query ends with its session, and may go over to another.
func TestSessions(t *testing.T) {
	s := newState(t)
	var ids []string
	for n := range byte(2) {
		id := incumbent.SessionID{0xa0, n + 1}
		if r := s.do(core.OpenSessionCommand{ID: id}); r.Err != nil {
			t.Fatal(r.Err)
		}
		ids = append(ids, id.String())
	}
	a := s.create(1, Query{Name: "a", Session: ids[0], Service: of("web")})
	b := s.create(2, Query{Session: ids[0], Service: of("web")})
	for _, session := range []string{ids[1], ids[0], "", ids[1]} {
		if err := s.change(Change{Was: ByID(s.View(), "default", a), Will: &Query{ID: a, Name: "a", Session: session, Service: of("web")}}); err != nil {
			t.Fatalf("to %q: %v", session, err)
		}
	}
	end := func(session string) {
		t.Helper()
		id, err := incumbent.ParseSessionID(session)
		if err != nil {
			t.Fatal(err)
		}
		if r := s.do(core.CloseSessionCommand{ID: id, Others: true}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	end(ids[0])
	if ByID(s.View(), "default", b) != nil || ByID(s.View(), "default", a) == nil {
		t.Errorf("left: %q", s.keys())
	}
	end(ids[1])
	if left := s.keys(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	q := Query{ID: b, Name: "a", Session: ids[0], Service: of("web")}
	if err := s.change(Change{Will: &q}); incumbent.KindOf(err) != incumbent.Expired {
		t.Errorf("bound to a session that ended: %v", err)
	}
}

func TestSelect(t *testing.T) {
	instance := func(node string, tags []string, node1, service catalog.Status) *catalog.Instance {
		return &catalog.Instance{
			Node:       &catalog.Node{Name: node, Meta: []catalog.Pair{{Key: "rack", Value: node}}},
			Service:    &catalog.Service{Node: node, Name: "web", Tags: tags, Meta: []catalog.Pair{{Key: "v", Value: "1"}}},
			NodeChecks: []*catalog.Check{{ID: "node", Status: node1}}, Checks: []*catalog.Check{{ID: "own", Status: service}},
		}
	}
	all := []*catalog.Instance{
		instance("a", []string{"x", "Y"}, catalog.Passing, catalog.Passing),
		instance("b", []string{"x"}, catalog.Passing, catalog.Warning),
		instance("c", nil, catalog.Critical, catalog.Passing),
		instance("d", []string{"y"}, catalog.Passing, catalog.Critical),
	}
	for _, c := range []struct {
		q    Service
		want string
	}{
		{Service{}, "ab"},
		{Service{OnlyPassing: true}, "a"},
		{Service{IgnoreCheckIDs: []string{"own"}}, "abd"},
		{Service{IgnoreCheckIDs: []string{"own", "node"}, OnlyPassing: true}, "abcd"},
		{Service{Tags: []string{"X"}}, "ab"},
		{Service{Tags: []string{"x", "!y"}}, "b"},
		{Service{NodeMeta: map[string]string{"rack": "b"}, ServiceMeta: map[string]string{"v": "1"}}, "b"},
		{Service{ServiceMeta: map[string]string{"v": "2"}}, ""},
		{Service{Connect: true}, ""},
		{Service{Peer: "p"}, ""},
	} {
		c.q.Service = "web"
		q := Query{Service: c.q}
		got := ""
		for _, i := range q.Select(func(service string, fn func(*catalog.Instance) bool) {
			for _, i := range all {
				if service == "web" && !fn(i) {
					return
				}
			}
		}) {
			got += i.Node.Name
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.q, got, c.want)
		}
	}
	near := slices.Clone(all)
	NearFirst(near, "C")
	if near[0] != all[2] || near[1] != all[0] || near[3] != all[3] {
		t.Error("what is near is not first, or the rest has moved")
	}
}
