package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/client"
)

// fakeConsul speaks as much of Consul's protocol as scenarios use. Its switches make
// it lie.
type fakeConsul struct {
	incumbentv1connect.UnimplementedClusterServiceHandler
	goesBack bool   // every fifth answer has an index from before
	again    bool   // every fifth answer has nothing new
	torn     bool   // every second answer lacks an instance
	older    bool   // every fifth change is not in the answers
	loses    bool   // no query hears of the last changes
	refuses  bool   // every write but registrations is answered with an error
	grants   bool   // every acquire is granted
	leader   string // URL of who says it leads; "": the only one

	mu        sync.Mutex // one request at a time
	index     uint64
	answers   int
	changed   chan struct{} // closed with the next change
	instances []fakeInstance
	kv        map[string]string // key → value, of locks the session
	sessions  int
	asked     map[string]int // member → queries
}

// fakeInstance is one instance: its node, its shard and its check's output.
type fakeInstance struct{ node, shard, output string }

func (f *fakeConsul) start(t *testing.T) string {
	return f.open(t).URL
}

// open opens one member's address.
func (f *fakeConsul) open(t *testing.T) *httptest.Server {
	f.mu.Lock()
	if f.changed == nil {
		f.changed, f.kv, f.index = make(chan struct{}), map[string]string{}, 7
	}
	f.mu.Unlock()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	mux.Handle(incumbentv1connect.NewClusterServiceHandler(fakeMember{fakeConsul: f, address: strings.TrimPrefix(srv.URL, "http://")}))
	mux.HandleFunc("GET /v1/health/service/{name}", f.health)
	mux.HandleFunc("PUT /v1/catalog/register", f.register)
	mux.HandleFunc("PUT /v1/catalog/deregister", f.deregister)
	mux.HandleFunc("PUT /v1/agent/service/register", f.register)
	mux.HandleFunc("PUT /v1/agent/check/update/{id}", f.update)
	mux.HandleFunc("PUT /v1/agent/check/pass/{id}", f.update)
	mux.HandleFunc("PUT /v1/session/create", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sessions++
		fmt.Fprintf(w, `{"ID":"session-%d"}`, f.sessions)
	})
	mux.HandleFunc("PUT /v1/session/renew/{id}", f.write(func(*http.Request) string { return "[{}]" }))
	mux.HandleFunc("/v1/kv/", f.keys)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "# of this program\ngo_goroutines 42\n") })
	return srv
}

// fakeMember says where one member's door is.
type fakeMember struct {
	*fakeConsul
	address string
}

func (m fakeMember) Status(context.Context, *connect.Request[apiv1.StatusRequest]) (*connect.Response[apiv1.StatusResponse], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return connect.NewResponse(&apiv1.StatusResponse{
		Doors: []*apiv1.Door{{Name: doorConsul, Address: m.address}}, Members: []*apiv1.Member{{Role: "leader", Address: m.leader}},
	}), nil
}

// fakeConsuls are members of one cluster, of which one can be killed.
type fakeConsuls struct {
	Cluster
	members []*httptest.Server
}

func (c *fakeConsuls) Servers() (all []Server) {
	for _, m := range c.members {
		all = append(all, Server{URL: m.URL})
	}
	return all
}
func (c *fakeConsuls) Client() client.Config { return client.Config{} }
func (c *fakeConsuls) Stop()                 {}

func (c *fakeConsuls) Kill(i int, _ syscall.Signal) error {
	c.members[i].Listener.Close()
	c.members[i].CloseClientConnections()
	return nil
}

// write answers under the lock, or refuses.
func (f *fakeConsul) write(do func(*http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.refuses {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, do(r))
	}
}

var shardOf = regexp.MustCompile(`"shard":"(s\d+)"|$`)

// register takes an instance, or its check's new output.
func (f *fakeConsul) register(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	var req struct {
		Node, ID string
		Check    struct{ Output string }
		Checks   []struct{ Output string }
	}
	if err := json.Unmarshal(body.Bytes(), &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	output := req.Check.Output
	if len(req.Checks) > 0 {
		output = req.Checks[len(req.Checks)-1].Output
	}
	node := req.Node
	if node == "" {
		node = "service:" + req.ID
	}
	f.set(node, output, shardOf.FindStringSubmatch(body.String())[1])
	fmt.Fprint(w, "true")
}

// set changes an instance. Held: f.mu.
func (f *fakeConsul) set(node, output, shard string) {
	f.index++
	i := slices.IndexFunc(f.instances, func(is fakeInstance) bool { return is.node == node })
	if i < 0 {
		i = len(f.instances)
		f.instances = append(f.instances, fakeInstance{node: node, shard: shard})
	}
	number, _ := strconv.Atoi(strings.TrimPrefix(output, "change-"))
	if f.loses && number > 10 {
		return
	}
	if !f.older || number%5 != 0 || number == 0 { // 0 is its registration
		f.instances[i].output = output
	} else {
		f.instances[i].output = "change-000000000"
		for k := range f.instances {
			f.instances[k].output = "change-000000000"
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeConsul) update(w http.ResponseWriter, r *http.Request) {
	var req struct{ Output string }
	_ = json.NewDecoder(r.Body).Decode(&req) // a pass has none
	f.write(func(r *http.Request) string {
		if req.Output != "" {
			f.set(r.PathValue("id"), req.Output, "")
		}
		return ""
	})(w, r)
}

func (f *fakeConsul) deregister(w http.ResponseWriter, r *http.Request) {
	var req struct{ Node string }
	_ = json.NewDecoder(r.Body).Decode(&req)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.instances = slices.DeleteFunc(f.instances, func(is fakeInstance) bool { return is.node == req.Node })
	fmt.Fprint(w, "true")
}

// health answers a blocking query.
func (f *fakeConsul) health(w http.ResponseWriter, r *http.Request) {
	asked, _ := strconv.ParseUint(r.FormValue("index"), 10, 64)
	f.mu.Lock()
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[r.Host]++
	f.answers++
	turn := asked > 0 && (f.answers%5 == 0 || f.torn && f.answers%2 == 0) // on a slow machine there are few
	for f.index <= asked && (!turn || !f.again) {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		f.mu.Lock()
	}
	index, body := f.index, f.body(r.Form, f.torn && turn)
	f.mu.Unlock()
	switch { // also where a change has come meanwhile, as it always has on a busy machine
	case turn && f.goesBack:
		index = asked - 1
	case turn && f.again:
		index = asked
	}
	w.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
	if r.Header.Get("Accept-Encoding") != "gzip" {
		_, _ = w.Write(body) // in one piece or in chunks, by its length
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = z.Write(body)
	_ = z.Close()
}

// body is what a query sees. Held: f.mu.
func (f *fakeConsul) body(form url.Values, torn bool) []byte {
	var out []map[string]any
	for i, is := range f.instances {
		if want := form.Get("filter"); want != "" && !strings.HasSuffix(want, `"`+is.shard+`"`) || torn && i == 0 {
			continue
		}
		out = append(out, map[string]any{"Node": is.node, "Checks": []any{map[string]string{"Output": is.output}}, "Notes": strings.Repeat("n", 100)})
	}
	b, _ := json.Marshal(out)
	return b
}

// keys is the key-value store, with locks.
func (f *fakeConsul) keys(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(w, `[{"Key":%q}]`, strings.TrimPrefix(r.URL.Path, "/v1/kv/"))
		return
	}
	f.write(func(r *http.Request) string {
		lock := "lock of " + r.URL.Path
		switch acquire, release := r.FormValue("acquire"), r.FormValue("release"); {
		case acquire != "" && f.kv[lock] != "" && f.kv[lock] != acquire && !f.grants:
			return "false"
		case acquire != "":
			f.kv[lock] = acquire
		case release != "":
			delete(f.kv, lock)
		}
		return "true"
	})(w, r)
}

// bareServer serves the bare loop in this process.
type bareServer struct {
	Cluster
	url string
}

func (b bareServer) Servers() []Server     { return []Server{{URL: b.url}} }
func (b bareServer) Client() client.Config { return client.Config{} }
func (b bareServer) Stop()                 {}

func TestConsulWatchRuns(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario string
		server   *fakeConsul
		set      map[string]string
		text     string // of a violation; empty: none
		missing  bool   // deliveries
	}{
		{"plain", "consul-watchers", &fakeConsul{}, nil, "", false},
		{"compressed", "consul-watchers", &fakeConsul{}, map[string]string{"catalog.gzip": "true"}, "", false},
		{"late", "consul-watchers", &fakeConsul{}, map[string]string{"catalog.late": "0.5", "catalog.pause": "30ms"}, "", false},
		{"by TTL checks", "consul-watchers", &fakeConsul{}, map[string]string{"catalog.change": "ttl"}, "", false},
		{"steps", "consul-682", &fakeConsul{}, nil, "", false},
		{"filters", "consul-682", &fakeConsul{}, map[string]string{"catalog.filters": "4", "catalog.instances": "[10]"}, "", false},
		{"redeployment", "consul-682", &fakeConsul{}, map[string]string{"catalog.change": "replace", "catalog.instances": "[5]"}, "", false},
		{"an index that goes back", "consul-watchers", &fakeConsul{goesBack: true}, nil, "was told index", false},
		{"woken for nothing", "consul-watchers", &fakeConsul{again: true}, nil, "again", false},
		{"an instance that is not there", "consul-watchers", &fakeConsul{torn: true}, nil, "39 instances of 40", false},
		{"a state that goes back", "consul-watchers", &fakeConsul{older: true}, map[string]string{"settle": "50ms"}, "after a later one", false},
		{"the last changes", "consul-watchers", &fakeConsul{loses: true}, map[string]string{"settle": "5s"}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Puts without an answer when it is over have failed, so that where they are
			// judged, time is left for them; and so that somebody is woken while it is measured,
			// on a machine where an answer takes seconds.
			set := map[string]string{"scale": "smoke", "settle": "1m", "closed.duration": "5s"}
			for k, v := range c.set {
				set[k] = v
			}
			s, err := Run(t.Context(), Options{Scenario: c.scenario, Set: set, Targets: []string{c.server.start(t)}, LaunchBare: func(context.Context, []byte) (Cluster, error) {
				return serveBareHere(t)
			}})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(s.Texts, "\n")
			if (s.Violations == 0) != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("want a violation %q: %s", c.text, text)
			}
			// Of changes that overtake one another the one that is not shown may be the last.
			if missing := s.Facts["undelivered"] > 0; missing != c.missing && !c.server.older {
				t.Errorf("%v deliveries are missing", s.Facts["undelivered"])
			}
			if s.Ops[changeOp].Count == 0 || s.Ops[deliverOp].Count == 0 || s.Ops[wakeOp].Count == 0 || s.Facts["wakeups_per_second"] <= 0 || s.Facts["goroutines"] != 42 {
				t.Errorf("operations %+v, facts %v", s.Ops, s.Facts)
			}
			if c.scenario == "consul-watchers" && (s.Facts["bare_per_second"] <= 0 || s.Facts["share_of_bare"] <= 0) {
				t.Errorf("no bare loop: %v", s.Facts)
			}
		})
	}
}

func TestConsulClosedRuns(t *testing.T) {
	for _, c := range []struct {
		preset string
		server *fakeConsul
		text   string
	}{
		{"", &fakeConsul{}, ""},
		{"get", &fakeConsul{}, ""},
		{"get-stale", &fakeConsul{}, ""},
		{"get-consistent", &fakeConsul{}, ""},
		{"session", &fakeConsul{}, ""},
		{"renew", &fakeConsul{}, ""},
		{"lock", &fakeConsul{}, ""},
		{"contended", &fakeConsul{}, ""},
		{"register", &fakeConsul{}, ""},
		{"ttl-pass", &fakeConsul{}, ""},
		{"", &fakeConsul{refuses: true}, "are errors"},
		{"contended", &fakeConsul{grants: true}, "are errors"},
	} {
		t.Run(c.preset+" "+c.text, func(t *testing.T) {
			t.Parallel()
			set := map[string]string{"closed.workers": "4", "closed.warmup": "20ms", "closed.duration": "200ms", "bare.warmup": "0s", "bare.duration": "50ms"}
			if c.preset != "" {
				set["scale"] = c.preset
			}
			s, err := Run(t.Context(), Options{Scenario: "consul-closed", Set: set, Targets: []string{c.server.start(t)}, LaunchBare: func(context.Context, []byte) (Cluster, error) {
				return serveBareHere(t)
			}})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(s.Texts, "\n")
			if (s.Violations == 0) != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("want a violation %q: %s", c.text, text)
			}
			for name, o := range s.Ops {
				if c.text == "" && (o.Count == 0 || o.Errors != 0) {
					t.Errorf("%s: %+v", name, o)
				}
			}
			if s.Facts["bare_per_second"] <= 0 {
				t.Errorf("no bare loop: %v", s.Facts)
			}
		})
	}
}

func TestConsulIdleRun(t *testing.T) {
	f := &fakeConsul{}
	s, err := Run(t.Context(), Options{Scenario: "consul-idle", Set: map[string]string{"scale": "smoke", "settle": "10ms"}, Targets: []string{f.start(t)}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Violations > 0 || s.Ops["poll"].Count != 100 || s.Ops[wakeOp].Count != 100 {
		t.Errorf("operations %+v: %v", s.Ops, s.Texts)
	}
}

// Watchers and changes whose member is killed go on at another.
func TestConsulFailover(t *testing.T) {
	for name, c := range map[string]struct {
		server *fakeConsul
		text   string
	}{"all well": {&fakeConsul{}, ""}, "an index that goes back": {&fakeConsul{goesBack: true}, "was told index"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := c.server
			members := []*httptest.Server{f.open(t), f.open(t)}
			f.leader = members[0].URL
			s, err := Run(t.Context(), Options{
				Scenario: "consul-failover", Set: map[string]string{"scale": "smoke", "catalog.instances": "[40]", "closed.rate": "20"}, Members: 2,
				Launch: func(_ context.Context, what Launch) (Cluster, error) {
					if !what.Consul || what.Members != 2 {
						t.Errorf("servers %+v", what)
					}
					return &fakeConsuls{members: members}, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(s.Texts, "\n")
			if (s.Violations == 0) != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("want a violation %q: %s", c.text, text)
			}
			if s.Facts["undelivered"] != 0 || s.Ops[blockedOp].Count == 0 || s.Ops[changeOp].Errors > 0 {
				t.Errorf("operations %+v, facts %v", s.Ops, s.Facts)
			}
		})
	}
}

// Watchers that are to be away from the leader are.
func TestConsulWatchersAway(t *testing.T) {
	f := &fakeConsul{}
	members := []*httptest.Server{f.open(t), f.open(t), f.open(t)}
	f.leader = members[1].URL
	s, err := Run(t.Context(), Options{
		Scenario: "consul-watchers", Set: map[string]string{"scale": "smoke", "bare": "null", "catalog.away": "true"},
		Targets: []string{members[0].URL, members[1].URL, members[2].URL},
	})
	if err != nil || !s.Passed() {
		t.Fatalf("%v, %+v", err, s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) != 2 || f.asked[strings.TrimPrefix(members[1].URL, "http://")] > 0 {
		t.Errorf("queries came to %v, the leader is %s", f.asked, f.leader)
	}
}

func TestRefusalsOfConsulScenarios(t *testing.T) {
	for _, c := range []struct{ scenario, key, value, want string }{
		{"consul-watchers", "catalog.instances", "[]", "must be 1 to"},
		{"consul-watchers", "catalog.instances", "[5, 3]", "none smaller"},
		{"consul-watchers", "catalog.instances", "[20001]", "1 to 20000"},
		{"consul-watchers", "catalog.change", "scare", "is none of register"},
		{"consul-watchers", "catalog.late", ".nan", "0 to 1, with a pause"},
		{"consul-watchers", "catalog.late", "0.5", "0 to 1, with a pause"},
		{"consul-watchers", "catalog.filters", "101", "no more than there are instances"},
		{"consul-watchers", "catalog.filters", "7", "a multiple of catalog.filters"},
		{"consul-watchers", "catalog.kill", "1h", "before closed.duration"},
		{"consul-watchers", "bare.workers", "3", "as many connections"},
		{"consul-watchers", "play", "ladder", "a ladder speaks"},
		{"consul-closed", "closed.streams", "3", "one request under way"},
		{"consul-closed", "catalog", "{instances: [1]}", ""},
		{"kv-watch", "catalog", "{instances: [1]}", "for the door consul"},
		{"kv-watch", "bare", "{duration: 1s}", ""},
	} {
		_, err := Load(c.scenario, map[string]string{c.key: c.value})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s=%s: %v, want %q", c.scenario, c.key, c.value, err, c.want)
		}
	}
}

func TestPeersPlayWhatTheySpeak(t *testing.T) {
	for _, o := range []Options{{Scenario: "kv-put", Peer: "consul"}, {Scenario: "consul-closed", Peer: "ovsdb"}, {Scenario: "consul-closed", Peer: "consul"}} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s played %s", o.Peer, o.Scenario)
		}
	}
	f := &fakeConsul{refuses: true, again: true}
	s, err := Run(t.Context(), Options{Scenario: "consul-watchers", Peer: "consul", Targets: []string{f.start(t)}, Set: map[string]string{"scale": "smoke", "bare": "null"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Thresholds) != 0 || s.Violations != 0 || s.Facts["answers_with_nothing_new"] == 0 {
		t.Errorf("a peer was judged: %+v, %v; facts %v", s.Thresholds, s.Texts, s.Facts)
	}
}

// An answer is read as it comes: whole or in chunks, in pieces of any size.
func TestConsulAnswers(t *testing.T) {
	for _, c := range []struct {
		name, said, body string
		want             httpAnswer
		bad              string
	}{
		{"whole", "HTTP/1.1 200 OK\r\nx-consul-index: 12\r\nContent-Length: 5\r\n\r\nhello", "hello", httpAnswer{status: 200, index: 12, length: 5}, ""},
		{"chunks", "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", "hello", httpAnswer{status: 404, length: -1, gzipped: true}, ""},
		{"nothing", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", httpAnswer{status: 200}, ""},
		{"large", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), strings.Repeat("x", 100_000), httpAnswer{status: 200, length: 100_000}, ""},
		{"no HTTP", "220 mail\r\n\r\n", "", httpAnswer{}, "is not the start"},
		{"no number", "HTTP/1.1 200 OK\r\nX-Consul-Index: -1\r\n\r\n", "", httpAnswer{}, "has the header"},
		{"no size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "", httpAnswer{}, "no chunk's size"},
		{"cut off", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "", httpAnswer{}, "ended"},
		{"a head without end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("a", httpBuffer), "", httpAnswer{}, "the head of an answer"},
	} {
		for _, skips := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, skipped %v", c.name, skips), func(t *testing.T) {
				t.Parallel()
				address := sayOnce(t, c.said)
				conn, err := httpServer{address: address}.dial(t.Context(), nil, false)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.close()
				if err := conn.send("GET", "/", nil); err != nil {
					t.Fatal(err)
				}
				a, err := conn.answer()
				var body []byte
				length := int64(0)
				if err == nil && skips {
					length, err = conn.skip(a)
				} else if err == nil {
					body, err = conn.body(a, nil)
					length = int64(len(body))
				}
				if c.bad != "" {
					if err == nil || !strings.Contains(err.Error(), c.bad) {
						t.Errorf("%v, want %q", err, c.bad)
					}
					return
				}
				if err != nil || a != c.want || length != int64(len(c.body)) || !skips && string(body) != c.body {
					t.Errorf("%+v and %d bytes, %v", a, length, err)
				}
			})
		}
	}
}

// A version's newest change is known to those who had it before it was read, too.
func TestVersionsTellWhoWasEarly(t *testing.T) {
	v := &versions{known: map[uint64]*version{}}
	var told []string
	who := func(name string) sight {
		return sight{time.Second, func(upTo int, at time.Duration) { told = append(told, fmt.Sprint(name, upTo, at)) }}
	}
	if !v.first(10) || v.first(10) {
		t.Error("not exactly one reads a body")
	}
	v.saw(10, who("a"))
	if len(told) != 0 {
		t.Error("told before it was known")
	}
	if !v.learn(10, 3) {
		t.Error("the first is out of order")
	}
	v.saw(10, who("b"))
	if got := strings.Join(told, " "); got != "a3 1s b3 1s" {
		t.Errorf("told %q", got)
	}
	v.first(12)
	v.first(11)
	if v.learn(12, 2) {
		t.Error("a later version with less is in order")
	}
	if !v.learn(11, 2) {
		t.Error("an earlier version that is read later is out of order")
	}
}

// sayOnce listens for one connection, and answers its first bytes with a text, in
// pieces.
func sayOnce(t *testing.T, text string) (address string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, httpBuffer))
		for piece := range slices.Chunk([]byte(text), 1+len(text)/7) {
			_, _ = conn.Write(piece) // a client that went reads nothing
		}
	}()
	return ln.Addr().String()
}

// serveBareHere serves a short body until the test is over.
func serveBareHere(t *testing.T) (Cluster, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { ln.Close() })
	go func() { _ = ServeBare(ln, []byte("bare")) }()
	return bareServer{url: "http://" + ln.Addr().String()}, nil
}
