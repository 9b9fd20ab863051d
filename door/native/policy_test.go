package native

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/engine"
)

// change executes a change of a policy.
func (m *member) change(c policy.Command) {
	m.tb.Helper()
	got := make(chan core.Result, 1)
	m.group.Execute(engine.Call{}, c, func(r core.Result) { got <- r })
	if r := <-got; r.Err != nil {
		m.tb.Fatal(r.Err)
	}
}

// let sets the one policy of a test.
func (m *member) let(who string, rules ...auth.Rule) {
	m.tb.Helper()
	m.change(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "p", For: []string{who}, Rules: rules}})
}

func agentA() auth.Principal {
	return auth.Principal{Name: "a", Kind: auth.Agent, Via: auth.Credential}
}

// as has the calls and streams that begin from now on be somebody's.
func (m *member) as(p auth.Principal) *member { m.guard.principal = p; return m }

func forLeases(name string, v auth.Verbs) auth.Rule {
	return auth.Rule{State: auth.Leases, Namespace: "default", Prefix: name, Verbs: v}
}

func keyRule(name string, v auth.Verbs) auth.Rule {
	return auth.Rule{State: auth.Keys, Namespace: "default", Prefix: name, Verbs: v}
}

func sessionRule(v auth.Verbs) auth.Rule { return auth.Rule{State: auth.Sessions, Verbs: v} }

func (w *wire) kind(f *pb.ClientFrame) incumbent.Kind {
	w.tb.Helper()
	got := w.ask(f)
	if got.Error == nil {
		return incumbent.OK
	}
	k, _ := incumbent.ParseKind(got.Error.Kind)
	return k
}

// Any native agent took the leadership of a product whose door this is not.
func TestG12_NamespacesOfOtherDoorsAreTheirs(t *testing.T) {
	m := newMember(t)
	lead := &pb.LeaseName{Namespace: "application-leadership", Model: "m", Name: "mysql"}
	claim := func(holder string) error {
		_, err := m.leaseClient().Claim(t.Context(), connect.NewRequest(&pb.ClaimRequest{Name: lead, Holder: holder, TtlMs: 15000}))
		return err
	}
	put := func() error {
		_, err := m.put(&pb.PutRequest{Namespace: "singular-controller", Key: "k"})
		return err
	}
	m.as(auth.Principal{Name: "mysql", Kind: auth.Agent, Via: auth.Credential})
	for _, holder := range []string{"mysql", "mysql/0"} {
		if kindOf(claim(holder)) != incumbent.Denied {
			t.Errorf("an agent claims as %s", holder)
		}
	}
	if kindOf(put()) != incumbent.Denied {
		t.Error("an agent writes keys there")
	}
	// What members agree on by leases is nobody's, nor is what says as whom a query is
	// executed: no policy lets anybody change it.
	m.let("agent:mysql*", auth.Rule{State: auth.Leases, Namespace: "*", Verbs: auth.AllVerbs}, auth.Rule{State: auth.Keys, Namespace: "*", Verbs: auth.AllVerbs})
	for _, name := range []string{"backup", "checks/1"} {
		_, err := m.leaseClient().Claim(t.Context(), connect.NewRequest(&pb.ClaimRequest{Name: &pb.LeaseName{Namespace: incumbent.ServerNamespace, Model: "server", Name: name}, Holder: "mysql", TtlMs: 15000}))
		if kindOf(err) != incumbent.Denied {
			t.Errorf("an agent holds %s: %v", name, err)
		}
	}
	for _, namespace := range []string{"consul-queries-default", "consul-events-default"} {
		if _, err := m.put(&pb.PutRequest{Namespace: namespace, Key: "id/x"}); kindOf(err) != incumbent.Denied {
			t.Errorf("an agent writes keys of %s: %v", namespace, err)
		}
	}
	m.let("agent:mysql*", auth.Rule{State: auth.Leases, Namespace: "application-leadership", Verbs: auth.AllVerbs})
	if kindOf(claim("mysql/0")) != incumbent.Denied {
		t.Error("an agent mysql holds as mysql/0")
	}
	if err := claim("mysql"); err != nil {
		t.Errorf("what a policy allows: %v", err)
	}
	m.as(admin)
	if err := claim("mysql"); err != nil {
		t.Errorf("an operator: %v", err)
	}
}

// Everything that shows leases, sessions and keys shows only what its caller may see.
func TestG12_ListingsShowWhatMayBeSeen(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.ok(openFrame(1, sessionA, 60000))
	for _, name := range []string{"app/1", "app/2", "db/1"} {
		w.ok(claimFrame(2, name, "h", sessionA, false))
		m.mustPut(&pb.PutRequest{Key: name, Value: []byte("v")})
	}
	m.as(agentA())
	own := m.dial()
	own.ok(openFrame(1, sessionB, 60000))
	see := func() (names, keys, sessions []string, held int) {
		t.Helper()
		if res, err := m.leaseClient().List(t.Context(), connect.NewRequest(&pb.ListRequest{})); err == nil {
			for _, l := range res.Msg.Leases {
				names = append(names, l.Name.Name)
			}
		}
		if res, err := m.keys().List(t.Context(), connect.NewRequest(&pb.ListKeysRequest{})); err == nil {
			for _, e := range res.Msg.Entries {
				keys = append(keys, e.Key)
			}
		}
		c := incumbentv1connect.NewSessionServiceClient(http.DefaultClient, m.url)
		if res, err := c.ListSessions(t.Context(), connect.NewRequest(&pb.ListSessionsRequest{})); err == nil {
			for _, s := range res.Msg.Sessions {
				sessions = append(sessions, s.Principal)
			}
		}
		slices.Sort(sessions)
		held = -1
		if res, err := c.GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{Id: sessionA})); err == nil {
			held = len(res.Msg.Leases)
		}
		return names, keys, sessions, held
	}
	for name, tt := range map[string]struct {
		rules []auth.Rule
		want  string
	}{
		"nothing":       {nil, "[] [] [agent:a] -1"},
		"some leases":   {[]auth.Rule{forLeases("app/*", auth.See)}, "[app/1 app/2] [] [agent:a] -1"},
		"one lease":     {[]auth.Rule{forLeases("db/1", auth.See), forLeases("app/1", auth.Follow)}, "[db/1] [] [agent:a] -1"},
		"some keys":     {[]auth.Rule{keyRule("db/*", auth.See|auth.Write)}, "[] [db/1] [agent:a] -1"},
		"sessions":      {[]auth.Rule{sessionRule(auth.See)}, "[] [] [agent:a operator:admin] 0"},
		"a session's":   {[]auth.Rule{sessionRule(auth.See), forLeases("app/2", auth.See)}, "[app/2] [] [agent:a operator:admin] 1"},
		"one's own one": {[]auth.Rule{{State: auth.Sessions, Prefix: "agent:{name}", Verbs: auth.See}}, "[] [] [agent:a] -1"},
	} {
		m.let("agent:a", tt.rules...)
		names, keys, sessions, held := see()
		if got := fmt.Sprint(names, " ", keys, " ", sessions, " ", held); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	m.change(policy.Command{Verb: policy.Remove, Policy: auth.Policy{Name: "p"}})
	if names, keys, sessions, held := see(); len(names) != 3 || len(keys) != 3 || len(sessions) != 1 || held != -1 {
		t.Errorf("without a policy: %v %v %v %d", names, keys, sessions, held)
	}
}

// A refusal tells nothing of what its caller may not see.
func TestG12_RefusalsHideWhatMayNotBeSeen(t *testing.T) {
	m := newMember(t)
	m.mustPut(&pb.PutRequest{Key: "secret", Value: []byte("v")})
	m.as(agentA())
	for _, tt := range []struct {
		verbs auth.Verbs
		found bool
	}{{auth.Write, false}, {auth.Write | auth.See, true}} {
		m.let("agent:a", keyRule("*", tt.verbs))
		_, err := m.put(&pb.PutRequest{Key: "secret", Condition: ifIndex(0)})
		if kindOf(err) != incumbent.Conflict {
			t.Fatal(err)
		}
		var ce *connect.Error
		if found := asConnect(err, &ce) && len(ce.Details()) > 1; found != tt.found {
			t.Errorf("with %v the entry is told: %v", tt.verbs, found)
		}
		// A condition on the value says whether it was guessed.
		want := incumbent.Denied
		if tt.found {
			want = incumbent.Conflict
		}
		guess := &pb.PutRequest_IfValue{IfValue: []byte("x")}
		_, err = m.put(&pb.PutRequest{Key: "secret", Condition: guess})
		if kindOf(err) != want {
			t.Errorf("with %v a value is guessed: %v", tt.verbs, err)
		}
		_, err = m.txn(&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: "secret", Condition: guess}}}}})
		if kindOf(err) != want {
			t.Errorf("with %v a value is guessed in a transaction: %v", tt.verbs, err)
		}
	}
}

func asConnect(err error, to **connect.Error) bool {
	e, ok := err.(*connect.Error)
	*to = e
	return ok
}

// A watch shows what may be watched by the rules of the moment, and ends with Denied
// where that is nothing any more: on streams and for calls, of leases and of keys.
func TestG12_WatchesFollowThePolicies(t *testing.T) {
	for name, over := range overKeys {
		t.Run(name, func(t *testing.T) {
			m := newMember(t)
			m.let("agent:a", keyRule("a/*", auth.Follow), keyRule("b/*", auth.Follow))
			m.mustPut(&pb.PutRequest{Key: "a/0"})
			m.mustPut(&pb.PutRequest{Key: "c/0"})
			next := over(m.as(agentA()), below("", 0))
			m.as(admin)
			var seen []string
			take := func(want string) {
				t.Helper()
				for len(seen) == 0 {
					got, err := next()
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range got.Events {
						seen = append(seen, e.Entry.Key)
					}
				}
				if seen[0] != want {
					t.Fatalf("shown %v, want %s", seen, want)
				}
				seen = seen[1:]
			}
			take("a/0")
			m.mustPut(&pb.PutRequest{Key: "c/1"})
			m.mustPut(&pb.PutRequest{Key: "b/1"})
			take("b/1")
			m.let("agent:a", keyRule("b/*", auth.Follow), keyRule("a/*", auth.See))
			m.mustPut(&pb.PutRequest{Key: "a/2"})
			m.mustPut(&pb.PutRequest{Key: "b/2"})
			take("b/2")
			m.let("agent:a", keyRule("c/*", auth.Follow))
			m.mustPut(&pb.PutRequest{Key: "b/3"})
			m.mustPut(&pb.PutRequest{Key: "c/3"})
			take("c/3")
			m.let("agent:a", keyRule("*", auth.See))
			for {
				got, err := next()
				if err == nil && len(got.Events) == 0 {
					continue // how far it is certain
				}
				if kindOf(err) != incumbent.Denied && incumbent.KindOf(err) != incumbent.Denied {
					t.Fatalf("%v, %v", got, err)
				}
				break
			}
		})
	}
}

// What is open when a policy changes ends, though nothing else happens: watches, waits
// and beats of a stream, and waits of calls.
func TestG12_WhatIsOpenFollowsThePolicies(t *testing.T) {
	m := newMember(t)
	m.dial().ok(claimFrame(1, "db", "h", "", false))
	m.let("agent:a", forLeases("*", auth.Follow|auth.Write), sessionRule(auth.Write))
	w := m.as(agentA()).dial()
	w.ok(openFrame(1, sessionA, 60000))
	w.ok(attachFrame(2, sessionA, 1))
	w.ok(watchFrameOf(3, "", 0))
	w.send(waitFrame(4, "db", 0))
	if k := w.kind(beatMessage(5)); k != incumbent.OK {
		t.Fatalf("a beat: %v", k)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call := make(chan error, 1)
	go func() {
		_, err := m.leaseClient().WaitReleased(ctx, connect.NewRequest(&pb.WaitReleasedRequest{Name: nameOf("db")}))
		call <- err
	}()
	for m.group.Hub().Stats().Waiters < 2 {
		select {
		case err := <-call:
			t.Fatal(err)
		default:
		}
	}
	m.let("agent:nobody", forLeases("*", auth.See))
	over := map[uint64]string{}
	for len(over) < 2 {
		if f := w.next(); f.Error != nil {
			over[f.Id] = f.Error.Kind
		}
	}
	if over[3] != "denied" || over[4] != "denied" {
		t.Errorf("ended %v", over)
	}
	if err := <-call; kindOf(err) != incumbent.Denied {
		t.Errorf("a call that waits: %v", err)
	}
	for name, f := range map[string]*pb.ClientFrame{
		"a beat": beatMessage(6), "a claim": claimFrame(6, "x", "a", sessionA, false), "a watch": watchFrameOf(6, "", 0), "a read": {Id: 6, Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("db")}}},
	} {
		if k := w.kind(f); k != incumbent.Denied {
			t.Errorf("%s: %v", name, k)
		}
	}
	w.send(closeSessionFrame(7, sessionA))
	for f := w.next(); ; f = w.next() {
		if f.Id != 7 {
			continue // that it is lost is told, too
		}
		if f.Error != nil {
			t.Errorf("an end of what is its own: %v", f.Error)
		}
		break
	}
}

// A transaction is judged step by step, conditions included, whichever branch would be
// taken.
func TestG12_ATransactionIsJudgedByEachStep(t *testing.T) {
	m := newMember(t)
	m.mustPut(&pb.PutRequest{Key: "a/0", Value: []byte("v")})
	m.mustPut(&pb.PutRequest{Key: "b/0", Value: []byte("v")})
	m.let("agent:a", keyRule("a/*", auth.See|auth.Write), keyRule("b/*", auth.Write), keyRule("c", auth.Write), forLeases("a/*", auth.Write))
	list := func(prefix string) *pb.TxnOperation {
		return &pb.TxnOperation{Op: &pb.TxnOperation_List{List: &pb.ListKeysRequest{Prefix: prefix}}}
	}
	claim := func(name string) *pb.TxnOperation {
		return opClaim(&pb.ClaimRequest{Name: nameOf(name), Holder: "a", TtlMs: 60000})
	}
	m.as(agentA())
	for name, tt := range map[string]struct {
		r    *pb.TxnRequest
		want incumbent.Kind
	}{
		"what it may":              {&pb.TxnRequest{Conditions: []*pb.Condition{ifKey("a/0", 1)}, Then: []*pb.TxnOperation{opPut("b/1", "x"), opGet("a/0"), list("a/"), claim("a/1")}}, incumbent.OK},
		"a read of b":              {&pb.TxnRequest{Then: []*pb.TxnOperation{opPut("b/1", "x"), opGet("b/0")}}, incumbent.Denied},
		"a list of all":            {&pb.TxnRequest{Then: []*pb.TxnOperation{list("")}}, incumbent.Denied},
		"a condition on b":         {&pb.TxnRequest{Conditions: []*pb.Condition{ifKey("b/0", 1)}, Then: []*pb.TxnOperation{opPut("a/1", "x")}}, incumbent.Denied},
		"a put that is not done":   {&pb.TxnRequest{Conditions: []*pb.Condition{ifKey("a/0", 1)}, Then: []*pb.TxnOperation{opGet("a/0")}, Else: []*pb.TxnOperation{opPut("d", "x")}}, incumbent.Denied},
		"a claim elsewhere":        {&pb.TxnRequest{Then: []*pb.TxnOperation{claim("b/1")}}, incumbent.Denied},
		"a condition on a lease":   {&pb.TxnRequest{Conditions: []*pb.Condition{ifHeld("a/1", 1)}}, incumbent.Denied},
		"a deletion of a tree":     {&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Delete{Delete: &pb.DeleteRequest{Key: "b", Tree: true}}}}}, incumbent.Denied},
		"a deletion of c":          {&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Delete{Delete: &pb.DeleteRequest{Key: "c"}}}}}, incumbent.OK},
		"all that begins with c":   {&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Delete{Delete: &pb.DeleteRequest{Key: "c", Tree: true}}}}}, incumbent.Denied},
		"a deletion below a slash": {&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Delete{Delete: &pb.DeleteRequest{Key: "b/", Tree: true}}}}}, incumbent.OK},
	} {
		_, err := m.txn(tt.r)
		if got := kindOf(err); err != nil && got != tt.want || err == nil && tt.want != incumbent.OK {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// Policies are read and changed by operators alone, a change only where it meets what
// its caller saw, and it is recorded who made it.
func TestPolicyService(t *testing.T) {
	m := newMember(t)
	c := incumbentv1connect.NewPolicyServiceClient(http.DefaultClient, m.url)
	p := &pb.Policy{Name: "units", For: []string{"agent:mysql/*"}, Rules: []*pb.PolicyRule{{Kind: "leases", Namespace: "db", Name: "{parent}", Verbs: []string{"see", "write"}}}}
	set := func(if_ *pb.SetPolicyRequest_IfIndex) (*pb.Policy, error) {
		r := &pb.SetPolicyRequest{Policy: p}
		if if_ != nil {
			r.Condition = if_
		}
		res, err := c.SetPolicy(t.Context(), connect.NewRequest(r))
		if err != nil {
			return nil, err
		}
		return res.Msg.Policy, nil
	}
	first, err := set(&pb.SetPolicyRequest_IfIndex{})
	if err != nil || first.ModifiedBy != "operator:admin" || first.CreatedIndex != first.ModifiedIndex || first.ModifiedUnixMs == 0 {
		t.Fatalf("%v, %v", first, err)
	}
	if _, err := set(&pb.SetPolicyRequest_IfIndex{}); kindOf(err) != incumbent.Conflict {
		t.Errorf("set twice as new: %v", err)
	}
	if again, err := set(&pb.SetPolicyRequest_IfIndex{IfIndex: first.ModifiedIndex}); err != nil || again.CreatedIndex != first.CreatedIndex || again.ModifiedIndex <= first.ModifiedIndex {
		t.Errorf("set again: %v, %v", again, err)
	}
	got, err := c.GetPolicy(t.Context(), connect.NewRequest(&pb.GetPolicyRequest{Name: "units"}))
	if err != nil || len(got.Msg.Policy.Rules) != 1 || got.Msg.Policy.Rules[0].Name != "{parent}" {
		t.Errorf("%v, %v", got, err)
	}
	ask := func(who, verb, kind, namespace, name string) string {
		t.Helper()
		res, err := c.TestPolicy(t.Context(), connect.NewRequest(&pb.TestPolicyRequest{Principal: who, Verb: verb, Kind: kind, Namespace: namespace, Name: name}))
		if err != nil {
			return kindOf(err).String()
		}
		return fmt.Sprint(res.Msg.Allowed, " ", res.Msg.Policy, " ", res.Msg.Rule)
	}
	for _, tt := range [][6]string{
		{"agent:mysql/0", "write", "leases", "db", "mysql", "true units 1"},
		{"agent:mysql/0", "write", "leases", "", "mysql", "false  0"},
		{"agent:pg/0", "see", "leases", "db", "mysql", "false  0"},
		{"operator:o", "see", "leases", "db", "mysql", "true  0"},
		{"mysql/0", "write", "leases", "db", "mysql", "invalid"},
		{"agent:mysql/0", "steal", "leases", "db", "mysql", "invalid"},
		{"agent:mysql/0", "see", "files", "db", "mysql", "invalid"},
	} {
		if got := ask(tt[0], tt[1], tt[2], tt[3], tt[4]); got != tt[5] {
			t.Errorf("%v: %s", tt, got)
		}
	}
	for name, bad := range map[string]*pb.Policy{
		"none": nil, "no name": {For: []string{"*"}}, "a kind": {Name: "x", For: []string{"agnet:x"}},
		"a verb": {Name: "x", For: []string{"*"}, Rules: []*pb.PolicyRule{{Kind: "leases", Namespace: "n", Verbs: []string{"sea"}}}},
	} {
		if _, err := c.SetPolicy(t.Context(), connect.NewRequest(&pb.SetPolicyRequest{Policy: bad})); kindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, err := c.ListPolicies(t.Context(), connect.NewRequest(&pb.ListPoliciesRequest{Limit: 1}))
	if err != nil || len(all.Msg.Policies) != 1 || all.Msg.More {
		t.Errorf("%v, %v", all, err)
	}
	m.as(agentA())
	if _, err := c.ListPolicies(t.Context(), connect.NewRequest(&pb.ListPoliciesRequest{})); kindOf(err) != incumbent.Denied {
		t.Errorf("an agent lists policies: %v", err)
	}
	if _, err := c.DeletePolicy(t.Context(), connect.NewRequest(&pb.DeletePolicyRequest{Name: "units"})); kindOf(err) != incumbent.Denied {
		t.Errorf("an agent deletes a policy: %v", err)
	}
	m.as(admin)
	if res, err := c.DeletePolicy(t.Context(), connect.NewRequest(&pb.DeletePolicyRequest{Name: "units"})); err != nil || !res.Msg.Deleted {
		t.Errorf("deleted: %v, %v", res, err)
	}
	if _, err := c.GetPolicy(t.Context(), connect.NewRequest(&pb.GetPolicyRequest{Name: "units"})); kindOf(err) != incumbent.NotFound {
		t.Errorf("got what was deleted: %v", err)
	}
}

// Events about leases are for those who may see them, and a stream of events ends when
// its caller may see none.
func TestG12_EventsFollowThePolicies(t *testing.T) {
	m := newMember(t)
	m.operator.happen("started")
	m.operator.happenTo("lease expired", "secret")
	m.operator.happenTo("lease expired", "app/1")
	cluster := auth.Rule{State: auth.Cluster, Verbs: auth.See}
	m.let("agent:a", cluster, forLeases("app/*", auth.See))
	stream, err := clusterClient(m.as(agentA())).Events(t.Context(), connect.NewRequest(&pb.EventsRequest{Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var subjects []string
	for len(subjects) < 2 && stream.Receive() {
		for _, e := range stream.Msg().Events {
			subjects = append(subjects, e.What+" "+e.Subject)
		}
	}
	if want := []string{"started ", "lease expired app/1"}; !slices.Equal(subjects, want) {
		t.Errorf("shown %q, want %q: %v", subjects, want, stream.Err())
	}
	m.let("agent:a", forLeases("*", auth.See))
	for stream.Receive() {
	}
	if kindOf(stream.Err()) != incumbent.Denied {
		t.Errorf("events end with %v", stream.Err())
	}
}

// A right that is taken away takes from a session what it was a right to: what else it extends
// in the same frame is held.
func TestWhatIsDeniedTakesNothingElseAway(t *testing.T) {
	m := newMember(t)
	w := m.as(agentA()).dial()
	w.ok(openFrame(1, sessionB, 20000))
	var tokens []uint64
	for name, session := range []string{"", sessionB, ""} {
		c := w.ok(claimFrame(2, fmt.Sprintf("app/%d", name), "a", session, false)).GetOperation().GetClaim()
		tokens = append(tokens, c.Lease.Token)
	}
	m.let("agent:a", forLeases("app/1", auth.Write), forLeases("app/2", auth.Write), sessionRule(auth.Write))
	want := &pb.TokensExtended{HeldEachMs: []uint32{0, 20000, 15000}, Unavailable: tokens[:1], RetryAfterMs: ms(deniedRetry)}
	if e := w.ok(tokensMessage(3, 0, tokens...)).GetTokensExtended(); !proto.Equal(e, want) {
		t.Errorf("extended %v, want %v", e, want)
	}
	// What this member does not know yet is asked for again as soon as it is beside nothing denied.
	e := w.ok(tokensMessage(4, 0, append(tokens, 1<<40)...)).GetTokensExtended()
	if !slices.Equal(e.Unavailable, []uint64{tokens[0], 1 << 40}) || e.RetryAfterMs == 0 || e.RetryAfterMs > 1000 {
		t.Errorf("extended %v", e)
	}
	for _, f := range []*pb.ClientFrame{tokensMessage(5, 0, tokens[0]), tokensMessage(6, 0, tokens[0], tokens[0])} {
		if k := w.kind(f); k != incumbent.Denied {
			t.Errorf("of nothing but what is denied: %v", k)
		}
	}
}

// manyPolicies has ten rules for each of a thousand agents, a0 to a999.
func (m *member) manyPolicies() {
	for i := range 1000 {
		p := auth.Policy{Name: fmt.Sprintf("p%d", i), For: []string{fmt.Sprintf("agent:a%d", i)}, Rules: []auth.Rule{sessionRule(auth.Write)}}
		for j := range 9 {
			p.Rules = append(p.Rules, forLeases(fmt.Sprintf("%d/%d/*", i, j), auth.See|auth.Write))
		}
		m.change(policy.Command{Verb: policy.Set, Policy: p})
	}
}

// Claims and extensions of an agent over its stream, with 10,000 rules for 1,000
// principals and without any.
func BenchmarkPolicies(b *testing.B) {
	for _, c := range []struct {
		name string
		many bool
	}{{"none", false}, {"10000rules", true}} {
		m := newMember(b)
		if c.many {
			m.manyPolicies()
		}
		w := m.as(auth.Principal{Name: "a500", Kind: auth.Agent, Via: auth.Credential}).dial()
		token := w.ok(claimFrame(1, "500/7/held", "a500", "", false)).GetOperation().GetClaim().Lease.Token
		b.Run("claim/"+c.name, func(b *testing.B) {
			for b.Loop() {
				w.ok(claimFrame(1, "500/7/held", "a500", "", false))
			}
		})
		b.Run("extend/"+c.name, func(b *testing.B) {
			tokens := slices.Repeat([]uint64{token}, 1000)
			for b.Loop() {
				w.ok(tokensMessage(1, 0, tokens...))
			}
		})
		b.Run("judge/"+c.name, func(b *testing.B) {
			who := &caller{principal: auth.Principal{Name: "a500", Kind: auth.Agent, Via: auth.Credential}}
			for b.Loop() {
				if err := m.door.allowToken(m.door.rights(who), incumbent.Token(token)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a policy allowed when it was asked for, and forbids before it comes to its place
// in the log, is not executed; whoever asks again is judged by the new policy.
func TestG12_WhatIsUnderWayIsBoundByANewPolicy(t *testing.T) {
	m := newMember(t)
	m.let("agent:a", forLeases("a*", auth.AllVerbs), keyRule("a*", auth.AllVerbs), sessionRule(auth.AllVerbs))
	m.as(agentA())
	w := m.dial()
	w.ok(openFrame(1, sessionB, 60000))
	frames := map[string]*pb.ClientFrame{
		"a claim":       claimFrame(2, "a/1", "a", sessionB, false),
		"a put":         {Id: 3, Request: &pb.ClientFrame_Put{Put: &pb.PutRequest{Key: "a/2"}}},
		"a lock":        {Id: 4, Request: &pb.ClientFrame_Lock{Lock: &pb.LockRequest{Key: "a/3", Session: sessionB}}},
		"a transaction": {Id: 5, Request: &pb.ClientFrame_Txn{Txn: &pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: "a/4"}}}}}}},
		"a keyed put":   {Id: 6, Request: &pb.ClientFrame_Put{Put: &pb.PutRequest{Key: "a/5", Idempotency: &pb.Idempotency{Key: []byte("k"), First: true}}}},
	}
	names := map[uint64]string{}
	before := m.group.Proposed()
	m.group.Hold()
	for name, f := range frames {
		names[f.Id] = name
		w.send(f)
	}
	for m.group.Proposed() < before+int64(len(frames)) {
		runtime.Gosched()
	}
	r := m.group.Do(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "p", For: []string{"agent:a"}, Rules: []auth.Rule{sessionRule(auth.AllVerbs)}}})
	m.group.Release()
	for range frames {
		f := w.next()
		if k, _ := incumbent.ParseKind(f.Error.GetKind()); k != incumbent.Unavailable {
			t.Errorf("%s: %v, want %v", names[f.Id], f, incumbent.Unavailable)
		}
	}
	v := m.group.View()
	if n := kv.Of(v).Len(); n != 0 || !leases.Of(v).Lease(incumbent.Name{Namespace: "default", Model: "default", Lease: "a/1"}).Free() || r.Err != nil {
		t.Errorf("%d keys were stored, %v", n, r.Err)
	}
	for name, f := range frames {
		if k := w.kind(f); k != incumbent.Denied {
			t.Errorf("%s again: %v, want %v", name, k, incumbent.Denied)
		}
	}
	m.let("agent:a", forLeases("a*", auth.AllVerbs), keyRule("a*", auth.AllVerbs), sessionRule(auth.AllVerbs))
	for name, f := range frames {
		if k := w.kind(f); k != incumbent.OK {
			t.Errorf("%s once it is allowed: %v", name, k)
		}
	}
}

// What a watch that catches up has shown of a prefix is what its caller may see, whenever
// that changes: what was there already is shown once it may be seen, and what may not be seen
// any more is left out, also of a watch that resumes.
func TestG12_WhatAWatchHasShownFollowsThePolicies(t *testing.T) {
	for way, over := range overKeys {
		t.Run(way, func(t *testing.T) {
			m := newMember(t)
			onlyA, both := []auth.Rule{keyRule("k/a/*", auth.Follow)}, []auth.Rule{keyRule("k/a/*", auth.Follow), keyRule("k/b/*", auth.Follow)}
			m.let("agent:a", onlyA...)
			m.storeMany("k/a/1", "k/b/1")
			var next func() (*pb.WatchKeysResponse, error)
			last := uint64(0)
			watch := func(after uint64) {
				r := below("k/", after)
				r.CatchUp = true
				next = over(m.as(agentA()), r)
			}
			expect := func(what string, snapshot bool, keys ...string) {
				t.Helper()
				got, err := next()
				for err == nil && !got.Snapshot && len(got.Events) == 0 { // how far is certain
					last = max(last, got.ProgressIndex)
					got, err = next()
				}
				if err != nil {
					t.Fatal(err)
				}
				var shown []string
				for _, e := range got.Events {
					shown = append(shown, e.GetEntry().GetKey())
				}
				if got.Snapshot != snapshot || got.First != snapshot || !slices.Equal(shown, keys) || got.ProgressIndex <= last {
					t.Fatalf("%s behind %d: %v", what, last, got)
				}
				last = got.ProgressIndex
			}
			watch(0)
			expect("the beginning", true, "k/a/1")
			m.let("agent:a", both...)
			expect("a wider sight", true, "k/a/1", "k/b/1")
			m.storeMany("k/b/2")
			expect("a change", false, "k/b/2")
			m.let("agent:a", onlyA...)
			expect("a narrower sight", true, "k/a/1")
			m.change(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "q", For: []string{"agent:b"}, Rules: both}})
			m.storeMany("k/a/2")
			expect("a change behind a policy of others", false, "k/a/2")

			m.let("agent:a", both...)
			watch(last)
			expect("resumed with a wider sight", true, "k/a/1", "k/a/2", "k/b/1", "k/b/2")
			at := m.storeMany("k/a/3")
			expect("a change", false, "k/a/3")
			watch(at)
			m.storeMany("k/b/3")
			expect("resumed with the same sight", false, "k/b/3")
		})
	}
}
