package consul

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// Of everything that the victim has the name, or what is in it, begins so.
const secret = "topsecret"

// victim is what somebody has that nobody else may see or change.
type victim struct {
	m       *member
	headers []string
	session string
	query   string
}

// startVictim has the victim own one of each kind.
func startVictim(t *testing.T, m *member, headers []string) *victim {
	t.Helper()
	v := &victim{m: m, headers: headers}
	for _, step := range []struct{ method, path, body string }{
		{"PUT", "/v1/catalog/register", `{"Node":"topsecret-node","Address":"10.9.9.9","NodeMeta":{"m":"topsecret-meta"},"Service":{"ID":"topsecret-id","Service":"topsecret-svc","Tags":["topsecret-tag"],"Meta":{"k":"topsecret-value"}},"Check":{"CheckID":"topsecret-check","Name":"topsecret-name","Status":"passing","Output":"topsecret-output","ServiceID":"topsecret-id"}}`},
		{"PUT", "/v1/agent/service/register", `{"ID":"topsecret-own","Name":"topsecret-svc","Check":{"CheckID":"topsecret-ttl","TTL":"1h"}}`},
		{"PUT", "/v1/session/create", `{"Name":"topsecret-session","Node":"topsecret-node","NodeChecks":[],"Behavior":"delete"}`},
		{"POST", "/v1/query", `{"Name":"topsecret-query","Service":{"Service":"topsecret-svc"}}`},
		{"PUT", "/v1/kv/topsecret/k", "topsecret-text"},
		{"PUT", "/v1/kv/topsecret/topsecret-key", "topsecret-text"},
		{"PUT", "/v1/event/fire/topsecret-event", "topsecret-payload"},
	} {
		a := m.do(step.method, step.path, step.body, headers...)
		if a.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %d %s", step.method, step.path, a.StatusCode, a.body)
		}
		var made struct{ ID string }
		_ = json.Unmarshal([]byte(a.body), &made)
		switch step.path {
		case "/v1/session/create":
			v.session = made.ID
		case "/v1/query":
			v.query = made.ID
		}
	}
	if a := m.do("PUT", "/v1/kv/topsecret/lock?acquire="+v.session, "topsecret-text", headers...); a.body != "true" {
		t.Fatalf("the lock: %d %s", a.StatusCode, a.body)
	}
	return v
}

// state is what the victim sees of what it has. Of others' services it sees nothing: who
// may write one may have instances of it on any node, in the form in which nothing is said
// of the node.
func (v *victim) state() map[string]string {
	all := map[string]string{}
	for _, path := range []string{
		"/v1/kv/topsecret?recurse", "/v1/catalog/node/topsecret-node", "/v1/catalog/service/topsecret-svc", "/v1/health/service/topsecret-svc",
		"/v1/health/node/topsecret-node", "/v1/health/checks/topsecret-svc", "/v1/agent/service/topsecret-own", "/v1/session/info/" + v.session, "/v1/query/" + v.query,
		"/v1/event/list?name=topsecret-event",
	} {
		all[path] = v.m.do("GET", path, "", v.headers...).body
	}
	return all
}

// secrets are what no answer to anybody else has, unless that one knows it.
func (v *victim) secrets() []string {
	all := []string{v.session, v.query, "10.9.9.9", "agent:victim"}
	for _, text := range []string{"topsecret-text", "topsecret-payload"} {
		all = append(all, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(text)), "="))
	}
	return all
}

// asker asks for anything, in names that it knows, which are all.
type asker struct {
	r     *rand.Rand
	names []string
}

func (a *asker) one(of ...string) string { return of[a.r.IntN(len(of))] }
func (a *asker) name() string            { return a.one(a.names...) }

// object is a JSON object of some of these fields, in which $ is a name.
func (a *asker) object(fields ...string) string {
	var some []string
	for _, f := range fields {
		if a.r.IntN(3) > 0 {
			some = append(some, a.filled(f))
		}
	}
	return "{" + strings.Join(some, ",") + "}"
}

func (a *asker) filled(text string) string {
	for strings.Contains(text, "$") {
		text = strings.Replace(text, "$", a.name(), 1)
	}
	return text
}

func (a *asker) service() string {
	return a.object(`"ID":"$"`, `"Service":"$"`, `"Name":"$"`, `"Port":1`, `"Tags":["x"]`, `"Check":{"CheckID":"$","TTL":"1h","Status":"critical"}`)
}

func (a *asker) check() string {
	return a.object(`"CheckID":"$"`, `"ID":"$"`, `"Name":"$"`, `"Node":"$"`, `"ServiceID":"$"`, `"Status":"critical"`, `"TTL":"1h"`, `"Output":"x"`)
}

// body is one that the path takes, most often.
func (a *asker) body(path string) string {
	switch {
	case a.r.IntN(20) == 0:
		return a.one("", "null", "[]", "{", `"x"`)
	case strings.HasPrefix(path, "/v1/agent/service/register"):
		return a.service()
	case strings.HasPrefix(path, "/v1/agent/check/register"):
		return a.check()
	case strings.HasPrefix(path, "/v1/agent/check/update"):
		return `{"Status":"critical","Output":"x"}`
	case strings.HasPrefix(path, "/v1/catalog/"):
		return a.object(`"Node":"$"`, `"Address":"10.0.0.1"`, `"SkipNodeUpdate":true`, `"ServiceID":"$"`, `"CheckID":"$"`, `"Service":`+a.service(), `"Check":`+a.check())
	case strings.HasPrefix(path, "/v1/session/create"):
		return a.object(`"Name":"$"`, `"Node":"$"`, `"Checks":["$"]`, `"NodeChecks":["$"]`, `"Behavior":"delete"`, `"LockDelay":"0s"`)
	case strings.HasPrefix(path, "/v1/query"):
		return a.object(`"ID":"$"`, `"Name":"$"`, `"Session":"$"`, `"Token":"$"`, `"Service":{"Service":"$","OnlyPassing":true}`)
	case strings.HasPrefix(path, "/v1/txn"):
		ops := make([]string, 1+a.r.IntN(3))
		for i := range ops {
			ops[i] = a.one(
				`{"KV":{"Verb":"`+a.one("set", "cas", "lock", "unlock", "get", "get-tree", "check-index", "check-session", "check-not-exists", "delete", "delete-tree", "delete-cas")+`",`+a.object(`"Key":"$"`, `"Value":"eA=="`, `"Index":1`, `"Session":"$"`)[1:]+`}`,
				`{"Node":{"Verb":"`+a.one("set", "cas", "get", "delete", "delete-cas")+`","Node":`+a.object(`"Node":"$"`, `"ID":"$"`, `"Address":"10.0.0.2"`)+`}}`,
				`{"Service":{"Verb":"`+a.one("set", "get", "delete")+`",`+a.filled(`"Node":"$"`)+`,"Service":`+a.service()+`}}`,
				`{"Check":{"Verb":"`+a.one("set", "get", "delete")+`","Check":`+a.check()+`}}`,
				`{"Session":{"Verb":"delete","Session":`+a.object(`"ID":"$"`)+`}}`)
		}
		return "[" + strings.Join(ops, ",") + "]"
	}
	return a.one("x", a.object(`"Node":"$"`, `"ID":"$"`))
}

// ask returns a request to a path that is served. Some wait, for as long as it takes to
// look.
func (a *asker) ask(routes []route) (method, path, body string) {
	r := routes[a.r.IntN(len(routes))] // in the order of their paths, so that a seed says what is asked
	method = a.one(slices.Sorted(func(yield func(string) bool) {
		for m := range r.methods {
			if !yield(m) {
				return
			}
		}
	})...)
	path = r.path
	if strings.HasSuffix(path, "/") {
		path += url.PathEscape(a.name()) + a.one("", "", "", "/execute", "/explain", "/k")
	}
	var query []string
	for _, q := range []string{
		"recurse", "keys", "raw", "separator=/", "index=1&wait=1ms", "stale", "consistent", "passing", "cas=1", "flags=1", "enable=true", "reason=x", "pretty", "near=_agent",
		"acquire=$", "release=$", "node=$", "service=$", "name=$", "tag=$", "note=$", "id=$", "ns=$", "node-meta=m:$", "filter=" + url.QueryEscape(`Node matches ".*" or ServiceName != ""`),
	} {
		if a.r.IntN(8) == 0 {
			query = append(query, a.filled(q))
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	if method != http.MethodGet {
		body = a.body(r.path)
	}
	return method, path, body
}

// Somebody with few rights, or none, asks for everything: nothing of another's is
// changed, and no answer tells of it but what the question said.
func TestG12_AnAttackerSeesAndChangesNothing(t *testing.T) {
	seed, requests := uint64(time.Now().UnixNano()), 1500 //nolint:gosec // any will do
	if n, err := strconv.ParseUint(os.Getenv("INCUMBENT_ATTACKER_SEED"), 10, 64); err == nil {
		seed = n
	}
	if n, err := strconv.Atoi(os.Getenv("INCUMBENT_ATTACKER_REQUESTS")); err == nil {
		requests = n
	}
	t.Logf("seed %d", seed)
	for _, who := range []string{"some", "none", "nobody", "some with names", "none with names"} {
		t.Run(who, func(t *testing.T) {
			who, knowsNames := strings.CutSuffix(who, " with names")
			guard, as := agentsNamed(t, false, "victim", "some", "none")
			m := startMember(t, func(c *Config) { c.Guard = guard })
			for name, prefix := range map[string]string{"victim": secret + "*", "some": "mine*"} {
				p := auth.Policy{Name: name, For: []string{"agent:" + name}}
				for _, kind := range []auth.State{auth.Keys, auth.Nodes, auth.Services} {
					p.Rules = append(p.Rules, auth.Rule{State: kind, Namespace: "*", Prefix: prefix, Verbs: auth.AllVerbs})
				}
				if name == "victim" {
					p.Rules = append(p.Rules,
						auth.Rule{State: auth.Nodes, Namespace: "*", Prefix: m.door.cfg.Node, Verbs: auth.AllVerbs},
						auth.Rule{State: auth.Keys, Namespace: "*", Prefix: "*", Verbs: auth.AllVerbs}) // queries have ids for names
				}
				p.Rules = append(p.Rules, auth.Rule{State: auth.Sessions, Prefix: "agent:" + name, Verbs: auth.AllVerbs})
				if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: p}); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			v := startVictim(t, m, as["victim"])
			before, secrets := v.state(), v.secrets()
			for path, text := range before {
				if !strings.Contains(text, secret) && !strings.Contains(text, v.session) {
					t.Fatalf("the victim sees nothing in %s: %s", path, text)
				}
			}
			names := []string{
				"mine", "mine/k", "mine1", "topsecret/k", "topsecret/lock", "topsecret-id", "topsecret-own", "topsecret-check", "topsecret-ttl", v.session, v.query, "", "any", "passing",
				m.door.cfg.Node,
			}
			if knowsNames {
				names = append(names, "topsecret", "topsecret-node", "TOPSECRET-NODE", "topsecret-svc", "Topsecret-Svc", "topsecret-query", "topsecret-event")
			}
			known := strings.ToLower(strings.Join(names, " ")) // what of it is told may be an echo
			a := &asker{rand.New(rand.NewPCG(seed, 1)), names} //nolint:gosec // reproducible
			all := routes()
			slices.SortFunc(all, func(a, b route) int { return strings.Compare(a.path, b.path) })
			allowed := 0
			for range requests {
				method, path, body := a.ask(all)
				got := m.do(method, path, body, as[who]...)
				if got.StatusCode == http.StatusOK {
					allowed++
				}
				text := fmt.Sprint(got.Header) + got.body
				if word := told(text, secrets, known); word != "" {
					t.Errorf("%s %s %s tells %q: %d %s", method, path, body, word, got.StatusCode, text)
				}
			}
			for path, want := range before {
				if got := m.do("GET", path, "", v.headers...).body; got != want {
					t.Errorf("%s was %s and is %s", path, want, got)
				}
			}
			if allowed == 0 {
				t.Error("nothing that was asked was allowed, or looked so")
			}
		})
	}
}

// told returns something of the victim's that a text has and that was not known; "":
// nothing.
func told(text string, secrets []string, known string) string {
	for _, s := range secrets {
		if strings.Contains(text, s) && !strings.Contains(known, strings.ToLower(s)) {
			return s
		}
	}
	for _, word := range secretWord.FindAllString(strings.ToLower(text), -1) {
		if !strings.Contains(known, word) {
			return word
		}
	}
	return ""
}

var secretWord = regexp.MustCompile(secret + `[-a-z]*`)
