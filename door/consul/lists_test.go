package consul

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
)

// catalogState is a state that tests change without a cluster.
type catalogState struct {
	tb    rapid.TB
	state *core.State
}

func newCatalogState(tb rapid.TB) *catalogState { return &catalogState{tb, engine.NewState()} }

func (s *catalogState) do(c *catalog.Command) {
	s.tb.Helper()
	c.Target.Namespace = "default"
	results := make([]core.Result, 1)
	s.state.Apply([][]byte{c.Encode(core.Meta{})}, results)
	if err := results[0].Err; err != nil {
		s.tb.Fatal(err)
	}
}

// put registers an instance with a check.
func (s *catalogState) put(node, id, name string, tags []string, status catalog.Status, output string) {
	s.tb.Helper()
	s.do(&catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Node: node}, Node: &catalog.Node{Name: node, Address: "10.0.0.1"},
		Service: &catalog.Service{ID: id, Name: name, Tags: tags, Port: 80, Weights: catalog.Weights{Passing: 1, Warning: 1}},
		Checks:  []*catalog.Check{{ID: "c-" + id, Name: "c", Status: status, Output: output, ServiceID: id}},
	})
}

func listDoor() *Door { return &Door{cfg: Config{Datacenter: "dc1"}, namespace: "default"} }

// What is kept of a list, and of what is selected of it, is what an evaluation of the
// same view from nothing gives; its index moves exactly when it says something else.
func TestKeptListsAreTheListsOfTheView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, d := newCatalogState(t), listDoor()
		selections := map[string]func(*Door) *selection[*catalog.Instance, entryJSON]{
			"all": func(d *Door) *selection[*catalog.Instance, entryJSON] {
				return &selection[*catalog.Instance, entryJSON]{board: boardOf(d, entryKind, "web")}
			},
			"passing": func(d *Door) *selection[*catalog.Instance, entryJSON] {
				return &selection[*catalog.Instance, entryJSON]{board: boardOf(d, entryKind, "web"), picks: (&picks{passing: true}).ofInstance}
			},
			"tagged": func(d *Door) *selection[*catalog.Instance, entryJSON] {
				return &selection[*catalog.Instance, entryJSON]{board: boardOf(d, entryKind, "web"), picks: (&picks{tags: []string{"t1"}}).ofInstance}
			},
		}
		kept, was := map[string]*selection[*catalog.Instance, entryJSON]{}, map[string]*listing{}
		for name, make := range selections {
			kept[name] = make(d)
		}
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			for range rapid.IntRange(0, 60).Draw(t, "changes") {
				node := fmt.Sprintf("n%02d", rapid.IntRange(0, 60).Draw(t, "node"))
				id := fmt.Sprintf("s%d", rapid.IntRange(0, 1).Draw(t, "id"))
				switch rapid.IntRange(0, 9).Draw(t, "what") {
				case 0:
					s.do(&catalog.Command{Verb: catalog.Deregister, Target: catalog.Target{Kind: catalog.NodeKind, Node: node}})
				case 1:
					s.do(&catalog.Command{Verb: catalog.Deregister, Target: catalog.Target{Kind: catalog.ServiceKind, Node: node, ID: id}})
				default:
					name := rapid.SampledFrom([]string{"web", "web", "web", "db"}).Draw(t, "name")
					tags := []string{fmt.Sprintf("t%d", rapid.IntRange(0, 2).Draw(t, "tag"))}
					s.put(node, id, name, tags, catalog.Status(rapid.IntRange(0, 2).Draw(t, "status")), rapid.SampledFrom([]string{"", "x"}).Draw(t, "output"))
				}
			}
			v := s.state.View()
			for name, make := range selections {
				got, want := kept[name].list(v, nil), make(listDoor()).list(v, nil)
				if !bytes.Equal(got.body.JSON(), want.body.JSON()) || got.hash != want.hash {
					t.Fatalf("%s: %s\nwant %s", name, got.body.JSON(), want.body.JSON())
				}
				if !bytes.Equal(gunzip(t, got.body.Gzip()), want.body.JSON()) {
					t.Fatalf("%s: another list when unpacked", name)
				}
				if before := was[name]; before != nil {
					same := bytes.Equal(before.body.JSON(), got.body.JSON())
					if same && got.index != before.index || !same && got.index <= before.index {
						t.Fatalf("%s: index %d after %d, the same: %v", name, got.index, before.index, same)
					}
				}
				was[name] = got
			}
		}
	})
}

// The same of checks, which are selected by what is not shown of them.
func TestKeptListsOfChecksAreTheListsOfTheView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, d := newCatalogState(t), listDoor()
		type list = selection[checkRow, checkJSON]
		selections := map[string]func(*Door) *list{}
		for _, k := range []*kind[checkRow, checkJSON]{serviceChecks, stateChecksOn} {
			of := map[string]string{serviceChecks.name: "web", stateChecksOn.name: anyState}[k.name]
			selections[k.name] = func(d *Door) *list { return &list{board: boardOf(d, k, of)} }
			for _, rack := range []string{"a", "b"} {
				p := &picks{meta: []catalog.Pair{{Key: "rack", Value: rack}}}
				selections[k.name+" in "+rack] = func(d *Door) *list { return &list{board: boardOf(d, k, of), picks: p.checks()} }
			}
		}
		kept, was := map[string]*list{}, map[string]*listing{}
		for name, make := range selections {
			kept[name] = make(d)
		}
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				node := fmt.Sprintf("n%02d", rapid.IntRange(0, 40).Draw(t, "node"))
				s.put(node, "s", "web", nil, catalog.Status(rapid.IntRange(1, 2).Draw(t, "status")), "")
				s.do(&catalog.Command{Verb: catalog.Register, Target: catalog.Target{Node: node}, Node: &catalog.Node{
					Name: node, Address: "10.0.0.1", Meta: []catalog.Pair{{Key: "rack", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rack")}},
				}})
			}
			v := s.state.View()
			for name, make := range selections {
				got, want := kept[name].list(v, nil), make(listDoor()).list(v, nil)
				if !bytes.Equal(got.body.JSON(), want.body.JSON()) || got.hash != want.hash {
					t.Fatalf("%s: %s\nwant %s", name, got.body.JSON(), want.body.JSON())
				}
				if before := was[name]; before != nil {
					same := bytes.Equal(before.body.JSON(), got.body.JSON())
					if same && got.index != before.index || !same && got.index <= before.index {
						t.Fatalf("%s: index %d after %d, the same: %v", name, got.index, before.index, same)
					}
				}
				was[name] = got
			}
		}
	})
}

// A view that is older than the newest one seen gives what it has.
func TestAListOfAnOlderView(t *testing.T) {
	s, d := newCatalogState(t), listDoor()
	s.put("n1", "s", "web", nil, catalog.Passing, "")
	old := s.state.View()
	s.put("n1", "s", "web", nil, catalog.Critical, "")
	b := boardOf(d, entryKind, "web")
	newest := b.list(s.state.View(), nil)
	if l := b.list(old, nil); bytes.Equal(l.body.JSON(), newest.body.JSON()) || l.index >= newest.index {
		t.Errorf("%s at %d", l.body.JSON(), l.index)
	}
	if b.list(s.state.View(), nil) != newest {
		t.Error("the newest list was made again")
	}
}

// A board is forgotten with the last query that holds it.
func TestBoardsAreForgotten(t *testing.T) {
	d := listDoor()
	b := boardOf(d, entryKind, "web")
	if boardOf(d, entryKind, "web") != b || any(boardOf(d, instanceKind, "web")) == any(b) {
		t.Error("boards are found by kind and name")
	}
	runtime.KeepAlive(b)
	eventually(t, func() bool {
		runtime.GC()
		d.boards.mu.Lock()
		defer d.boards.mu.Unlock()
		return len(d.boards.byKey) == 0
	})
}

// What a client may send as a registration is refused or taken, and never more.
func FuzzRegistrations(f *testing.F) {
	f.Add([]byte(`{"Node":"n","Address":"a","Service":{"Service":"s","Tags":["t"],"Meta":{"k":"v"}},"Checks":[{"Name":"c","Definition":{"Interval":5}}]}`))
	f.Add([]byte(`{"Name":"s","Check":{"TTL":"1s","DeregisterCriticalServiceAfter":"1s"},"Weights":{"Passing":1},"tagged_addresses":{"lan":{"Port":1}}}`))
	f.Add([]byte(`{"Name":"s","Checks":[null,{"HTTP":"http://x","Interval":1e300}],"Port":-1,"Address":"::1"}`))
	d := listDoor()
	d.cfg.Node = "agent"
	f.Fuzz(func(t *testing.T, body []byte) {
		var in registration
		if json.Unmarshal(body, &in) == nil && in.refused() == "" {
			if cmd, text := in.command("default"); text == "" && cmd.Validate() == nil {
				for _, c := range cmd.Checks {
					if !json.Valid(encodeJSON(checkOf(c))) {
						t.Fatalf("check %+v cannot be shown", c)
					}
				}
			}
		}
		var service agentServiceBody
		if json.Unmarshal(body, &service) != nil {
			return
		}
		for _, c := range service.checks() {
			c.HTTP, c.TCP, c.UDP, c.GRPC = "", "", "", "" // of those a member is the runner
		}
		cmd, u := service.command(d)
		if u != nil {
			if u.text == "" || u.status < 400 {
				t.Fatalf("refused with %d %q", u.status, u.text)
			}
			return
		}
		if cmd.Service.Name == "" || cmd.Target.Node != "agent" {
			t.Fatalf("registers %+v", cmd)
		}
		for _, c := range cmd.Checks {
			if c.ID == "" || c.ServiceID != cmd.Service.ID || c.TTL <= 0 {
				t.Fatalf("registers check %+v", c)
			}
		}
	})
}

// BenchmarkServiceFlap is what one flap of many instances costs from the view to the
// bytes that are sent; half is for 500 filters of one service.
func BenchmarkServiceFlap(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		for _, what := range []string{"plain", "gzip", "500 filters"} {
			b.Run(fmt.Sprintf("instances=%d/%s", n, strings.ReplaceAll(what, " ", "-")), func(b *testing.B) { benchmarkFlap(b, n, what) })
		}
	}
}

func benchmarkFlap(b *testing.B, n int, what string) {
	s, d := &catalogState{b, engine.NewState()}, listDoor()
	flap := func(i, round int) {
		s.put(fmt.Sprintf("node-%05d", i), "web", "web", []string{fmt.Sprintf("t%d", i%500), "v1"}, catalog.Status(1+round&1), fmt.Sprint(round))
	}
	for i := range n {
		flap(i, 0)
	}
	lists := []*selection[*catalog.Instance, entryJSON]{{board: boardOf(d, entryKind, "web")}}
	if what == "500 filters" {
		for i := range 500 {
			p := &picks{tags: []string{fmt.Sprintf("t%d", i)}}
			lists = append(lists, &selection[*catalog.Instance, entryJSON]{board: lists[0].board, picks: p.ofInstance})
		}
	}
	once := func() {
		for _, l := range lists {
			l := l.list(s.state.View(), nil)
			if what == "plain" {
				l.body.JSON()
			} else {
				l.body.Gzip()
			}
		}
	}
	once()
	b.ReportAllocs()
	b.ResetTimer()
	for round := range b.N {
		b.StopTimer()
		flap(round*7919%n, round+1)
		b.StartTimer()
		once()
	}
}
