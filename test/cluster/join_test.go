package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core"
)

// applicant is somebody with a join token and a key, and nothing else.
type applicant struct {
	t    *testing.T
	id   string
	name string
	csr  []byte
}

func newApplicant(t *testing.T, name string, n int) *applicant {
	t.Helper()
	key, err := ca.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := ca.Request(key, name, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return &applicant{t, fmt.Sprintf("%016x", 0xa00+n), name, csr}
}

// joins asks one member to be taken in, and does not go on to where that sends it.
func (a *applicant) joins(m *member, token string) (*apiv1.JoinResponse, error) {
	a.t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	res, err := incumbentv1connect.NewClusterServiceClient(&http.Client{Transport: transport, Timeout: patience}, m.URL).
		Join(a.t.Context(), connect.NewRequest(&apiv1.JoinRequest{
			Token: token, Name: a.name, MemberId: a.id, PeerAddress: "127.0.0.1:1", ClientUrl: "https://127.0.0.1:1",
			Schema: core.SchemaVersion, Learner: true, Csr: a.csr,
		}))
	if err != nil {
		return nil, client.AsError(err)
	}
	return res.Msg, nil
}

// mustBeRefused fails unless the applicant is refused for good, and is told nothing of
// secrets.
func (a *applicant) mustBeRefused(m *member, token, why string, secrets ...string) {
	a.t.Helper()
	res, err := a.joins(m, token)
	switch kind := incumbent.KindOf(err); {
	case err == nil:
		a.t.Errorf("%s: it joined: %v", why, res)
	case kind != incumbent.Denied && kind != incumbent.Invalid && kind != incumbent.Conflict:
		a.t.Errorf("%s: %v", why, err)
	}
	for _, s := range secrets {
		if err != nil && strings.Contains(fmt.Sprintf("%+v", err), s) {
			a.t.Errorf("%s: it is told of %s: %v", why, s, err)
		}
	}
}

func (c *trio) joinToken(m *member, name string) (token, id string) {
	c.t.Helper()
	token = strings.TrimSpace(c.verb(m, 0, "cluster", "token", name))
	parsed, err := ca.ParseToken(token)
	if err != nil {
		c.t.Fatal(err)
	}
	return token, fmt.Sprintf("%x", parsed.ID)
}

// However a token is used, one member of one name comes of it: raced for at the leader and
// the others, asked with again when the answer was lost, a leader has gone, or the member
// was removed. What is no token, or worth nothing any more, tells its bearer nothing, and
// events name all of it.
func TestG12_AJoinTokenIsGoodForOneJoin(t *testing.T) {
	c := start(t, "--members", "3", "--tls")
	leader := c.leader()
	token, id := c.joinToken(leader, "n4")

	const rivals = 12
	all, joined := make([]*applicant, rivals), make([]*apiv1.JoinResponse, rivals)
	var racing sync.WaitGroup
	for i := range all {
		name := "n4"
		if i%4 == 3 {
			name = "n5"
		}
		all[i] = newApplicant(t, name, i)
		racing.Go(func() {
			at := leader
			if i%3 == 2 {
				at = c.others(leader)[i%2]
			}
			res, err := all[i].joins(at, token)
			if kind := incumbent.KindOf(err); err != nil && kind != incumbent.Denied && kind != incumbent.NotLeader {
				t.Errorf("rival %d: %v", i, err)
			}
			joined[i] = res
		})
	}
	racing.Wait()
	winner := -1
	for i, res := range joined {
		switch {
		case res == nil:
		case winner >= 0 || all[i].name != "n4":
			t.Fatalf("rivals %d and %d joined, as %s and %s", winner, i, all[max(winner, 0)].name, all[i].name)
		default:
			winner = i
		}
	}
	if winner < 0 {
		t.Fatal("nobody joined")
	}
	first := joined[winner]
	text, err := protojson.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	if all := string(text) + string(first.Ca) + string(first.Certificate); strings.Contains(all, "PRIVATE KEY") || first.MemberId != c.idOf(first.Certificate) {
		t.Errorf("who joins is given %s", all)
	}
	thief := newApplicant(t, "n4", winner) // knows the id, and has another key
	again := func(m *member, when string) {
		t.Helper()
		if res, err := all[winner].joins(m, token); err != nil || res.MemberId != first.MemberId {
			t.Errorf("the same member %s: %v, %v", when, res, err)
		}
		thief.mustBeRefused(m, token, "with its id "+when)
		newApplicant(t, "n4", 99).mustBeRefused(m, token, "another "+when)
	}
	again(leader, "that heard no answer")

	leader.kill(t)
	next := c.leader(c.others(leader)...)
	again(next, "at the next leader")
	leader.again(t, nil)
	c.leader()
	c.verb(next, 0, "cluster", "rm", "n4")
	all[winner].mustBeRefused(next, token, "a member that was removed")
	newApplicant(t, "n4", 98).mustBeRefused(next, token, "in the place of one that was removed")

	taken, takenID := c.joinToken(next, "n1")
	c.verb(next, 0, "cluster", "revoke-token", takenID)
	other := newApplicant(t, "n1", 50)
	other.id = c.named("n1").ID
	cluster := fmt.Sprintf("%x", must(t, taken).Cluster)
	other.mustBeRefused(next, taken, "a token that was taken back", c.named("n1").Peer, "belongs to")
	for i := len("INC2."); i < len(taken)-1; i += 17 {
		b := []byte(taken)
		b[i] ^= 1
		other.mustBeRefused(next, string(b), fmt.Sprintf("byte %d is another", i), c.named("n1").Peer)
		other.mustBeRefused(next, taken[:i], fmt.Sprintf("cut off at %d", i))
	}
	foreign := must(t, taken)
	foreign.Cluster[0]++
	forged, err := ca.NewToken([]byte("guessed"), &foreign)
	if err != nil {
		t.Fatal(err)
	}
	other.mustBeRefused(next, forged, "of another cluster", cluster)

	var third *member // of which nobody was refused
	for _, m := range c.others(next) {
		if m != leader {
			third = m
		}
	}
	other.mustBeRefused(third, taken[:40], "cut off")
	events := c.verb(next, 0, "events", "-o", "json") + c.verb(third, 0, "events", "-o", "json")
	for _, want := range []string{"member joins", "join refused", "token " + id, "what is no token"} {
		if !strings.Contains(events, want) {
			t.Errorf("no event says %q:\n%s", want, events)
		}
	}
	if strings.Contains(events, "INC2.") {
		t.Error("an event has a token")
	}
}

func must(t *testing.T, token string) ca.Token {
	t.Helper()
	parsed, err := ca.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// idOf is the member that a certificate is for.
func (c *trio) idOf(text []byte) string {
	c.t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		c.t.Fatalf("no certificate: %q", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || len(cert.URIs) != 1 {
		c.t.Fatalf("%v, %v", cert, err)
	}
	return cert.URIs[0].Path[strings.LastIndexByte(cert.URIs[0].Path, '/')+1:]
}
