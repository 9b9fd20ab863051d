package client

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// TestG15_AServiceCacheIsWhatAReadShows: whatever is registered and deregistered on a few
// nodes, what a session has heard of a service is what a read of it shows: its instances with
// their nodes and the checks of either, also those that were there before an instance came.
func TestG15_AServiceCacheIsWhatAReadShows(t *testing.T) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	web, rng := NewServiceCache(WatchServiceOptions{Service: "web"}), rand.New(rand.NewPCG(15, 0))
	openSession(t, c, SessionConfig{Follow: []Following{web}})
	for n := range 300 {
		did := catalogStep(t, c, rng, n)
		res, err := c.Catalog().Health(testContext(t), connect.NewRequest(&apiv1.HealthRequest{Service: "web"}))
		if err != nil {
			t.Fatal(err)
		}
		want, late := shownInstances(res.Msg.Instances), time.After(10*time.Second)
		for got := ""; ; {
			changed := web.Changed()
			web.checkHosts(t)
			if got = cachedInstances(web); got == want {
				break
			}
			select {
			case <-changed:
			case <-late:
				t.Fatalf("step %d, %s:\ngot  %s\nwant %s", n, did, got, want)
			}
		}
	}
}

// checkHosts fails the test unless each check is found by its id, and nothing else is.
func (c *ServiceCache) checkHosts(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, h := range c.records {
		found := maps.Clone(h.own)
		for _, i := range h.instances {
			maps.Copy(found, i.checks)
		}
		if len(h.instances) == 0 || h.node == nil || len(found) != len(h.checkedAt) {
			t.Fatalf("%s has %d instances, %v, checks %v at %v", name, len(h.instances), h.node, found, h.checkedAt)
		}
		for id, at := range h.checkedAt {
			if at[id] == nil || at[id] != found[id] {
				t.Fatalf("the check %s of %s is not where it is found: %v", id, name, at)
			}
		}
	}
}

// catalogTold is a message with changes.
func catalogTold(what string, records ...any) *apiv1.ServerFrame {
	m := &apiv1.WatchServiceResponse{ProgressIndex: 1}
	for _, r := range records {
		e := &apiv1.CatalogEvent{Index: 1, What: what}
		switch r := r.(type) {
		case *apiv1.Node:
			e.Record = &apiv1.CatalogEvent_Node{Node: r}
		case *apiv1.Service:
			e.Record = &apiv1.CatalogEvent_Service{Service: r}
		case *apiv1.Check:
			e.Record = &apiv1.CatalogEvent_Check{Check: r}
		}
		m.Events = append(m.Events, e)
	}
	return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_WatchService{WatchService: m}}
}

// That a check goes to an instance of another service is told, and its end then is not: it
// does not come back with that instance, should it be one of this service later.
func TestACheckThatLeavesAServiceIsForgotten(t *testing.T) {
	web := NewServiceCache(WatchServiceOptions{Service: "web"})
	node := &apiv1.Node{Name: "a"}
	web.take(0, catalogTold("stored", node, &apiv1.Service{Node: "a", Id: "1", Name: "web"}, &apiv1.Check{Node: "a", Id: "up", ServiceId: "1"}))
	if n := len(web.Checks("A", "1")); n != 1 {
		t.Fatalf("%d checks", n)
	}
	web.take(0, catalogTold("stored", &apiv1.Check{Node: "A", Id: "UP", ServiceId: "2"}))
	web.take(0, catalogTold("stored", &apiv1.Service{Node: "a", Id: "2", Name: "Web"}))
	web.checkHosts(t)
	if one, two := web.Checks("a", "1"), web.Checks("a", "2"); len(one)+len(two) != 0 {
		t.Errorf("it is shown at %v, %v", one, two)
	}
}

// What the end of an instance costs does not grow with what else there is, be it on the same
// node: else this takes a minute and more.
func TestAnInstanceGoesAtTheCostOfItself(t *testing.T) {
	const instances, most = 20_000, 10 * time.Second
	web := NewServiceCache(WatchServiceOptions{Service: "web"})
	came, went := []any{&apiv1.Node{Name: "a"}}, []any{}
	for i := range instances {
		s := &apiv1.Service{Node: "a", Id: fmt.Sprint(i), Name: "web"}
		came, went = append(came, s, &apiv1.Check{Node: "a", Id: "up-" + s.Id, ServiceId: s.Id}), append(went, s)
	}
	web.take(0, catalogTold("stored", came...))
	began := time.Now()
	web.take(0, catalogTold("deleted", went[1:]...))
	if took := time.Since(began); took > most || len(web.Services()) != 1 || len(web.Checks("a", "0")) != 1 {
		t.Fatalf("all but one went in %v, there are %d", took, len(web.Services()))
	}
	web.checkHosts(t)
	if web.take(0, catalogTold("deleted", went[0])); len(web.records) != 0 {
		t.Errorf("there are still %v", web.records)
	}
}

// catalogStep registers or deregisters something on one of three nodes, and says what.
func catalogStep(t *testing.T, c *Client, rng *rand.Rand, n int) string {
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	node, id := one("a", "b", "c"), one("1", "2", "3")
	status := apiv1.CheckStatus(1 + rng.IntN(3))
	var err error
	if rng.IntN(3) == 0 {
		r := &apiv1.DeregisterRequest{Node: node}
		switch rng.IntN(4) {
		case 0, 1:
			r.ServiceId = id
		case 2:
			r.CheckId = one("alive", "up-1", "up-2", "up-3")
		}
		if _, err = c.Catalog().Deregister(testContext(t), connect.NewRequest(r)); incumbent.KindOf(AsError(err)) == incumbent.NotFound {
			err = nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint("deregister ", r)
	}
	r := &apiv1.RegisterRequest{Node: &apiv1.Node{Name: node, Address: one("10.0.0.1", "10.0.0.2")}}
	if rng.IntN(3) > 0 {
		r.Service = &apiv1.Service{Id: id, Name: one("web", "Web", "other"), Port: uint32(n)}
		r.Checks = []*apiv1.Check{{Id: one("up-1", "up-2", "up-3"), Status: status}} // it may have been another instance's
	}
	if r.Service == nil || rng.IntN(4) == 0 {
		other := &apiv1.RegisterRequest{Node: r.Node, Checks: []*apiv1.Check{{Id: "alive", Status: status}}}
		if _, err = c.Catalog().Register(testContext(t), connect.NewRequest(other)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = c.Catalog().Register(testContext(t), connect.NewRequest(r)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("register ", r)
}

// shownInstances is what a read shows, in words.
func shownInstances(all []*apiv1.Instance) string {
	var out []string
	for _, i := range all {
		out = append(out, instanceText(i.Node, i.Service, i.Checks))
	}
	return strings.Join(out, "; ")
}

// cachedInstances is what a cache shows, in the same words.
func cachedInstances(c *ServiceCache) string {
	var out []string
	for _, s := range c.Services() {
		out = append(out, instanceText(c.Node(s.Node), s, append(c.Checks(s.Node, ""), c.Checks(s.Node, s.Id)...)))
	}
	return strings.Join(out, "; ")
}

func instanceText(n *apiv1.Node, s *apiv1.Service, checks []*apiv1.Check) string {
	var of []string
	for _, c := range checks {
		of = append(of, c.Id+" "+c.Status.String())
	}
	slices.Sort(of)
	return fmt.Sprint(s.Name, " ", s.Id, " ", s.Port, " on ", n.GetName(), " ", n.GetAddress(), " ", of)
}
