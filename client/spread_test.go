package client

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
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

// A home that is down is waited for where the session is; one that is back is gone to.
func TestASessionGoesHome(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := newClient(t, Config{Servers: []string{deadServer, s.URL()}, Spread: true})
	c.pace = pace{away: time.Nanosecond, span: time.Nanosecond, find: time.Hour}
	c.members.preferred.Store(0)
	retried := make(chan error, 100)
	session := openSession(t, c, SessionConfig{TTL: incumbent.MinTTL, Retrying: func(err error) { retried <- err }})
	if len(retried) == 0 {
		t.Error("it did not try its home")
	}
	// Beats go on where it is: past several turns of going home in vain.
	mark := session.clock() + 2*incumbent.MinTTL
	for session.clock() < mark {
		if _, err := session.KV("").Put(testContext(t), "k", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := session.Context().Err(); err != nil {
		t.Errorf("the session ended: %v", err)
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
