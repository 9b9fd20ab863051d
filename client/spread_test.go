package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// A session that spreads finds a member that nobody named, and makes it its home: there it
// holds what it held.
func TestASessionFindsItsMembers(t *testing.T) {
	s := startServer(t, serverConfig(t))
	named, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	named.Host = "localhost:" + named.Port() // as the member does not call itself
	c := newClient(t, Config{Servers: []string{named.String()}, Spread: true})
	c.pace = pace{away: time.Nanosecond, span: time.Nanosecond, find: time.Hour}
	attached := make(chan string, 10)
	session := openSession(t, c, SessionConfig{TTL: incumbent.MinTTL, Attached: func(member string, opened bool) {
		if opened {
			member += " opened"
		}
		attached <- member
	}})
	held := mustClaim(t, session, "db")
	home, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for len(at) < 2 {
		select {
		case member := <-attached:
			at = append(at, member)
		case <-time.After(testTimeout):
			t.Fatalf("attached at %v only", at)
		}
	}
	if !slices.Equal(at, []string{named.Host + " opened", home.Host}) {
		t.Errorf("attached at %v", at)
	}
	if _, err := session.KV("").Put(testContext(t), "k", nil); err != nil || !held.Held() || session.Context().Err() != nil {
		t.Errorf("after the move: %v, held %v, %v", err, held.Held(), session.Context().Err())
	}
}

// clusterInBubble is members within a bubble, in its time, that serve sessions and nothing
// else.
type clusterInBubble struct {
	incumbentv1connect.ClusterServiceClient // no call but Members
	client                                  *Client

	mu     sync.Mutex // guards the rest
	how    map[string]memberIs
	conns  map[string][]net.Conn
	heard  time.Time     // when a session was last kept
	gap    time.Duration // the longest without that
	listed bool          // Members answers
}

// memberIs is how a member is.
type memberIs int

const (
	serving    memberIs = iota
	down                // it refuses connections
	hung                // no connection comes to be
	hungInside          // it accepts streams, and answers nothing
)

func newClusterInBubble(t *testing.T, p pace, members ...string) *clusterInBubble {
	t.Helper()
	b := &clusterInBubble{how: map[string]memberIs{}, conns: map[string][]net.Conn{}, listed: true}
	var urls []string
	for _, m := range members {
		urls = append(urls, "http://"+m)
	}
	b.client = newClient(t, Config{Servers: urls, Spread: true})
	began := time.Now()
	b.client.clock = func() time.Duration { return time.Since(began) }
	b.client.streams, b.client.cluster, b.client.pace = b.dial, b, p
	b.client.members.preferred.Store(0) // the first one is home
	return b
}

// set has a member be so, and ends its streams.
func (b *clusterInBubble) set(member string, how memberIs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.how[member] = how
	for _, c := range b.conns[member] {
		c.Close()
	}
	delete(b.conns, member)
}

func (b *clusterInBubble) dial(ctx context.Context, opts StreamOptions) (*Stream, *bufio.Reader, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	member, how := opts.Member.Host, b.how[opts.Member.Host]
	switch how {
	case down:
		return nil, nil, streamError(opts.Member, errors.New("refused"))
	case hung:
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		return nil, nil, streamError(opts.Member, ctx.Err())
	}
	near, far := net.Pipe()
	b.conns[member] = append(b.conns[member], far)
	go serveFrames(far, func(f *apiv1.ClientFrame) *apiv1.ServerFrame { return b.answer(how, f) })
	return &Stream{conn: near, member: member}, bufio.NewReader(near), nil
}

func (b *clusterInBubble) answer(how memberIs, f *apiv1.ClientFrame) *apiv1.ServerFrame {
	if how == hungInside {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.heard.IsZero() {
		b.gap = max(b.gap, time.Since(b.heard))
	}
	b.heard = time.Now()
	if f.GetStart() != nil {
		return startedFrame(f.Id)
	}
	return &apiv1.ServerFrame{Id: f.Id, Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{}}}
}

// Members implements the client of the cluster's calls.
func (b *clusterInBubble) Members(ctx context.Context, _ *connect.Request[apiv1.MembersRequest]) (*connect.Response[apiv1.MembersResponse], error) {
	b.mu.Lock()
	listed := b.listed
	b.mu.Unlock()
	if !listed {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	res := &apiv1.MembersResponse{}
	for _, u := range b.client.members.urls() {
		res.Members = append(res.Members, &apiv1.Member{Address: u.String()})
	}
	return connect.NewResponse(res), nil
}

// Sessions whose home was down come back once it is up again, each at a time of its own.
func TestASessionGoesHome(t *testing.T) {
	const sessions = 120
	synctest.Test(t, func(t *testing.T) {
		b := newClusterInBubble(t, pace{minAway, awaySpan, findEvery}, "home", "other")
		var mu sync.Mutex // guards at and since
		at, since := map[int]string{}, map[int]time.Time{}
		where := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			n := map[string]int{}
			for _, member := range at {
				n[member]++
			}
			return n
		}
		var all []*Session
		for i := range sessions {
			s, err := b.client.Open(t.Context(), SessionConfig{Attached: func(member string, _ bool) {
				mu.Lock()
				defer mu.Unlock()
				at[i], since[i] = member, time.Now()
			}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
			defer s.Detach()
		}
		if n := where(); n["home"] != sessions {
			t.Fatalf("they begin at %v", n)
		}
		for _, outage := range []time.Duration{10 * time.Second, 20 * time.Minute} {
			b.set("home", down)
			time.Sleep(outage)
			if n := where(); n["other"] != sessions {
				t.Fatalf("while home is down they are at %v", n)
			}
			b.set("home", serving)
			up := time.Now()
			if outage < minAway {
				time.Sleep(minAway - outage - time.Second)
				if n := where(); n["other"] != sessions {
					t.Errorf("before their time they are at %v", n)
				}
			}
			time.Sleep(minAway + awaySpan + DefaultSessionTTL)
			if n := where(); n["home"] != sessions {
				t.Fatalf("%v after home is back they are at %v", time.Since(up), n)
			}
			back := map[time.Duration]int{}
			mu.Lock()
			for _, t := range since {
				back[t.Sub(up)/(awaySpan/4)]++
			}
			mu.Unlock()
			for quarter, n := range back {
				if n > sessions/2 {
					t.Errorf("%d came back in minute %d: %v", n, quarter, back)
				}
			}
		}
		for _, s := range all {
			if err := s.Context().Err(); err != nil {
				t.Fatalf("one ended: %v", context.Cause(s.Context()))
			}
		}
	})
}

// Whom a member leaves go to all the others, each of which a client meets before it comes to
// one again.
func TestWhomAMemberLeavesSpread(t *testing.T) {
	for n := 1; n <= 12; n++ {
		var servers []string
		for i := range n {
			servers = append(servers, fmt.Sprintf("http://127.0.0.1:%d", 7600+i))
		}
		for _, spread := range []bool{false, true} {
			went := map[int32]int{}
			for range 400 {
				c := newClient(t, Config{Servers: servers, Spread: spread})
				c.members.preferred.Store(0)
				met := map[int32]bool{0: true}
				for i := int32(0); len(met) < n; {
					c.members.leave(i)
					if i, _ = c.members.current(); met[i] {
						t.Fatalf("of %d members %d is met twice before all are", n, i)
					}
					if met[i] = true; len(met) == 2 {
						went[i]++
					}
				}
			}
			if !spread && n > 1 && went[1] != 400 {
				t.Errorf("of %d members the second is the next: %v", n, went)
			}
			if most := slices.Max(append(slices.Collect(maps.Values(went)), 0)); spread && (n == 3 || n == 5) && most > 400*3/2/(n-1) {
				t.Errorf("of %d members they went to %v", n, went)
			}
		}
	}
}

// Neither a look at the cluster nor a home that does not answer keeps a session from being
// kept: with the shortest ttl there is, as with any.
func TestSpreadingDelaysNoBeat(t *testing.T) {
	for name, c := range map[string]struct {
		home   memberIs
		listed bool
	}{
		"nobody says who belongs to the cluster": {down, false},
		"home is not reached":                    {hung, true},
		"home does not begin":                    {hungInside, true},
		"nothing":                                {hungInside, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newClusterInBubble(t, pace{1, 1, 1}, "home", "other")
				b.listed = c.listed
				b.set("home", down)
				s, err := b.client.Open(t.Context(), SessionConfig{TTL: incumbent.MinTTL})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Detach()
				b.set("home", c.home)
				time.Sleep(time.Minute)
				b.mu.Lock()
				defer b.mu.Unlock()
				if most := incumbent.MinTTL / 2; b.gap > most {
					t.Errorf("it was not kept for %v, want %v at the most", b.gap, most)
				}
			})
		})
	}
}

func TestMembersAreRemembered(t *testing.T) {
	m, err := newMembers([]string{"http://a:1"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]int32{"http://a:1": 0, "http://a:1/": 0, "nothing": -1, "": -1} {
		if got := m.remember(address); got != want {
			t.Errorf("%q has place %d, want %d", address, got, want)
		}
	}
	for i := range maxMembers + 5 {
		u := url.URL{Scheme: "http", Host: "b" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + ":1"}
		want := int32(i + 1)
		if i+1 >= maxMembers {
			want = -1
		}
		if got := m.remember(u.String()); got != want {
			t.Fatalf("the %dth has place %d, want %d", i, got, want)
		}
	}
}

// Members that have left the cluster are tried no more, and make room for others; what the
// user has named is always tried.
func TestMembersThatHaveLeftAreNotTried(t *testing.T) {
	m, err := newMembers([]string{"http://named:1"})
	if err != nil {
		t.Fatal(err)
	}
	place := func(i int) int32 {
		return m.remember((&url.URL{Scheme: "http", Host: fmt.Sprintf("m%d:1", i)}).String())
	}
	for i := range 3 * maxMembers { // replaced one by one
		at := []int32{place(i), place(i + 1), place(i + 2)}
		if slices.Contains(at, -1) {
			t.Fatalf("there is no room for the %dth", i)
		}
		m.belong(at, len(m.urls()))
		if i%16 != 0 {
			continue
		}
		for spread := range int32(5) {
			m.spread = spread
			met := map[int32]int{}
			for j, n := int32(0), 0; n < 8; n++ {
				j = m.next(j)
				met[j]++
			}
			for _, want := range append(at, 0) {
				if met[want] != 2 {
					t.Fatalf("with %d in the list, of %v were met %v", len(m.urls()), append(at, 0), met)
				}
			}
		}
	}
	m.belong(nil, len(m.urls())) // nobody is left but whom the user has named
	if m.next(0) != 0 || m.several() {
		t.Error("one is met that has left")
	}
}
