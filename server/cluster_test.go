package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// clusterTimeout bounds what several members have to agree on.
const clusterTimeout = 40 * time.Second

// until waits for a condition.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	limit := time.After(clusterTimeout)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within %v: %s", clusterTimeout, what)
		}
	}
}

// memberConfig is a small member that listens for others.
func memberConfig(t testing.TB, name string) Config {
	cfg := testConfig(t)
	cfg.Name, cfg.PeerListen = name, "127.0.0.1:0"
	if os.Getenv("INCUMBENT_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("member", name)
	}
	return cfg
}

// tokenOf makes a join token on a member.
func tokenOf(t testing.TB, s *Server) string {
	t.Helper()
	res, err := operator{s}.CreateToken(testContext(t), &apiv1.CreateTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return res.Token
}

// voting are the names of those who vote, as a member sees it.
func voting(s *Server) []string {
	var names []string
	for _, m := range (operator{s}).members() {
		if m.Role == "leader" || m.Role == "follower" || m.Role == "candidate" {
			names = append(names, m.Name)
		}
	}
	return names
}

// join starts a member and waits until it votes.
func join(t testing.TB, first *Server, cfg Config) *Server {
	t.Helper()
	cfg.JoinToken = tokenOf(t, first)
	s := open(t, cfg)
	until(t, cfg.Name+" votes", func() bool { return slices.Contains(voting(first), cfg.Name) && slices.Contains(voting(s), cfg.Name) })
	return s
}

// trio is a cluster of three.
func trio(t testing.TB) []*Server {
	t.Helper()
	first := open(t, memberConfig(t, "n1"))
	return []*Server{first, join(t, first, memberConfig(t, "n2")), join(t, first, memberConfig(t, "n3"))}
}

// leaderOf waits until all of some members agree on who leads.
func leaderOf(t testing.TB, members ...*Server) *Server {
	t.Helper()
	var found *Server
	until(t, "everybody knows one leader", func() bool {
		id := members[0].leader.Load()
		found = nil
		for _, s := range members {
			if s.leader.Load() != id {
				return false
			}
			if s.id == id {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// crash ends a member without handing anything over.
func crash(s *Server) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	s.peers.Close(now) // its sockets go first, as when a process is killed
	s.Close(now)
}

func extend(t testing.TB, s *Server, name, holder string, token uint64) error {
	t.Helper()
	res, err := clientOf(t, s).Leases().Extend(testContext(t), connect.NewRequest(&apiv1.ExtendRequest{Extensions: []*apiv1.Extension{{
		Name: &apiv1.LeaseName{Name: name}, Holder: holder, Token: token, TtlMs: 60_000,
	}}}))
	if err != nil {
		return client.AsError(err)
	}
	if e := res.Msg.Results[0].Error; e != nil {
		return fmt.Errorf("%s: %s", e.Kind, e.Message)
	}
	return nil
}

func TestThreeMembersServeTogether(t *testing.T) {
	members := trio(t)
	tokens := map[string]uint64{}
	for i := range 30 {
		name := fmt.Sprintf("lease-%d", i)
		res, err := claim(t, clientOf(t, members[i%3]), name, "h")
		if err != nil {
			t.Fatalf("claim on %s: %v", members[i%3].cfg.Name, err)
		}
		tokens[name] = res.Lease.Token
		if err := extend(t, members[(i+1)%3], name, "h", tokens[name]); err != nil {
			t.Fatalf("extend on %s: %v", members[(i+1)%3].cfg.Name, err)
		}
	}
	old := leaderOf(t, members...)
	crash(old)
	rest := slices.DeleteFunc(slices.Clone(members), func(s *Server) bool { return s == old })
	next := leaderOf(t, rest...)
	if next == old {
		t.Fatal("the dead member leads")
	}
	for i := range 10 {
		name := fmt.Sprintf("lease-%d", i)
		if err := extend(t, rest[i%2], name, "h", tokens[name]); err != nil {
			t.Errorf("extend on %s after the crash: %v", rest[i%2].cfg.Name, err)
		}
		if _, err := claim(t, clientOf(t, rest[i%2]), fmt.Sprintf("more-%d", i), "h"); err != nil {
			t.Errorf("claim on %s after the crash: %v", rest[i%2].cfg.Name, err)
		}
		if _, err := claim(t, clientOf(t, rest[i%2]), name, "other"); incumbent.KindOf(err) != incumbent.Held {
			t.Errorf("claim of what is held: %v", err)
		}
	}
	until(t, "the states are equal", func() bool {
		a, b := rest[0].machine.view(), rest[1].machine.view()
		return a.Index() == b.Index() && a.Hash() == b.Hash()
	})
}
