//go:build unix

package native

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/kv"
)

const longWait = uint32(MaxWait / time.Millisecond)

func (m *member) getKey(r *pb.GetKeyRequest, o ...connect.ClientOption) *pb.GetKeyResponse {
	m.tb.Helper()
	res, err := m.keys(o...).Get(m.tb.Context(), connect.NewRequest(r))
	if err != nil {
		m.tb.Fatal(err)
	}
	return res.Msg
}

func (m *member) listKeys(r *pb.ListKeysRequest) *pb.ListKeysResponse {
	m.tb.Helper()
	res, err := m.keys().List(m.tb.Context(), connect.NewRequest(r))
	if err != nil {
		m.tb.Fatal(err)
	}
	return res.Msg
}

// blocked are calls that wait.
type blocked struct {
	m    *member
	done sync.WaitGroup
	mu   sync.Mutex // guards got
	got  []*pb.GetKeyResponse
}

// begin makes calls and returns when all of them wait.
func (b *blocked) begin(calls int, r *pb.GetKeyRequest) {
	b.m.tb.Helper()
	before := b.m.group.Hub().Stats().QueryWaits
	transport := &http.Transport{}
	b.m.tb.Cleanup(transport.CloseIdleConnections)
	client := incumbentv1connect.NewKeyValueServiceClient(&http.Client{Transport: transport}, b.m.url)
	for range calls {
		b.done.Go(func() {
			res, err := client.Get(b.m.tb.Context(), connect.NewRequest(r))
			if err != nil {
				b.m.tb.Error(err)
				return
			}
			b.mu.Lock()
			b.got = append(b.got, res.Msg)
			b.mu.Unlock()
		})
	}
	eventually(b.m.tb, "all wait", func() bool { return b.m.group.Hub().Stats().QueryWaits == before+calls })
}

// end returns what the calls answered, once all have.
func (b *blocked) end() []*pb.GetKeyResponse {
	b.done.Wait()
	return b.got
}

func eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// A thousand callers wait for one key: a change of it is evaluated once and encoded
// once for all of them, and what changes elsewhere wakes nobody.
func TestG19_G21_BlockedReadsShareOneEvaluation(t *testing.T) {
	m := newMember(t)
	m.mustPut(&pb.PutRequest{Key: "a/x", Value: []byte("one")})
	first := m.getKey(&pb.GetKeyRequest{Key: "a/x", WaitMs: longWait})
	if first.ModifiedIndex != first.Entry.ModifiedIndex || len(first.Hash) == 0 {
		t.Fatalf("got %v", first)
	}
	b := blocked{m: m}
	const callers = 1000
	b.begin(callers/2, &pb.GetKeyRequest{Key: "a/x", AfterIndex: first.ModifiedIndex, WaitMs: longWait})
	b.begin(callers/2, &pb.GetKeyRequest{Key: "a/x", NotHash: first.Hash, WaitMs: longWait})
	before := m.group.Hub().Stats()
	for _, key := range []string{"a", "a/y", "a/x/y", "b"} {
		m.mustPut(&pb.PutRequest{Key: key, Value: []byte("elsewhere")})
	}
	if s := m.group.Hub().Stats(); s.Evaluations != before.Evaluations || s.QueryWaits != callers {
		t.Fatalf("what does not concern them: %+v, then %+v", before, s)
	}
	put := m.mustPut(&pb.PutRequest{Key: "a/x", Value: []byte("two")})
	got := b.end()
	for _, r := range got {
		if string(r.Entry.GetValue()) != "two" || r.ModifiedIndex != put.Index || bytes.Equal(r.Hash, first.Hash) || r.Index < put.Index {
			t.Fatalf("got %v", r)
		}
	}
	after := m.group.Hub().Stats()
	if len(got) != callers || after.Evaluations != before.Evaluations+1 || after.Encodings != before.Encodings+1 {
		t.Errorf("%d answers, %d evaluations, %d encodings", len(got), after.Evaluations-before.Evaluations, after.Encodings-before.Encodings)
	}
	// Who comes late is served at once, from what is there.
	late := m.getKey(&pb.GetKeyRequest{Key: "a/x", AfterIndex: first.ModifiedIndex, WaitMs: longWait})
	if s := m.group.Hub().Stats(); string(late.Entry.Value) != "two" || s.Evaluations != after.Evaluations || s.Encodings != after.Encodings {
		t.Errorf("got %v, %+v then %+v", late, after, s)
	}
	// The same value again is another modification, and not another result.
	b = blocked{m: m}
	b.begin(1, &pb.GetKeyRequest{Key: "a/x", NotHash: late.Hash, WaitMs: longWait})
	c := blocked{m: m}
	c.begin(1, &pb.GetKeyRequest{Key: "a/x", AfterIndex: late.ModifiedIndex, WaitMs: longWait})
	put = m.mustPut(&pb.PutRequest{Key: "a/x", Value: []byte("two")})
	if r := c.end()[0]; r.ModifiedIndex != put.Index {
		t.Errorf("by index: %v after %d", r, put.Index)
	}
	if n := m.group.Hub().Stats().QueryWaits; n != 1 {
		t.Errorf("%d wait by hash", n)
	}
	m.mustPut(&pb.PutRequest{Key: "a/x", Value: []byte("two"), Flags: 1})
	if r := b.end()[0]; r.Entry.Flags != 1 {
		t.Errorf("by hash: %v", r)
	}
}

// A read that waits says what one that does not says, over each protocol, and of the
// moment in which it ends.
func TestG19_BlockedReadsEndWithTheirTime(t *testing.T) {
	m := newMember(t)
	m.mustPut(&pb.PutRequest{Key: "x", Value: []byte("v"), Flags: 7})
	for name, o := range map[string]connect.ClientOption{
		"proto": connect.WithClientOptions(), "json": connect.WithProtoJSON(), "grpc": connect.WithGRPC(),
	} {
		t.Run(name, func(t *testing.T) {
			plain := m.getKey(&pb.GetKeyRequest{Key: "x"})
			began := m.getKey(&pb.GetKeyRequest{Key: "x", WaitMs: 1}, o)
			m.mustPut(&pb.PutRequest{Key: "elsewhere", Value: []byte(name)})
			ended := m.getKey(&pb.GetKeyRequest{Key: "x", NotHash: began.Hash, AfterIndex: began.ModifiedIndex, WaitMs: 1}, o)
			if ended.Index <= began.Index || !bytes.Equal(ended.Hash, began.Hash) || ended.ModifiedIndex != plain.Entry.ModifiedIndex {
				t.Errorf("it began with %v and ended with %v", began, ended)
			}
			for _, r := range []*pb.GetKeyResponse{began, ended} {
				if !proto.Equal(r.Entry, plain.Entry) {
					t.Errorf("got %v, want %v", r.Entry, plain.Entry)
				}
			}
			stale := m.getKey(&pb.GetKeyRequest{Key: "x", WaitMs: 1, Stale: true}, o)
			if !proto.Equal(stale.Entry, plain.Entry) || stale.Index < ended.Index {
				t.Errorf("stale: %v", stale)
			}
		})
	}
}

// A key that is not there is a result, too: until it is there, and once it is gone.
func TestG19_ABlockedReadOfAnAbsentKey(t *testing.T) {
	m := newMember(t)
	m.mustPut(&pb.PutRequest{Key: "another"}) // an index to begin with
	none := m.getKey(&pb.GetKeyRequest{Key: "x", WaitMs: longWait})
	if none.Entry != nil || none.ModifiedIndex == 0 {
		t.Fatalf("got %v", none)
	}
	b := blocked{m: m}
	b.begin(1, &pb.GetKeyRequest{Key: "x", AfterIndex: none.ModifiedIndex})
	m.mustPut(&pb.PutRequest{Key: "x"})
	there := b.end()[0]
	if there.Entry == nil || bytes.Equal(there.Hash, none.Hash) {
		t.Fatalf("got %v", there)
	}
	b = blocked{m: m}
	b.begin(1, &pb.GetKeyRequest{Key: "x", AfterIndex: there.ModifiedIndex})
	gone, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "x"}))
	if err != nil {
		t.Fatal(err)
	}
	if r := b.end()[0]; r.Entry != nil || r.ModifiedIndex != gone.Msg.Index || !bytes.Equal(r.Hash, none.Hash) {
		t.Errorf("got %v", r)
	}
}

// A list waits for what it shows, by hash, or for all below its prefix, by index; a
// later page for its own entries.
func TestG19_BlockedLists(t *testing.T) {
	m := newMember(t)
	for _, key := range []string{"d/a", "d/b", "d/sub/c", "e"} {
		m.mustPut(&pb.PutRequest{Key: key, Value: []byte("v")})
	}
	type answer struct {
		res *pb.ListKeysResponse
		err error
	}
	begin := func(r *pb.ListKeysRequest) <-chan answer {
		t.Helper()
		before := m.group.Hub().Stats().QueryWaits
		got := make(chan answer, 1)
		go func() {
			res, err := m.keys().List(t.Context(), connect.NewRequest(r))
			if err != nil {
				got <- answer{err: err}
				return
			}
			got <- answer{res: res.Msg}
		}()
		eventually(t, "it waits", func() bool { return m.group.Hub().Stats().QueryWaits == before+1 })
		return got
	}
	shown := &pb.ListKeysRequest{Prefix: "d/", KeysOnly: true, Separator: "/", WaitMs: longWait}
	first := m.listKeys(shown)
	if plain := m.listKeys(&pb.ListKeysRequest{Prefix: "d/", KeysOnly: true, Separator: "/"}); len(first.Entries) != 2 || len(first.Prefixes) != 1 ||
		first.ModifiedIndex != plain.ModifiedIndex || !proto.Equal(first.Entries[1], plain.Entries[1]) || plain.Hash != nil {
		t.Fatalf("got %v, want %v", first, plain)
	}
	shown.NotHash = first.Hash
	byHash := begin(shown)
	byIndex := begin(&pb.ListKeysRequest{Prefix: "d/", KeysOnly: true, Separator: "/", AfterIndex: first.ModifiedIndex})
	put := m.mustPut(&pb.PutRequest{Key: "d/sub/c", Value: []byte("not shown")})
	if a := <-byIndex; a.err != nil || a.res.ModifiedIndex != put.Index || !bytes.Equal(a.res.Hash, first.Hash) {
		t.Errorf("by index: %v", a)
	}
	put = m.mustPut(&pb.PutRequest{Key: "d/b2"})
	if a := <-byHash; a.err != nil || len(a.res.Entries) != 3 || a.res.ModifiedIndex != put.Index {
		t.Errorf("by hash: %v", a)
	}
	page := &pb.ListKeysRequest{Prefix: "d/", After: "d/a", Limit: 1, WaitMs: longWait}
	second := m.listKeys(page)
	if len(second.Entries) != 1 || second.Entries[0].Key != "d/b" || second.Next != "d/b" || second.ModifiedIndex != 0 {
		t.Fatalf("got %v", second)
	}
	page.NotHash = second.Hash
	behind := begin(page)
	before := m.group.Hub().Stats().Evaluations
	m.mustPut(&pb.PutRequest{Key: "d/a", Value: []byte("before the page")})
	m.mustPut(&pb.PutRequest{Key: "d/sub/c", Value: []byte("behind it")})
	if s := m.group.Hub().Stats(); s.Evaluations != before || s.QueryWaits != 1 {
		t.Errorf("other pages: %d evaluations, %d wait", s.Evaluations-before, s.QueryWaits)
	}
	m.mustPut(&pb.PutRequest{Key: "d/aa"})
	if a := <-behind; a.err != nil || a.res.Entries[0].Key != "d/aa" {
		t.Errorf("the page: %v", a)
	}
}

// A list is as it was when a key goes that its caller may not see: he is neither woken nor
// told when that was.
func TestG12_G19_AListSaysNothingOfDeletionsThatMayNotBeSeen(t *testing.T) {
	m := newMember(t)
	m.let("agent:a", keyRule("d/a/*", auth.See))
	m.storeMany("d/a/1", "d/a/2", "d/b/1")
	m.as(agentA())
	remove := func(name string) incumbent.Index {
		t.Helper()
		r := m.group.Do(kv.Command{Verb: kv.Remove, Key: kv.Key{Namespace: "default", Name: name}})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Index
	}
	first := m.listKeys(&pb.ListKeysRequest{Prefix: "d/"})
	got := make(chan *pb.ListKeysResponse, 1)
	go func() {
		res, err := m.keys().List(t.Context(), connect.NewRequest(&pb.ListKeysRequest{Prefix: "d/", AfterIndex: first.ModifiedIndex, WaitMs: longWait}))
		if err != nil {
			t.Error(err)
			got <- nil
			return
		}
		got <- res.Msg
	}()
	eventually(t, "it waits", func() bool { return m.group.Hub().Stats().QueryWaits == 1 })
	before := m.group.Hub().Stats().Evaluations
	remove("d/b/1")
	eventually(t, "it is evaluated", func() bool { return m.group.Hub().Stats().Evaluations > before })
	if l := m.listKeys(&pb.ListKeysRequest{Prefix: "d/"}); l.ModifiedIndex != first.ModifiedIndex {
		t.Errorf("the list was modified at %d, by a deletion that may not be seen at %d", first.ModifiedIndex, l.ModifiedIndex)
	}
	at := remove("d/a/2")
	if l := <-got; l.GetModifiedIndex() != uint64(at) || len(l.GetEntries()) != 1 {
		t.Errorf("woken with %v, want what there is at %d", l, at)
	}
}

func TestG45_BlockedReadsAreBounded(t *testing.T) {
	m := newMember(t)
	for name, r := range map[string]*pb.GetKeyRequest{
		"too long":  {Key: "x", WaitMs: longWait + 1},
		"no hash":   {Key: "x", NotHash: []byte("short")},
		"no key":    {WaitMs: 1},
		"a page":    nil,
		"to come":   {Key: "x", AfterIndex: 1 << 40},
		"long hash": {Key: "x", NotHash: make([]byte, 64)},
	} {
		want := incumbent.Invalid
		var err error
		switch name {
		case "a page":
			_, err = m.keys().List(t.Context(), connect.NewRequest(&pb.ListKeysRequest{After: "x", AfterIndex: 1}))
		case "to come":
			want = incumbent.Compacted
			fallthrough
		default:
			_, err = m.keys().Get(t.Context(), connect.NewRequest(r))
		}
		if kindOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Whoever goes takes nothing with it, and leaves nothing.
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	none := m.getKey(&pb.GetKeyRequest{Key: "x", WaitMs: 1})
	go func() {
		_, err := m.keys().Get(ctx, connect.NewRequest(&pb.GetKeyRequest{Key: "x", NotHash: none.Hash, WaitMs: longWait}))
		gone <- err
	}()
	eventually(t, "it waits", func() bool { return m.group.Hub().Stats().QueryWaits == 1 })
	cancel()
	if err := <-gone; err == nil {
		t.Error("it was answered")
	}
	eventually(t, "it waits no longer", func() bool { return m.group.Hub().Stats().QueryWaits == 0 })
}

// A watcher names the fields it wants to be woken for: other changes wake nobody, over
// each protocol, and what is told then is all that a watch tells.
func TestG19_WatchersAreWokenForTheirFields(t *testing.T) {
	for name, watch := range overKeys {
		t.Run(name, func(t *testing.T) {
			m := newMember(t)
			session := incumbent.NewSessionID().String()
			if resp, body := m.post("SessionService/OpenSession", `{"id": "`+session+`", "ttl_ms": 60000}`); resp.StatusCode != http.StatusOK {
				t.Fatal(body)
			}
			m.mustPut(&pb.PutRequest{Key: "leader", Value: []byte("a")})
			readers := m.group.Hub().Stats().Readers
			next := watch(m, &pb.WatchKeysRequest{Key: "leader", Fields: []string{"lock", "flags"}})
			if r, err := next(); err != nil || !r.Snapshot || len(r.Events) != 1 {
				t.Fatalf("got %v, %v", r, err)
			}
			eventually(t, "it watches", func() bool { return m.group.Hub().Stats().Readers == readers+1 })
			before := m.group.Hub().Stats().Wakes
			for _, v := range []string{"b", "c", "c"} {
				m.mustPut(&pb.PutRequest{Key: "leader", Value: []byte(v)})
			}
			if _, err := m.keys().Lock(t.Context(), connect.NewRequest(&pb.LockRequest{Key: "leader", Value: []byte("me"), Session: session})); err != nil {
				t.Fatal(err)
			}
			r, err := next()
			if err != nil || len(r.Events) != 1 || r.Events[0].What != "locked" || string(r.Events[0].Previous.GetValue()) != "c" {
				t.Fatalf("got %v, %v", r, err)
			}
			if woken := m.group.Hub().Stats().Wakes - before; woken > 1 { // none, if it came before it had looked whether there was more
				t.Errorf("woken %d times", woken)
			}
			put := m.mustPut(&pb.PutRequest{Key: "leader", Value: []byte("me"), Flags: 9})
			if r, err = next(); err != nil || len(r.Events) != 1 || r.ProgressIndex < put.Index || r.Events[0].Entry.Flags != 9 {
				t.Errorf("got %v, %v", r, err)
			}
			if _, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "leader"})); err != nil {
				t.Fatal(err)
			}
			if r, err = next(); err != nil || len(r.Events) != 1 || r.Events[0].What != "deleted" {
				t.Errorf("got %v, %v", r, err)
			}
		})
	}
}

func TestG19_LeaseWatchersAreWokenForTheirFields(t *testing.T) {
	m := newMember(t)
	claim := func(holder string) {
		if resp, body := m.post("LeaseService/Claim", `{"name": {"name": "db"}, "holder": "`+holder+`", "ttl_ms": 60000}`); resp.StatusCode != http.StatusOK {
			t.Fatal(body)
		}
	}
	claim("a")
	stream, err := m.leaseClient().Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{Name: nameOf("db"), Fields: []string{"holder"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	next := func() *pb.WatchResponse {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		return stream.Msg()
	}
	if r := next(); !r.Snapshot || len(r.Events) != 1 {
		t.Fatalf("got %v", r)
	}
	for _, what := range []string{"Pin", "Unpin"} {
		if resp, body := m.post("LeaseService/"+what, `{"name": {"name": "db"}, "entity": "operator"}`); resp.StatusCode != http.StatusOK {
			t.Fatal(body)
		}
	}
	claim("a") // again: for longer
	if resp, body := m.post("LeaseService/Release", `{"name": {"name": "db"}, "holder": "a"}`); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	if r := next(); len(r.Events) != 1 || r.Events[0].What != "released" || r.Events[0].PreviousHolder != "a" {
		t.Errorf("got %v", r)
	}
	claim("b")
	if r := next(); len(r.Events) != 1 || r.Events[0].What != "granted" {
		t.Errorf("got %v", r)
	}
	for name, fields := range map[string][]string{"unknown": {"value"}, "too many": make([]string, maxFields+1)} {
		bad, err := m.leaseClient().Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{Name: nameOf("db"), Fields: fields}))
		if err == nil && bad.Receive() {
			t.Errorf("%s: got %v", name, bad.Msg())
		}
		if err == nil {
			err = bad.Err()
		}
		if kindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever a client asks to watch: it is refused as invalid, or is watched.
func FuzzG45_Selections(f *testing.F) {
	for _, r := range []*pb.WatchKeysRequest{
		{Key: "a", Prefix: true, Fields: []string{"value", "lock"}},
		{Prefix: true, Fields: []string{"", "nothing"}},
		{Key: "x", AfterIndex: 1 << 63, Values: 9},
	} {
		b, err := proto.MarshalOptions{}.Marshal(r)
		if err == nil {
			f.Add(b)
		}
	}
	f.Add(marshal(f, &pb.WatchRequest{Name: nameOf("db"), Prefix: true, Fields: []string{"holder", "pins"}}))
	f.Add(marshal(f, &pb.WatchTablesRequest{Database: "Pets", Tables: []string{"Toy"}, Fields: []string{"Pet/age", "Pet"}, Rows: []string{incumbent.NewSessionID().String()}}))
	m := newMember(f)
	who := &caller{principal: admin}
	f.Fuzz(func(t *testing.T, in []byte) {
		check := func(s *selection, err error) {
			if err != nil {
				if k := incumbent.KindOf(err); k != incumbent.Invalid && k != incumbent.TooLarge {
					t.Errorf("refused with %v", err)
				}
				return
			}
			r, err := m.group.Hub().Subscribe(m.group.Hub().Index(), func() {}, s.selected...)
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
		}
		if r := new(pb.WatchKeysRequest); proto.Unmarshal(in, r) == nil {
			check(m.door.selectKeys(who, r))
		}
		if r := new(pb.WatchRequest); proto.Unmarshal(in, r) == nil {
			check(m.door.selectLeases(who, r))
		}
		if r := new(pb.WatchTablesRequest); proto.Unmarshal(in, r) == nil {
			check(m.door.selectTables(who, r))
		}
	})
}
