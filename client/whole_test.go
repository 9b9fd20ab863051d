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

// messageOf is a piece of a watch with events of these indexes.
func messageOf(progress uint64, more bool, indexes ...uint64) *apiv1.WatchResponse {
	m := &apiv1.WatchResponse{ProgressIndex: progress, More: more}
	for _, i := range indexes {
		m.Events = append(m.Events, &apiv1.LeaseEvent{Index: i, What: "released", Lease: &apiv1.Lease{}})
	}
	return m
}

func indexesOf(m *apiv1.WatchResponse) (indexes []uint64) {
	for _, e := range m.GetEvents() {
		indexes = append(indexes, e.Index)
	}
	return indexes
}

func TestG15_ChangesOfAnIndexAreYieldedTogether(t *testing.T) {
	var w Whole
	for i, step := range []struct {
		in   *apiv1.WatchResponse
		want []uint64 // nil: nothing
	}{
		{messageOf(1, false, 1, 1), []uint64{1, 1}},
		{messageOf(1, true, 2, 2), nil},
		{messageOf(1, true, 2), nil},
		{messageOf(2, true, 2, 3), []uint64{2, 2, 2, 2}},
		{messageOf(2, true, 3), nil},
		{messageOf(5, false, 3, 4), []uint64{3, 3, 3, 4}},
		{messageOf(5, true, 6), nil},
		{messageOf(6, false), []uint64{6}}, // the rest said nothing to a watcher
		{messageOf(7, true, 7, 8), []uint64{7}},
		{messageOf(8, false, 8), []uint64{8, 8}},
	} {
		out := w.Add(step.in)
		if got := indexesOf(out); !slices.Equal(got, step.want) || out != nil && out.ProgressIndex != step.in.ProgressIndex {
			t.Fatalf("step %d gives %v, want %v", i, out, step.want)
		}
	}
	if m := messageOf(9, false); w.Add(m) != m {
		t.Error("a progress mark is kept back")
	}
}

// breaker is a server whose first watch breaks in the middle of an index.
type breaker struct {
	incumbentv1connect.UnimplementedLeaseServiceHandler
	mu    sync.Mutex
	after []uint64 // of each watch
}

func (b *breaker) Watch(_ context.Context, r *connect.Request[apiv1.WatchRequest], out *connect.ServerStream[apiv1.WatchResponse]) error {
	b.mu.Lock()
	b.after = append(b.after, r.Msg.AfterIndex)
	first := len(b.after) == 1
	b.mu.Unlock()
	for _, m := range []*apiv1.WatchResponse{messageOf(4, true, 3, 4, 5), messageOf(4, true, 5)} {
		if !first {
			break
		}
		if err := out.Send(m); err != nil {
			return err
		}
	}
	if first {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("gone"))
	}
	return out.Send(messageOf(5, false, 5, 5, 5))
}

// A watch that breaks in the middle of an index is resumed before it: nothing is
// yielded twice, and nothing is missing.
func TestG16_ResumesBeforeAnIndexThatWasNotWhole(t *testing.T) {
	b := &breaker{}
	mux := http.NewServeMux()
	mux.Handle(incumbentv1connect.NewLeaseServiceHandler(b))
	web := httptest.NewServer(mux)
	defer web.Close()
	var got [][]uint64
	for m, err := range clientOf(t, web.URL).Watch(testContext(t), WatchOptions{Name: named("p"), Prefix: true, After: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, indexesOf(m)); m.ProgressIndex == 5 {
			break
		}
	}
	if want := [][]uint64{{3, 4}, {5, 5, 5}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("yielded %v, want %v", got, want)
	}
	if want := []uint64{2, 4}; !slices.Equal(b.after, want) {
		t.Errorf("resumed after %v, want %v", b.after, want)
	}
}

// A watch that resumes after an index the cluster does not have says so.
func TestG16_AnIndexThatDoesNotExistIsSaid(t *testing.T) {
	s := startServer(t, serverConfig(t))
	for m, err := range clientOf(t, s.URL()).Watch(testContext(t), WatchOptions{Name: named("p"), Prefix: true, After: 1 << 40}) {
		if incumbent.KindOf(err) != incumbent.Compacted {
			t.Fatalf("got %v, %v", m, err)
		}
		return
	}
	t.Fatal("the watch ended without a word")
}

// A session with more leases than an answer holds keeps all of them over a
// broken connection.
func TestG04_ASessionOfManyPagesIsResumed(t *testing.T) {
	const leases = 1100 // a page has 1,000
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	session := openSession(t, clientOf(t, r.url()), SessionConfig{TTL: longTTL})
	held := make([]*Lease, leases)
	var claims sync.WaitGroup
	room := make(chan struct{}, 64)
	for i := range held {
		room <- struct{}{}
		claims.Go(func() {
			defer func() { <-room }()
			var err error
			if held[i], err = session.Claim(testContext(t), named(fmt.Sprintf("many-%04d", i)), ClaimOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	claims.Wait()
	if t.Failed() {
		t.FailNow()
	}
	first := session.current()
	r.cut()
	last := mustClaim(t, session, "zz-last") // waits for the next link
	if session.current() == first {
		t.Fatal("the same link")
	}
	for i, l := range append(held, last) {
		if !l.Held() {
			t.Fatalf("lease %d is no longer held: %v", i, context.Cause(l.Context()))
		}
	}
	got, err := session.c.sessions.GetSession(testContext(t), connect.NewRequest(&apiv1.GetSessionRequest{Id: session.ID().String()}))
	if err != nil || got.Msg.Session.Leases != leases+1 || got.Msg.Next == nil {
		t.Fatalf("at the server: %v, %v", got.Msg.GetSession(), err)
	}
}
