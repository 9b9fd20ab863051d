package consul

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// hardlyHeldBack has refusals held back for hardly any time.
var hardlyHeldBack = admit.Limits{Retry: time.Millisecond, MaxRetry: time.Millisecond}

// A refusal is 429, of a write at the leader 503, and says when to come back; what is refused
// last is not yet.
func TestG41_ARefusalSaysWhenToComeBack(t *testing.T) {
	lanes, err := admit.New(hardlyHeldBack, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	session := m.open()
	lanes.SetMemory(95, 100) // all but extensions
	for _, tt := range []struct{ method, path, body string }{
		{"PUT", "/v1/kv/a", "x"},
		{"PUT", "/v1/catalog/register", `{"Node": "n", "Address": "1.1.1.1"}`},
		{"GET", "/v1/catalog/nodes", ""},
		{"GET", "/v1/kv/a?index=1", ""},
		{"PUT", "/v1/session/create", ""},
		{"PUT", "/v1/txn", "[]"},
	} {
		a := m.do(tt.method, tt.path, tt.body)
		after, err := strconv.Atoi(a.Header.Get("Retry-After"))
		want := http.StatusServiceUnavailable // the leader is busy, and no other member could do it
		if tt.method == http.MethodGet {
			want = http.StatusTooManyRequests
		}
		if a.StatusCode != want || err != nil || after < 1 || after > 3 {
			t.Errorf("%s %s: %s, Retry-After %q", tt.method, tt.path, a.Status, a.Header.Get("Retry-After"))
		}
	}
	if a := m.do("PUT", "/v1/session/renew/"+session.String(), ""); a.StatusCode != http.StatusOK {
		t.Errorf("an extension: %s %q", a.Status, a.body)
	}
	lanes.SetMemory(0, 100)
	if a := m.do("PUT", "/v1/kv/a", "x"); a.StatusCode != http.StatusOK || a.Header.Get("Retry-After") != "" {
		t.Errorf("afterwards: %s", a.Status)
	}
}

// Who is refused at the same time is told times to come back that differ by whole seconds, though
// what is left of the hint is a part of one.
func TestG41_WhoIsRefusedTogetherComesBackSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, shut := startRude(t)
		shut(true)
		for jitter, want := range map[float64]string{0: "1", 0.5: "2", 0.999: "3"} {
			m.door.jitter = func() float64 { return jitter }
			c := m.dial()
			c.write(head("GET", "/v1/kv/a", ""))
			if a := c.read(""); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") != want {
				t.Errorf("%s, Retry-After %q, want %q", a.Status, a.Header.Get("Retry-After"), want)
			}
		}
	})
}

// Lists of keys are refused with other lists, before reads of single keys are.
func TestG40_ListsOfKeysAreRefusedBeforeReadsOfOne(t *testing.T) {
	lanes, err := admit.New(hardlyHeldBack, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	m.ok("PUT /v1/kv/a/b x")
	lanes.SetMemory(89, 100) // for all up to transactions
	for _, query := range []string{"recurse", "keys", "keys&separator=/", "recurse&stale", "recurse&cached", "keys&raw"} {
		before := lanes.Stats()[admit.Reads].Refused[admit.Memory]
		if a := m.do("GET", "/v1/kv/a/?"+query, ""); a.StatusCode != http.StatusTooManyRequests || lanes.Stats()[admit.Reads].Refused[admit.Memory] != before+1 {
			t.Errorf("?%s: %s", query, a.Status)
		}
	}
	for _, query := range []string{"", "raw", "stale", "consistent"} {
		if a := m.do("GET", "/v1/kv/a/b?"+query, ""); a.StatusCode != http.StatusOK {
			t.Errorf("?%s: %s", query, a.Status)
		}
	}
	lanes.SetMemory(0, 100)
	if a := m.do("GET", "/v1/kv/a/?keys", ""); a.body != `["a/b"]` {
		t.Errorf("afterwards: %s %s", a.Status, a.body)
	}
}

// A transaction takes as much of its lane as it has operations: of many at once two are too
// much where two of one each are not.
func TestG41_TransactionsCountByTheirOperations(t *testing.T) {
	const most, operations = 320, 40 // one request is an eighth of the most, see admit
	lanes, err := admit.New(admit.Limits{Min: 16, Max: most, Interval: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	m.open() // there is a leader
	for left := most - 16; left > 0; left -= operations {
		if _, err := lanes.Enter(admit.Transactions, min(left, operations), 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		operations, want int
	}{
		{1, http.StatusOK},
		{1, http.StatusOK},
		{operations, http.StatusOK}, // lanes before this one are shut first
		{operations, http.StatusServiceUnavailable},
		{1, http.StatusOK},
	} {
		var ops []string
		for i := range tt.operations {
			ops = append(ops, `{"KV": {"Verb": "set", "Key": "k`+strconv.Itoa(i)+`", "Value": ""}}`)
		}
		if a := m.do("PUT", "/v1/txn", "["+strings.Join(ops, ",")+"]"); a.StatusCode != tt.want {
			t.Errorf("%d operations: %s, want %d: %s", tt.operations, a.Status, tt.want, a.body)
		}
	}
}

// Nor does it take more than it may have operations, whatever its texts say: two of a few
// megabytes of braces shut the lanes before theirs to everybody.
func TestG40_ATransactionCountsAsNoMoreThanItMayHave(t *testing.T) {
	m, lanes, _ := startHeld(t)
	body := `[{"KV": {"Verb": "set", "Key": "` + strings.Repeat("{", 3*maxTxnOps) + `", "Value": ""}}]`
	c := m.dial()
	c.write(head("PUT", "/v1/txn", "Content-Length: "+strconv.Itoa(len(body))+"\r\n") + body)
	eventually(t, func() bool { return lanes.Stats()[admit.Transactions].Inflight > 0 })
	if n := lanes.Stats()[admit.Transactions].Inflight; n != maxTxnOps {
		t.Errorf("it counts as %d operations", n)
	}
}

// startHeld returns a member from which nothing passes to the node until the test says so,
// or ends.
func startHeld(t *testing.T) (m *member, lanes *admit.Controller, release func()) {
	t.Helper()
	lanes, err := admit.New(hardlyHeldBack, nil)
	if err != nil {
		t.Fatal(err)
	}
	m = startMember(t, func(c *Config) { c.Admission, c.Patience = lanes, patience })
	m.group.Hold()
	release = sync.OnceFunc(m.group.Release)
	t.Cleanup(release)
	return m, lanes, release
}

// Who sends and leaves keeps the place of what he has sent until its outcome comes: else he
// would have any number of commands under way.
func TestG40_WhatNobodyWaitsForKeepsItsPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		lane    admit.Lane
		request string
	}{
		"change":      {admit.Small, head("PUT", "/v1/kv/k", "Content-Length: 1\r\n") + "x"},
		"read":        {admit.Small, head("GET", "/v1/kv/k", "")},
		"list":        {admit.Reads, head("GET", "/v1/kv/?recurse", "")},
		"transaction": {admit.Transactions, head("PUT", "/v1/txn", "Content-Length: 52\r\n") + `[{"KV":{"Verb":"set","Key":"a key","Value":"eA=="}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			m, lanes, release := startHeld(t)
			c := m.dial()
			c.write(tt.request)
			underWay := func() int64 { return lanes.Stats()[tt.lane].Inflight }
			eventually(t, func() bool { return underWay() == 1 })
			c.conn.Close()
			eventually(t, func() bool { return m.door.Connections() == 0 })
			if n := underWay(); n != 1 {
				t.Errorf("%d are under way once the client is gone", n)
			}
			release()
			eventually(t, func() bool { return underWay() == 0 })
		})
	}
}

// To lock a key is a claim, but for the session that has it; to give it up is a release.
func TestG40_LocksAreClaims(t *testing.T) {
	lanes, err := admit.New(hardlyHeldBack, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	mine, other := m.open().String(), m.open().String()
	m.ok("PUT /v1/kv/held?acquire="+mine, "PUT /v1/kv/plain x")
	for _, tt := range []struct {
		memory int64 // percent that is used
		path   string
		status int
	}{
		{85, "/v1/kv/free?acquire=" + other, http.StatusServiceUnavailable}, // claims are refused
		{85, "/v1/kv/held?acquire=" + other, http.StatusServiceUnavailable},
		{85, "/v1/kv/plain?acquire=", http.StatusServiceUnavailable},
		{85, "/v1/kv/free?acquire=", http.StatusServiceUnavailable},
		{85, "/v1/kv/held?acquire=" + mine, http.StatusOK},
		{85, "/v1/kv/other", http.StatusOK},
		{92, "/v1/kv/held?acquire=" + mine, http.StatusServiceUnavailable}, // and small work
		{92, "/v1/kv/held?release=" + mine, http.StatusOK},
		{95, "/v1/kv/held?release=" + mine, http.StatusServiceUnavailable}, // and releases
		{0, "/v1/kv/held?acquire=" + other, http.StatusOK},
	} {
		lanes.SetMemory(tt.memory, 100)
		if a := m.do("PUT", tt.path, ""); a.StatusCode != tt.status {
			t.Errorf("at %d %%: %s: %s %s", tt.memory, tt.path, a.Status, a.body)
		}
	}
}

// Who changes one service, check, session or key from many clients is refused there when
// others have little room left, and others are not, although the path is the same.
func TestG41_AServiceLeavesRoomForOthers(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/agent/service/register": `{"ID":"1","Name":"NAME","Tags":["Name"]}`,
		"/v1/agent/check/register":   `{"name": "NAME", "ttl": "1h"}`,
		"/v1/catalog/register":       `{"Node":"n","Address":"10.0.0.1","Service":{"ID":"1","Service":"NAME"}}`,
		"/v1/session/create":         `{"LockDelay":"15s","Name":"NAME"}`,
		"/v1/txn":                    `[{"KV":{"Verb":"set","Key":"NAME","Value":""}}]`,
	} {
		t.Run(path, func(t *testing.T) {
			lanes, err := admit.New(admit.Limits{Min: 16, Max: 16, Interval: time.Minute, Retry: time.Millisecond, MaxRetry: time.Millisecond}, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := startMember(t, func(c *Config) { c.Admission = lanes })
			m.open() // there is a leader
			act, _, _ := m.door.routes.find(path)
			lane := act.methods["PUT"].call.LaneOfRead(false)
			of := func(name string) string { return strings.ReplaceAll(body, "NAME", name) }
			group := func(name string) admit.Key {
				r := m.door.newRequest(nil, &incoming{head: &http.Request{Method: http.MethodPut, URL: &url.URL{Path: path}}}, []byte(of(name)))
				r.who = &caller{}
				return r.work().Group
			}
			const places = 1024 // of a lane's account, of which the two are to have one each
			other := "b"
			for group(other)%places == group("a")%places && len(other) < 10 {
				other += "b"
			}
			for i := 0; err == nil && i < 100; i++ {
				_, err = m.door.lanes.Enter(admit.Who{Client: admit.KeyOf(strconv.Itoa(i)), Group: group("a")}, lane, 1)
			}
			if err == nil {
				t.Fatal("the lane takes everything")
			}
			if a := m.do("PUT", path, of("a")); a.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("who floods: %s %s", a.Status, a.body)
			}
			if a := m.do("PUT", path, of(other)); a.StatusCode != http.StatusOK {
				t.Errorf("another: %s %s", a.Status, a.body)
			}
		})
	}
}

// What has no name, or none yet, is not told apart from anything; what a path names has
// its group from the path.
func TestGroupsOfChanges(t *testing.T) {
	m := startMember(t, nil)
	group := func(method, path, rest, body string) admit.Key {
		return (&request{door: m.door, method: method, path: path, rest: rest, body: []byte(body)}).group()
	}
	for _, body := range []string{"", "{}", `{"Name"`, `{"Name":`, `{"Name":1,"Tags":["Name","x"]}`, `{"Node":"n","ServiceID":"x"}`, `"`, `{"Name":""}`} {
		if g := group("PUT", "/v1/agent/service/register", "", body); g != 0 {
			t.Errorf("%s is of group %v", body, g)
		}
	}
	if group("PUT", "/v1/kv/a", "a", `{"Name":"x"}`) != admit.KeyOf("/v1/kv/a") || group("GET", "/v1/catalog/nodes", "", "") != admit.KeyOf("/v1/catalog/nodes") {
		t.Error("a path that names something is not its group")
	}
	if one, two := `{"Name":"x","ID":"1"}`, "{\"id\": \"2\",\n \"name\" :\n\"x\"}"; group("PUT", "/v1/p", "", one) != group("PUT", "/v1/p", "", two) {
		t.Error("one name has two groups")
	}
}

// A request with a body is refused before that has come, counted once, and the connection
// goes on where the next one begins if what is still to come is little.
func TestG41_WhatIsRefusedIsNotWaitedFor(t *testing.T) {
	lanes, err := admit.New(hardlyHeldBack, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	m.open() // there is a leader
	put := func(length int, more string) string {
		return "PUT /v1/kv/a HTTP/1.1\r\nHost: localhost\r\n" + more + "Content-Length: " + strconv.Itoa(length) + "\r\n\r\n"
	}
	refused := func() uint64 { return lanes.Stats()[admit.Small].Refused[admit.Memory] }
	c := m.dial()
	for _, first := range []int{0, 10} { // bytes of the body that come with the head
		lanes.SetMemory(2, 1)
		before := refused()
		c.write(put(1000, "") + strings.Repeat("x", first))
		a := c.read("PUT")
		if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || a.Close {
			t.Errorf("%s, Retry-After %q, closes: %v", a.Status, a.Header.Get("Retry-After"), a.Close)
		}
		if n := refused() - before; n != 1 {
			t.Errorf("counted %d times", n)
		}
		lanes.SetMemory(0, 1)
		c.write(strings.Repeat("GET /", 200)[first:] + put(1, "") + "y")
		if a := c.read("PUT"); a.StatusCode != http.StatusOK || a.body != "true" {
			t.Errorf("the next request: %s %q", a.Status, a.body)
		}
	}
	for name, request := range map[string]string{
		"who waits to be told to go on": put(1000, "Expect: 100-continue\r\n"),
		"much":                          put(400<<10, ""),
		"chunks":                        "PUT /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		lanes.SetMemory(2, 1)
		before, c := refused(), m.dial()
		c.write(request)
		if a := c.read("PUT"); a.StatusCode != http.StatusServiceUnavailable || !a.Close || refused() != before+1 {
			t.Errorf("%s: %s, closes: %v, counted %d times", name, a.Status, a.Close, refused()-before)
		}
		c.ended()
	}
	lanes.SetMemory(89, 100) // small work is let in: whether it is refused is known when it is there
	c = m.dial()
	c.write(put(3, ""))
	c.write("abc")
	if a := c.read("PUT"); a.StatusCode != http.StatusOK {
		t.Errorf("what is let in: %s", a.Status)
	}
}
