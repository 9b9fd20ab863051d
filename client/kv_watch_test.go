package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// A watch of keys goes on over broken connections and yields each change once, in
// order, with what was.
func TestG16_WatchOfKeysResumes(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	ctx, writer := testContext(t), clientOf(t, s.URL()).KV("n")
	put := func(i int) {
		t.Helper()
		if _, err := writer.Put(ctx, "k/0", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	const changes = 20
	seen, snapshots, last := 0, 0, uint64(0)
	for m, err := range clientOf(t, r.url()).KV("n").Watch(ctx, WatchKeysOptions{Key: "k/", Prefix: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if !m.Snapshot && len(m.Events) == 0 {
			continue // a progress mark
		}
		if m.Snapshot {
			snapshots++
			if len(m.Events) != 1 || !m.First || string(m.Events[0].Entry.Value) != "0" {
				t.Fatalf("the snapshot: %v", m)
			}
		}
		for _, e := range m.Events {
			if m.Snapshot {
				continue
			}
			if is, was := string(e.Entry.Value), string(e.Previous.Value); e.Index <= last || was != fmt.Sprint(seen) || is != fmt.Sprint(seen+1) {
				t.Fatalf("index %d after %d: from %s to %s, %d changes were seen", e.Index, last, was, is, seen)
			}
			seen, last = seen+1, e.Index
		}
		if seen == changes {
			break
		}
		// The next change happens while the watch is cut off.
		if seen%3 == 1 {
			r.cut()
		}
		put(seen + 1)
	}
	if seen != changes || snapshots != 1 {
		t.Errorf("%d changes, %d snapshots", seen, snapshots)
	}
}

// What one index changed is yielded together, in however many pieces it came.
func TestG15_ATreeThatGoesIsYieldedTogether(t *testing.T) {
	const keys = 600 // a piece has 256
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	ctx, kv := testContext(t), c.KV("")
	for i := range keys {
		if _, err := kv.Put(ctx, fmt.Sprintf("t/%03d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	shown, gone := 0, 0
	for m, err := range kv.Watch(ctx, WatchKeysOptions{Key: "t/", Prefix: true, Values: apiv1.WatchedValues_WATCHED_VALUES_NONE}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Snapshot {
			if shown += len(m.Events); m.More {
				continue
			}
			if n, err := kv.DeleteTree(ctx, "t/"); n != keys || err != nil {
				t.Fatal(n, err)
			}
			continue
		}
		if gone = len(m.Events); gone > 0 {
			break
		}
	}
	if shown != keys || gone != keys {
		t.Errorf("%d were there, %d went together", shown, gone)
	}
}

// forgetful is a server that has forgotten what happened since.
type forgetful struct {
	incumbentv1connect.UnimplementedKeyValueServiceHandler
	mu    sync.Mutex
	after []uint64 // of each watch
}

func (f *forgetful) Watch(_ context.Context, r *connect.Request[apiv1.WatchKeysRequest], out *connect.ServerStream[apiv1.WatchKeysResponse]) error {
	f.mu.Lock()
	f.after = append(f.after, r.Msg.AfterIndex)
	f.mu.Unlock()
	if r.Msg.AfterIndex > 0 {
		call := connect.NewError(connect.CodeOutOfRange, fmt.Errorf("gone"))
		detail, err := connect.NewErrorDetail(&apiv1.Error{Kind: incumbent.Compacted.String()})
		if err != nil {
			return err
		}
		call.AddDetail(detail)
		return call
	}
	if err := out.Send(&apiv1.WatchKeysResponse{Snapshot: true, First: true, ProgressIndex: 4}); err != nil {
		return err
	}
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("gone"))
}

// A watch whose history is gone ends with that, or starts over with what is there.
func TestG16_AWatchStartsOverIfItMay(t *testing.T) {
	for _, startOver := range []bool{false, true} {
		f := &forgetful{}
		mux := http.NewServeMux()
		mux.Handle(incumbentv1connect.NewKeyValueServiceHandler(f))
		web := httptest.NewServer(mux)
		defer web.Close()
		var err error
		snapshots := 0
		for m, ended := range clientOf(t, web.URL).KV("").Watch(testContext(t), WatchKeysOptions{Key: "x", StartOver: startOver}) {
			if err = ended; err != nil {
				break
			}
			if !m.First || m.ProgressIndex != 4 {
				t.Fatalf("got %v", m)
			}
			if snapshots++; snapshots == 3 {
				break
			}
		}
		want, kind, times := []uint64{0, 4}, incumbent.Compacted, 1
		if startOver {
			want, kind, times = []uint64{0, 4, 0, 4, 0}, incumbent.OK, 3
		}
		if !slices.Equal(f.after, want) || incumbent.KindOf(err) != kind || snapshots != times {
			t.Errorf("starts over %v: watched after %v, %d snapshots, ended with %v", startOver, f.after, snapshots, err)
		}
	}
}

// restarted is a server that shows who is there, and has forgotten what happened since.
type restarted struct {
	incumbentv1connect.UnimplementedKeyValueServiceHandler
	mu    sync.Mutex // protects there
	there [][]string // of each snapshot
}

func (r *restarted) Watch(_ context.Context, req *connect.Request[apiv1.WatchKeysRequest], out *connect.ServerStream[apiv1.WatchKeysResponse]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Msg.AfterIndex > 0 || len(r.there) == 0 {
		call := connect.NewError(connect.CodeOutOfRange, fmt.Errorf("gone"))
		detail, err := connect.NewErrorDetail(&apiv1.Error{Kind: incumbent.Compacted.String()})
		if err != nil {
			return err
		}
		call.AddDetail(detail)
		return call
	}
	m := &apiv1.WatchKeysResponse{Snapshot: true, First: true, ProgressIndex: 4}
	for _, name := range r.there[0] {
		m.Events = append(m.Events, &apiv1.KeyEvent{Index: 3, Entry: &apiv1.KeyValue{Key: presencePrefix + name, Session: "s", LockIndex: 1}})
	}
	r.there = r.there[1:]
	return out.Send(m)
}

// Whoever keeps who is there hears that a watch begins anew, also with nobody.
func TestG16_AWatchOfPresenceSaysThatItBeginsAnew(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(incumbentv1connect.NewKeyValueServiceHandler(&restarted{there: [][]string{{"a", "b"}, {"a"}, nil}}))
	web := httptest.NewServer(mux)
	defer web.Close()
	var told []string
	for ch, err := range clientOf(t, web.URL).KV("").WatchPresent(testContext(t), "", 0) {
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, fmt.Sprint(ch.Name, " ", ch.State, " ", ch.First))
		if ch.Name == "" {
			break
		}
	}
	if want := []string{"a alive true", "b alive false", "a alive true", "  true"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
