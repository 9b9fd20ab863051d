package server

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/engine"
)

// Three members of the schema before the newest that brought commands are replaced by such
// as know all, one after the other, while leases are claimed and held: nothing is lost. A
// command of that schema is refused everywhere until the last of them knows it, by members
// that would know, too, and then works everywhere.
func TestG49_ARollingUpgradeBetweenTwoSchemas(t *testing.T) {
	const brought = core.RoleSchema
	const old = brought - 1
	older := func(name string) Config {
		cfg := memberConfig(t, name)
		cfg.schema = old
		return cfg
	}
	first := open(t, older("n1"))
	members := []*Server{first, join(t, first, older("n2")), join(t, first, older("n3"))}
	var servers []string
	for _, s := range members {
		servers = append(servers, s.URL())
	}
	c := dialer(t, client.Config{Servers: servers})
	session, err := c.Open(testContext(t), client.SessionConfig{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	held, err := session.Claim(testContext(t), leaseNamed("held"), client.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	load := claimOn(t, c)
	active := func() uint32 { return leaderOf(t, members...).engine.View().ActiveSchema() }
	until(t, "all are recorded with what they know", func() bool {
		return len(leaderOf(t, members...).engine.View().Members()) == 3 && active() == old
	})
	setRole := func(s *Server, name string) incumbent.Kind {
		cmd := policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: name, For: []string{"agent:hv*"}, Rules: []auth.Rule{
			{State: auth.Tables, Namespace: "default", Verbs: auth.WriteInRole, Role: "r"},
		}}}
		if got := core.RequiredSchema(cmd.Encode(core.Meta{})); got != brought {
			t.Fatalf("the command needs schema %d: aim it at what schema %d has", got, brought)
		}
		_, err := s.engine.Await(testContext(t), engine.Call{}, cmd)
		return incumbent.KindOf(err)
	}
	for i, s := range members {
		for _, at := range members {
			if kind := setRole(at, "N"); kind != incumbent.Unavailable {
				t.Errorf("%d members know the newest schema: on %s, %v", i, at.cfg.Name, kind)
			}
		}
		load.progresses(t)
		cfg := s.cfg
		cfg.Listen, cfg.PeerListen, cfg.JoinToken, cfg.schema = strings.TrimPrefix(s.URL(), "http://"), s.PeerAddr(), "", 0
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		members[i] = open(t, cfg)
		leaderOf(t, members...)
		load.progresses(t)
	}
	until(t, "all know it", func() bool { return active() == core.SchemaVersion })
	for i, s := range members {
		until(t, "it works on "+s.cfg.Name, func() bool { return setRole(s, fmt.Sprintf("N%d", i)) == incumbent.OK })
	}
	n := load.finish(t)
	if !held.Held() {
		t.Error("a lease that was held throughout is lost")
	}
	if err := session.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	for _, s := range members {
		until(t, "the states are equal", func() bool {
			a, b := s.engine.View(), members[0].engine.View()
			return a.Index() == b.Index() && a.Hash() == b.Hash()
		})
		for k := range n {
			if l := leases.Of(s.engine.View()).Lease(leaseNamed(fmt.Sprint("load-", k))); l.Free() {
				t.Errorf("%s: lease %d, whose claim was answered, is not held", s.cfg.Name, k)
			}
		}
	}
}

// A member that runs alone records what it knows before it serves, and anew once it knows
// more. So what an earlier binary executed by its own rules comes to the same when a later
// one applies the log again: here a conversion to a schema whose indexes compare much.
func TestAMemberAloneIsUpgraded(t *testing.T) {
	cfg := testConfig(t)
	cfg.schema = core.SchemaVersion - 1
	s := open(t, cfg)
	recorded := func() bool {
		members := s.engine.View().Members()
		return len(members) == 1 && members[0].ID == s.cluster.ID() && members[0].Name == s.cfg.Name && members[0].Schema == s.cfg.knows()
	}
	until(t, "it is recorded", recorded)
	if first := s.engine.View().Members()[0]; first.Since != 1 {
		t.Errorf("it was recorded with command %d, not before all others", first.Since)
	}
	const schema = `{"name": "T", "version": "%s", "tables": {"P": {"columns": {"name": {"type": "string"}, "text": {"type": "string"}}, "isRoot": true%s}}}`
	do := func(c core.Command) core.Result {
		t.Helper()
		r, err := s.engine.Await(testContext(t), engine.Call{}, c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	transact := func(operations string) string {
		t.Helper()
		r, err := clientOf(t, s).TableCalls().Transact(testContext(t), connect.NewRequest(&apiv1.TransactRequest{Database: "T", Operations: operations}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg.Results
	}
	database := func() *table.Database {
		return table.Of(s.engine.View()).Database(incumbent.DefaultNamespace, "T")
	}
	heavy := `, "indexes": [` + strings.Repeat(`["name", "text"], `, table.MaxIndexes-1) + `["name", "text"]]`
	denied := func(version string) bool { // a conversion that costs too much
		t.Helper()
		r := do(&table.Convert{Namespace: incumbent.DefaultNamespace, Database: "T", Schema: fmt.Appendf(nil, schema, version, heavy)})
		return r.Record.(*table.Outcome).Failed
	}
	do(&table.Define{Namespace: incumbent.DefaultNamespace, Schema: fmt.Appendf(nil, schema, "1.0.0", "")})
	rows := ""
	for i := range 24 {
		rows += fmt.Sprintf(`{"op": "insert", "table": "P", "row": {"name": "%d"}}, `, i)
	}
	transact(`[` + rows + `{"op": "update", "table": "P", "where": [], "row": {"text": "` + strings.Repeat("x", table.MaxRowBytes-1000) + `"}}]`)
	if denied("2.0.0") {
		t.Fatal("denied, which what this member knows does not have: aim the test at what the newest schema has")
	}
	transact(`[{"op": "insert", "table": "P", "row": {"name": "two"}}]`)
	before := database()
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	cfg.schema = 0
	s = open(t, cfg)
	if after := database(); after.Len() != before.Len() || after.LastTxn() != before.LastTxn() || after.Schema.Version != "2.0.0" {
		t.Errorf("%d rows of schema %s and last %v, were %d and %v", after.Len(), after.Schema.Version, after.LastTxn(), before.Len(), before.LastTxn())
	}
	until(t, "it is recorded anew", recorded)
	if !denied("3.0.0") {
		t.Error("converted, against the rules of the newest schema")
	}
}

// claiming claims one lease after the other until it is told to stop.
type claiming struct {
	done atomic.Int64
	stop chan struct{}
	all  sync.WaitGroup
}

func claimOn(t *testing.T, c *client.Client) *claiming {
	l := &claiming{stop: make(chan struct{})}
	l.all.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-l.stop:
				return
			default:
			}
			// Again until it is answered: a claim of what is one's own already extends it.
			for _, err := claim(t, c, fmt.Sprint("load-", n), "h"); err != nil; _, err = claim(t, c, fmt.Sprint("load-", n), "h") {
				if kind := incumbent.KindOf(err); !kind.Transient() && kind != incumbent.Unknown && kind != incumbent.NotLeader {
					t.Errorf("claim %d: %v", n, err)
					return
				}
			}
			l.done.Store(int64(n + 1))
		}
	})
	t.Cleanup(func() { l.finish(t) })
	return l
}

func (l *claiming) progresses(t *testing.T) {
	t.Helper()
	want := l.done.Load() + 10
	until(t, "leases are claimed", func() bool { return l.done.Load() >= want })
}

// finish returns how many were claimed.
func (l *claiming) finish(t *testing.T) int {
	t.Helper()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.all.Wait()
	return int(l.done.Load())
}
