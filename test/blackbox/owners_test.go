package blackbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// people is a server that lets in who has a credential, and writes an audit log.
type people struct {
	*member
	tokens      map[string]string
	credentials string // the file
	audit       string
	consul      string // address of the door for Consul's clients
}

func startPeople(t *testing.T) *people {
	t.Helper()
	dir := t.TempDir()
	p := &people{tokens: map[string]string{}, audit: filepath.Join(dir, "audit.log")}
	lines := ""
	for name, kind := range map[string]string{"alice": "agent", "bob": "agent", "root": "operator"} {
		file := filepath.Join(dir, name+".token")
		line, stderr, code := runCLI(t, "credential", "create", "--name", name, "--kind", kind, "--token-file", file)
		if code != 0 {
			t.Fatalf("credential of %s: %s", name, stderr)
		}
		token, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += line
		p.tokens[name] = strings.TrimSpace(string(token))
	}
	p.credentials, p.consul = filepath.Join(dir, "credentials"), freeAddress(t)
	if err := os.WriteFile(p.credentials, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	p.member = start(t, filepath.Join(dir, "data"), nil, "--credential-file", p.credentials, "--audit-log", p.audit, "--consul-listen", p.consul)
	return p
}

// as is a client with somebody's credential, or with one that nobody has.
func (p *people) as(t *testing.T, name string) *client.Client {
	t.Helper()
	token := p.tokens[name]
	if token == "" {
		token = "incumbent_" + strings.Repeat("A", 43)
	}
	c, err := client.New(client.Config{Servers: []string{p.url}, Credential: token, CallTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func openAs(t *testing.T, c *client.Client, id incumbent.SessionID, ttl time.Duration) error {
	t.Helper()
	_, err := c.Sessions().OpenSession(t.Context(), connect.NewRequest(&apiv1.OpenSessionRequest{Id: id.String(), TtlMs: uint32(ttl.Milliseconds())}))
	return err
}

func claimWith(t *testing.T, c *client.Client, lease, holder string, id incumbent.SessionID, wait bool) error {
	t.Helper()
	_, err := c.Leases().Claim(t.Context(), connect.NewRequest(&apiv1.ClaimRequest{
		Name: &apiv1.LeaseName{Name: lease}, Holder: holder, Session: id.String(), Wait: wait,
	}))
	return err
}

func mustDo(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func mustBeDenied(t *testing.T, what string, err error) {
	t.Helper()
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("%s: %v, want it denied", what, err)
	}
}

// Opening a session with another's id and ttl kept the lease of a holder that had
// died for as long as somebody wished.
func TestG08_G12_AStrangerKeepsNoSessionAlive(t *testing.T) {
	p := startPeople(t)
	alice, bob := p.as(t, "alice"), p.as(t, "bob")
	id, ttl := incumbent.NewSessionID(), 2*time.Second
	mustDo(t, "open", openAs(t, alice, id, ttl))
	mustDo(t, "claim", claimWith(t, alice, "db", "alice", id, false))
	free := func() bool {
		l, err := bob.Leases().Get(t.Context(), connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Name: "db"}}))
		return err == nil && l.Msg.Lease.Holder == ""
	}
	mustBeDenied(t, "open another's session", openAs(t, bob, id, ttl))
	// He goes on until it is over, when the id is anybody's, and the lease free.
	eventually(t, patience, "the end of the session", func() bool {
		err := openAs(t, bob, id, ttl)
		if err != nil {
			mustBeDenied(t, "open another's session again", err)
		}
		return err == nil
	})
	if !free() {
		t.Error("the session is over, and its lease is held")
	}
}

// A lease was given into a stranger's session, 10,000 of them until it could claim
// nothing.
func TestG12_NobodyFillsAStrangersSession(t *testing.T) {
	p := startPeople(t)
	alice, bob := p.as(t, "alice"), p.as(t, "bob")
	hers, his := incumbent.NewSessionID(), incumbent.NewSessionID()
	mustDo(t, "open", openAs(t, alice, hers, time.Minute))
	mustDo(t, "open", openAs(t, bob, his, time.Minute))
	give := func(lease, holder string) error {
		_, err := bob.Leases().Transfer(t.Context(), connect.NewRequest(&apiv1.TransferRequest{
			Name: &apiv1.LeaseName{Name: lease}, Holder: "bob", Session: his.String(), ToSession: hers.String(), ToHolder: holder,
		}))
		return err
	}
	mustDo(t, "claim", claimWith(t, bob, "a", "bob", his, false))
	mustBeDenied(t, "transfer to who does not wait", give("a", "bob/x"))
	mustBeDenied(t, "transfer to another holder who does not wait", give("a", "alice"))
	mustDo(t, "wait", claimWith(t, alice, "a", "alice", hers, true))
	mustDo(t, "transfer to who waits", give("a", "alice"))
}

// Ids of sessions are shown to whose they are, and to operators.
func TestG12_IdsOfSessionsAreNotShown(t *testing.T) {
	p := startPeople(t)
	id := incumbent.NewSessionID()
	alice := p.as(t, "alice")
	mustDo(t, "open", openAs(t, alice, id, time.Minute))
	mustDo(t, "claim", claimWith(t, alice, "db", "alice", id, false))
	for name, shown := range map[string]bool{"alice": true, "root": true, "bob": false} {
		c := p.as(t, name)
		l, err := c.Leases().Get(t.Context(), connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Name: "db"}}))
		mustDo(t, "get", err)
		all, err := c.Leases().List(t.Context(), connect.NewRequest(&apiv1.ListRequest{}))
		mustDo(t, "list", err)
		sessions, err := c.Sessions().ListSessions(t.Context(), connect.NewRequest(&apiv1.ListSessionsRequest{}))
		mustDo(t, "list sessions", err)
		_, held := claim(t.Context(), c, "db", name, time.Minute)
		if got := fmt.Sprint(l.Msg, all.Msg, sessions.Msg, held); strings.Contains(got, id.String()) != shown {
			t.Errorf("%s sees %s", name, got)
		}
	}
}

// Who changed what, and who was denied it, is counted, among the events and in the
// audit log, without a secret.
func TestTheAuditLogOfTheBinary(t *testing.T) {
	p := startPeople(t)
	alice, bob := p.as(t, "alice"), p.as(t, "bob")
	id := incumbent.NewSessionID()
	mustDo(t, "open", openAs(t, alice, id, time.Minute))
	mustBeDenied(t, "close another's", func() error {
		_, err := bob.Sessions().CloseSession(t.Context(), connect.NewRequest(&apiv1.CloseSessionRequest{Id: id.String()}))
		return err
	}())
	mustBeDenied(t, "log in with what nobody has", openAs(t, p.as(t, "mallory"), id, time.Minute))
	want := map[string]bool{
		"session_open agent:alice done ": false, "session_close agent:bob denied owner": false, "login  denied identity": false,
	}
	eventually(t, patience, "the records", func() bool {
		f, err := os.Open(p.audit)
		if err != nil {
			return false
		}
		defer f.Close()
		left := len(want)
		for in := bufio.NewScanner(f); in.Scan(); {
			var r struct{ Action, Principal, Outcome, Reason, Address, Member, Door string }
			if err := json.Unmarshal(in.Bytes(), &r); err != nil || r.Member != "n1" || r.Door != "native" || !strings.HasPrefix(r.Address, "127.0.0.1:") {
				t.Fatalf("%s: %v", in.Text(), err)
			}
			if strings.Contains(in.Text(), "incumbent_") {
				t.Fatalf("a secret in %s", in.Text())
			}
			if _, ok := want[strings.Join([]string{r.Action, r.Principal, r.Outcome, r.Reason}, " ")]; ok {
				left--
			}
		}
		return left == 0
	})
	root := filepath.Join(t.TempDir(), "root.token")
	if err := os.WriteFile(root, []byte(p.tokens["root"]), 0o600); err != nil {
		t.Fatal(err)
	}
	events, stderr, code := p.cli("events", "--credential-file", root)
	if code != 0 || !strings.Contains(events, "agent:bob") || !strings.Contains(events, "denied") {
		t.Errorf("events: %s%s", events, stderr)
	}
}
