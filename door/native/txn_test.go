package native

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

func (m *member) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	c := incumbentv1connect.NewTransactionServiceClient(http.DefaultClient, m.url)
	res, err := c.Txn(m.tb.Context(), connect.NewRequest(r))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func opGet(key string) *pb.TxnOperation {
	return &pb.TxnOperation{Op: &pb.TxnOperation_Get{Get: &pb.GetKeyRequest{Key: key}}}
}

func opPut(key, value string) *pb.TxnOperation {
	return &pb.TxnOperation{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: key, Value: []byte(value)}}}
}

func opClaim(r *pb.ClaimRequest) *pb.TxnOperation {
	return &pb.TxnOperation{Op: &pb.TxnOperation_Claim{Claim: r}}
}

func opRelease(r *pb.ReleaseRequest) *pb.TxnOperation {
	return &pb.TxnOperation{Op: &pb.TxnOperation_Release{Release: r}}
}

func ifKey(key string, index uint64) *pb.Condition {
	return &pb.Condition{Is: &pb.Condition_Key{Key: &pb.KeyCondition{Key: key, Is: &pb.KeyCondition_ModifiedIndex{ModifiedIndex: index}}}}
}

func ifHeld(name string, token uint64) *pb.Condition {
	return &pb.Condition{Is: &pb.Condition_Held{Held: &pb.HeldCondition{Name: &pb.LeaseName{Name: name}, Token: token}}}
}

func (m *member) claimed(name, holder string) uint64 {
	m.tb.Helper()
	res, err := m.txn(&pb.TxnRequest{Then: []*pb.TxnOperation{opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: name}, Holder: holder, TtlMs: 60_000})}})
	if err != nil {
		m.tb.Fatal(err)
	}
	c := res.Results[0].GetClaim()
	if !c.GetGranted() || c.HeldMs != 60_000 || c.GetLease().GetToken() == 0 {
		m.tb.Fatalf("%v", c)
	}
	return c.Lease.Token
}

// What a holder does under its token is done by it or not at all: after the lease has
// gone to another, nothing of what it still wants happens.
func TestG24_OnlyTheHolderWrites(t *testing.T) {
	m := newMember(t)
	old := m.claimed("db", "one")
	write := func(token uint64, value string) (*pb.TxnResponse, error) {
		return m.txn(&pb.TxnRequest{Conditions: []*pb.Condition{ifHeld("db", token)}, Then: []*pb.TxnOperation{opPut("x", value), opGet("x")}, Else: []*pb.TxnOperation{opGet("x")}})
	}
	res, err := write(old, "one")
	if err != nil || !res.Succeeded || string(res.Results[1].GetGet().GetEntry().GetValue()) != "one" || res.Results[1].GetGet().Entry.ModifiedIndex != res.Index {
		t.Fatalf("%v %v", res, err)
	}
	if _, err := m.txn(&pb.TxnRequest{Then: []*pb.TxnOperation{opRelease(&pb.ReleaseRequest{Name: &pb.LeaseName{Name: "db"}, Token: old})}}); err != nil {
		t.Fatal(err)
	}
	now := m.claimed("db", "two")
	if res, err := write(now, "two"); err != nil || !res.Succeeded {
		t.Fatalf("%v %v", res, err)
	}
	if res, err = write(old, "one again"); err != nil || res.Succeeded || res.Unmet != 1 || string(res.Results[0].GetGet().GetEntry().GetValue()) != "two" {
		t.Fatalf("%v %v", res, err)
	}
}

// One that fails says which operation failed and why, and nothing has happened.
func TestG24_AFailedTransactionHasDoneNothing(t *testing.T) {
	m := newMember(t)
	token := m.claimed("db", "one")
	_, err := m.txn(&pb.TxnRequest{Then: []*pb.TxnOperation{
		opPut("x", "1"),
		opRelease(&pb.ReleaseRequest{Name: &pb.LeaseName{Name: "db"}, Token: token}),
		opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "db"}, Holder: "two", TtlMs: 60_000}),
		opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "db"}, Holder: "three", TtlMs: 60_000}),
	}})
	if kindOf(err) != incumbent.Held {
		t.Fatal(err)
	}
	var call *connect.Error
	failure := &pb.TxnFailure{}
	if errors.As(err, &call) {
		for _, d := range call.Details() {
			if v, verr := d.Value(); verr == nil {
				if f, ok := v.(*pb.TxnFailure); ok {
					failure = f
				}
			}
		}
	}
	if failure.Operation != 4 || failure.Unmet != 0 {
		t.Errorf("%v: %v", err, failure)
	}
	view := m.group.View()
	if l := leases.Of(view).Lease(leaseNamed("db")); l == nil || l.Holder != "one" || leases.Of(view).ByToken(incumbent.Token(token)) != l {
		t.Errorf("the lease is %+v", l)
	}
	if res, err := m.txn(&pb.TxnRequest{Then: []*pb.TxnOperation{opGet("x")}}); err != nil || res.Results[0].GetGet().GetEntry() != nil {
		t.Errorf("%v %v", res, err)
	}
}

// What changes nothing costs no entry of the log: reads, conditions that do not hold,
// and operations that find nothing to do.
func TestG22_ATransactionThatChangesNothingCostsNoEntry(t *testing.T) {
	m := newMember(t)
	put := m.mustPut(&pb.PutRequest{Key: "x", Value: []byte("a")})
	token := m.claimed("db", "one")
	before := m.group.Proposed()
	for name, c := range map[string]struct {
		txn   *pb.TxnRequest
		unmet uint32
		kind  incumbent.Kind
	}{
		"reads":                    {&pb.TxnRequest{Then: []*pb.TxnOperation{opGet("x"), {Op: &pb.TxnOperation_List{List: &pb.ListKeysRequest{}}}}}, 0, incumbent.OK},
		"reads, with a key":        {&pb.TxnRequest{Then: []*pb.TxnOperation{opGet("x")}, Idempotency: &pb.Idempotency{Key: []byte("k")}}, 0, incumbent.OK},
		"nothing":                  {&pb.TxnRequest{}, 0, incumbent.OK},
		"another index":            {&pb.TxnRequest{Conditions: []*pb.Condition{ifKey("x", put.Index+1)}, Then: []*pb.TxnOperation{opPut("x", "b")}}, 1, incumbent.OK},
		"another holder":           {&pb.TxnRequest{Conditions: []*pb.Condition{ifKey("x", put.Index), ifHeld("db", token+1)}, Then: []*pb.TxnOperation{opPut("x", "b")}, Else: []*pb.TxnOperation{opGet("x")}}, 2, incumbent.OK},
		"delete what is not there": {&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Delete{Delete: &pb.DeleteRequest{Key: "y"}}}}}, 0, incumbent.OK},
		"refused":                  {&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: "x", Condition: ifIndex(0)}}}}}, 0, incumbent.Conflict},
	} {
		res, err := m.txn(c.txn)
		if kindOf(err) != c.kind || err == nil && (res.Unmet != c.unmet || res.Index == 0) {
			t.Errorf("%s: %v %v", name, res, err)
		}
	}
	if n := m.group.Proposed() - before; n != 0 {
		t.Errorf("%d commands were proposed", n)
	}
	// What an earlier attempt may yet do only the log decides.
	keyed := &pb.TxnRequest{Conditions: []*pb.Condition{ifKey("x", 0)}, Then: []*pb.TxnOperation{opPut("x", "b")}, Idempotency: &pb.Idempotency{Key: []byte("k3"), BaseIndex: put.Index}}
	c := incumbentv1connect.NewTransactionServiceClient(http.DefaultClient, m.url)
	for _, first := range []bool{true, false} {
		r := connect.NewRequest(keyed)
		if first {
			r.Header().Set(headerFirst, "1")
		}
		if res, err := c.Txn(t.Context(), r); err != nil || res.Msg.Succeeded || first != (m.group.Proposed() == before) {
			t.Errorf("first %v: %v %v, %d commands were proposed", first, res, err, m.group.Proposed()-before)
		}
	}
}

// A transaction whose answer was lost is not refused for what it has done itself.
func TestG25_ARepeatedTransactionIsTheSame(t *testing.T) {
	m := newMember(t)
	r := &pb.TxnRequest{
		Conditions: []*pb.Condition{ifKey("x", 0)}, Then: []*pb.TxnOperation{opPut("x", "a")}, Else: []*pb.TxnOperation{opGet("x")},
		Idempotency: &pb.Idempotency{Key: []byte("k"), BaseIndex: uint64(m.group.View().Index())},
	}
	first, err := m.txn(r)
	if err != nil || !first.Succeeded || len(first.Results) != 1 {
		t.Fatalf("%v %v", first, err)
	}
	if again, err := m.txn(r); err != nil || !again.Succeeded || again.Index != first.Index || !again.Repeated {
		t.Errorf("%v, then %v %v", first, again, err)
	}
}

func TestG25_ATransactionWithoutAnswerIsUnknown(t *testing.T) {
	m := newMember(t)
	m.group.Hold()
	resp, body := m.postLate("TransactionService/Txn", `{"then": [{"put": {"key": "x"}}]}`)
	m.group.Release()
	if resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("HTTP %d %s", resp.StatusCode, body)
	}
}

// Every condition and operation needs what it needs as a call of its own.
func TestG12_ATransactionMayWhatItsPartsMay(t *testing.T) {
	m := newMember(t)
	agent := auth.Principal{Name: "a", Kind: auth.Agent, Via: auth.Credential}
	observer := auth.Principal{Name: "o", Kind: auth.Observer, Via: auth.Credential}
	session := incumbent.NewSessionID().String()
	if resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, session)); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	lock := &pb.TxnOperation{Op: &pb.TxnOperation_Lock{Lock: &pb.LockRequest{Key: "l", Session: session}}}
	claim := func(holder string) *pb.TxnOperation {
		return opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "db"}, Holder: holder, TtlMs: 60_000})
	}
	for _, c := range []struct {
		what string
		who  auth.Principal
		txn  *pb.TxnRequest
		want incumbent.Kind
	}{
		{"nothing, by nobody", auth.Principal{}, &pb.TxnRequest{}, incumbent.Denied},
		{"a lease that is looked at", observer, &pb.TxnRequest{Conditions: []*pb.Condition{ifHeld("db", 1)}}, incumbent.OK},
		{"a key that is asked for", observer, &pb.TxnRequest{Conditions: []*pb.Condition{ifKey("x", 1)}}, incumbent.Denied},
		{"a key that is read", observer, &pb.TxnRequest{Then: []*pb.TxnOperation{opGet("x")}}, incumbent.Denied},
		{"a key that is stored", agent, &pb.TxnRequest{Then: []*pb.TxnOperation{opPut("x", "")}}, incumbent.OK},
		{"a lock for another's session", agent, &pb.TxnRequest{Else: []*pb.TxnOperation{lock}}, incumbent.Denied},
		{"a lease for itself", agent, &pb.TxnRequest{Then: []*pb.TxnOperation{claim("a")}}, incumbent.OK},
		{"a lease for another", agent, &pb.TxnRequest{Then: []*pb.TxnOperation{opGet("x"), claim("b")}}, incumbent.Denied},
	} {
		m.guard.principal = c.who
		if _, err := m.txn(c.txn); kindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}

func TestG45_WhatIsNoTransactionIsRefused(t *testing.T) {
	m := newMember(t)
	m.limitKeys(1000)
	many := make([]*pb.TxnOperation, 10_001)
	for i := range many {
		many[i] = opGet("x")
	}
	session := incumbent.NewSessionID().String()
	for what, c := range map[string]struct {
		txn  *pb.TxnRequest
		want incumbent.Kind
	}{
		"too many operations":       {&pb.TxnRequest{Then: many}, incumbent.TooLarge},
		"an operation of no kind":   {&pb.TxnRequest{Then: []*pb.TxnOperation{{}}}, incumbent.Invalid},
		"a condition of no kind":    {&pb.TxnRequest{Conditions: []*pb.Condition{{}}}, incumbent.Invalid},
		"a key nothing is said of":  {&pb.TxnRequest{Conditions: []*pb.Condition{{Is: &pb.Condition_Key{Key: &pb.KeyCondition{Key: "x"}}}}}, incumbent.Invalid},
		"a range that is not empty": {&pb.TxnRequest{Conditions: []*pb.Condition{{Is: &pb.Condition_Range{Range: &pb.RangeCondition{Is: &pb.RangeCondition_Empty{}}}}}}, incumbent.Invalid},
		"a value that is less": {&pb.TxnRequest{Conditions: []*pb.Condition{{Is: &pb.Condition_Key{Key: &pb.KeyCondition{
			Key: "x", Is: &pb.KeyCondition_Value{}, Comparison: pb.Comparison_COMPARISON_LESS,
		}}}}}, incumbent.Invalid},
		"a lease without a token":    {&pb.TxnRequest{Conditions: []*pb.Condition{ifHeld("db", 0)}}, incumbent.Invalid},
		"a claim that waits":         {&pb.TxnRequest{Then: []*pb.TxnOperation{opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "a"}, Holder: "h", Session: session, Wait: true})}}, incumbent.Invalid},
		"a stale read":               {&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Get{Get: &pb.GetKeyRequest{Key: "x", Stale: true}}}}}, incumbent.Invalid},
		"an operation with a key":    {&pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: "x", Idempotency: &pb.Idempotency{Key: []byte("k")}}}}}}, incumbent.Invalid},
		"more than the quota allows": {&pb.TxnRequest{Then: []*pb.TxnOperation{opPut("x", string(make([]byte, 600))), opPut("y", string(make([]byte, 600)))}}, incumbent.TooLarge},
		"what has room":              {&pb.TxnRequest{Then: []*pb.TxnOperation{opPut("x", string(make([]byte, 600)))}}, incumbent.OK},
		"more than a request may be": {&pb.TxnRequest{Else: slices.Repeat([]*pb.TxnOperation{opPut("x", string(make([]byte, 450<<10)))}, 10)}, incumbent.TooLarge},
	} {
		if _, err := m.txn(c.txn); kindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// A transaction of more than an entry of the log may have happens as any other.
// A transaction with more steps than it may have takes no place in its lane, where it would
// be larger than the lane: neither as a call, in either form, nor over a stream.
func TestG40_ATransactionIsWithinItsLimitBeforeItsLane(t *testing.T) {
	lanes := newLanes(t)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	w := m.dial()
	asJSON := incumbentv1connect.NewTransactionServiceClient(http.DefaultClient, m.url, connect.WithProtoJSON())
	for name, r := range map[string]*pb.TxnRequest{
		"conditions": {Conditions: slices.Repeat([]*pb.Condition{{}}, 65_537)},
		"then":       {Then: slices.Repeat([]*pb.TxnOperation{{}}, core.MaxTxnSteps+1)},
		"else":       {Else: slices.Repeat([]*pb.TxnOperation{opRelease(nil)}, core.MaxTxnSteps+1)},
	} {
		refused := func(how string, kind incumbent.Kind, message string) {
			t.Helper()
			if kind != incumbent.TooLarge || !strings.Contains(message, name+": are ") {
				t.Errorf("%s, %s: %v, %.100s", name, how, kind, message)
			}
			for l, s := range lanes.Stats() {
				if s.Admitted > 0 {
					t.Errorf("%s, %s: %v has let it in", name, how, admit.Lane(l))
				}
			}
		}
		_, err := m.txn(r)
		refused("as a call", kindOf(err), fmt.Sprint(err))
		_, err = asJSON.Txn(t.Context(), connect.NewRequest(r))
		refused("in JSON", kindOf(err), fmt.Sprint(err))
		f := w.ask(&pb.ClientFrame{Id: 1, Request: &pb.ClientFrame_Txn{Txn: r}})
		kind, _ := incumbent.ParseKind(f.Error.GetKind())
		refused("over a stream", kind, f.Error.GetMessage())
	}
}

func TestG24_ALargeTransactionIsOne(t *testing.T) {
	m := newMember(t)
	var ops []*pb.TxnOperation
	for i := range 5 {
		ops = append(ops, opPut(fmt.Sprint("large/", i), string(make([]byte, 400<<10))))
	}
	refused := append(slices.Clone(ops), &pb.TxnOperation{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: "large/0", Condition: ifIndex(0)}}})
	if _, err := m.txn(&pb.TxnRequest{Then: refused}); kindOf(err) != incumbent.Conflict {
		t.Errorf("%v, want a conflict with the first operation", err)
	}
	if n := kv.Of(m.group.View()).Len(); n != 0 {
		t.Errorf("%d keys are left of what failed", n)
	}
	res := m.txnMust(t, ops...)
	kv.Of(m.group.View()).Ascend(kv.Key{Namespace: incumbent.DefaultNamespace}, kv.Key{}, func(e *kv.Entry) bool {
		if uint64(e.Modified) != res.Index {
			t.Errorf("%s is of index %d, the transaction of %d", e.Name, e.Modified, res.Index)
		}
		return true
	})
}

// All that a transaction does reaches a watch together.
func TestG15_ATransactionIsWatchedWhole(t *testing.T) {
	m := newMember(t)
	m.txnMust(t, opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "a"}, Holder: "h", TtlMs: 60_000}), opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "b"}, Holder: "h", TtlMs: 60_000}), opPut("x", "1"))
	view := m.group.View()
	a, b := leases.Of(view).Lease(leaseNamed("a")), leases.Of(view).Lease(leaseNamed("b"))
	if a.Token == b.Token || a.Modified != b.Modified || a.Modified != view.Index() {
		t.Errorf("tokens %d and %d, told at %d and %d", a.Token, b.Token, a.Modified, b.Modified)
	}
}

func leaseNamed(name string) incumbent.Name {
	return incumbent.Name{Namespace: incumbent.DefaultNamespace, Model: incumbent.DefaultModel, Lease: name}
}

func (m *member) txnMust(t *testing.T, ops ...*pb.TxnOperation) *pb.TxnResponse {
	t.Helper()
	res, err := m.txn(&pb.TxnRequest{Then: ops})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A lease that a transaction claims ends when its ttl is over, as any other.
func TestG08_WhatATransactionClaimsExpires(t *testing.T) {
	m := newMember(t)
	res := m.txnMust(t, opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "a"}, Holder: "h", TtlMs: 1000}))
	token := res.Results[0].GetClaim().GetLease().GetToken()
	leases := incumbentv1connect.NewLeaseServiceClient(http.DefaultClient, m.url)
	wait := &pb.WaitReleasedRequest{Name: &pb.LeaseName{Name: "a"}, AfterToken: token, WaitMs: 60_000}
	if over, err := leases.WaitReleased(t.Context(), connect.NewRequest(wait)); err != nil || !over.Msg.Released {
		t.Errorf("%v %v", over, err)
	}
}

// What a transaction reads is what had been committed when it was asked.
func TestG22_ATransactionReadsAConfirmedView(t *testing.T) {
	m := newMember(t)
	m.mustPut(&pb.PutRequest{Key: "x", Value: []byte("a")})
	m.group.Refuse(true) // nobody confirms
	defer m.group.Refuse(false)
	if res, err := m.txn(&pb.TxnRequest{Conditions: []*pb.Condition{ifKey("x", 0)}, Then: []*pb.TxnOperation{opGet("x")}}); err == nil {
		t.Errorf("it is answered from what this member has: %v", res)
	}
}
