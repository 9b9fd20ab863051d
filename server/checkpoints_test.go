package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/cluster"
)

// comparing makes members that compare their states as often as they may.
func comparing(t testing.TB, n int) []*Server {
	t.Helper()
	config := func(i int) Config {
		cfg := memberConfig(t, fmt.Sprintf("n%d", i+1))
		cfg.CheckpointInterval = minCheckpointInterval
		return cfg
	}
	members := []*Server{open(t, config(0))}
	for i := 1; i < n; i++ {
		members = append(members, join(t, members[0], config(i)))
	}
	return members
}

// distort has a member apply claims for another holder than it was told.
func distort(s *Server) {
	f := func(cmds [][]byte) {
		for i, c := range cmds {
			cmds[i] = bytes.Replace(c, []byte("victim"), []byte("thiefs"), 1)
		}
	}
	s.tamper.Store(&f)
}

func statusOf(t testing.TB, s *Server) *apiv1.StatusResponse {
	t.Helper()
	st, err := s.operator().Status(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// The one whose state is another than that of a majority stops and says so; the
// others go on.
func TestG27_AMemberWhoseStateDiffersStops(t *testing.T) {
	for _, which := range []string{"leader", "follower"} {
		t.Run(which, func(t *testing.T) {
			members := comparing(t, 3)
			leader := leaderOf(t, members...)
			until(t, "all agree at first", func() bool {
				return !slices.ContainsFunc(members, func(s *Server) bool { return s.cluster.AgreedAt() == 0 })
			})
			bad := leader
			if which == "follower" {
				bad = members[(slices.Index(members, leader)+1)%3]
			}
			rest := slices.DeleteFunc(slices.Clone(members), func(s *Server) bool { return s == bad })
			distort(bad)
			if _, err := claim(t, clientOf(t, rest[0]), "a", "victim"); err != nil {
				t.Fatal(err)
			}
			err := bad.Wait()
			if incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), "at index ") || strings.Count(err.Error(), "hash") != 1 {
				t.Fatalf("it ended with %v", err)
			}
			if _, err := claim(t, clientOf(t, bad), "b", "h"); err == nil {
				t.Error("it grants all the same")
			}
			before := rest[0].cluster.AgreedAt()
			if err := bad.Close(testContext(t)); incumbent.KindOf(err) != incumbent.Corrupt {
				t.Errorf("close: %v", err)
			}
			if again, err := Open(bad.cfg); incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(fmt.Sprint(err), "at index ") {
				t.Errorf("started again it is %v, %v", again, err)
			}
			if _, err := claim(t, clientOf(t, rest[0]), "c", "h"); err != nil {
				t.Errorf("claim on another: %v", err)
			}
			until(t, "the others go on comparing", func() bool {
				return rest[0].cluster.AgreedAt() > before && rest[1].cluster.AgreedAt() > before
			})
			if _, text := get(t, rest[0].URL()+"/metrics"); !strings.Contains(text, "incumbent_states_differ 0") ||
				strings.Contains(text, "incumbent_state_agreed_index 0") {
				t.Error("the metrics do not show that the others agree")
			}
		})
	}
}

// Of two, nobody knows who is right: no grants, anywhere; giving up goes on.
func TestG27_WithoutAMajorityNobodyGrants(t *testing.T) {
	members := comparing(t, 2)
	before, err := claim(t, clientOf(t, members[0]), "kept", "h")
	if err != nil {
		t.Fatal(err)
	}
	distort(members[1])
	if _, err := claim(t, clientOf(t, members[0]), "a", "victim"); err != nil {
		t.Fatal(err)
	}
	for _, s := range members {
		until(t, s.cfg.Name+" alarms", func() bool { return len(eventsOf(s, "states differ")) == 1 })
		_, err := claim(t, clientOf(t, s), "b", "h")
		var e *incumbent.Error
		if !errors.As(err, &e) || e.Kind != incumbent.Unavailable || !strings.Contains(e.Hint, "incumbent debug hash") {
			t.Errorf("claim on %s: %v", s.cfg.Name, err)
		}
		opening := &apiv1.OpenSessionRequest{TtlMs: 60_000}
		if _, err := clientOf(t, s).Sessions().OpenSession(testContext(t), connect.NewRequest(opening)); incumbent.KindOf(client.AsError(err)) != incumbent.Unavailable {
			t.Errorf("open on %s: %v", s.cfg.Name, err)
		}
		if err := extend(t, s, "kept", "h", before.Lease.Token); err != nil {
			t.Errorf("extend on %s: %v", s.cfg.Name, err)
		}
		st := statusOf(t, s)
		if !slices.Contains(st.Refusing, "growth (states differ)") || !strings.Contains(strings.Join(st.Warnings, "\n"), "no majority of the 2 voters") {
			t.Errorf("status of %s: %v, %v", s.cfg.Name, st.Refusing, st.Warnings)
		}
		if _, text := get(t, s.URL()+"/metrics"); !strings.Contains(text, "incumbent_states_differ 1") {
			t.Errorf("the metrics of %s show nothing", s.cfg.Name)
		}
	}
	release := &apiv1.ReleaseRequest{Name: before.Lease.Name, Holder: "h", Token: before.Lease.Token}
	if _, err := clientOf(t, members[1]).Leases().Release(testContext(t), connect.NewRequest(release)); err != nil {
		t.Errorf("release: %v", client.AsError(err))
	}
}

// A restart of a member does not say who is right: it grants nothing until one of them
// is recovered.
func TestG27_TheAlarmOutlivesARestart(t *testing.T) {
	config := func(name string) Config {
		cfg := memberConfig(t, name)
		cfg.CheckpointInterval = time.Hour // none but those asked for
		return cfg
	}
	first := open(t, config("n1"))
	second := join(t, first, config("n2"))
	distort(second)
	if _, err := claim(t, clientOf(t, first), "a", "victim"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Server{first, second} {
		until(t, s.cfg.Name+" alarms", func() bool {
			if _, err := first.operator().StateHash(testContext(t)); err != nil {
				t.Fatal(err)
			}
			return len(eventsOf(s, "states differ")) == 1
		})
	}
	cfg := second.cfg
	cfg.Listen, cfg.PeerListen, cfg.JoinToken = "127.0.0.1:0", second.PeerAddr(), ""
	if err := second.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	again := open(t, cfg)
	if _, err := claim(t, clientOf(t, again), "b", "h"); incumbent.KindOf(err) != incumbent.Unavailable || !again.cluster.StatesDiffer() {
		t.Errorf("claim after a restart: %v", err)
	}
	for _, s := range []*Server{first, again} {
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cluster.Recover(cluster.RecoverConfig{DataDir: cfg.DataDir}); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t, clientOf(t, open(t, cfg)), "b", "h"); err != nil {
		t.Errorf("claim on the recovered one: %v", err)
	}
}

// A checkpoint that a person asked for counts like those that the leader writes.
func TestACheckpointOnDemandIsCompared(t *testing.T) {
	members := comparing(t, 2)
	leader := leaderOf(t, members...)
	if _, err := claim(t, clientOf(t, leader), "a", "h"); err != nil {
		t.Fatal(err)
	}
	until(t, "they agree on everything", func() bool {
		at := members[0].cluster.AgreedAt()
		return at > 1 && at == leader.engine.View().Index() && at == members[1].cluster.AgreedAt()
	})
	if _, err := members[1].operator().StateHash(context.Background()); err != nil {
		t.Fatal(err)
	}
	until(t, "they agree on it", func() bool { return members[0].cluster.AgreedAt() == members[1].engine.View().Index() })
}
