package native

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/kv"
)

func (m *member) keys(o ...connect.ClientOption) incumbentv1connect.KeyValueServiceClient {
	return incumbentv1connect.NewKeyValueServiceClient(http.DefaultClient, m.url, o...)
}

func (m *member) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	res, err := m.keys().Put(m.tb.Context(), connect.NewRequest(r))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func (m *member) mustPut(r *pb.PutRequest) *pb.PutResponse {
	m.tb.Helper()
	res, err := m.put(r)
	if err != nil {
		m.tb.Fatal(err)
	}
	return res
}

func ifIndex(i uint64) *pb.PutRequest_IfIndex { return &pb.PutRequest_IfIndex{IfIndex: i} }

func TestARefusedWriteCostsNoEntry(t *testing.T) {
	m := newMember(t)
	first := m.mustPut(&pb.PutRequest{Key: "x", Value: []byte("a")})
	other, mine := incumbent.NewSessionID().String(), incumbent.NewSessionID().String()
	for _, id := range []string{other, mine} {
		if resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, id)); resp.StatusCode != http.StatusOK {
			t.Fatal(body)
		}
	}
	if _, err := m.keys().Lock(t.Context(), connect.NewRequest(&pb.LockRequest{Key: "l", Session: other})); err != nil {
		t.Fatal(err)
	}
	before := m.group.Proposed()
	newer := &pb.Idempotency{Key: []byte("chosen after it"), BaseIndex: uint64(m.group.View().Index())}
	for name, refuse := range map[string]func() (incumbent.Kind, error){
		"absent": func() (incumbent.Kind, error) {
			_, err := m.put(&pb.PutRequest{Key: "x", Condition: ifIndex(0)})
			return incumbent.Conflict, err
		},
		"index": func() (incumbent.Kind, error) {
			_, err := m.put(&pb.PutRequest{Key: "x", Condition: ifIndex(first.Index + 1)})
			return incumbent.Conflict, err
		},
		"value, with a key": func() (incumbent.Kind, error) {
			r := connect.NewRequest(&pb.PutRequest{Key: "x", Condition: &pb.PutRequest_IfValue{IfValue: []byte("b")}, Idempotency: newer})
			r.Header().Set(headerFirst, "1")
			_, err := m.keys().Put(t.Context(), r)
			return incumbent.Conflict, err
		},
		"lock": func() (incumbent.Kind, error) {
			_, err := m.keys().Lock(t.Context(), connect.NewRequest(&pb.LockRequest{Key: "l", Session: mine}))
			return incumbent.Held, err
		},
		"unlock": func() (incumbent.Kind, error) {
			_, err := m.keys().Unlock(t.Context(), connect.NewRequest(&pb.UnlockRequest{Key: "l", Session: mine}))
			return incumbent.NotHolder, err
		},
		"delete": func() (incumbent.Kind, error) {
			_, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "x", Condition: &pb.DeleteRequest_IfIndex{IfIndex: 99}}))
			return incumbent.Conflict, err
		},
	} {
		if want, err := refuse(); kindOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := m.group.Proposed() - before; n != 0 {
		t.Errorf("%d commands were proposed", n)
	}
}

// A write whose answer was lost is not refused for what it has done itself.
func TestG25_ARepeatedConditionalPutIsTheSamePut(t *testing.T) {
	m := newMember(t)
	r := &pb.PutRequest{
		Key: "x", Value: []byte("a"), Condition: ifIndex(0),
		Idempotency: &pb.Idempotency{Key: []byte("k"), BaseIndex: uint64(m.group.View().Index())},
	}
	first := m.mustPut(r)
	again := m.mustPut(r)
	if again.Index != first.Index || again.Entry.GetModifiedIndex() != first.Index {
		t.Errorf("%v, then %v", first, again)
	}
	m.mustPut(&pb.PutRequest{Key: "x", Value: []byte("b")})
	if again = m.mustPut(r); again.Index != first.Index || again.Entry != nil {
		t.Errorf("after another put: %v", again)
	}
	// By a header without an index nobody knows when the key was chosen.
	for range 2 {
		resp, body := m.post("KeyValueService/Put", `{"key": "y", "if_index": 0}`, headerKey, "h")
		if resp.StatusCode != http.StatusOK {
			t.Errorf("HTTP %d %s", resp.StatusCode, body)
		}
	}
}

// An earlier attempt with the key may be on its way still, and must not take effect
// once a later one was refused: so the refusal stands in the log.
func TestG25_WhatMayHaveBeenSentBeforeIsRefusedByTheLog(t *testing.T) {
	m := newMember(t)
	m.limitKeys(1000 + kv.EntryBytes)
	m.mustPut(&pb.PutRequest{Key: "x", Value: make([]byte, 900)})
	base := uint64(m.group.View().Index())
	absent := &pb.PutRequest{Key: "x", Condition: ifIndex(0), Idempotency: &pb.Idempotency{Key: []byte("absent"), BaseIndex: base}}
	large := &pb.PutRequest{Key: "y", Value: make([]byte, 900), Idempotency: &pb.Idempotency{Key: []byte("large"), BaseIndex: base}}
	refused := func() {
		t.Helper()
		if _, err := m.put(absent); kindOf(err) != incumbent.Conflict {
			t.Errorf("it is there: %v", err)
		}
		if _, err := m.put(large); kindOf(err) != incumbent.TooLarge {
			t.Errorf("there is no room: %v", err)
		}
	}
	refused()
	if _, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "x"})); err != nil {
		t.Fatal(err)
	}
	refused() // the same again, whatever has become of it
	if n := kv.Of(m.group.View()).Len(); n != 0 {
		t.Errorf("%d keys were stored", n)
	}
}

func TestG25_APutWithoutAnswerIsUnknown(t *testing.T) {
	m := newMember(t)
	m.group.Hold()
	resp, body := m.postLate("KeyValueService/Put", `{"key": "x", "value": "YQ=="}`)
	m.group.Release()
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "or read the key") {
		t.Errorf("HTTP %d %s", resp.StatusCode, body)
	}
}

func TestG45_ValuesAndPagesAreBounded(t *testing.T) {
	m := newMember(t)
	large := bytes.Repeat([]byte("v"), kv.MaxValueBytes)
	for name, o := range map[string]connect.ClientOption{"proto": connect.WithClientOptions(), "json": connect.WithProtoJSON(), "grpc": connect.WithGRPC()} {
		for i := range 3 {
			put := &pb.PutRequest{Key: fmt.Sprint(name, i), Value: large}
			if _, err := m.keys(o).Put(t.Context(), connect.NewRequest(put)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		over := &pb.PutRequest{Key: "over", Value: append(large[:len(large):len(large)], 'v')}
		if _, err := m.keys(o).Put(t.Context(), connect.NewRequest(over)); kindOf(err) != incumbent.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		refused := &pb.PutRequest{Key: name + "0", Condition: ifIndex(0)}
		_, err := m.keys(o).Put(t.Context(), connect.NewRequest(refused))
		if kindOf(err) != incumbent.Conflict {
			t.Errorf("%s: %v", name, err)
		}
		list := &pb.ListKeysRequest{Prefix: name}
		n := 0
		for pages := 1; ; pages++ {
			res, err := m.keys(o).List(t.Context(), connect.NewRequest(list))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			n += len(res.Msg.Entries)
			if list.After = res.Msg.Next; list.After == "" {
				break
			}
			if len(res.Msg.Entries) > 1 || pages > 3 {
				t.Errorf("%s: a page of %d", name, len(res.Msg.Entries))
			}
		}
		if n != 3 {
			t.Errorf("%s: %d entries listed", name, n)
		}
	}
	body := fmt.Sprintf(`{"key": "x", "value": %q}`, strings.Repeat("A", keyBodyBytes))
	if resp, text := m.post("KeyValueService/Put", body); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("HTTP %d %.200s", resp.StatusCode, text)
	}
}

func TestAQuotaStopsWhatGrows(t *testing.T) {
	m := newMember(t)
	m.limitKeys(1000 + kv.EntryBytes)
	put := func(key string, n int) error {
		_, err := m.put(&pb.PutRequest{Key: key, Value: make([]byte, n)})
		return err
	}
	if err := put("x", 900); err != nil {
		t.Fatal(err)
	}
	before := m.group.Proposed()
	if err := put("y", 100); kindOf(err) != incumbent.TooLarge || !hints(err, "kv.quota-bytes") {
		t.Errorf("beyond the quota: %v", err)
	}
	if n := m.group.Proposed() - before; n != 0 {
		t.Errorf("%d commands were proposed", n)
	}
	if err := put("x", 800); err != nil {
		t.Errorf("what shrinks: %v", err)
	}
	if _, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "x"})); err != nil {
		t.Error(err)
	}
	if err := put("y", 100); err != nil {
		t.Errorf("after deleting: %v", err)
	}
}

func TestG12_KeysAreForAgentsAndOperators(t *testing.T) {
	m := newMember(t)
	calls := map[string]string{"Get": `{"key": "x"}`, "List": `{}`, "Put": `{"key": "x"}`, "Delete": `{"key": "x"}`}
	for kind, want := range map[auth.Kind]int{auth.Anonymous: http.StatusForbidden, auth.Observer: http.StatusForbidden, auth.Agent: http.StatusOK, auth.Operator: http.StatusOK} {
		for _, call := range []string{"Put", "Get", "List", "Delete"} {
			m.guard.principal = auth.Principal{Name: "a", Kind: kind}
			if resp, body := m.post("KeyValueService/"+call, calls[call]); resp.StatusCode != want {
				t.Errorf("%v: %s: HTTP %d %s", kind, call, resp.StatusCode, body)
			}
		}
	}
	m.guard.principal = admin
	session := incumbent.NewSessionID().String()
	if resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, session)); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	m.guard.principal = auth.Principal{Name: "a", Kind: auth.Agent}
	if resp, body := m.post("KeyValueService/Lock", fmt.Sprintf(`{"key": "x", "session": %q}`, session)); resp.StatusCode != http.StatusForbidden {
		t.Errorf("another's session: HTTP %d %s", resp.StatusCode, body)
	}
}

func TestG23_StaleReadsOfKeys(t *testing.T) {
	m := newMember(t, func(c *Config) { c.Age = func() time.Duration { return 1500 * time.Millisecond } })
	put := m.mustPut(&pb.PutRequest{Key: "x", Value: []byte("a")})
	m.group.Hold() // nobody confirms
	defer m.group.Release()
	res, err := m.keys().Get(t.Context(), connect.NewRequest(&pb.GetKeyRequest{Key: "x", Stale: true}))
	if err != nil || res.Msg.AgeMs != 1500 || res.Msg.Index != put.Index {
		t.Errorf("%v, %v", res, err)
	}
	list, err := m.keys().List(t.Context(), connect.NewRequest(&pb.ListKeysRequest{Stale: true}))
	if err != nil || list.Msg.AgeMs != 1500 || list.Msg.ModifiedIndex != put.Index {
		t.Errorf("%v, %v", list, err)
	}
}

// hints reports whether the error's hint says so.
func hints(err error, what string) bool {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return false
	}
	for _, d := range ce.Details() {
		if v, err := d.Value(); err == nil {
			if e, ok := v.(*pb.Error); ok && strings.Contains(e.Hint, what) {
				return true
			}
		}
	}
	return false
}

// A deletion that would delete nothing, or more than one command may, costs no
// entry of the log: it has the reserve of a disk that is full.
func TestG40_AnIdleDeletionCostsNoEntry(t *testing.T) {
	m := newMember(t)
	m.mustPut(&pb.PutRequest{Key: "x", Value: []byte("a")})
	before := m.group.Proposed()
	for _, r := range []*pb.DeleteRequest{{Key: "y"}, {Key: "y", Condition: &pb.DeleteRequest_IfIndex{IfIndex: 0}}, {Key: "z", Tree: true}} {
		res, err := m.keys().Delete(t.Context(), connect.NewRequest(r))
		if err != nil || res.Msg.Deleted != 0 {
			t.Errorf("%v: %v %v", r, res, err)
		}
	}
	if n := m.group.Proposed() - before; n != 0 {
		t.Errorf("%d commands were proposed", n)
	}
}

// Giving a lock up stores a value, too: what that makes larger is within the quota
// like any other, and has no reserve.
func TestG39_AnUnlockThatGrowsIsWithinTheQuota(t *testing.T) {
	m := newMember(t)
	m.limitKeys(1000 + kv.EntryBytes)
	session := incumbent.NewSessionID().String()
	if resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, session)); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	if _, err := m.keys().Lock(t.Context(), connect.NewRequest(&pb.LockRequest{Key: "l", Value: make([]byte, 900), Session: session})); err != nil {
		t.Fatal(err)
	}
	unlock := func(n int) error {
		_, err := m.keys().Unlock(t.Context(), connect.NewRequest(&pb.UnlockRequest{Key: "l", Value: make([]byte, n), Session: session}))
		return err
	}
	if err := unlock(2000); kindOf(err) != incumbent.TooLarge {
		t.Errorf("one that grows beyond it: %v", err)
	}
	if err := unlock(900); err != nil {
		t.Errorf("one that does not grow: %v", err)
	}
}

// A value may be put under the condition that it has another: with both as large as
// they may be, the command is larger than an entry of the log.
func TestALargeConditionalPut(t *testing.T) {
	m := newMember(t)
	was, is := bytes.Repeat([]byte("w"), kv.MaxValueBytes), bytes.Repeat([]byte("i"), kv.MaxValueBytes)
	m.mustPut(&pb.PutRequest{Key: "x", Value: was})
	r := &pb.PutRequest{
		Key: "x", Value: is, Condition: &pb.PutRequest_IfValue{IfValue: was},
		Idempotency: &pb.Idempotency{Key: []byte("k"), BaseIndex: uint64(m.group.View().Index())},
	}
	first := m.mustPut(r)
	if e := kv.Of(m.group.View()).Entry(keyIn("", "x")); !bytes.Equal(e.Value, is) || uint64(e.Modified) != first.Index {
		t.Errorf("modified at %d, answered %d", e.Modified, first.Index)
	}
	if again := m.mustPut(r); again.Index != first.Index {
		t.Errorf("again at %d, first at %d", again.Index, first.Index)
	}
}

// An answer does not send back the value that the caller has just sent.
func TestAPutDoesNotEchoItsValue(t *testing.T) {
	m := newMember(t)
	if r := m.mustPut(&pb.PutRequest{Key: "x", Value: []byte("a")}); len(r.Entry.GetValue()) != 0 || r.Entry.GetModifiedIndex() != r.Index {
		t.Errorf("put: %v", r)
	}
	session := incumbent.NewSessionID().String()
	if resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, session)); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	res, err := m.keys().Lock(t.Context(), connect.NewRequest(&pb.LockRequest{Key: "x", Value: []byte("a"), Session: session}))
	if err != nil || len(res.Msg.Entry.GetValue()) != 0 || res.Msg.Entry.GetSession() != session {
		t.Errorf("lock: %v %v", res, err)
	}
}

// The quota counts what an entry costs besides its key and value.
func TestG39_TheQuotaCountsEntries(t *testing.T) {
	m := newMember(t)
	m.limitKeys(10 * kv.EntryBytes)
	for i := range 10 {
		if _, err := m.put(&pb.PutRequest{Key: fmt.Sprint(i)}); err != nil {
			if i < 5 || kindOf(err) != incumbent.TooLarge {
				t.Errorf("key %d: %v", i, err)
			}
			return
		}
	}
	t.Error("ten empty entries cost nothing")
}

// A retry is answered with what its first attempt did, whatever has become of quota
// and session since.
func TestG25_ARetryIsNotRefusedForWhatCameAfter(t *testing.T) {
	m := newMember(t)
	m.limitKeys(1000)
	m.guard.principal = auth.Principal{Name: "a", Kind: auth.Agent, Via: auth.Certificate}
	key := func(name string) *pb.Idempotency {
		return &pb.Idempotency{Key: []byte(name), BaseIndex: uint64(m.group.View().Index())}
	}
	session := incumbent.NewSessionID().String()
	if resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, session)); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	lock := &pb.LockRequest{Key: "l", Session: session, OnEnd: pb.OnEnd_ON_END_DELETE, Idempotency: key("l")}
	locked, err := m.keys().Lock(t.Context(), connect.NewRequest(lock))
	if err != nil {
		t.Fatal(err)
	}
	if resp, body := m.post("SessionService/CloseSession", fmt.Sprintf(`{"id": %q}`, session)); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	if again, err := m.keys().Lock(t.Context(), connect.NewRequest(lock)); err != nil || again.Msg.Index != locked.Msg.Index {
		t.Errorf("locked again: %v %v", again, err)
	}
	put := &pb.PutRequest{Key: "x", Value: make([]byte, 500), Idempotency: key("x")}
	first := m.mustPut(put)
	if _, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "x"})); err != nil {
		t.Fatal(err)
	}
	m.mustPut(&pb.PutRequest{Key: "y", Value: make([]byte, 600)})
	if again, err := m.put(put); err != nil || again.Index != first.Index {
		t.Errorf("put again: %v %v", again, err)
	}
	put.Idempotency = key("another")
	if _, err := m.put(put); kindOf(err) != incumbent.TooLarge {
		t.Errorf("another put: %v", err)
	}
	lock.Idempotency = key("later")
	if _, err := m.keys().Lock(t.Context(), connect.NewRequest(lock)); kindOf(err) != incumbent.Expired {
		t.Errorf("another lock: %v", err)
	}
}

// Who waits for the delay of a lock sees it end.
func TestAWatchTellsOfTheEndOfADelay(t *testing.T) {
	for _, onEnd := range []pb.OnEnd{pb.OnEnd_ON_END_KEEP, pb.OnEnd_ON_END_DELETE} {
		m := newMember(t)
		session := incumbent.NewSessionID().String()
		if resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, session)); resp.StatusCode != http.StatusOK {
			t.Fatal(body)
		}
		if _, err := m.keys().Lock(t.Context(), connect.NewRequest(&pb.LockRequest{Key: "x", Session: session, LockDelayMs: 1, OnEnd: onEnd})); err != nil {
			t.Fatal(err)
		}
		w := m.dial()
		w.send(watchKeysFrame(7, below("x", uint64(m.group.View().Index()))))
		if resp, body := m.post("SessionService/CloseSession", fmt.Sprintf(`{"id": %q}`, session)); resp.StatusCode != http.StatusOK {
			t.Fatal(body)
		}
		var seen []string
		for !slices.Contains(seen, "lockable") {
			for _, e := range w.next().GetWatchKeys().GetEvents() {
				if seen = append(seen, e.What); e.Previous.GetKey() != "x" {
					t.Errorf("%v: of key %q", e.What, e.Previous.GetKey())
				}
			}
		}
		if len(seen) != 2 {
			t.Errorf("told %q", seen)
		}
	}
}
