package consul

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/core/catalog"
)

func TestTransactionsOfTheCatalog(t *testing.T) {
	m := startMember(t, nil)
	txn := func(name, body string, status int, want string) {
		t.Helper()
		m.exchange([]exchange{{name, "PUT", "/v1/txn", body, status, want}})
	}
	failed := func(whats ...string) string {
		b := `{"Results":null,"Errors":[`
		for i, w := range whats {
			if i > 0 {
				b += ","
			}
			quoted, _ := json.Marshal(txnError{i, w})
			b += string(quoted)
		}
		return b + "]"
	}
	a := m.do("PUT", "/v1/txn", `[
		{"Node":{"Verb":"set","Node":{"ID":"7b2f3a52-6d2a-4f0e-9a59-3a4d0c1b2e02","Node":"n","Address":"127.0.0.8","Meta":{"k":"v"},"PeerName":""}}},
		{"Service":{"Verb":"set","Node":"n","Service":{"ID":"web1","Service":"web","Tags":["a"],"Port":80}}},
		{"Check":{"Verb":"set","Check":{"Node":"n","CheckID":"c1","Name":"c","Status":"passing","ServiceID":"web1"}}},
		{"KV":{"Verb":"set","Key":"k","Value":"eA=="}}]`)
	var got struct {
		Results []struct {
			Node    *nodeJSON
			Service *serviceJSON
			Check   *checkJSON
			KV      *struct{ Key string }
		}
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.StatusCode != http.StatusOK || len(got.Results) != 4 {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	if n, s, c := got.Results[0].Node, got.Results[1].Service, got.Results[2].Check; n.Node != "n" || n.Meta["k"] != "v" ||
		s.ID != "web1" || s.Port != 80 || c.CheckID != "c1" || c.ServiceName != "web" || got.Results[3].KV.Key != "k" || n.ModifyIndex != s.ModifyIndex {
		t.Errorf("%s", a.body)
	}
	read := `[{"Node":{"Verb":"get","Node":{"Node":"n"}}},{"Service":{"Verb":"get","Node":"n","Service":{"ID":"web1"}}},{"Check":{"Verb":"get","Check":{"Node":"n","CheckID":"c1"}}}]`
	at := m.group.View().Index()
	if a = m.do("PUT", "/v1/txn", read); a.StatusCode != http.StatusOK || strings.Count(a.body, `"ModifyIndex"`) != 3 || m.group.View().Index() != at {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	txn("what is not there", strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(read, `"Node":"n"}}`, `"Node":"none"}}`), "web1", "none"), "c1", "none"), 409,
		failed(`node "none" doesn't exist`, `service "none" on node "n" doesn't exist`, `check "none" on node "n" doesn't exist`)+readAnswer)
	txn("what has changed", `[
		{"Node":{"Verb":"cas","Node":{"Node":"n","Address":"127.0.0.7","ModifyIndex":1}}},
		{"Service":{"Verb":"cas","Node":"n","Service":{"ID":"web1","Service":"web","ModifyIndex":1}}},
		{"Check":{"Verb":"cas","Check":{"Node":"n","CheckID":"c1","Name":"c","Status":"warning","ModifyIndex":1}}},
		{"Node":{"Verb":"delete-cas","Node":{"Node":"n","ModifyIndex":1}}},
		{"Check":{"Verb":"delete-cas","Check":{"Node":"n","CheckID":"c1","ModifyIndex":1}}},
		{"Service":{"Verb":"set","Node":"none","Service":{"Service":"web"}}},
		{"Check":{"Verb":"set","Check":{"Node":"n","CheckID":"c2","Name":"c","ServiceID":"none"}}}]`, 409,
		failed(`failed to set node "n", index is stale`, `failed to set service "web1" on node "n", index is stale`, `failed to set check "c1" on node "n", index is stale`,
			`failed to delete node "n", index is stale`, `failed to delete check "c1" on node "n", index is stale`, "Missing node registration", "Missing service registration")+"}")
	txn("what cannot be", `[{"Node":{"Verb":"no","Node":{"Node":"n"}}},{"Service":{"Verb":"set","Node":"n","Service":{"ID":"x"}}}]`, 409,
		failed("unknown Node operation: no", "Must provide service name (Service.Service) when service ID is provided")+"}")
	txn("a field that is not known", `[{"Other":{}}]`, 400, `Failed to parse body: json: unknown field "Other"`)
	txn("nothing is skipped", `[{},{"Check":{"Verb":"delete","Check":{"Node":"n","CheckID":"c1"}}},{"Service":{"Verb":"delete","Node":"n","Service":{"ID":"web1","Service":"web"}}},
		{"Node":{"Verb":"delete","Node":{"Node":"n"}}}]`, 200, `{"Results":[],"Errors":null}`)
	if catalog.Of(m.group.View()).Node("default", "n") != nil {
		t.Error("the node is still there")
	}
}
