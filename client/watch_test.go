package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// A watch goes on over broken connections and yields each change once, in
// order.
func TestG16_WatchResumes(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	direct := clientOf(t, s.URL())
	session := openSession(t, direct, SessionConfig{})
	held := mustClaim(t, session, "app-0")
	const changes = 20
	var whats []string
	last, snapshots := uint64(0), 0
	for m, err := range clientOf(t, r.url()).Watch(testContext(t), WatchOptions{Name: named("app-"), Prefix: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Snapshot {
			snapshots++
			if len(m.Events) != 1 || m.Events[0].Lease.Token != uint64(held.Token()) {
				t.Fatalf("the snapshot: %v", m)
			}
		}
		for _, e := range m.Events {
			if !m.Snapshot && e.Index <= last {
				t.Fatalf("index %d after %d", e.Index, last)
			}
			last = max(last, e.Index)
			if !m.Snapshot {
				whats = append(whats, e.What)
			}
		}
		if len(whats) == changes {
			break
		}
		// The next change happens while the watch is cut off.
		if len(whats)%3 == 1 {
			r.cut()
		}
		if held.Held() {
			if err := held.Release(testContext(t)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		held = mustClaim(t, session, "app-0")
	}
	if len(whats) != changes || snapshots != 1 {
		t.Fatalf("%d changes, %d snapshots", len(whats), snapshots)
	}
	for i, what := range whats {
		if want := []string{"released", "granted"}[i%2]; what != want {
			t.Errorf("change %d is %s, want %s", i, what, want)
		}
	}
}

// A member that stands still in the middle of a watch is left for another.
func TestG16_AWatchLeavesAMemberThatStandsStill(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	session := openSession(t, clientOf(t, s.URL()), SessionConfig{})
	held := mustClaim(t, session, "app-0")
	c := failoverClient(t, r.url(), s.URL())
	c.watchSilence = patient // as long, so that only a member that is held back is left
	var whats []string
	for m, err := range c.Watch(testContext(t), WatchOptions{Name: named("app-"), Prefix: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.Events {
			if !m.Snapshot {
				whats = append(whats, e.What)
			}
		}
		if m.Snapshot {
			r.stall()
			if err := held.Release(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		if len(whats) > 0 {
			break
		}
	}
	if len(whats) != 1 || whats[0] != "released" {
		t.Errorf("got %v, want the release, once", whats)
	}
}

// Who leaves a silent member leaves that one, and not the one that others prefer by now.
func TestAWatchLeavesTheMemberThatItWasAt(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	c := failoverClient(t, r.url(), s.URL())
	c.watchSilence = time.Millisecond
	w := &watching[apiv1.WatchResponse, *apiv1.WatchResponse]{
		c: c,
		open: func(ctx context.Context, after uint64) (*connect.ServerStreamForClient[apiv1.WatchResponse], error) {
			stream, err := c.Leases().Watch(ctx, connect.NewRequest(&apiv1.WatchRequest{Name: apiName(named("db")), AfterIndex: after}))
			if err == nil && stream.Receive() {
				r.stall()
				c.members.leave(0) // as another call does that the member leaves unanswered
			}
			return stream, err
		},
		whole: func() func(*apiv1.WatchResponse) *apiv1.WatchResponse { return new(Whole).Add },
	}
	pause := minPause
	_, err := w.once(testContext(t), &pause, func(*apiv1.WatchResponse, error) bool { return true })
	if i, _ := c.members.current(); i != 1 || !errors.Is(err, errSilent) {
		t.Errorf("member %d is preferred, after %v", i, err)
	}
}

// From an index on, exactly the rest; what trying again cannot help ends it.
func TestWatchFromAnIndex(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	session := openSession(t, c, SessionConfig{})
	first, second := mustClaim(t, session, "x"), mustClaim(t, session, "y")
	for m, err := range c.Watch(testContext(t), WatchOptions{Name: named(""), Prefix: true, After: incumbent.Index(first.Token())}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Snapshot || len(m.Events) != 1 || m.Events[0].Lease.Token != uint64(second.Token()) {
			t.Errorf("after %d: %v", first.Token(), m)
		}
		break
	}
	n := 0
	for _, err := range c.Watch(testContext(t), WatchOptions{Name: named("no\nname")}) {
		n++
		if incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("a name that is none: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d yields", n)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	for range c.Watch(ctx, WatchOptions{Name: named("x")}) {
		cancel()
	}
	if ctx.Err() == nil {
		t.Error("the watch ended by itself")
	}
}

func TestIndexNeverGoesBack(t *testing.T) {
	c := clientOf(t, deadServer)
	for _, i := range []uint64{5, 3, 9, 0} {
		c.saw(i)
	}
	if c.Index() != 9 {
		t.Errorf("index %d", c.Index())
	}
}
