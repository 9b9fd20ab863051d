package consul

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/watch"
)

// watched is a shared read of one key, as an endpoint would have it.
type watched struct {
	evals, encodes atomic.Int64
	byHash         bool
}

func (w *watched) serve(d *Door, r *request) {
	if !r.allow(auth.KeyRead, "k", false) {
		return
	}
	r.shared(sharedQuery{kind: "test", params: "k", eval: func(v *core.View, reads *watch.Reads) result {
		w.evals.Add(1)
		e, gone := engine.Read(v, reads).Key(kv.Key{Namespace: d.namespace, Name: "k"})
		if e == nil {
			return result{status: http.StatusNotFound, index: max(gone, 1)}
		}
		res := result{index: e.Modified, size: len(e.Value) + entryBytes, body: newBody(func() []byte {
			w.encodes.Add(1)
			b, _ := json.Marshal(map[string]string{"Value": string(e.Value)})
			return b
		})}
		if w.byHash {
			digest := watch.NewDigest()
			digest.Bytes(e.Value)
			res.index, res.hash = 0, digest.Sum()
		}
		return res
	}})
}

func (m *member) put(value string) core.Result {
	m.tb.Helper()
	r := m.group.Do(&kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "default", Name: "k"}, Value: []byte(value)})
	if r.Err != nil {
		m.tb.Fatal(r.Err)
	}
	return r
}

func (c *client) get(path string, headers ...string) {
	c.tb.Helper()
	var b strings.Builder
	b.WriteString("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n")
	for i := 0; i < len(headers); i += 2 {
		b.WriteString(headers[i] + ": " + headers[i+1] + "\r\n")
	}
	c.write(b.String() + "\r\n")
}

func (m *member) blocked(n int) {
	m.tb.Helper()
	eventually(m.tb, func() bool { return m.door.Stats().Blocked == n })
}

func TestBlockingReads(t *testing.T) {
	m, w := startMember(t, nil), &watched{}
	m.serveAt("/k", w.serve)
	m.serveAt("/v1/health/k", w.serve)
	c := m.dial()
	c.get("/k")
	missing := c.read("GET")
	if missing.StatusCode != http.StatusNotFound || missing.Header.Get("X-Consul-Index") != "1" || missing.Header.Get("X-Consul-Lastcontact") != "0" ||
		missing.Header.Get("X-Consul-Knownleader") != "true" {
		t.Fatalf("%s %v", missing.Status, missing.Header)
	}
	c.get("/k?index=1")
	m.blocked(1)
	at := m.put("one")
	there := c.read("GET")
	if there.StatusCode != http.StatusOK || there.body != `{"Value":"one"}` || there.Header.Get("X-Consul-Index") != formatIndex(at.Index) {
		t.Fatalf("%s %q %v", there.Status, there.body, there.Header)
	}
	// Who comes late, or with an index that was never, is told at once what there is.
	c.get("/k?index=1&wait=10m")
	if a := c.read("GET"); a.body != there.body {
		t.Errorf("%q", a.body)
	}
	c.get("/k?index=999999&wait=1ms")
	if a := c.read("GET"); a.StatusCode != http.StatusOK || a.Header.Get("X-Consul-Index") != formatIndex(at.Index) {
		t.Errorf("%s %v", a.Status, a.Header)
	}
	c.get("/k?pretty")
	if a := c.read("GET"); a.body != "{\n    \"Value\": \"one\"\n}\n" {
		t.Errorf("%q", a.body)
	}
	for query, want := range map[string]string{
		"": "leader", "stale": "stale", "consistent": "consistent", "max_stale=10s": "stale", "cached": "leader",
		"max_stale=0s": "leader", "max_stale=-1s": "leader", "consistent&max_stale=0s": "consistent", "stale&max_stale=0s": "stale",
	} {
		c.get("/v1/health/k?" + query)
		if a := c.read("GET"); a.Header.Get("X-Consul-Effective-Consistency") != want || a.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %v", query, a.Status, a.Header)
		}
	}
	for query, named := range map[string]string{"stale&consistent": "stale", "consistent&max_stale=1s": "stale", "cached&consistent": "cached"} {
		c.get("/v1/health/k?" + query)
		if a := c.read("GET"); a.StatusCode != http.StatusBadRequest || a.body != "Cannot specify ?"+named+" with ?consistent, conflicting semantics." {
			t.Errorf("%s: %s %q", query, a.Status, a.body)
		}
	}
	m.blocked(0)
}

func TestBlockingByHash(t *testing.T) {
	m, w := startMember(t, nil), &watched{byHash: true}
	m.serveAt("/k", w.serve)
	m.put("one")
	c := m.dial()
	c.get("/k")
	first := c.read("GET")
	hash := first.Header.Get("X-Consul-Contenthash")
	if hash == "" || first.Header.Get("X-Consul-Index") != "" {
		t.Fatalf("%v", first.Header)
	}
	c.get("/k?hash=" + hash)
	m.blocked(1)
	m.put("two")
	if a := c.read("GET"); a.body != `{"Value":"two"}` || a.Header.Get("X-Consul-Contenthash") == hash {
		t.Errorf("%q %v", a.body, a.Header)
	}
	c.get("/k?hash=other")
	if a := c.read("GET"); a.body != `{"Value":"two"}` {
		t.Errorf("%q", a.body)
	}
}

// However many wait for one result, it is evaluated and encoded once.
func TestManyShareOneEvaluation(t *testing.T) {
	m, w := startMember(t, nil), &watched{}
	m.serveAt("/k", w.serve)
	index := m.put(strings.Repeat("a", 2000)).Index
	const n = 50
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = m.dial()
		clients[i].get("/k?index="+formatIndex(index), "Accept-Encoding", "gzip")
	}
	m.blocked(n)
	evals, encodes := w.evals.Load(), w.encodes.Load()
	m.put(strings.Repeat("b", 2000))
	for _, c := range clients {
		a := c.read("GET")
		in, err := gzip.NewReader(strings.NewReader(a.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if want := fmt.Sprintf(`{"Value":%q}`, strings.Repeat("b", 2000)); err != nil || string(text) != want {
			t.Fatalf("%q, %v", text, err)
		}
	}
	if e, c := w.evals.Load()-evals, w.encodes.Load()-encodes; e != 1 || c != 1 {
		t.Errorf("%d evaluations, %d encodings", e, c)
	}
}

// Nothing stays of the body of a read while that waits: it may be eight megabytes, and the
// wait ten minutes.
func TestG39_AReadThatWaitsKeepsNoBody(t *testing.T) {
	m := startMember(t, nil)
	path := "/v1/kv/k?raw&wait=10m&index=" + formatIndex(m.put("one").Index)
	c := m.dial()
	c.write(head("GET", path, "Content-Length: 100\r\n") + strings.Repeat("x", 100))
	m.blocked(1)
	for _, conn := range m.door.conns.All() {
		conn.mu.Lock()
		r := conn.current
		conn.mu.Unlock()
		if r == nil || r.body != nil {
			t.Errorf("what waits: %+v", r)
		}
	}
	m.put("two")
	if a := c.read("GET"); a.body != "two" {
		t.Errorf("%s %q", a.Status, a.body)
	}
}

// A client that leaves is waited for no more, and what it asked costs nothing.
func TestAClientThatLeavesEndsItsWait(t *testing.T) {
	m, w := startMember(t, nil), &watched{}
	m.serveAt("/k", w.serve)
	c := m.dial()
	c.get("/k?index=1")
	m.blocked(1)
	c.conn.Close()
	m.blocked(0)
	eventually(t, func() bool { return m.door.Connections() == 0 })
}

// Requests behind one that waits wait too, and are answered in their order.
func TestPipelinedBehindAWait(t *testing.T) {
	m, w := startMember(t, nil), &watched{}
	m.serveAt("/k", w.serve)
	c := m.dial()
	c.get("/k?index=1")
	m.blocked(1)
	c.get("/v1/status/leader")
	m.put("one")
	if a := c.read("GET"); a.body != `{"Value":"one"}` {
		t.Errorf("%q", a.body)
	}
	if a := c.read("GET"); a.body != `"127.0.0.1:8300"` {
		t.Errorf("%q", a.body)
	}
}

// Who waits is told what there is when the door drains, and that the connection ends.
func TestDrainAnswersWhoWaits(t *testing.T) {
	m, w := startMember(t, nil), &watched{}
	m.serveAt("/k", w.serve)
	m.put("one")
	c, idle := m.dial(), m.dial()
	idle.get("/k")
	idle.read("GET")
	c.get("/k?index=999")
	m.blocked(1)
	m.door.Drain()
	if a := c.read("GET"); a.body != `{"Value":"one"}` || !a.Close {
		t.Errorf("%q %v", a.body, a.Header)
	}
	c.ended()
	idle.ended()
}

// Who begins to wait when the member has begun to leave is answered like those who waited.
func TestWhoWaitsLateIsAnsweredToo(t *testing.T) {
	m, w := startMember(t, nil), &watched{}
	m.serveAt("/k", w.serve)
	m.put("one")
	m.group.Refuse(true)
	c := m.dial()
	c.get("/k?consistent&index=999")
	eventually(t, func() bool {
		for _, conn := range m.door.conns.All() {
			if conn.standing() == busy {
				return true
			}
		}
		return false
	})
	m.door.Drain()
	m.group.Refuse(false)
	if a := c.read("GET"); a.body != `{"Value":"one"}` || !a.Close {
		t.Errorf("%q %v", a.body, a.Header)
	}
	c.ended()
}

// Who reads what was confirmed is not told what was before, when the door drains, nor
// that there is no leader.
func TestG22_DrainTellsNobodyAnOlderState(t *testing.T) {
	m := startMemberOn(t, func(c *engine.Config) { c.Watch.QueryInterval = 200 * time.Millisecond }, nil)
	m.do("PUT", "/v1/kv/a", "old")
	if a := m.do("GET", "/v1/kv/?keys", ""); a.body != `["a"]` {
		t.Fatal(a.body)
	}
	m.do("PUT", "/v1/kv/b", "new")
	c := m.dial()
	c.get("/v1/kv/?keys") // not evaluated again at once
	m.blocked(1)
	m.door.Drain()
	if a := c.read("GET"); a.StatusCode != http.StatusOK || a.body != `["a","b"]` || !a.Close {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

// Without a leader a read is held, and then told so by the error that clients try again
// at; one that comes back in time is answered.
func TestNoLeader(t *testing.T) {
	m, w := startMember(t, func(c *Config) { c.Patience = 50 * time.Millisecond }), &watched{}
	m.serveAt("/k", w.serve)
	m.group.Refuse(true)
	c := m.dial()
	c.get("/k")
	if a := c.read("GET"); a.StatusCode != http.StatusInternalServerError || a.body != "No cluster leader" {
		t.Errorf("%s %q", a.Status, a.body)
	}
	c.get("/k?stale")
	if a := c.read("GET"); a.StatusCode != http.StatusNotFound {
		t.Errorf("stale: %s", a.Status)
	}
	m.door.SetLimits(Limits{Patience: patience})
	c.get("/k")
	m.group.Refuse(false)
	if a := c.read("GET"); a.StatusCode != http.StatusNotFound {
		t.Errorf("with a leader again: %s %q", a.Status, a.body)
	}
}

// What hangs is not waited for longer than Patience either.
func TestNoAnswerFromTheNode(t *testing.T) {
	m, w := startMember(t, func(c *Config) { c.Patience = 20 * time.Millisecond }), &watched{}
	m.serveAt("/k", w.serve)
	m.group.Hold()
	defer m.group.Release()
	c := m.dial()
	c.get("/k")
	if a := c.read("GET"); a.StatusCode != http.StatusInternalServerError || a.body != "No cluster leader" {
		t.Errorf("%s %q", a.Status, a.body)
	}
}

func allowing(prefix string) *policy.Command {
	return &policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "p", For: []string{"agent:*"}, Rules: []auth.Rule{
		{State: auth.Keys, Namespace: "default", Prefix: prefix, Verbs: auth.AllVerbs},
	}}}
}

// A read that waits is judged again when policies change.
func TestG12_ABlockedReadFollowsThePolicies(t *testing.T) {
	m := startMember(t, func(c *Config) {
		c.Guard, c.Anonymous = auth.NewAuthenticator(false, nil), auth.Principal{Kind: auth.Agent, Name: "a"}
	})
	c := m.dial()
	c.get("/v1/kv/k?index=1")
	m.blocked(1)
	for _, tt := range []struct {
		prefix string
		status int
	}{{"k", 0}, {"other", 403}} {
		if r := m.group.Do(allowing(tt.prefix)); r.Err != nil {
			t.Fatal(r.Err)
		}
		if tt.status == 0 {
			m.blocked(1)
			continue
		}
		if a := c.read("GET"); a.StatusCode != tt.status || !strings.HasPrefix(a.body, "Permission denied") || a.Header.Get("X-Consul-Default-Acl-Policy") != "deny" {
			t.Errorf("%s %q %v", a.Status, a.body, a.Header)
		}
	}
}

// Nor does a read wait under policies that changed while it asked for the leader.
func TestG12_PoliciesChangeBeforeAReadWaits(t *testing.T) {
	m, w := startMember(t, func(c *Config) {
		c.Guard, c.Anonymous = auth.NewAuthenticator(false, nil), auth.Principal{Kind: auth.Agent, Name: "a"}
	}), &watched{}
	judged := make(chan struct{}, 2)
	m.serveAt("/k", func(d *Door, r *request) {
		judged <- struct{}{}
		w.serve(d, r)
	})
	m.group.Hold()
	c := m.dial()
	c.get("/k?index=1")
	<-judged
	if r := m.group.Do(allowing("other")); r.Err != nil {
		t.Fatal(r.Err)
	}
	m.door.Recheck()
	m.group.Release()
	if a := c.read("GET"); a.StatusCode != http.StatusForbidden {
		t.Errorf("%s %q", a.Status, a.body)
	}
}

func TestTokens(t *testing.T) {
	token := auth.NewToken()
	line, err := auth.CredentialLine("app", auth.Agent, token)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := auth.ParseCredentials(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	m, w := startMember(t, func(c *Config) { c.Guard = auth.NewAuthenticator(false, creds) }), &watched{}
	m.serveAt("/k", w.serve)
	for _, tt := range []struct {
		path, name, value string
		status            int
	}{
		{"/k", "X-Consul-Token", token, 404},
		{"/k", "Authorization", "Bearer " + token, 404},
		{"/k?token=" + token, "Accept", "*/*", 404},
		{"/k?token=" + token, "X-Consul-Token", "unknown", 404},
		{"/k?token=" + token, "Authorization", "Bearer unknown", 404},
		{"/k?token=unknown", "X-Consul-Token", token, 403},
		{"/k", "X-Consul-Token", "unknown", 403},
		{"/k", "Authorization", "Basic eDp5", 403},
		{"/k", "Accept", "*/*", 403},
		{"/v1/status/leader", "Accept", "*/*", 200},
		{"/v1/agent/self", "Accept", "*/*", 403},
	} {
		if a := m.do("GET", tt.path, "", tt.name, tt.value); a.StatusCode != tt.status {
			t.Errorf("%s with %s: %s %q", tt.path, tt.name, a.Status, a.body)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.records) != 5 {
		t.Errorf("denied: %+v", m.records)
	}
}

// A poll that comes back has no place in a lane while it waits, not even for the state
// that it is to wait from: the lane would take that for its own delay.
func TestABlockedReadKeepsNoPlace(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, w := startMember(t, func(c *Config) { c.Admission, c.Patience = lanes, patience }), &watched{}
	m.serveAt("/k", w.serve)
	m.group.Hold()
	defer m.group.Release()
	m.dial().get("/k?index=1")
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		if s := lanes.Stats()[admit.Watches]; s.Admitted == 1 && s.Inflight == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", lanes.Stats()[admit.Watches])
		}
	}
}

// A caller has as many reads that wait as its quota of watches says; what is answered,
// or given up, makes room. Who only asks is not counted.
func TestQuotasStopReadsThatWait(t *testing.T) {
	m := startMember(t, func(c *Config) {
		c.Guard, c.Anonymous = auth.NewAuthenticator(false, nil), auth.Principal{Kind: auth.Agent, Name: "a"}
		group := c.Engine
		c.Tally = tally.New(func() *settings.Values { return settings.Of(group.View()).Values() })
	})
	if r := m.group.Do(settings.Command{Name: "quota.watches@agent:a", Value: 1}); r.Err != nil {
		t.Fatal(r.Err)
	}
	index := m.put("one").Index
	path := fmt.Sprintf("/v1/kv/k?index=%d&wait=5m", index)
	poll := func() *client {
		c := m.dial()
		c.write("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
		return c
	}
	waiting := poll()
	for m.door.counts.blocked.Load() != 1 {
		runtime.Gosched()
	}
	if a := m.do("GET", path, ""); a.StatusCode == http.StatusOK || !strings.Contains(a.body, "quota.watches") {
		t.Errorf("a second one: %d %s", a.StatusCode, a.body)
	}
	if a := m.do("GET", "/v1/kv/k", ""); a.StatusCode != http.StatusOK {
		t.Errorf("one that does not wait: %d %s", a.StatusCode, a.body)
	}
	m.put("two")
	if a := waiting.read("GET"); a.StatusCode != http.StatusOK {
		t.Errorf("the first: %d %s", a.StatusCode, a.body)
	}
	path = fmt.Sprintf("/v1/kv/k?index=%d&wait=5m", m.put("three").Index)
	again := poll()
	for m.door.counts.blocked.Load() != 1 {
		runtime.Gosched()
	}
	again.conn.Close()
	for {
		if _, _, _, found := m.door.cfg.Tally.Fullest(settings.OpenWatches); !found {
			return
		}
		runtime.Gosched()
	}
}

// A read that has waited for longer than anybody waits for a leader, and is judged again as
// policies change, waits on: it has asked for the leader just now.
func TestAReadThatIsJudgedAgainHasTimeForThat(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Patience = 300 * time.Millisecond })
	if a := m.do("PUT", "/v1/kv/k", "a"); a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	index := m.do("GET", "/v1/kv/k", "").Header.Get("X-Consul-Index")
	c := m.dial()
	c.get("/v1/kv/k?consistent&index=" + index)
	m.blocked(1)
	time.Sleep(400 * time.Millisecond)
	m.group.Hold()
	m.door.Recheck()
	time.Sleep(50 * time.Millisecond)
	m.group.Release()
	m.blocked(1)
	if a := m.do("PUT", "/v1/kv/k", "b"); a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	if a := c.read("GET"); a.StatusCode != http.StatusOK {
		t.Errorf("%s %q", a.Status, a.body)
	}
}
