package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/trust"
)

// withAuthority is the first member of a cluster with an authority of its own.
func withAuthority(t testing.TB) *Server {
	t.Helper()
	cfg := memberConfig(t, "n1")
	if _, err := cluster.Init(cluster.InitConfig{DataDir: cfg.DataDir, Name: "n1", TLS: true}); err != nil {
		t.Fatal(err)
	}
	return open(t, cfg)
}

// requestOf asks a member to join by hand.
func requestOf(t testing.TB, token, name string, id uint64) *apiv1.JoinRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := ca.Request(key, name, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return &apiv1.JoinRequest{
		Token: token, Name: name, MemberId: cluster.FormatID(id), PeerAddress: "127.0.0.1:1", ClientUrl: "https://127.0.0.1:2", Schema: core.SchemaVersion, Csr: csr,
	}
}

// Whoever has a token can become one member of one name, once; it cannot become a
// member that is there, and what it gets lets it be nobody else.
func TestATokenGivesOnePlaceAndNoMore(t *testing.T) {
	first := withAuthority(t)
	second := join(t, first, memberConfig(t, "n2"))
	used := second.cfg.JoinToken
	until(t, "it has come up", func() bool {
		m := trust.Of(first.engine.View()).Member(second.cluster.ID())
		return m != nil && m.Secret != (trust.Hash{})
	})
	leader := leaderOf(t, first, second)
	ask := func(what string, want incumbent.Kind, r *apiv1.JoinRequest) *apiv1.JoinResponse {
		t.Helper()
		out, err := leader.cluster.Join(testContext(t), r, "192.0.2.1:99")
		if incumbent.KindOf(err) != want {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		return out
	}
	ask("a used token, under the member's own id and name", incumbent.Denied, requestOf(t, used, "n2", second.cluster.ID()))
	ask("a used token, as another", incumbent.Denied, requestOf(t, used, "n2", 77))
	token := tokenOf(t, first, "n3")
	ask("the id of a member that lives", incumbent.Denied, requestOf(t, token, "n3", second.cluster.ID()))
	ask("the leader's id", incumbent.Denied, requestOf(t, token, "n3", leader.cluster.ID()))
	ask("for another name", incumbent.Denied, requestOf(t, token, "n4", 78))
	r := requestOf(t, token, "n3", 79)
	got := ask("as it is meant", incumbent.OK, r)
	again := ask("again, for the answer was lost", incumbent.OK, r)
	if len(got.Certificate) == 0 || len(again.Certificate) == 0 {
		t.Fatal("no certificate")
	}
	ask("again, for another key", incumbent.Denied, requestOf(t, token, "n3", 79))
	record, err := cluster.ReadRecord(first.cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(first.cfg.DataDir, "tls", "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if said := got.String(); strings.Contains(said, string(key[30:60])) || strings.Contains(said, hex.EncodeToString(record.Secret)) || strings.Contains(said, string(record.Secret)) {
		t.Error("the answer to joining has a secret in it")
	}
	if _, err := os.Stat(filepath.Join(second.cfg.DataDir, "tls", "ca.key")); err == nil {
		t.Error("a member that is not to sign has the authority's key")
	}
	until(t, "the state says who has the authority's key", func() bool { return len(second.cluster.Signers()) == 1 })
	agent := auth.Principal{Kind: auth.Agent, Name: "a"}
	_, _, err = second.nativeCredentials().Sign(r.Csr, agent, nil, time.Hour)
	if incumbent.KindOf(err) != incumbent.NotFound || !strings.Contains(hintOf(err), "n1 ("+first.URL()+")") {
		t.Errorf("a member without the key is asked to sign: %v,%s", err, hintOf(err))
	}
	if _, _, err := first.nativeCredentials().Sign(r.Csr, agent, nil, time.Hour); err != nil {
		t.Errorf("the one that has it: %v", err)
	}
	for _, e := range append(eventsOf(leader, "member joins"), eventsOf(leader, "join refused")...) {
		if !strings.Contains(e.Detail, "token ") || !strings.Contains(e.Detail, ":") || strings.Contains(e.Detail, "INC2") {
			t.Errorf("%s: %s", e.What, e.Detail)
		}
	}
	if n := len(eventsOf(leader, "join refused")); n != 1 { // of those within ten seconds
		t.Errorf("%d refusals are noted", n)
	}
	revoked := tokenOf(t, first, "n5")
	parsed, err := ca.ParseToken(revoked)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.operator().RevokeToken(testContext(t), &apiv1.RevokeTokenRequest{Id: hex.EncodeToString(parsed.ID[:])}, "operator:test"); err != nil {
		t.Fatal(err)
	}
	ask("a token that was taken back", incumbent.Denied, requestOf(t, revoked, "n5", 80))
}

// Two members are asked with one token at once: one place is given.
func TestATokenIsSpentInTheLog(t *testing.T) {
	first := withAuthority(t)
	token := tokenOf(t, first, "n2")
	const attempts = 8
	results := make(chan error, attempts)
	for i := range attempts {
		r := requestOf(t, token, "n2", uint64(100+i))
		go func() {
			_, err := first.cluster.Join(context.Background(), r, "192.0.2.1:99")
			results <- err
		}()
	}
	given := 0
	for range attempts {
		switch err := <-results; incumbent.KindOf(err) {
		case incumbent.OK:
			given++
		case incumbent.Denied:
		default:
			t.Errorf("refused with %v", err)
		}
	}
	if given != 1 {
		t.Errorf("%d got a place", given)
	}
}

// A signer gets the authority's key from the others once it is a member, and signs
// for one that joins while the first member's key is elsewhere; without any, joining
// waits until it is back.
func TestWhoSigns(t *testing.T) {
	first := withAuthority(t)
	cfg := memberConfig(t, "n2")
	res, err := first.operator().CreateToken(testContext(t), &apiv1.CreateTokenRequest{Name: "n2", Signer: true}, "operator:test")
	if err != nil {
		t.Fatal(err)
	}
	cfg.JoinToken = res.Token
	second := open(t, cfg)
	place := filepath.Join(second.cfg.DataDir, "tls", "ca.key")
	until(t, "the signer has the key", func() bool { _, err := os.Stat(place); return err == nil })
	away, key := filepath.Join(first.cfg.DataDir, "tls", "ca.key"), filepath.Join(t.TempDir(), "ca.key")
	text, err := os.ReadFile(away)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(away); err != nil {
		t.Fatal(err)
	}
	join(t, first, memberConfig(t, "n3")) // signed by n2, or by n1 that has asked for the key again
}
