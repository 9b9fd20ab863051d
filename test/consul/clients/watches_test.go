package clients

import (
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/consul/api/watch"
)

// follow runs a plan of Consul's watch package; what it hands over arrives in the channel.
func follow(t *testing.T, params map[string]any) <-chan any {
	t.Helper()
	plan, err := watch.Parse(params)
	check(t, err)
	results := make(chan any, 100)
	plan.HybridHandler = func(_ watch.BlockingParamVal, raw any) { results <- raw }
	ended := make(chan error, 1)
	go func() { ended <- plan.Run(server.address) }()
	t.Cleanup(func() {
		plan.Stop()
		check(t, within(t, "the plan ends", ended))
	})
	return results
}

// until takes results until one is as wanted: two changes may arrive as one.
func until[T any](t *testing.T, what string, results <-chan any, ok func(T) bool) {
	t.Helper()
	for {
		if got, is := within(t, what, results).(T); is && ok(got) {
			return
		}
	}
}

func TestWatchKey(t *testing.T) {
	client := connect(t)
	results := follow(t, map[string]any{"type": "key", "key": "watch/key"})
	for _, value := range []string{"one", "two"} {
		_, err := client.KV().Put(&api.KVPair{Key: "watch/key", Value: []byte(value)}, nil)
		check(t, err)
		until(t, value, results, func(p *api.KVPair) bool { return p != nil && string(p.Value) == value })
	}
	_, err := client.KV().Delete("watch/key", nil)
	check(t, err)
	if got := within(t, "that it is gone", results); got != nil {
		t.Errorf("a deleted key is %v", got)
	}
}

func TestWatchPrefix(t *testing.T) {
	client := connect(t)
	results := follow(t, map[string]any{"type": "keyprefix", "prefix": "watch/tree/"})
	for n, key := range []string{"watch/tree/a", "watch/tree/b"} {
		_, err := client.KV().Put(&api.KVPair{Key: key}, nil)
		check(t, err)
		until(t, key, results, func(p api.KVPairs) bool { return len(p) == n+1 })
	}
	_, err := client.KV().DeleteTree("watch/tree/", nil)
	check(t, err)
	until(t, "that they are gone", results, func(p api.KVPairs) bool { return len(p) == 0 })
}

func TestWatchServicesAndNodes(t *testing.T) {
	client := connect(t)
	services := follow(t, map[string]any{"type": "services"})
	service := follow(t, map[string]any{"type": "service", "service": "watched", "tag": []any{"a"}, "passingonly": true})
	nodes := follow(t, map[string]any{"type": "nodes"})
	checks := follow(t, map[string]any{"type": "checks", "service": "watched"})
	critical := follow(t, map[string]any{"type": "checks", "state": "critical"})
	register := func(status string) {
		t.Helper()
		_, err := client.Catalog().Register(&api.CatalogRegistration{
			Node: "watched-node", Address: "127.0.0.2",
			Service: &api.AgentService{ID: "watched-1", Service: "watched", Tags: []string{"a", "b"}},
			Check:   &api.AgentCheck{CheckID: "watched-check", Name: "c", Status: status, ServiceID: "watched-1"},
		}, nil)
		check(t, err)
	}
	register(api.HealthPassing)
	until(t, "the service's name", services, func(m map[string][]string) bool { return len(m["watched"]) == 2 })
	until(t, "the instance", service, func(e []*api.ServiceEntry) bool { return len(e) == 1 })
	until(t, "the node", nodes, func(l []*api.Node) bool { return hasNode(l, "watched-node") })
	until(t, "the check", checks, func(l []*api.HealthCheck) bool { return len(l) == 1 && l[0].Status == api.HealthPassing })
	register(api.HealthCritical)
	until(t, "no passing instance", service, func(e []*api.ServiceEntry) bool { return len(e) == 0 })
	until(t, "the critical check", critical, func(l []*api.HealthCheck) bool {
		for _, c := range l {
			if c.CheckID == "watched-check" {
				return true
			}
		}
		return false
	})
	_, err := client.Catalog().Deregister(&api.CatalogDeregistration{Node: "watched-node"}, nil)
	check(t, err)
	until(t, "no service", services, func(m map[string][]string) bool { return m["watched"] == nil })
	until(t, "no node", nodes, func(l []*api.Node) bool { return !hasNode(l, "watched-node") })
	until(t, "no check", checks, func(l []*api.HealthCheck) bool { return len(l) == 0 })
}

func hasNode(list []*api.Node, name string) bool {
	for _, n := range list {
		if n.Node == name {
			return true
		}
	}
	return false
}

// TestWatchAgentService blocks by hash instead of by index.
func TestWatchAgentService(t *testing.T) {
	client := connect(t)
	check(t, client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "hashed", Name: "hashed", Port: 1}))
	results := follow(t, map[string]any{"type": "agent_service", "service_id": "hashed"})
	until(t, "the service", results, func(s *api.AgentService) bool { return s.Port == 1 })
	check(t, client.Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "hashed", Name: "hashed", Port: 2}))
	until(t, "its change", results, func(s *api.AgentService) bool { return s.Port == 2 })
	check(t, client.Agent().ServiceDeregister("hashed"))
}

func TestWatchEvents(t *testing.T) {
	client := connect(t)
	results := follow(t, map[string]any{"type": "event", "name": "watched"})
	_, _, err := client.Event().Fire(&api.UserEvent{Name: "watched", Payload: []byte("hello")}, nil)
	check(t, err)
	until(t, "the event", results, func(l []*api.UserEvent) bool { return len(l) == 1 && string(l[0].Payload) == "hello" })
}
