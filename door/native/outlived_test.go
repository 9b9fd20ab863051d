package native

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// forbidAll changes the one policy of a test as somebody else does: nothing is allowed any more.
func (m *member) forbidAll() {
	m.tb.Helper()
	if r := m.group.Do(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "p", For: []string{"agent:a"}, Rules: []auth.Rule{keyRule("nothing", auth.See)}}}); r.Err != nil {
		m.tb.Fatal(r.Err)
	}
}

// What is answered by a confirmed state is not shown to who may not see it by the policies
// of that state, though it was asked for before.
func TestG12_NothingIsShownByPoliciesThatHaveChanged(t *testing.T) {
	m := newPets(t)
	m.mustPut(&pb.PutRequest{Key: "a", Value: []byte("v")})
	m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"v"}}]`)
	m.as(agentA())
	for name, ask := range map[string]func() (string, error){
		"a transaction that reads a key": func() (string, error) {
			res, err := m.txn(&pb.TxnRequest{Then: []*pb.TxnOperation{opGet("a")}})
			return fmt.Sprint(res), err
		},
		"one that selects rows": func() (string, error) {
			res, err := m.transact(`[{"op":"select","table":"Pet","where":[]}]`, nil)
			return fmt.Sprint(res), err
		},
	} {
		m.let("agent:a", keyRule("*", auth.See), auth.Rule{State: auth.Tables, Namespace: "default", Prefix: "*", Verbs: auth.See})
		if got, err := ask(); err != nil {
			t.Fatalf("%s: while it is allowed: %s, %v", name, got, err)
		}
		m.group.Hold()
		type answer struct {
			text string
			err  error
		}
		asked := make(chan answer, 1)
		go func() {
			text, err := ask()
			asked <- answer{text, err}
		}()
		eventually(t, name+" is under way", func() bool { return m.door.Stats().Calls > 0 })
		time.Sleep(20 * time.Millisecond) // it asks for a confirmation; if it has not yet, it is judged by the new ones anyway
		m.forbidAll()
		m.group.Release()
		if a := <-asked; kindOf(a.err) != incumbent.Denied && kindOf(a.err) != incumbent.Unavailable {
			t.Errorf("%s: %s, %v", name, a.text, a.err)
		}
	}
}

// Nor is what comes behind a change of policies, in the same moment, to who waits for it.
func TestG12_WhoWaitsIsNotShownWhatCameBehindAPolicy(t *testing.T) {
	m := newMember(t)
	index := m.mustPut(&pb.PutRequest{Key: "a", Value: []byte("v")}).Index
	m.as(agentA())
	for i := range 40 {
		m.let("agent:a", keyRule("a", auth.See|auth.Follow))
		asked := make(chan error, 1)
		go func() {
			_, err := incumbentv1connect.NewKeyValueServiceClient(http.DefaultClient, m.url).Get(t.Context(), connect.NewRequest(&pb.GetKeyRequest{Key: "a", WaitMs: 30_000, AfterIndex: index}))
			asked <- err
		}()
		eventually(t, "it waits", func() bool { return m.group.Hub().Stats().QueryWaits > 0 })
		m.forbidAll()
		r := m.group.Do(&kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "default", Name: "a"}, Value: fmt.Appendf(nil, "secret %d", i)})
		index = uint64(r.Index)
		if err := <-asked; kindOf(err) != incumbent.Denied {
			t.Fatalf("the %dth: %v", i, err)
		}
	}
}

// A transaction that waits for other rows holds no place in its lane, and counts among what its
// caller waits for.
func TestG40_ATransactionThatWaitsHoldsNoPlace(t *testing.T) {
	lanes := newLanes(t)
	m := newPets(t, func(c *Config) { c.Admission = lanes })
	readers := m.group.Hub().Stats().Readers
	asked := make(chan error, 1)
	go func() {
		res, err := m.transact(`[{"op":"wait","table":"Pet","where":[["name","==","a"]],"columns":["age"],"until":"==","rows":[{"age":3}]},{"op":"insert","table":"Pet","row":{"name":"b"}}]`, nil)
		if err == nil && res.Failed {
			err = fmt.Errorf("failed: %v", res)
		}
		asked <- err
	}()
	eventually(t, "it waits", func() bool { return m.group.Hub().Stats().Readers > readers })
	eventually(t, "it holds no place", func() bool { return lanes.Stats()[admit.Transactions].Inflight == 0 })
	select {
	case err := <-asked:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if r := m.group.Do(insertPet(t, m, "a", 3)); r.Err != nil {
		t.Fatal(r.Err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
	eventually(t, "nothing is under way", func() bool { return lanes.Stats()[admit.Transactions].Inflight == 0 })
}

// insertPet inserts as somebody else does.
func insertPet(t *testing.T, m *member, name string, age int) *table.Transact {
	t.Helper()
	d := table.Of(m.group.View()).Database("default", "Pets")
	v, bad := ovs.ParseJSON(fmt.Sprintf(`[{"op":"insert","table":"Pet","row":{"name":%q,"age":%d}}]`, name, age))
	if bad != nil {
		t.Fatal(bad)
	}
	ops, failed := ovs.ParseTransaction(d.Schema, v.Elements(), new(tableTxn).uuids(nil))
	if failed != nil {
		t.Fatal(failed)
	}
	return &table.Transact{Namespace: "default", Database: "Pets", Schema: d.SchemaIndex, Operations: ops}
}

// Of two attachments of a session that end in any order the later one counts: who it is told of
// offers by.
func TestTheLaterAttachmentOwnsASession(t *testing.T) {
	id := incumbent.NewSessionID()
	first, second := &stream{}, &stream{}
	for name, play := range map[string]func(o *owners){
		"in order": func(o *owners) {
			o.set(attached{id, 1}, first)
			o.set(attached{id, 2}, second)
			o.unset(attached{id, 1}, first)
		},
		"the other way round": func(o *owners) {
			o.set(attached{id, 2}, second)
			o.set(attached{id, 1}, first)
			o.unset(attached{id, 1}, first)
		},
		"on the same stream": func(o *owners) {
			o.set(attached{id, 2}, second)
			o.set(attached{id, 1}, second)
			o.unset(attached{id, 1}, second)
		},
		"once more, unchanged": func(o *owners) { o.set(attached{id, 2}, first); o.set(attached{id, 2}, second) },
	} {
		o := &owners{byID: map[incumbent.SessionID]owner{}}
		play(o)
		if o.get(id) != second {
			t.Errorf("%s: it is not the later stream's", name)
		}
		if o.unset(attached{id, 3}, second); o.get(id) != nil {
			t.Errorf("%s: it stays that of a stream that let it go", name)
		}
	}
}
