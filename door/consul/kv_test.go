package consul

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// exchange is one request with its answer.
type exchange struct {
	name, method, path, send string
	status                   int
	want                     string
}

func (m *member) exchange(list []exchange) {
	m.tb.Helper()
	for _, e := range list {
		a := m.do(e.method, e.path, e.send)
		if a.StatusCode != e.status || a.body != e.want {
			m.tb.Errorf("%s: %s %s: %d %s, want %d %s", e.name, e.method, e.path, a.StatusCode, a.body, e.status, e.want)
		}
	}
}

// open opens a session as another door would.
func (m *member) open() incumbent.SessionID {
	m.tb.Helper()
	id := incumbent.NewSessionID()
	if r := m.group.Do(core.OpenSessionCommand{ID: id}); r.Err != nil {
		m.tb.Fatal(r.Err)
	}
	return id
}

func TestKeys(t *testing.T) {
	m := startMember(t, nil)
	long := strings.Repeat("x", kv.MaxValueBytes+1)
	m.exchange([]exchange{
		{"nothing", "GET", "/v1/kv/a", "", 404, ""},
		{"no key", "GET", "/v1/kv/", "", 400, "Missing key name"},
		{"no key to store", "PUT", "/v1/kv/", "x", 400, "Missing key name"},
		{"no key to delete", "DELETE", "/v1/kv/", "", 400, "Missing key name"},
		{"nothing below", "GET", "/v1/kv/a?recurse", "", 404, ""},
		{"no names below", "GET", "/v1/kv/a?keys", "", 404, ""},
		{"no names at all", "GET", "/v1/kv/?keys", "", 200, "[]"},
		{"store", "PUT", "/v1/kv/a?flags=42", "one", 200, "true"},
		{"read", "GET", "/v1/kv/a", "", 200, `[{"LockIndex":0,"Key":"a","Flags":42,"Value":"b25l","CreateIndex":2,"ModifyIndex":2}]`},
		{"raw", "GET", "/v1/kv/a?raw", "", 200, "one"},
		{"store the same", "PUT", "/v1/kv/a?flags=42", "one", 200, "true"},
		{"which is no change", "GET", "/v1/kv/a", "", 200, `[{"LockIndex":0,"Key":"a","Flags":42,"Value":"b25l","CreateIndex":2,"ModifyIndex":2}]`},
		{"store nothing", "PUT", "/v1/kv/a/b", "", 200, "true"},
		{"which is null", "GET", "/v1/kv/a%2Fb", "", 200, `[{"LockIndex":0,"Key":"a/b","Flags":0,"Value":null,"CreateIndex":3,"ModifyIndex":3}]`},
		{"two conditions", "PUT", "/v1/kv/a?cas=1&acquire=x", "", 400, "Conflicting flags: acquire=x&cas=1\n"},
		{"two ways to delete", "DELETE", "/v1/kv/a?cas=1&recurse", "", 400, "Conflicting flags: cas=1&recurse=\n"},
		{"too long", "PUT", "/v1/kv/a", long, 413, "Request body(524289 bytes) too large, max size: 524288 bytes"},
		{"create what is there", "PUT", "/v1/kv/a?cas=0", "two", 200, "false"},
		{"change what was changed", "PUT", "/v1/kv/a?cas=7", "two", 200, "false"},
		{"change what is so", "PUT", "/v1/kv/a?cas=2", "two", 200, "true"},
		{"create", "PUT", "/v1/kv/c/d/e?cas=0", "x", 200, "true"},
		{"more", "PUT", "/v1/kv/c/d/f", "x", 200, "true"},
		{"names", "GET", "/v1/kv/?keys", "", 200, `["a","a/b","c/d/e","c/d/f"]`},
		{"folders", "GET", "/v1/kv/?keys&separator=/", "", 200, `["a","a/","c/"]`},
		{"folders, as it was spelled first", "GET", "/v1/kv/?keys&seperator=/", "", 200, `["a","a/","c/"]`}, //nolint:misspell // so
		{"folders below", "GET", "/v1/kv/c/?keys&separator=/", "", 200, `["c/d/"]`},
		{"all below", "GET", "/v1/kv/a?recurse", "", 200, `[{"LockIndex":0,"Key":"a","Flags":0,"Value":"dHdv","CreateIndex":2,"ModifyIndex":4},` +
			`{"LockIndex":0,"Key":"a/b","Flags":0,"Value":null,"CreateIndex":3,"ModifyIndex":3}]`},
		{"delete what was changed", "DELETE", "/v1/kv/a?cas=1", "", 200, "false"},
		{"delete what is so", "DELETE", "/v1/kv/a?cas=4", "", 200, "true"},
		{"delete what is not there", "DELETE", "/v1/kv/a?cas=4", "", 200, "true"},
		{"delete what is not there without a word", "DELETE", "/v1/kv/a", "", 200, "true"},
		{"delete below", "DELETE", "/v1/kv/c/?recurse", "", 200, "true"},
		{"what is left", "GET", "/v1/kv/?keys", "", 200, `["a/b"]`},
	})
	if a := m.do("GET", "/v1/kv/c/?recurse", ""); a.Header.Get("X-Consul-Index") != "8" {
		t.Errorf("a list of what was deleted is of index %s, want that of the deletion", a.Header.Get("X-Consul-Index"))
	}
}

func TestLocks(t *testing.T) {
	m := startMember(t, nil)
	s, other := m.open(), m.open()
	m.exchange([]exchange{
		{"no session", "PUT", "/v1/kv/l?acquire=", "", 500, "raft apply failed: missing session"},
		{"none", "PUT", "/v1/kv/l?acquire=x", "", 500, `raft apply failed: invalid session "x"`},
		{"one that is not open", "PUT", "/v1/kv/l?acquire=11111111-1111-1111-1111-111111111111", "", 500, `raft apply failed: invalid session "11111111-1111-1111-1111-111111111111"`},
		{"lock", "PUT", "/v1/kv/l?acquire=" + s.String(), "me", 200, "true"},
		{"lock again", "PUT", "/v1/kv/l?acquire=" + s.String(), "me", 200, "true"},
		{"lock what another has", "PUT", "/v1/kv/l?acquire=" + other.String(), "", 200, "false"},
		{"read", "GET", "/v1/kv/l", "", 200, `[{"LockIndex":1,"Key":"l","Flags":0,"Value":"bWU=","Session":"` + s.String() + `","CreateIndex":4,"ModifyIndex":4}]`},
		{"store", "PUT", "/v1/kv/l", "by anybody", 200, "true"},
		{"unlock what another has", "PUT", "/v1/kv/l?release=" + other.String(), "", 200, "false"},
		{"unlock with what is no session", "PUT", "/v1/kv/l?release=x", "", 200, "false"},
		{"unlock", "PUT", "/v1/kv/l?release=" + s.String(), "free", 200, "true"},
		{"lock what was given up, at once", "PUT", "/v1/kv/l?acquire=" + other.String(), "mine", 200, "true"},
	})
	var list []struct{ LockIndex int }
	a := m.do("GET", "/v1/kv/l", "")
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || len(list) != 1 || list[0].LockIndex != 2 {
		t.Errorf("locked for the second time: %s", a.body)
	}
}

// What is refused, and what says what is so, costs no entry of the log.
func TestG22_WhatChangesNothingIsNotLogged(t *testing.T) {
	m := startMember(t, nil)
	s, other := m.open(), m.open()
	m.do("PUT", "/v1/kv/l?acquire="+s.String(), "me")
	at := m.group.View().Index()
	for _, tt := range []struct{ method, path, send, want string }{
		{"PUT", "/v1/kv/l?acquire=" + other.String(), "", "false"},
		{"PUT", "/v1/kv/l?release=" + other.String(), "", "false"},
		{"PUT", "/v1/kv/l?acquire=" + s.String(), "me", "true"},
		{"PUT", "/v1/kv/l?cas=1", "", "false"},
		{"PUT", "/v1/kv/l", "me", "true"},
		{"DELETE", "/v1/kv/l?cas=1", "", "false"},
		{"DELETE", "/v1/kv/none", "", "true"},
		{"DELETE", "/v1/kv/none?recurse", "", "true"},
	} {
		if a := m.do(tt.method, tt.path, tt.send); a.body != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.path, a.body, tt.want)
		}
	}
	if got := m.group.View().Index(); got != at {
		t.Errorf("%d entries", got-at)
	}
}

// readAnswer is how the answer to a transaction ends that only reads.
const readAnswer = `,"Index":1,"LastContact":0,"KnownLeader":true,"ConsistencyLevel":"","NotModified":false,"Backend":0,"ResultsFilteredByACLs":false}`

func TestTransactions(t *testing.T) {
	m := startMember(t, nil)
	s := m.open()
	txn := func(name, body string, status int, want string) {
		t.Helper()
		m.exchange([]exchange{{name, "PUT", "/v1/txn", body, status, want}})
	}
	op := func(verb, key, more string) string {
		return `{"KV":{"Verb":"` + verb + `","Key":"` + key + `"` + more + `}}`
	}
	txn("no JSON", "x", 400, "Failed to parse body: invalid character 'x' looking for beginning of value")
	txn("nothing", "[]", 200, `{"Results":[],"Errors":null`+readAnswer)
	txn("too much", "["+strings.Repeat(op("get", "a", "")+",", maxTxnOps)+op("get", "a", "")+"]", 413, "Transaction contains too many operations (129 > 128)")
	txn("no verb and no key", "["+op("no", "a", "")+","+op("set", "", "")+"]", 409,
		`{"Results":null,"Errors":[{"OpIndex":0,"What":"unknown KV operation: no"},{"OpIndex":1,"What":"Must provide key"}]}`)
	txn("store and read", "["+op("set", "a", `,"Value":"b25l","Flags":7`)+","+op("get", "a", "")+","+op("get-or-empty", "b", "")+"]", 200,
		`{"Results":[{"KV":{"LockIndex":0,"Key":"a","Flags":7,"Value":null,"CreateIndex":3,"ModifyIndex":3}},`+
			`{"KV":{"LockIndex":0,"Key":"a","Flags":7,"Value":"b25l","CreateIndex":3,"ModifyIndex":3}},`+
			`{"KV":{"LockIndex":0,"Key":"b","Flags":0,"Value":null,"CreateIndex":0,"ModifyIndex":0}}],"Errors":null}`)
	txn("lock", "["+op("lock", "a", `,"Session":"`+s.String()+`"`)+","+op("check-session", "a", `,"Session":"`+s.String()+`"`)+"]", 200,
		`{"Results":[{"KV":{"LockIndex":1,"Key":"a","Flags":0,"Value":null,"Session":"`+s.String()+`","CreateIndex":3,"ModifyIndex":4}},`+
			`{"KV":{"LockIndex":1,"Key":"a","Flags":0,"Value":null,"Session":"`+s.String()+`","CreateIndex":3,"ModifyIndex":4}}],"Errors":null}`)
	other := m.open()
	txn("all that fails", "["+strings.Join([]string{
		op("set", "new", ""), op("cas", "a", `,"Index":1`), op("lock", "a", `,"Session":"`+other.String()+`"`),
		op("unlock", "a", `,"Session":"`+other.String()+`"`), op("get", "none", ""), op("delete-cas", "a", `,"Index":1`),
		op("check-index", "a", `,"Index":1`), op("check-index", "none", `,"Index":1`), op("check-session", "new", `,"Session":"`+s.String()+`"`),
		op("check-not-exists", "new", ""), op("check-not-exists", "none", ""), op("delete-cas", "none", `,"Index":1`),
		op("lock", "x", `,"Session":"11111111-1111-1111-1111-111111111111"`),
	}, ",")+"]", 409, `{"Results":null,"Errors":[`+strings.Join([]string{
		`{"OpIndex":1,"What":"failed to set key \"a\", index is stale"}`,
		`{"OpIndex":2,"What":"failed to lock key \"a\", lock is already held"}`,
		`{"OpIndex":3,"What":"failed to unlock key \"a\", lock isn't held, or is held by another session"}`,
		`{"OpIndex":4,"What":"key \"none\" doesn't exist"}`,
		`{"OpIndex":5,"What":"failed to delete key \"a\", index is stale"}`,
		`{"OpIndex":6,"What":"failed index check for key \"a\", current modify index 4 != 1"}`,
		`{"OpIndex":7,"What":"failed to check index, key \"none\" doesn't exist"}`,
		`{"OpIndex":8,"What":"failed session check for key \"new\", current session \"\" != \"` + s.String() + `\""}`,
		`{"OpIndex":9,"What":"key \"new\" exists"}`,
		`{"OpIndex":12,"What":"invalid session \"11111111-1111-1111-1111-111111111111\""}`,
	}, ",")+`]}`)
	m.exchange([]exchange{{"nothing of it has happened", "GET", "/v1/kv/?keys", "", 200, `["a"]`}})
	txn("delete", "["+op("get-tree", "", "")+","+op("delete-tree", "", "")+","+op("check-not-exists", "a", "")+"]", 200,
		`{"Results":[{"KV":{"LockIndex":1,"Key":"a","Flags":0,"Value":null,"Session":"`+s.String()+`","CreateIndex":3,"ModifyIndex":4}}],"Errors":null}`)
}

// A transaction that only reads is a confirmed read, and costs no entry of the log.
func TestG22_ATransactionThatReadsIsARead(t *testing.T) {
	m := startMember(t, nil)
	m.do("PUT", "/v1/kv/a", "x")
	at := m.group.View().Index()
	a := m.do("PUT", "/v1/txn?consistent", `[{"KV":{"Verb":"get","Key":"a"}},{"KV":{"Verb":"check-index","Key":"a","Index":2}}]`)
	if a.StatusCode != http.StatusOK || a.Header.Get("X-Consul-Knownleader") != "true" || a.Header.Get("X-Consul-Lastcontact") != "0" {
		t.Errorf("%d %v %s", a.StatusCode, a.Header, a.body)
	}
	a = m.do("PUT", "/v1/txn", `[{"KV":{"Verb":"get","Key":"none"}}]`)
	if a.StatusCode != http.StatusConflict || m.group.View().Index() != at {
		t.Errorf("%d %s, and %d entries", a.StatusCode, a.body, m.group.View().Index()-at)
	}
}

// FuzzTxn lets anything be the body of a transaction: it is answered, and what was
// refused has done nothing.
func FuzzTxn(f *testing.F) {
	m := startMember(f, nil)
	for _, s := range []string{"", "[]", `[{}]`, `[{"KV":null}]`, `[{"KV":{"Verb":"set","Key":"a","Value":"eA=="}}]`, `[{"KV":{"Verb":"cas","Key":"a","Index":1}},{"KV":{"Verb":"delete-tree","Key":""}}]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		before := kv.Of(m.group.View())
		a := (&member{tb: t, addr: m.addr, listen: m.listen}).do("PUT", "/v1/txn", body)
		if a.StatusCode != http.StatusOK && kv.Of(m.group.View()).Bytes() != before.Bytes() {
			t.Errorf("%q: %d %s, and something has changed", body, a.StatusCode, a.body)
		}
		if a.StatusCode >= 500 {
			t.Errorf("%q: %d %s", body, a.StatusCode, a.body)
		}
	})
}

// Where a parameter cannot be read nothing is done, whatever the others say: it may be a
// condition, or a lock. The first is answered before its body has come.
func TestAQueryThatCannotBeReadChangesNothing(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	m.ok("PUT /v1/kv/a 1")
	early := m.dial()
	early.write("PUT /v1/kv/a?cas=5;flags=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n")
	if a := early.read("PUT"); a.StatusCode != http.StatusInternalServerError || a.body != "" || a.Close {
		t.Errorf("before its body: %s %q", a.Status, a.body)
	}
	m.exchange([]exchange{
		{"a condition", "PUT", "/v1/kv/a?cas=5;flags=1", "2", 500, ""},
		{"a lock", "PUT", "/v1/kv/a?acquire=" + m.open().String() + ";flags=1", "2", 500, ""},
		{"an escape", "DELETE", "/v1/kv/a?cas=5%", "", 500, ""},
		{"in a name", "DELETE", "/v1/kv/a?cas%=5", "", 500, ""},
		{"a read", "GET", "/v1/kv/a?raw;stale", "", 500, ""},
		{"a method that is not served", "POST", "/v1/kv/a?;", "", 500, ""},
		{"a path that is not served", "GET", "/v1/nothing?;", "", 404, "Invalid URL path: not a recognized HTTP API endpoint\n"},
		{"nothing was done", "GET", "/v1/kv/a?raw", "", 200, "1"},
	})
	if a := m.do("OPTIONS", "/v1/kv/a?;", ""); a.StatusCode != http.StatusInternalServerError || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("OPTIONS: %s %v", a.Status, a.Header)
	}
}

// Two reads of keys share a query where they ask the same, whatever bytes are in their names.
func TestReadsOfKeysAreToldApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 0, ' ', '"', '\\'}), 0, 4, -1)
		read := func(name string) kvQuery {
			q := kvQuery{what: keyNames, prefix: kv.Key{Namespace: "default", Name: text.Draw(t, name)}}
			q.separator = text.Draw(t, "separator of "+name)
			return q
		}
		a, b := read("one"), read("other")
		is := a.prefix == b.prefix && a.separator == b.separator
		if shares := a.shared("").params == b.shared("").params; shares != is {
			t.Fatalf("%+v and %+v: share %v", a, b, shares)
		}
	})
	a := kvQuery{what: keyNames, prefix: kv.Key{Namespace: "default", Name: "a\x00b"}}
	b := kvQuery{what: keyNames, prefix: kv.Key{Namespace: "default", Name: "a"}, separator: "b"}
	if a.shared("").params == b.shared("").params {
		t.Errorf("%+v and %+v share a query", a, b)
	}
}
