package consul

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
)

// handClock is a leader's clock that a test turns.
type handClock struct {
	tick chan time.Time

	mu     sync.Mutex // guards the rest
	now    time.Duration
	timers map[time.Duration][]func()
}

func newHandClock() *handClock {
	return &handClock{tick: make(chan time.Time), timers: map[time.Duration][]func(){}}
}

func (c *handClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.now)
}

func (c *handClock) Until(t time.Time) time.Duration { return time.Until(t) }

func (c *handClock) Ticker(time.Duration) (<-chan time.Time, func()) { return c.tick, func() {} }

func (c *handClock) AfterFunc(d time.Duration, fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers[c.now+d] = append(c.timers[c.now+d], fn)
}

// advance turns the clock in steps that the leader does not take for a standstill.
func (c *handClock) advance(by time.Duration) {
	const step = lease.Bucket / 4
	for range by / step {
		c.mu.Lock()
		c.now += step
		var due []func()
		for at, list := range c.timers {
			if at <= c.now {
				due = append(due, list...)
				delete(c.timers, at)
			}
		}
		c.mu.Unlock()
		for _, fn := range due {
			fn()
		}
		c.tick <- time.Time{}
	}
}

// withClock has the group's leader go by a clock.
func withClock(c *handClock) func(*engine.Config) {
	return func(cfg *engine.Config) { cfg.Lease.Clock = c }
}

// until asks until an answer is as it is to be.
func (m *member) until(path, want string) {
	m.tb.Helper()
	for end := time.Now().Add(patience); ; {
		a := m.do("GET", path, "")
		if a.body == want {
			return
		}
		if time.Now().After(end) {
			m.tb.Fatalf("GET %s: %s, want %s", path, a.body, want)
		}
	}
}

// create opens a session through the door.
func (m *member) create(body string) string {
	m.tb.Helper()
	var out struct{ ID string }
	a := m.do("PUT", "/v1/session/create", body)
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		m.tb.Fatalf("%d %s: %v", a.StatusCode, a.body, err)
	}
	return out.ID
}

func (m *member) sessions(path string) (list []sessionJSON) {
	m.tb.Helper()
	a := m.do("GET", path, "")
	if err := json.Unmarshal([]byte(a.body), &list); err != nil {
		m.tb.Fatalf("%d %s: %v", a.StatusCode, a.body, err)
	}
	return list
}

func TestSessions(t *testing.T) {
	m := startMember(t, nil)
	if got := m.sessions("/v1/session/list"); len(got) != 0 {
		t.Errorf("%v", got)
	}
	plain := m.create("")
	full := m.create(`{"Name":"full","LockDelay":"20s","Behavior":"delete","TTL":"30s","NodeChecks":[],"Unknown":1}`)
	for _, tt := range []struct {
		id   string
		want sessionJSON
	}{
		{plain, sessionJSON{Node: "agent", LockDelay: 15 * time.Second, Behavior: "release", NodeChecks: []string{"serfHealth"}}},
		{full, sessionJSON{Name: "full", Node: "agent", LockDelay: 20 * time.Second, Behavior: "delete", TTL: "30s", NodeChecks: []string{}}},
		{m.create(`{"LockDelay":5}`), sessionJSON{Node: "agent", LockDelay: 5 * time.Second, Behavior: "release", NodeChecks: []string{"serfHealth"}}},
		{m.create(`{"LockDelay":5000000000,"Checks":[]}`), sessionJSON{Node: "agent", LockDelay: 5 * time.Second, Behavior: "release", NodeChecks: []string{}}},
		{m.create(`{"LockDelay":5000000000,"Checks":null,"NodeChecks":["none"]}`), sessionJSON{Node: "agent", LockDelay: 5 * time.Second, Behavior: "release", NodeChecks: []string{}}},
		{m.create(`{"LockDelay":0,"TTL":"86400s"}`), sessionJSON{Node: "agent", Behavior: "release", TTL: "86400s", NodeChecks: []string{"serfHealth"}}},
	} {
		got := m.sessions("/v1/session/info/" + tt.id)
		if len(got) != 1 {
			t.Fatalf("%s: %v", tt.id, got)
		}
		tt.want.ID, tt.want.CreateIndex, tt.want.ModifyIndex = tt.id, got[0].CreateIndex, got[0].CreateIndex
		want, _ := json.Marshal(tt.want)
		if is, _ := json.Marshal(got[0]); string(is) != string(want) || got[0].CreateIndex == 0 {
			t.Errorf("%s, want %s", is, want)
		}
	}
	if n := len(m.sessions("/v1/session/node/agent")); n != 6 {
		t.Errorf("%d sessions of the node", n)
	}
	none := incumbent.NewSessionID().String()
	m.exchange([]exchange{
		{"of another node", "GET", "/v1/session/node/other", "", 200, "[]"},
		{"of no node", "GET", "/v1/session/node/", "", 400, "Missing node name"},
		{"none", "GET", "/v1/session/info/" + none, "", 200, "[]"},
		{"no id", "GET", "/v1/session/info/nonsense", "", 200, "[]"},
		{"nothing", "GET", "/v1/session/info/", "", 400, "Missing session"},
		{"renew none", "PUT", "/v1/session/renew/" + none, "", 404, "Session id '" + none + "' not found"},
		{"renew no id", "PUT", "/v1/session/renew/x", "", 404, "Session id 'x' not found"},
		{"renew nothing", "PUT", "/v1/session/renew/", "", 400, "Missing session"},
		{"a short ttl", "PUT", "/v1/session/create", `{"TTL":"9s"}`, 500, "Invalid Session TTL '9000000000', must be between [10s=24h0m0s]"},
		{"a long ttl", "PUT", "/v1/session/create", `{"TTL":"25h"}`, 500, "Invalid Session TTL '90000000000000', must be between [10s=24h0m0s]"},
		{"no ttl", "PUT", "/v1/session/create", `{"TTL":"x"}`, 500, `Session TTL 'x' invalid: time: invalid duration "x"`},
		{"no delay", "PUT", "/v1/session/create", `{"LockDelay":"x"}`, 400, `Request decode failed: time: invalid duration "x"`},
		{"a delay without a unit", "PUT", "/v1/session/create", `{"LockDelay":"999"}`, 400, `Request decode failed: time: missing unit in duration "999"`},
		{"no behavior", "PUT", "/v1/session/create", `{"Behavior":"other"}`, 500, "Invalid Behavior setting 'other'"},
		{"no node", "PUT", "/v1/session/create", `{"Node":"none"}`, 500, "apply failed: Missing node registration"},
		{"no check", "PUT", "/v1/session/create", `{"NodeChecks":["none"]}`, 500, "apply failed: Missing check 'none' registration"},
		{"no check of a service", "PUT", "/v1/session/create", `{"ServiceChecks":[{"ID":"none"}]}`, 500, "apply failed: Missing check 'none' registration"},
		{"destroy", "PUT", "/v1/session/destroy/" + plain, "", 200, "true"},
		{"destroy again", "PUT", "/v1/session/destroy/" + plain, "", 200, "true"},
		{"destroy what is no id", "PUT", "/v1/session/destroy/nonsense", "", 200, "true"},
		{"destroy nothing", "PUT", "/v1/session/destroy/", "", 400, "Missing session"},
		{"it is gone", "GET", "/v1/session/info/" + plain, "", 200, "[]"},
	})
	if n := len(m.sessions("/v1/session/list")); n != 5 {
		t.Errorf("%d sessions", n)
	}
}

// A session depends on the checks of either field, by Consul's rules for what is left out of
// them.
func TestSessionsDependOnEitherFieldOfChecks(t *testing.T) {
	m := startMember(t, nil)
	m.create("") // which registers the agent's node
	checks := func(status string) {
		for _, id := range []string{"a", "b"} {
			m.send("/v1/catalog/register", fmt.Sprintf(`{"Node":"agent","SkipNodeUpdate":true,"Check":{"CheckID":%q,"Name":"c","Status":%q}}`, id, status))
		}
	}
	for _, tt := range []struct {
		body  string
		shows []string
		ends  bool // once a and b are critical
	}{
		{`{"Checks":["a"],"NodeChecks":["b"]}`, []string{"b", "a"}, true},
		{`{"Checks":["a","b"],"NodeChecks":["b"]}`, []string{"b", "a"}, true},
		{`{"Checks":["a"]}`, []string{"serfHealth", "a"}, true},
		{`{"NodeChecks":["b"]}`, []string{"b"}, true},
		{`{"Checks":["serfHealth"],"NodeChecks":["b"]}`, []string{"b"}, true},
		{`{"Checks":["serfHealth"]}`, []string{"serfHealth"}, false},
		{`{"Checks":[],"NodeChecks":["b"]}`, []string{}, false},
		{`{"Checks":["a"],"NodeChecks":[]}`, []string{}, false},
		{`{"NodeChecks":null}`, []string{}, false},
		{`{}`, []string{"serfHealth"}, false},
	} {
		checks("passing")
		path := "/v1/session/info/" + m.create(tt.body)
		if got := m.sessions(path); len(got) != 1 || !slices.Equal(got[0].NodeChecks, tt.shows) {
			t.Errorf("%s: %+v", tt.body, got)
		}
		checks("critical")
		if ended := len(m.sessions(path)) == 0; ended != tt.ends {
			t.Errorf("%s: ended: %v", tt.body, ended)
		}
	}
	checks("passing")
	m.send("/v1/catalog/register", `{"Node":"other","Address":"10.0.0.1","Check":{"CheckID":"a","Name":"c","Status":"passing"}}`)
	m.does("PUT", "/v1/session/create", `{"Node":"other","Checks":["a"]}`, `500 apply failed: Missing check 'serfHealth' registration`)
}

// A session of another door is found, kept and ended here, and locks as one of this door.
func TestSessionsOfOtherDoors(t *testing.T) {
	m := startMember(t, nil)
	id := m.open().String()
	if got := m.sessions("/v1/session/info/" + id); len(got) != 1 || got[0].Node != "agent" || got[0].LockDelay != defaultLockDelay {
		t.Errorf("%v", got)
	}
	if a := m.do("PUT", "/v1/session/renew/"+id, ""); a.StatusCode != http.StatusOK || !strings.Contains(a.body, id) {
		t.Errorf("renew: %d %s", a.StatusCode, a.body)
	}
	m.exchange([]exchange{
		{"lock", "PUT", "/v1/kv/l?acquire=" + id, "", 200, "true"},
		{"destroy", "PUT", "/v1/session/destroy/" + id, "", 200, "true"},
	})
	if a := m.do("GET", "/v1/kv/l", ""); strings.Contains(a.body, id) {
		t.Errorf("it still has the key: %s", a.body)
	}
}

// Renewing does not cost the log anything, and keeps the session; who does not renew loses
// it once twice its ttl is over, which answers do not show, and what it had locked nobody can
// lock until the delay is over.
func TestG03_ASessionLastsTwiceItsTTLAndTheDelayAfterIt(t *testing.T) {
	clock := newHandClock()
	m := startMemberOn(t, withClock(clock), nil)
	kept := m.create(`{"TTL":"10s"}`)
	lost := m.create(`{"TTL":"10s","LockDelay":"5s","Behavior":"delete"}`)
	m.exchange([]exchange{
		{"lock", "PUT", "/v1/kv/a?acquire=" + lost, "x", 200, "true"},
		{"lock", "PUT", "/v1/kv/given-up?acquire=" + lost, "x", 200, "true"},
		{"unlock", "PUT", "/v1/kv/given-up?release=" + lost, "x", 200, "true"},
	})
	at := m.group.View().Index()
	renew := func() {
		t.Helper()
		if a := m.do("PUT", "/v1/session/renew/"+kept, ""); a.StatusCode != http.StatusOK || !strings.Contains(a.body, `"TTL":"10s"`) {
			t.Fatalf("renew: %d %s", a.StatusCode, a.body)
		}
	}
	clock.advance(19 * time.Second)
	renew()
	if a := m.do("GET", "/v1/kv/a", ""); !strings.Contains(a.body, lost) {
		t.Fatalf("it went before twice its ttl: %d %s", a.StatusCode, a.body)
	}
	if got := m.sessions("/v1/session/info/" + lost); len(got) != 1 || got[0].TTL != "10s" {
		t.Errorf("shown as %v", got)
	}
	clock.advance(2 * time.Second)
	renew()
	m.until("/v1/session/info/"+lost, "[]")
	if n := m.group.View().Index() - at; n != 1 {
		t.Errorf("%d entries, want the one that ends a session", n)
	}
	m.exchange([]exchange{
		{"its key went with it", "GET", "/v1/kv/a", "", 404, ""},
		{"under a delay", "PUT", "/v1/kv/a?acquire=" + kept, "x", 200, "false"},
		{
			"also in a transaction", "PUT", "/v1/txn", `[{"KV":{"Verb":"lock","Key":"a","Session":"` + kept + `"}},{"KV":{"Verb":"get","Key":"none"}}]`, 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"failed to lock key \"a\" due to lock delay"}]}`,
		},
		{"given up before", "PUT", "/v1/kv/given-up?acquire=" + kept, "x", 200, "true"},
	})
	clock.advance(4 * time.Second)
	m.exchange([]exchange{{"still", "PUT", "/v1/kv/a?acquire=" + kept, "x", 200, "false"}})
	clock.advance(2 * time.Second)
	for end := time.Now().Add(patience); m.do("PUT", "/v1/kv/a?acquire="+kept, "x").body != "true"; {
		if time.Now().After(end) {
			t.Fatal("the delay does not end")
		}
	}
}

// A lock with a session that this member has not applied yet takes from it what its end
// means, as any lock does.
func TestALockWithASessionThatIsNotKnownYet(t *testing.T) {
	for name, tt := range map[string]struct{ path, body string }{
		"of a key":         {"/v1/kv/x?acquire=ID", "v"},
		"in a transaction": {"/v1/txn", `[{"KV":{"Verb":"lock","Key":"x","Session":"ID"}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startPiped(t, nil)
				next := m.create("") // and the agent's node is there
				s := &catalog.Session{ID: incumbent.NewSessionID(), Namespace: "default", Node: "agent", Behavior: catalog.Delete}
				body := strings.ReplaceAll(tt.body, "ID", s.ID.String())
				m.group.Refuse(true) // so that it cannot be confirmed that there is none
				c := m.dial()
				c.write(head("PUT", strings.ReplaceAll(tt.path, "ID", s.ID.String()), "Content-Length: "+strconv.Itoa(len(body))+"\r\n") + body)
				synctest.Wait() // it has been looked for
				open := catalog.Command{Verb: catalog.OpenSession, Target: catalog.Target{Namespace: "default", Node: "agent"}, Session: s}
				if r := m.group.Do(open); r.Err != nil {
					t.Fatal(r.Err)
				}
				m.group.Refuse(false)
				if a := c.read("PUT"); a.StatusCode != http.StatusOK {
					t.Fatalf("lock: %d %s", a.StatusCode, a.body)
				}
				m.exchange([]exchange{
					{"destroy", "PUT", "/v1/session/destroy/" + s.ID.String(), "", 200, "true"},
					{"its key went with it", "GET", "/v1/kv/x", "", 404, ""},
					{"without a delay", "PUT", "/v1/kv/x?acquire=" + next, "v", 200, "true"},
				})
			})
		})
	}
}

// What lasts for a part of a millisecond is taken as in Consul, and lasts for a whole one.
func TestDurationsOfWholeMilliseconds(t *testing.T) {
	m := startMember(t, nil)
	for body, want := range map[string]catalog.Session{
		`{"LockDelay":"500us"}`:                   {LockDelay: time.Millisecond},
		`{"LockDelay":5000}`:                      {LockDelay: time.Millisecond},
		`{"LockDelay":"2ms"}`:                     {LockDelay: 2 * time.Millisecond},
		`{"LockDelay":"59s","TTL":"10.0000001s"}`: {LockDelay: 59 * time.Second, TTL: 10*time.Second + time.Millisecond},
		`{"LockDelay":"0s","TTL":"24h"}`:          {TTL: 24 * time.Hour},
	} {
		id, err := incumbent.ParseSessionID(m.create(body))
		if err != nil {
			t.Fatal(err)
		}
		if s := catalog.Of(m.group.View()).Session(id); s.LockDelay != want.LockDelay || s.TTL != want.TTL {
			t.Errorf("%s: delay %v, ttl %v", body, s.LockDelay, s.TTL)
		}
	}
	const check = `{"Name":"c","TTL":"1500us","DeregisterCriticalServiceAfter":"60.0000001s"}`
	m.send("/v1/agent/check/register", check)
	at := m.group.View().Index()
	m.send("/v1/agent/check/register", check)
	if now := m.group.View().Index(); now != at {
		t.Errorf("registered again as it is: index %d, want %d", now, at)
	}
	if c := catalog.Of(m.group.View()).Check("default", "agent", "c"); c.TTL != 2*time.Millisecond || c.DeregisterAfter != time.Minute+time.Millisecond {
		t.Errorf("check: ttl %v, deregistered after %v", c.TTL, c.DeregisterAfter)
	}
}

// A session ends with what it depends on, and whoever waits for its keys is told.
func TestASessionEndsWithItsChecks(t *testing.T) {
	m := startMember(t, nil)
	register := catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: "n"},
		Node:   &catalog.Node{Namespace: "default", Name: "n", Address: "127.0.0.9"},
		Checks: []*catalog.Check{{Namespace: "default", Node: "n", ID: "alive", Name: "alive", Status: catalog.Passing}},
	}
	if r := m.group.Do(register); r.Err != nil {
		t.Fatal(r.Err)
	}
	id := m.create(`{"Node":"n","NodeChecks":["alive"]}`)
	m.do("PUT", "/v1/kv/a?acquire="+id, "x")
	index := m.do("GET", "/v1/kv/a", "").Header.Get("X-Consul-Index")
	c := m.dial()
	c.write("GET /v1/kv/a?index=" + index + " HTTP/1.1\r\nHost: " + m.addr + "\r\n\r\n")
	update := catalog.Command{Verb: catalog.UpdateCheck, Target: catalog.Target{Kind: catalog.CheckKind, Namespace: "default", Node: "n", ID: "alive"}, Status: catalog.Critical}
	if r := m.group.Do(update); r.Err != nil {
		t.Fatal(r.Err)
	}
	if a := c.read("GET"); a.StatusCode != http.StatusOK || strings.Contains(a.body, id) {
		t.Errorf("whoever waits is told: %d %s", a.StatusCode, a.body)
	}
	m.exchange([]exchange{
		{"it is gone", "GET", "/v1/session/info/" + id, "", 200, "[]"},
		{"none like it", "PUT", "/v1/session/create", `{"Node":"n","NodeChecks":["alive"]}`, 500, "apply failed: Check 'alive' is in critical state"},
	})
}

// A check of type session shows whether a session of a name is open on its node, as
// consul-esm has it without an agent.
func TestAChecksSessionIsItsHealth(t *testing.T) {
	m := startMember(t, nil)
	const check = `"CheckID":"alive","Name":"alive","Type":"session","Definition":{"SessionName":"esm","DeregisterCriticalServiceAfter":"10m"}`
	m.send("/v1/catalog/register", `{"Node":"n","Address":"a","Service":{"Service":"consul-esm"},"Checks":[{"Node":"n","Status":"critical",`+check+`}]}`)
	shows := func(want string) {
		t.Helper()
		if body := m.get("/v1/health/node/n").body; !strings.Contains(body, want) || !strings.Contains(body, `"SessionName":"esm"`) {
			t.Errorf("%s, want %s", body, want)
		}
	}
	m.does("PUT", "/v1/session/create", `{"Node":"n","Name":"other","NodeChecks":["alive"]}`, "500 apply failed: Check 'alive' is in critical state")
	id := m.create(`{"Node":"n","Name":"esm","TTL":"10s","NodeChecks":["alive"]}`)
	shows(`"Status":"passing","Notes":"","Output":"Session '` + id + `' in force"`)
	leader := m.create(`{"Node":"n","Name":"other","NodeChecks":["alive"]}`)
	index := m.get("/v1/health/service/consul-esm?passing").index()
	c := m.dial()
	c.get("/v1/health/service/consul-esm?passing&index=" + index)
	m.blocked(1)
	m.send("/v1/session/destroy/"+id, "")
	if a := c.read("GET"); a.body != "[]" {
		t.Errorf("who waits is told %s", a.body)
	}
	shows(`"Status":"critical","Notes":"","Output":"Session '` + id + `' is invalid"`)
	if left := m.sessions("/v1/session/info/" + leader); len(left) != 0 {
		t.Errorf("%v depends on a check that is critical", left)
	}
	m.does("PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Check":{"ServiceID":"consul-esm",`+check+`}}`, "500 a check that follows a session cannot be of a service")
}

// Whoever waits for a list of sessions is told of one that comes and one that goes, and
// who waits for one session of no other.
func TestSessionsAreWaitedFor(t *testing.T) {
	m := startMember(t, nil)
	id := m.create("")
	index := m.do("GET", "/v1/session/list", "").Header.Get("X-Consul-Index")
	list, one := m.dial(), m.dial()
	list.write("GET /v1/session/list?index=" + index + " HTTP/1.1\r\nHost: " + m.addr + "\r\n\r\n")
	one.write("GET /v1/session/info/" + id + "?index=" + index + " HTTP/1.1\r\nHost: " + m.addr + "\r\n\r\n")
	m.create("")
	a := list.read("GET")
	if n := strings.Count(a.body, `"ID"`); n != 2 {
		t.Errorf("%d sessions: %s", n, a.body)
	}
	m.do("PUT", "/v1/session/destroy/"+id, "")
	if a := one.read("GET"); a.body != "[]" {
		t.Errorf("it is gone: %s", a.body)
	}
}
