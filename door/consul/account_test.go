package consul

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/workqueue"
)

// recorded are the records since it was last asked, in short.
func (m *member) recorded() (list []string) {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if r.Door != doorName || r.Outcome == audit.Done && r.Index == 0 {
			m.tb.Errorf("%+v", r)
		}
		list = append(list, strings.TrimSpace(fmt.Sprint(r.Action, " ", r.Subject, " ", r.Outcome, " ", r.Reason)))
	}
	m.records = nil
	return list
}

// wantRecorded fails unless these are the records since it was last asked.
func (m *member) wantRecorded(what string, want ...string) {
	m.tb.Helper()
	if got := m.recorded(); !slices.Equal(got, want) {
		m.tb.Errorf("%s: recorded %q, want %q", what, got, want)
	}
}

// What is changed is recorded, in the words of all doors; what changes nothing, and what
// only keeps something alive, is not.
func TestChangesAreRecorded(t *testing.T) {
	m := startMember(t, nil)
	s, other := m.open(), m.open()
	txn := func(ops ...string) string { return "[" + strings.Join(ops, ",") + "]" }
	op := func(verb, key string) string { return `{"KV":{"Verb":"` + verb + `","Key":"` + key + `"}}` }
	node := `{"Node":{"Verb":"set","Node":{"Node":"n","Address":"127.0.0.8"}}}`
	service := `{"Service":{"Verb":"set","Node":"n","Service":{"Service":"web"}}}`
	for _, tt := range []struct{ method, path, send, want string }{
		{"PUT", "/v1/kv/a", "one", "key_write default:a done"},
		{"PUT", "/v1/kv/a", "one", ""},
		{"PUT", "/v1/kv/a?cas=1", "two", ""},
		{"PUT", "/v1/kv/b?cas=0", "two", "key_write default:b done"},
		{"GET", "/v1/kv/a", "", ""},
		{"PUT", "/v1/kv/l?acquire=" + s.String(), "me", "key_write default:l done"},
		{"PUT", "/v1/kv/l?acquire=" + s.String(), "me", ""},
		{"PUT", "/v1/kv/l?acquire=" + other.String(), "", ""},
		{"PUT", "/v1/kv/l?release=" + other.String(), "", ""},
		{"PUT", "/v1/kv/l?release=" + s.String(), "", "key_write default:l done"},
		{"DELETE", "/v1/kv/b", "", "key_write default:b done"},
		{"DELETE", "/v1/kv/b", "", ""},
		{"PUT", "/v1/kv/t/1", "", "key_write default:t/1 done"},
		{"DELETE", "/v1/kv/t/?recurse", "", "key_write default:t/ done"},
		{"DELETE", "/v1/kv/t/?recurse", "", ""},

		{"PUT", "/v1/txn", txn(op("set", "x"), op("get", "x"), op("delete", "none"), op("set", "y")), "key_write default:x, default:y done"},
		{"PUT", "/v1/txn", txn(op("set", "x"), op("set", "y")), ""},
		{"PUT", "/v1/txn", txn(op("get", "x")), ""},
		{"PUT", "/v1/txn", txn(op("set", "z"), op("get", "none")), ""},
		{"PUT", "/v1/txn", txn(node, service, op("set", "z")), "key_write default:z done, node_write default:n done"},
		{"PUT", "/v1/txn", txn(`{"Service":{"Verb":"delete","Node":"n","Service":{"ID":"web","Service":"web"}}}`), "service_write default:web done"},

		{"PUT", "/v1/event/fire/deploy", "", "key_write consul-events-default:deploy done"},
		{"PUT", "/v1/event/fire/deploy?node=elsewhere", "", ""},
		{"PUT", "/v1/agent/service/register", `{"Name":"web","Check":{"TTL":"1h"}}`, "node_write default:agent done"},
		{"PUT", "/v1/agent/check/pass/service:web", "", "service_write default:web done"},
		{"PUT", "/v1/agent/check/pass/service:web", "", ""},
		{"PUT", "/v1/agent/service/deregister/web", "", "service_write default:web done"},
	} {
		if a := m.do(tt.method, tt.path, tt.send); a.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s %s: %s %s", tt.method, tt.path, a.Status, a.body)
		}
		if got := strings.Join(m.recorded(), ", "); got != tt.want {
			t.Errorf("%s %s %s: recorded %q, want %q", tt.method, tt.path, tt.send, got, tt.want)
		}
	}
}

func TestSessionsAndQueriesAreRecorded(t *testing.T) {
	m := startMember(t, nil)
	id := m.create(`{"TTL":"1h"}`)
	m.wantRecorded("the first session of the agent", "node_write default:agent done", "session_open session "+id+" done")
	m.do("PUT", "/v1/session/renew/"+id, "")
	m.wantRecorded("what keeps it")
	m.do("PUT", "/v1/session/destroy/"+id, "")
	m.wantRecorded("its end", "session_close session "+id+" done")
	m.do("PUT", "/v1/session/destroy/"+id, "")
	m.wantRecorded("one that is over")

	const query = "key_write consul-queries-default:q done"
	id = m.created(`{"Name":"q","Service":{"Service":"web"}}`)
	m.wantRecorded("a query", query)
	m.do("PUT", "/v1/query/"+id, `{"Name":"q","Service":{"Service":"db"}}`)
	m.wantRecorded("another", query)
	m.do("DELETE", "/v1/query/"+id, "")
	m.wantRecorded("none", query)
	m.do("DELETE", "/v1/query/"+id, "")
	m.wantRecorded("one that is gone")
}

// What is denied is recorded in the same words, with why.
func TestWhatIsDeniedIsRecordedInTheSameWords(t *testing.T) {
	guard, as := agentsNamed(t, true, "app")
	m := startMember(t, func(c *Config) { c.Guard = guard })
	s := m.open()
	rule := auth.Rule{State: auth.Keys, Namespace: "*", Prefix: "mine", Verbs: auth.AllVerbs}
	if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "app", For: []string{"agent:app"}, Rules: []auth.Rule{rule}}}); r.Err != nil {
		t.Fatal(r.Err)
	}
	m.recorded()
	for _, tt := range []struct{ method, path, want string }{
		{"PUT", "/v1/kv/a", "key_write default:a denied permission"},
		{"DELETE", "/v1/kv/?recurse", "key_write default: denied permission"},
		{"PUT", "/v1/kv/mine", "key_write default:mine done"},
		{"PUT", "/v1/event/fire/deploy", "key_write consul-events-default:deploy denied permission"},
		{"PUT", "/v1/kv/mine?acquire=" + s.String(), "session_use session " + s.String() + " denied owner"},
	} {
		m.do(tt.method, tt.path, "", as["app"]...)
		m.wantRecorded(tt.method+" "+tt.path, tt.want)
	}
}

// What was done, or may have been, is handed on whoever waits for it, once; what certainly
// was not is not.
func TestOutcomesAreHandedOnWhoeverWaits(t *testing.T) {
	failed := func(k incumbent.Kind) core.Result { return core.Result{Err: &incumbent.Error{Kind: k}} }
	for _, tt := range []struct {
		what       string
		after      time.Duration
		res        core.Result
		told, then bool
	}{
		{"what is done", 0, core.Result{Index: 1}, true, true},
		{"what is refused", 0, failed(incumbent.Conflict), true, true},
		{"what may be done", 0, failed(incumbent.Unknown), true, false},
		{"what is not tried", 0, failed(incumbent.DeadlineExceeded), false, false},
		{"what is done late", time.Minute, core.Result{Index: 1}, true, false},
		{"what may be done late", time.Minute, failed(incumbent.Unknown), true, false},
		{"what is not tried, late", time.Minute, failed(incumbent.DeadlineExceeded), false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &Door{changes: workqueue.New[func()](), now: time.Now, cfg: Config{}}
			d.SetLimits(Limits{})
			go workqueue.Run(d.changes)
			defer d.changes.Close()
			r := &request{door: d, method: http.MethodPut, who: &caller{}, asked: time.Now()}
			r.done.Store(true) // nobody is to be answered
			var told, then []core.Result
			r.outcome(func(done func(core.Result)) { time.AfterFunc(tt.after, func() { done(tt.res) }) },
				func(res *core.Result) { told = append(told, *res) }, func(res core.Result) { then = append(then, res) })
			time.Sleep(time.Hour)
			synctest.Wait()
			if len(told) > 1 || len(then) > 1 || len(told) == 1 != tt.told || len(then) == 1 != tt.then {
				t.Errorf("%s: told %v, gone on with %v", tt.what, told, then)
			}
		})
	}
}

// What came of a command is recorded as it is of the native door.
func TestOutcomesHaveTheirRecords(t *testing.T) {
	m := startMember(t, nil)
	r := &request{door: m.door, who: &caller{principal: auth.Principal{Kind: auth.Agent, Name: "a"}}}
	of := change{action: auth.KeyWrite, subject: "default:k", session: m.open()}
	for _, tt := range []struct {
		kind incumbent.Kind
		want string
	}{
		{incumbent.Denied, "key_write default:k denied owner"},
		{incumbent.Unknown, "key_write default:k unknown"},
		{incumbent.Conflict, ""},
		{incumbent.NotLeader, ""},
	} {
		r.settled(&of, &core.Result{Err: &incumbent.Error{Kind: tt.kind}}, true)
		if got := strings.Join(m.recorded(), ", "); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.kind, got, tt.want)
		}
	}
	r.settled(&of, &core.Result{Index: 7, Record: &kv.Entry{Modified: 7}, Idle: true}, true)
	m.wantRecorded("what a view answers")
}
