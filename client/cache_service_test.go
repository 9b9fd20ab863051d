package client

import (
	"fmt"
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
		r.Checks = []*apiv1.Check{{Id: "up-" + id, Status: status}}
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
