package server

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/door/consul"
	"github.com/incumbent-dev/incumbent/node"
)

// clusterTimeout bounds what several members have to agree on.
const clusterTimeout = 2 * time.Minute

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

// tokenOf makes a join token on a member, for one of that name.
func tokenOf(t testing.TB, s *Server, name string) string {
	t.Helper()
	res, err := s.operator().CreateToken(testContext(t), &apiv1.CreateTokenRequest{Name: name}, "operator:test")
	if err != nil {
		t.Fatal(err)
	}
	return res.Token
}

// voting are the names of those who vote, as a member sees it.
func voting(s *Server) []string {
	var names []string
	for _, m := range s.operator().Show(s.cluster.Heard()) {
		if m.Role == "leader" || m.Role == "follower" || m.Role == "candidate" {
			names = append(names, m.Name)
		}
	}
	return names
}

// join starts a member and waits until it votes.
func join(t testing.TB, first *Server, cfg Config) *Server {
	t.Helper()
	cfg.JoinToken = tokenOf(t, first, cfg.Name)
	s := open(t, cfg)
	until(t, cfg.Name+" votes", func() bool { return slices.Contains(voting(first), cfg.Name) && slices.Contains(voting(s), cfg.Name) })
	return s
}

// trio is a cluster of three.
func trio(t testing.TB) []*Server {
	t.Helper()
	return trioWith(t, func(cfg Config) Config { return cfg })
}

// trioWith is one whose members have something besides.
func trioWith(t testing.TB, with func(Config) Config) []*Server {
	t.Helper()
	first := open(t, with(memberConfig(t, "n1")))
	return []*Server{first, join(t, first, with(memberConfig(t, "n2"))), join(t, first, with(memberConfig(t, "n3")))}
}

// leaderOf waits until all of some members agree on who leads.
func leaderOf(t testing.TB, members ...*Server) *Server {
	t.Helper()
	var found *Server
	until(t, "everybody knows one leader", func() bool {
		id := members[0].cluster.Leader()
		found = nil
		for _, s := range members {
			if s.cluster.Leader() != id {
				return false
			}
			if s.cluster.ID() == id {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// propose has a command applied.
func propose(t testing.TB, s *Server, cmd core.Command) {
	t.Helper()
	done := make(chan error, 1)
	s.node.Propose(node.Proposal{Command: cmd.Encode(core.Meta{}), Done: func(_ any, err error) { done <- err }})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// acknowledged is up to where a member has acknowledged to another one, if that
// leads.
func acknowledged(leader *Server, id uint64) uint64 {
	for _, p := range leader.node.Status().Peers {
		if p.ID == id {
			return p.Match
		}
	}
	return 0
}

// crash ends a member without handing anything over.
func crash(t testing.TB, s *Server) {
	t.Helper()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	s.cluster.Close(now) // its sockets go first, as when a process is killed
	s.Close(now)
	if err := s.wait(testContext(t)); err != nil {
		t.Fatal(err)
	}
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
	crash(t, old)
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
		a, b := rest[0].engine.View(), rest[1].engine.View()
		return a.Index() == b.Index() && a.Hash() == b.Hash()
	})
}

// eventsOf are what happened, as the timeline has it.
func eventsOf(s *Server, what string) (out []Event) {
	all, _, _ := s.events.after(0, timelineKept)
	for _, e := range all {
		if e.What == what {
			out = append(out, e)
		}
	}
	return out
}

// A member that lost its disk comes back by itself under a new id, and its old
// one is gone in the same change.
func TestG34_AWipedMemberComesBackAsAnother(t *testing.T) {
	members := trioWith(t, withConsul)
	leader := leaderOf(t, members...)
	i := slices.IndexFunc(members, func(s *Server) bool { return s != leader })
	wiped := members[i]
	old, name := wiped.cluster.ID(), wiped.cfg.Name
	crash(t, wiped)
	cfg := withConsul(memberConfig(t, name))
	cfg.JoinToken = tokenOf(t, leader, name)
	until(t, "the others notice", func() bool { return !leader.cluster.Connected(old) })
	back := open(t, cfg)
	if back.cluster.ID() == old {
		t.Fatal("it has its old id")
	}
	until(t, "it votes in the place of the old one", func() bool {
		look := leader.cluster.Roster()
		_, counted := look.Counted[old]
		return !counted && look.Counted[back.cluster.ID()] && len(look.Counted) == 3
	})
	if n := len(eventsOf(leader, "member replaced")); n != 1 {
		t.Errorf("%d replacements noted", n)
	}
	if _, err := claim(t, clientOf(t, back), "a", "h"); err != nil {
		t.Errorf("claim on the member that came back: %v", err)
	}
	until(t, "its node in the catalog is the new one's", func() bool {
		n := catalog.Of(leader.engine.View()).Node("default", name)
		return n != nil && n.ID == leader.consul.door.ServerID(&consul.Member{ID: back.cluster.ID(), Name: name})
	})
	// Started again it needs no token, but may keep it.
	again := back.cfg
	again.Listen, again.PeerListen = back.gate.Addr().String(), back.PeerAddr()
	if err := back.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := open(t, again); s.cluster.ID() != back.cluster.ID() {
		t.Errorf("restarted as %x, was %x", s.cluster.ID(), back.cluster.ID())
	}
}

// A copy of a member's disk that was made while it ran, put back a moment later,
// lacks what the member has acknowledged to the leader since: it is told to go.
func TestG34_ADiskPutBackIsNoticedAtOnce(t *testing.T) {
	members := trio(t)
	leader := leaderOf(t, members...)
	m := members[(slices.Index(members, leader)+1)%3]
	// Any member may have been shown more of it; only acknowledgements count here.
	until(t, "all is applied everywhere", func() bool {
		return members[0].engine.View().Index() == members[1].engine.View().Index() && members[0].engine.View().Index() == members[2].engine.View().Index()
	})
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(m.cfg.DataDir)); err != nil {
		t.Fatal(err)
	}
	before, _ := m.node.Held()
	if _, err := claim(t, clientOf(t, m), "since", "h"); err != nil {
		t.Fatal(err)
	}
	until(t, "the member has acknowledged it", func() bool { return acknowledged(leader, m.cluster.ID()) > before })
	crash(t, m)
	cfg := m.cfg
	cfg.DataDir, cfg.Listen, cfg.PeerListen, cfg.JoinToken = copied, "127.0.0.1:0", m.PeerAddr(), ""
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	if err := s.Wait(); incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), "remembers more of this member") {
		t.Errorf("it ended with %v", err)
	}
}

// A command that not all members know is refused wherever it comes from, also by a
// leader to which it was forwarded; nothing else suffers.
func TestG49_WhatAnOldMemberDoesNotKnowIsNotProposed(t *testing.T) {
	members := trio(t)
	leader := leaderOf(t, members...)
	cmd := leases.ClaimCommand{Name: incumbent.Name{Namespace: "n", Model: "m", Lease: "l"}, Holder: "h", TTL: time.Minute}.Encode(core.Meta{})
	newer := append([]byte{1 << 3, core.SchemaVersion + 1}, cmd[2:]...)
	if got := core.RequiredSchema(newer); got != core.SchemaVersion+1 {
		t.Fatalf("the command needs schema %d", got)
	}
	until(t, "all are recorded", func() bool { return len(leader.engine.View().Members()) == 3 })
	// One says that it knows the next schema; the others do not.
	ahead := members[(slices.Index(members, leader)+1)%3]
	record, _ := leader.engine.View().Member(ahead.cluster.ID())
	record.Schema++
	propose(t, leader, core.PutMemberCommand{Member: record})
	for _, s := range members {
		refused := make(chan error, 1)
		s.node.Propose(node.Proposal{Command: newer, Done: func(_ any, err error) { refused <- err }})
		var e *incumbent.Error
		if err := <-refused; !errors.As(err, &e) || e.Kind != incumbent.Unavailable || !strings.Contains(e.Hint, leader.cfg.Name) {
			t.Errorf("on %s: %v", s.cfg.Name, err)
		}
	}
	for _, s := range members {
		if _, err := claim(t, clientOf(t, s), "by-"+s.cfg.Name, "h"); err != nil {
			t.Errorf("claim on %s: %v", s.cfg.Name, err)
		}
	}
	old := &apiv1.JoinRequest{
		Token: tokenOf(t, leader, "n9"), Name: "n9", MemberId: cluster.FormatID(record.ID + 1), PeerAddress: record.PeerAddress, ClientUrl: record.ClientURL,
		Schema: core.SchemaVersion - 1,
	}
	if _, err := leader.cluster.Join(testContext(t), old, "here"); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a member that is too old joins: %v", err)
	}
}

func TestAMemberLeavesAndItsProcessEnds(t *testing.T) {
	members := trio(t)
	leader := leaderOf(t, members...)
	if _, err := leader.operator().Leave(testContext(t), &apiv1.LeaveRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := leader.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if err := leader.Close(testContext(t)); err != nil {
		t.Errorf("close: %v", err)
	}
	rest := slices.DeleteFunc(slices.Clone(members), func(s *Server) bool { return s == leader })
	until(t, "the others are two", func() bool {
		return len(rest[0].cluster.Roster().Counted) == 2 && len(rest[1].cluster.Roster().Counted) == 2
	})
	if _, err := claim(t, clientOf(t, rest[0]), "a", "h"); err != nil {
		t.Errorf("claim afterwards: %v", err)
	}
	// Back on its old data it is told to go, and says what to do.
	cfg := leader.cfg
	cfg.Listen, cfg.PeerListen = "127.0.0.1:0", "127.0.0.1:0"
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	err = s.Wait()
	if e, ok := err.(*incumbent.Error); !ok || e.Kind != incumbent.Conflict || e.Hint == "" {
		t.Errorf("a member that was removed ends with %v", err)
	}
}

func TestMembersAreRemovedPromotedAndLead(t *testing.T) {
	members := trio(t)
	cfg := memberConfig(t, "n4")
	cfg.JoinToken, cfg.Learner = tokenOf(t, members[1], cfg.Name), true // of any member
	fourth := open(t, cfg)
	leader := leaderOf(t, append(members, fourth)...)
	admin := leader.operator()
	ctx := testContext(t)
	role := func(name string) string {
		for _, m := range admin.Show(admin.Heard()) {
			if m.Name == name {
				return m.Role
			}
		}
		return "none"
	}
	until(t, "n4 learns", func() bool { return role("n4") == "learner" })
	if err := extendAt(t, fourth, "via a learner"); err != nil {
		t.Error(err)
	}
	if _, err := admin.TransferLeader(ctx, &apiv1.TransferLeaderRequest{Member: "n4"}); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a learner leads: %v", err)
	}
	if res, err := admin.PromoteMember(ctx, &apiv1.PromoteMemberRequest{Member: "n4"}); err != nil || res.Pending {
		t.Errorf("promotion: %v, %v", res, err)
	}
	if _, err := admin.TransferLeader(ctx, &apiv1.TransferLeaderRequest{Member: "n4"}); err != nil {
		t.Errorf("transfer: %v", err)
	}
	leaderOf(t, append(members, fourth)...)
	if _, err := admin.RemoveMember(ctx, &apiv1.RemoveMemberRequest{Member: "n4"}); incumbent.KindOf(err) != incumbent.NotLeader {
		t.Errorf("a follower removes: %v", err)
	}
	if _, _, url := admin.Standing(); url != fourth.URL() {
		t.Errorf("the leader is said to be at %q", url)
	}
	admin = fourth.operator()
	if _, err := admin.RemoveMember(ctx, &apiv1.RemoveMemberRequest{Member: "n5"}); incumbent.KindOf(err) != incumbent.NotFound {
		t.Errorf("a member that is none is removed: %v", err)
	}
	gone := members[0]
	if _, err := admin.RemoveMember(ctx, &apiv1.RemoveMemberRequest{Member: cluster.FormatID(gone.cluster.ID())}); err != nil {
		t.Fatal(err)
	}
	if err := gone.Wait(); incumbent.KindOf(err) != incumbent.Conflict {
		t.Errorf("the removed member ends with %v", err)
	}
	crash(t, members[1])
	until(t, "it is noticed", func() bool { return !fourth.cluster.Connected(members[1].cluster.ID()) })
	if _, err := admin.RemoveMember(ctx, &apiv1.RemoveMemberRequest{Member: members[2].cfg.Name}); incumbent.KindOf(err) != incumbent.Conflict {
		t.Errorf("the rest without a majority: %v", err)
	}
	if _, err := admin.RemoveMember(ctx, &apiv1.RemoveMemberRequest{Member: members[1].cfg.Name}); err != nil {
		t.Errorf("the dead one: %v", err)
	}
}

// extendAt claims and extends on one member.
func extendAt(t testing.TB, s *Server, name string) error {
	t.Helper()
	res, err := claim(t, clientOf(t, s), strings.ReplaceAll(name, " ", "-"), "h")
	if err != nil {
		return err
	}
	return extend(t, s, strings.ReplaceAll(name, " ", "-"), "h", res.Lease.Token)
}

// A voter that was removed votes as long as the others have no majority without it, and goes
// once they do.
func TestARemovedVoterVotesAsLongAsItIsNeeded(t *testing.T) {
	members := trio(t)
	leader := leaderOf(t, members...)
	others := slices.DeleteFunc(slices.Clone(members), func(s *Server) bool { return s == leader })
	removed, down := others[0], others[1]
	cfg := down.cfg
	cfg.Listen, cfg.PeerListen, cfg.JoinToken = "127.0.0.1:0", down.PeerAddr(), ""
	crash(t, down)
	until(t, "it is noticed", func() bool {
		return slices.ContainsFunc(leader.node.Status().Peers, func(p node.PeerStatus) bool { return p.ID == down.cluster.ID() && !p.Active })
	})
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	_, err := leader.operator().RemoveMember(ctx, &apiv1.RemoveMemberRequest{Member: removed.cfg.Name, Force: true})
	if incumbent.KindOf(err) != incumbent.DeadlineExceeded {
		t.Fatalf("removed by force: %v, want that it is decided", err)
	}
	select {
	case <-removed.ended:
		t.Fatalf("it ends while it is needed: %v", removed.cause)
	case <-time.After(12 * time.Second): // longer than it stays without hearing that it is let go
	}
	if _, err := claim(t, clientOf(t, leader), "meanwhile", "h"); err != nil {
		t.Errorf("a claim meanwhile: %v", err)
	}
	open(t, cfg)
	if err := removed.Wait(); incumbent.KindOf(err) != incumbent.Conflict {
		t.Errorf("it ends with %v", err)
	}
	if _, err := claim(t, clientOf(t, leader), "afterwards", "h"); err != nil {
		t.Errorf("a claim afterwards: %v", err)
	}
}

// All members stop and come back, and find one another.
func TestAWholeClusterRestarts(t *testing.T) {
	members := trio(t)
	res, err := claim(t, clientOf(t, members[2]), "kept", "h")
	if err != nil {
		t.Fatal(err)
	}
	var configs []Config
	for _, s := range members {
		cfg := s.cfg
		cfg.Listen, cfg.PeerListen, cfg.JoinToken = "127.0.0.1:0", s.PeerAddr(), ""
		configs = append(configs, cfg)
	}
	for _, s := range members {
		crash(t, s)
	}
	var again []*Server
	for _, cfg := range configs {
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(context.Background()) })
		again = append(again, s)
	}
	for i, s := range again {
		if err := s.WaitReady(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if s.cluster.ID() != members[i].cluster.ID() {
			t.Errorf("%s is another member", s.cfg.Name)
		}
	}
	if err := extend(t, again[0], "kept", "h", res.Lease.Token); err != nil {
		t.Error(err)
	}
	until(t, "their new URLs are known", func() bool {
		m, _ := again[0].engine.View().Member(again[2].cluster.ID())
		return m.ClientURL == again[2].URL()
	})
}

func TestJoinRefuses(t *testing.T) {
	first, other := open(t, memberConfig(t, "n1")), open(t, memberConfig(t, "n9"))
	second := join(t, first, memberConfig(t, "n2"))
	until(t, "the two are connected", func() bool { return first.cluster.Connected(second.cluster.ID()) })
	leader := leaderOf(t, first, second)
	for name, tt := range map[string]struct {
		change func(*Config)
		want   incumbent.Kind
	}{
		"another cluster's token": {func(c *Config) { c.JoinToken = moved(t, other, first) }, incumbent.Denied},
		"a token made up": {func(c *Config) {
			var err error
			c.JoinToken, err = ca.NewToken(ca.NewSecret(), &ca.Token{Addresses: []string{first.URL()}, Cluster: first.node.Status().Cluster, Name: "n3", Expires: time.Now().Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
		}, incumbent.Denied},
		"a token that was not recorded": {func(c *Config) {
			var err error
			record, rerr := cluster.ReadRecord(first.cfg.DataDir)
			if rerr != nil {
				t.Fatal(rerr)
			}
			c.JoinToken, err = ca.NewToken(record.Secret, &ca.Token{Addresses: []string{first.URL()}, Cluster: first.node.Status().Cluster, Name: "n3", Expires: time.Now().Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
		}, incumbent.Denied},
		"a token for another name":     {func(c *Config) { c.Name = "n4" }, incumbent.Invalid},
		"the name of a live member":    {func(c *Config) { c.Name, c.JoinToken = "n1", tokenOf(t, leader, "n1") }, incumbent.Exists},
		"the name of another live one": {func(c *Config) { c.Name, c.JoinToken = "n2", tokenOf(t, leader, "n2") }, incumbent.Exists},
		"a directory of another cluster": {func(c *Config) {
			c.DataDir = other.cfg.DataDir
		}, incumbent.Conflict},
	} {
		cfg := memberConfig(t, "n3")
		cfg.JoinToken = tokenOf(t, leader, "n3")
		tt.change(&cfg)
		s, err := Open(cfg)
		if incumbent.KindOf(err) != tt.want {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
		if err == nil {
			s.Close(context.Background())
		}
	}
}

// moved is a token of one cluster that names a member of another as where to ask.
func moved(t testing.TB, of, to *Server) string {
	t.Helper()
	token, err := ca.ParseToken(tokenOf(t, of, "n3"))
	if err != nil {
		t.Fatal(err)
	}
	token.Addresses = []string{to.URL()}
	record, err := cluster.ReadRecord(of.cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := ca.NewToken(record.Secret, &token)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Over the cluster's own authority, members, clients and operators need no file
// but what it signs.
func TestAClusterWithItsOwnAuthority(t *testing.T) {
	cfg := memberConfig(t, "n1")
	made, err := cluster.Init(cluster.InitConfig{DataDir: cfg.DataDir, Name: "n1", TLS: true, Hosts: []string{"n1.example"}})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := cluster.Init(cluster.InitConfig{DataDir: cfg.DataDir, TLS: true}); err != nil || !again.Existed || again.CAHash != made.CAHash || again.MemberID != made.MemberID {
		t.Fatalf("twice: %+v, %v", again, err)
	}
	if _, err := cluster.Init(cluster.InitConfig{DataDir: cfg.DataDir, Name: "n9", TLS: true}); incumbent.KindOf(err) != incumbent.Conflict {
		t.Errorf("under another name: %v", err)
	}
	first := open(t, cfg)
	if got := cluster.FormatID(first.cluster.ID()); got != made.MemberID {
		t.Errorf("member %s, init said %s", got, made.MemberID)
	}
	second, third := join(t, first, memberConfig(t, "n2")), join(t, first, memberConfig(t, "n3"))
	secured := client.Config{CAFile: made.CAFile, CertFile: made.OperatorCert, KeyFile: made.OperatorKey}
	for _, s := range []*Server{first, second, third} {
		if !strings.HasPrefix(s.URL(), "https://") {
			t.Fatalf("%s serves %s", s.cfg.Name, s.URL())
		}
		c := secured
		c.Servers = []string{s.URL()}
		if _, err := claim(t, dialer(t, c), "on-"+s.cfg.Name, "h"); err != nil {
			t.Errorf("an operator on %s: %v", s.cfg.Name, err)
		}
		if _, err := claim(t, dialer(t, client.Config{Servers: []string{s.URL()}, CAFile: made.CAFile}), "x", "h"); incumbent.KindOf(err) != incumbent.Denied {
			t.Errorf("a stranger on %s: %v", s.cfg.Name, err)
		}
	}
	// New certificates are shown to clients and peers, and nobody is lost over it: the
	// first member signs those of the others.
	members := []*Server{first, second, third}
	var before []*x509.Certificate
	for _, s := range members {
		before = append(before, s.ownTLS.Certificate().Leaf)
	}
	if _, err := third.operator().RotateTrust(testContext(t), &apiv1.RotateRequest{What: apiv1.Rotation_ROTATION_CERTIFICATES}, "operator:test"); err != nil {
		t.Fatal(err)
	}
	for i, s := range members {
		until(t, s.cfg.Name+" has a new key", func() bool {
			leaf := s.ownTLS.Certificate().Leaf
			return leaf.SerialNumber.Cmp(before[i].SerialNumber) != 0 && !bytes.Equal(leaf.RawSubjectPublicKeyInfo, before[i].RawSubjectPublicKeyInfo)
		})
	}
	until(t, "all are connected", func() bool {
		return first.cluster.Connected(second.cluster.ID()) && third.cluster.Connected(second.cluster.ID())
	})
	c := secured
	c.Servers = []string{second.URL()}
	if _, err := claim(t, dialer(t, c), "later", "h"); err != nil {
		t.Errorf("after the renewal: %v", err)
	}
}

// A member that asked to leave, and was not told whether it may, ends without a fault once
// it is out.
func TestAMemberLeavesThoughItIsNotTold(t *testing.T) {
	members := trio(t)
	leader := leaderOf(t, members...)
	i := slices.IndexFunc(members, func(s *Server) bool { return s != leader })
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := members[i].operator().Leave(gone, &apiv1.LeaveRequest{}); err != nil && incumbent.KindOf(err) != incumbent.Unknown {
		t.Fatalf("whose call has ended hears %v", err)
	}
	until(t, "it is out", func() bool {
		select {
		case <-members[i].ended:
			return true
		default:
			return false
		}
	})
	if err := members[i].Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
