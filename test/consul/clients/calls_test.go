package clients

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func TestKeysAndTransactions(t *testing.T) {
	kv := connect(t).KV()
	put := func(p *api.KVPair) {
		t.Helper()
		_, err := kv.Put(p, nil)
		check(t, err)
	}
	put(&api.KVPair{Key: "calls/kv/a", Value: []byte("1"), Flags: 7})
	pair, meta, err := kv.Get("calls/kv/a", nil)
	check(t, err)
	if string(pair.Value) != "1" || pair.Flags != 7 || meta.LastIndex != pair.ModifyIndex || !meta.KnownLeader {
		t.Errorf("%+v, %+v", pair, meta)
	}
	pair.Value = []byte("2")
	if ok, _, err := kv.CAS(pair, nil); err != nil || !ok {
		t.Errorf("compare and set: %v, %v", ok, err)
	}
	if ok, _, err := kv.CAS(pair, nil); err != nil || ok {
		t.Errorf("compare and set with an old index: %v, %v", ok, err)
	}
	put(&api.KVPair{Key: "calls/kv/b/c"})
	keys, _, err := kv.Keys("calls/kv/", "/", nil)
	check(t, err)
	if len(keys) != 2 || keys[1] != "calls/kv/b/" {
		t.Errorf("keys: %q", keys)
	}
	ok, res, _, err := kv.Txn(api.KVTxnOps{
		{Verb: api.KVGet, Key: "calls/kv/a"}, {Verb: api.KVSet, Key: "calls/kv/d", Value: []byte("3")},
	}, nil)
	if err != nil || !ok || len(res.Results) != 2 || string(res.Results[0].Value) != "2" {
		t.Errorf("a transaction: %v, %+v, %v", ok, res, err)
	}
	ok, res, _, err = kv.Txn(api.KVTxnOps{{Verb: api.KVCheckNotExists, Key: "calls/kv/a"}, {Verb: api.KVDelete, Key: "calls/kv/d"}}, nil)
	if err != nil || ok || len(res.Errors) != 1 || res.Errors[0].OpIndex != 0 {
		t.Errorf("a transaction that fails: %v, %+v, %v", ok, res, err)
	}
	if ok, _, err := kv.DeleteCAS(pair, nil); err != nil || ok {
		t.Errorf("delete with an old index: %v, %v", ok, err)
	}
	_, err = kv.DeleteTree("calls/kv/", nil)
	check(t, err)
	list, _, err := kv.List("calls/kv/", nil)
	if err != nil || len(list) != 0 {
		t.Errorf("a tree that was deleted: %v, %v", list, err)
	}
}

// TestServicesWithATTL registers at the agent, renews, lets go.
func TestServicesWithATTL(t *testing.T) {
	client := connect(t)
	agent := client.Agent()
	check(t, agent.ServiceRegister(&api.AgentServiceRegistration{
		ID: "ttl-1", Name: "ttl", Tags: []string{"x"}, Port: 80, Meta: map[string]string{"k": "v"},
		Check: &api.AgentServiceCheck{CheckID: "ttl-check", TTL: "1h", Status: api.HealthCritical},
	}))
	status, info, err := agent.AgentHealthServiceByID("ttl-1")
	if err != nil || status != api.HealthCritical || info.Service.Service != "ttl" {
		t.Errorf("a new one: %s, %+v, %v", status, info, err)
	}
	check(t, agent.UpdateTTL("ttl-check", "all well", api.HealthPassing))
	if status, _, err := agent.AgentHealthServiceByName("ttl"); err != nil || status != api.HealthPassing {
		t.Errorf("after its renewal: %s, %v", status, err)
	}
	var entry *api.ServiceEntry
	eventually(t, "health has it", func() bool {
		list, _, err := client.Health().Service("ttl", "x", true, nil)
		check(t, err)
		if len(list) == 1 {
			entry = list[0]
		}
		return len(list) == 1
	})
	if entry.Service.Meta["k"] != "v" || entry.Service.Port != 80 || entry.Checks.AggregatedStatus() != api.HealthPassing {
		t.Errorf("%+v", entry.Service)
	}
	if err := agent.UpdateTTL("none", "", api.HealthPassing); err == nil {
		t.Error("a check that is not there was renewed")
	}
	check(t, agent.EnableServiceMaintenance("ttl-1", "tea"))
	if status, _, err := agent.AgentHealthServiceByID("ttl-1"); err != nil || status != api.HealthCritical && status != api.HealthMaint {
		t.Errorf("under maintenance: %s, %v", status, err)
	}
	check(t, agent.DisableServiceMaintenance("ttl-1"))
	services, err := agent.ServicesWithFilter("Service == ttl")
	if err != nil || len(services) != 1 {
		t.Errorf("by a filter: %v, %v", services, err)
	}
	check(t, agent.ServiceDeregister("ttl-1"))
	eventually(t, "the catalog has it no more", func() bool {
		list, _, err := client.Catalog().Service("ttl", "", nil)
		return err == nil && len(list) == 0
	})
}

// TestBlockingQuery waits as clients do, by the index of the last answer.
func TestBlockingQuery(t *testing.T) {
	client := connect(t)
	_, meta, err := client.Health().Service("blocked", "", false, nil)
	check(t, err)
	type answer struct {
		list []*api.ServiceEntry
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		list, _, err := client.Health().Service("blocked", "", false, &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: patience})
		answers <- answer{list, err}
	}()
	_, err = client.Catalog().Register(&api.CatalogRegistration{Node: "blocked", Address: "127.0.0.2", Service: &api.AgentService{Service: "blocked"}}, nil)
	check(t, err)
	got := within(t, "the answer", answers)
	if got.err != nil || len(got.list) != 1 {
		t.Errorf("%+v", got)
	}
	_, err = client.Catalog().Deregister(&api.CatalogDeregistration{Node: "blocked"}, nil)
	check(t, err)
	node, _, err := client.Catalog().Node("blocked", nil)
	if err != nil || node != nil {
		t.Errorf("a node that left: %+v, %v", node, err)
	}
}

func TestWhatHarnessesAsk(t *testing.T) {
	client := connect(t)
	leader, err := client.Status().Leader()
	if err != nil || leader == "" {
		t.Errorf("leader %q, %v", leader, err)
	}
	peers, err := client.Status().Peers()
	if err != nil || len(peers) != 1 {
		t.Errorf("peers %q, %v", peers, err)
	}
	self, err := client.Agent().Self()
	if err != nil || self["Config"]["NodeName"] == "" || self["Config"]["Datacenter"] != "dc1" {
		t.Errorf("self %v, %v", self["Config"], err)
	}
	name, err := client.Agent().NodeName()
	if err != nil || name == "" {
		t.Errorf("node %q, %v", name, err)
	}
	members, err := client.Agent().Members(false)
	if err != nil || len(members) != 1 || members[0].Status != 1 {
		t.Errorf("members %v, %v", members, err)
	}
	raft, err := client.Operator().RaftGetConfiguration(nil)
	if err != nil || len(raft.Servers) != 1 || !raft.Servers[0].Leader || !raft.Servers[0].Voter {
		t.Errorf("raft %+v, %v", raft, err)
	}
	eventually(t, "the one server is healthy", func() bool {
		health, err := client.Operator().AutopilotServerHealth(nil)
		return err == nil && health.Healthy && len(health.Servers) == 1
	})
	if _, err := client.Operator().AutopilotGetConfiguration(nil); err != nil {
		t.Error(err)
	}
	centers, err := client.Catalog().Datacenters()
	if err != nil || len(centers) != 1 {
		t.Errorf("datacenters %q, %v", centers, err)
	}
	if _, err := client.Agent().Metrics(); err != nil {
		t.Error(err)
	}
	roots, _, err := client.Agent().ConnectCARoots(nil)
	if err != nil || len(roots.Roots) != 1 || roots.ActiveRootID != roots.Roots[0].ID {
		t.Errorf("roots %+v, %v", roots, err)
	}
	if _, _, err := client.Catalog().Nodes(&api.QueryOptions{Datacenter: "none"}); err == nil {
		t.Error("a datacenter that is not there answers")
	}
}

func TestSnapshot(t *testing.T) {
	client := connect(t)
	kv := client.KV()
	_, err := kv.Put(&api.KVPair{Key: "calls/snapshot", Value: []byte("then")}, nil)
	check(t, err)
	stream, _, err := client.Snapshot().Save(nil)
	check(t, err)
	var saved bytes.Buffer
	_, err = saved.ReadFrom(stream)
	check(t, err)
	check(t, stream.Close())
	_, err = kv.Put(&api.KVPair{Key: "calls/snapshot", Value: []byte("later")}, nil)
	check(t, err)
	check(t, client.Snapshot().Restore(nil, &saved))
	pair, _, err := kv.Get("calls/snapshot", nil)
	check(t, err)
	if pair == nil || string(pair.Value) != "then" {
		t.Errorf("restored: %+v", pair)
	}
}

func TestPreparedQuery(t *testing.T) {
	client := connect(t)
	_, err := client.Catalog().Register(&api.CatalogRegistration{Node: "prepared", Address: "127.0.0.2", Service: &api.AgentService{Service: "prepared"}}, nil)
	check(t, err)
	id, _, err := client.PreparedQuery().Create(&api.PreparedQueryDefinition{Name: "prepared", Service: api.ServiceQuery{Service: "prepared"}}, nil)
	check(t, err)
	for _, by := range []string{id, "prepared"} {
		got, _, err := client.PreparedQuery().Execute(by, nil)
		if err != nil || len(got.Nodes) != 1 || got.Nodes[0].Node.Node != "prepared" {
			t.Errorf("executed by %s: %+v, %v", by, got, err)
		}
	}
	_, err = client.PreparedQuery().Delete(id, nil)
	check(t, err)
	if _, _, err := client.PreparedQuery().Execute(id, nil); err == nil {
		t.Error("executed after its end")
	}
	_, err = client.Catalog().Deregister(&api.CatalogDeregistration{Node: "prepared"}, nil)
	check(t, err)
}

// TestTxnOverTheCatalog changes keys and services in one.
func TestTxnOverTheCatalog(t *testing.T) {
	client := connect(t)
	ok, res, _, err := client.Txn().Txn(api.TxnOps{
		{Node: &api.NodeTxnOp{Verb: api.NodeSet, Node: api.Node{Node: "txn-node", Address: "127.0.0.2"}}},
		{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: "txn-node", Service: api.AgentService{ID: "txn-1", Service: "txn"}}},
		{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: api.HealthCheck{
			Node: "txn-node", CheckID: "txn-check", Name: "c", ServiceID: "txn-1", Status: api.HealthPassing,
			Definition: api.HealthCheckDefinition{TCP: "127.0.0.1:1", IntervalDuration: 5 * time.Second},
		}}},
		{KV: &api.KVTxnOp{Verb: api.KVSet, Key: "calls/txn", Value: []byte("x")}},
	}, nil)
	if err != nil || !ok || len(res.Results) != 4 {
		t.Fatalf("%v, %+v, %v", ok, res, err)
	}
	list, _, err := client.Health().Service("txn", "", true, nil)
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	ok, _, _, err = client.Txn().Txn(api.TxnOps{
		{Node: &api.NodeTxnOp{Verb: api.NodeDelete, Node: api.Node{Node: "txn-node"}}},
		{KV: &api.KVTxnOp{Verb: api.KVDelete, Key: "calls/txn"}},
	}, nil)
	if err != nil || !ok {
		t.Errorf("%v, %v", ok, err)
	}
}
