package client

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

func TestKeysAndValues(t *testing.T) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	testKeys(t, c.KV, c.KV(""))
}

// What a session does over its stream answers as the calls do.
func TestKeysAndValuesOverAStream(t *testing.T) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	s := openSession(t, c, SessionConfig{TTL: time.Minute})
	testKeys(t, s.KV, s.KV(""))
}

func testKeys(t *testing.T, of func(string) *KV, keys *KV) {
	ctx := testContext(t)
	if _, err := keys.Get(ctx, "x"); incumbent.KindOf(err) != incumbent.NotFound {
		t.Errorf("nothing is there: %v", err)
	}
	first, err := keys.Put(ctx, "x", []byte("a"), Flags(7), IfIndex(0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = keys.Put(ctx, "x", []byte("b"), IfIndex(0))
	if found := FoundEntry(err); incumbent.KindOf(err) != incumbent.Conflict || string(found.GetValue()) != "a" {
		t.Errorf("%v, found %v", err, found)
	}
	if _, err = keys.Put(ctx, "x", []byte("b"), IfValue([]byte("a"))); err != nil {
		t.Error(err)
	}
	if err := keys.DeleteIf(ctx, "x", first); incumbent.KindOf(err) != incumbent.Conflict {
		t.Error(err)
	}
	if _, err := of("other").Get(ctx, "x"); incumbent.KindOf(err) != incumbent.NotFound {
		t.Errorf("another namespace: %v", err)
	}
	for i := range 5 {
		if _, err := keys.Put(ctx, fmt.Sprint("tree/", i), bytes.Repeat([]byte{1}, 400<<10)); err != nil {
			t.Fatal(err)
		}
	}
	var listed []string
	pages := 0
	err = keys.List(ctx, &apiv1.ListKeysRequest{Prefix: "tree/"}, func(p *apiv1.ListKeysResponse) error {
		pages++
		for _, e := range p.Entries {
			listed = append(listed, e.Key)
		}
		return nil
	})
	if err != nil || len(listed) != 5 || pages != 3 {
		t.Errorf("%v on %d pages, %v", listed, pages, err)
	}
	if n, err := keys.DeleteTree(ctx, "tree/"); err != nil || n != 5 {
		t.Errorf("%d, %v", n, err)
	}
	if was, err := keys.Delete(ctx, "x"); err != nil || !was {
		t.Errorf("%v, %v", was, err)
	}
	if was, err := keys.Delete(ctx, "x"); err != nil || was {
		t.Errorf("again: %v, %v", was, err)
	}
}

func TestKeysAreLockedBySessions(t *testing.T) {
	for _, way := range []string{"calls", "stream"} {
		t.Run(way, func(t *testing.T) { testLocks(t, way == "stream") })
	}
}

func testLocks(t *testing.T, stream bool) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	ctx, keys := testContext(t), c.KV("")
	mine := openSession(t, c, SessionConfig{TTL: time.Minute})
	if stream {
		keys = mine.KV("")
	}
	other := openSession(t, c, SessionConfig{TTL: time.Minute})
	e, err := keys.Lock(ctx, "l", []byte("a"), mine.ID(), LockOptions{DeleteOnEnd: true})
	if err != nil || e.Session != mine.ID().String() || e.LockIndex != 1 {
		t.Fatalf("%v, %v", e, err)
	}
	_, err = keys.Lock(ctx, "l", nil, other.ID(), LockOptions{})
	if incumbent.KindOf(err) != incumbent.Held || FoundEntry(err).GetSession() != mine.ID().String() {
		t.Errorf("%v, found %v", err, FoundEntry(err))
	}
	if err := keys.Unlock(ctx, "l", nil, other.ID()); incumbent.KindOf(err) != incumbent.NotHolder {
		t.Error(err)
	}
	if err := keys.Unlock(ctx, "l", []byte("done"), mine.ID()); err != nil {
		t.Error(err)
	}
	if e, err := keys.Lock(ctx, "l", nil, other.ID(), LockOptions{}); err != nil || e.LockIndex != 2 {
		t.Errorf("%v, %v", e, err)
	}
}

// keyHeaders records which attempts say that they are the first with their key.
type keyHeaders struct {
	incumbentv1connect.UnimplementedKeyValueServiceHandler
	incumbentv1connect.UnimplementedSessionServiceHandler
	mu    sync.Mutex // protects first
	first []bool
}

func (k *keyHeaders) Put(_ context.Context, r *connect.Request[apiv1.PutRequest]) (*connect.Response[apiv1.PutResponse], error) {
	k.mu.Lock()
	k.first = append(k.first, r.Header().Get(headerFirst) != "")
	begun := len(k.first) == 1
	k.mu.Unlock()
	if begun {
		panic(http.ErrAbortHandler) // nobody learns what became of it
	}
	return connect.NewResponse(&apiv1.PutResponse{Index: 1}), nil
}

func (k *keyHeaders) GetSession(context.Context, *connect.Request[apiv1.GetSessionRequest]) (*connect.Response[apiv1.GetSessionResponse], error) {
	return nil, notThereAt(1)
}

// Only the first attempt says that it is the first: what was refused without the log
// must not take effect by another.
func TestG25_OnlyTheFirstAttemptSaysSo(t *testing.T) {
	k := &keyHeaders{}
	mux := http.NewServeMux()
	mux.Handle(incumbentv1connect.NewKeyValueServiceHandler(k))
	mux.Handle(incumbentv1connect.NewSessionServiceHandler(k))
	one, other := httptest.NewServer(mux), httptest.NewServer(mux)
	defer one.Close()
	defer other.Close()
	c := failoverClient(t, one.URL, other.URL)
	if _, err := c.KV("").Put(testContext(t), "x", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Keys().Put(testContext(t), connect.NewRequest(&apiv1.PutRequest{Key: "x", Idempotency: c.NewKey()})); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if want := []bool{true, false, false}; !slices.Equal(k.first, want) {
		t.Errorf("said by the attempts: %v, want %v", k.first, want)
	}
}
