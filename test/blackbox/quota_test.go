package blackbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// A credential that a fleet hands out opens sessions without ttl as fast as it can:
// they outlive it, so that they are bounded. What it has it may let go of.
func TestG39_OneCredentialDoesNotFillTheCluster(t *testing.T) {
	const allowed, tried, at = 1500, 6000, 1000
	dir := t.TempDir()
	token := func(kind string) string {
		file := filepath.Join(dir, kind+".token")
		line, stderr, code := runCLI(t, "credential", "create", "--name", "one-"+kind, "--kind", kind, "--token-file", file)
		if code != 0 {
			t.Fatalf("credential create: %d, %s", code, stderr)
		}
		f, err := os.OpenFile(filepath.Join(dir, "credentials"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		secret, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(secret))
	}
	operator, agent := token("operator"), token("agent")
	m := start(t, filepath.Join(dir, "data"), nil, "--credential-file", filepath.Join(dir, "credentials"))
	as := func(credential string) *client.Client {
		c, err := client.New(client.Config{Servers: []string{m.url}, Credential: credential})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	people, attacker := as(operator), as(agent)
	if _, err := people.Settings().Set(t.Context(), "quota.sessions", fmt.Sprint(allowed)); err != nil {
		t.Fatal(err)
	}
	var last string
	opened, refused := 0, 0
	for range tried / at {
		var batch apiv1.BatchRequest
		for range at {
			batch.Operations = append(batch.Operations, &apiv1.Operation{Op: &apiv1.Operation_OpenSession{
				OpenSession: &apiv1.OpenSessionRequest{Id: incumbent.NewSessionID().String(), NoTtl: true},
			}})
		}
		res, err := attacker.Leases().Batch(t.Context(), connect.NewRequest(&batch))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res.Msg.Results {
			if e := r.GetError(); e != nil {
				refused++
				if e.Kind != incumbent.TooLarge.String() || !strings.Contains(e.Message, "quota.sessions") {
					t.Fatalf("refused with %v", e)
				}
				continue
			}
			opened++
			last = r.GetOpenSession().GetSession().GetId()
		}
	}
	if opened != allowed || refused != tried-allowed {
		t.Errorf("%d sessions were opened and %d refused, %d are allowed", opened, refused, allowed)
	}
	st, err := people.Cluster().Status(t.Context(), connect.NewRequest(&apiv1.StatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if st.Msg.Sessions != allowed {
		t.Errorf("%d sessions are open", st.Msg.Sessions)
	}
	shown := false
	for _, l := range st.Msg.Limits {
		shown = shown || l.Setting == "quota.sessions" && l.Used == allowed && strings.Contains(l.Name, "agent:one-agent")
	}
	if !shown {
		t.Errorf("status shows no quota that is full: %v", st.Msg.Limits)
	}
	if _, err := attacker.Sessions().CloseSession(t.Context(), connect.NewRequest(&apiv1.CloseSessionRequest{Id: last})); err != nil {
		t.Errorf("closing one: %v", err)
	}
	out, stderr, code := runCLI(t, "config", "history", "quota.sessions", "--server", m.url, "--credential-file", filepath.Join(dir, "operator.token"))
	if code != 0 || !strings.Contains(out, "operator:one-operator") || !strings.Contains(out, fmt.Sprint(allowed)) {
		t.Errorf("config history: %d, %s%s", code, out, stderr)
	}
}

// set sets a setting of the cluster.
func (p *people) set(t *testing.T, name, value string) {
	t.Helper()
	if _, err := p.as(t, "root").Settings().Set(t.Context(), name, value); err != nil {
		t.Fatal(err)
	}
}

// Whoever locked keys that were deleted with its session kept a delay of each, which
// counted for nobody: with all that there may be, nobody locked anything. And a record of
// the catalog counted as one however large it was, so that a quota of two hundred thousand
// of them bounded nothing.
func TestG39_NothingIsKeptBesideTheQuotas(t *testing.T) {
	p := startPeople(t)
	alice, bob := p.as(t, "alice"), p.as(t, "bob")
	p.set(t, "quota.keys@agent:alice", "20")
	p.set(t, "quota.registrations@agent:alice", "10")

	lock := func(c *client.Client, session, key string) error {
		_, err := c.Keys().Lock(t.Context(), connect.NewRequest(&apiv1.LockRequest{
			Key: key, Session: session, OnEnd: apiv1.OnEnd_ON_END_DELETE, LockDelayMs: 60_000,
		}))
		return err
	}
	locked := 0
	for round := range 3 {
		id := incumbent.NewSessionID()
		mustDo(t, "open a session", openAs(t, alice, id, time.Minute))
		for i := range 15 {
			err := lock(alice, id.String(), fmt.Sprintf("%d/%d", round, i))
			if err == nil {
				locked++
			} else if !strings.Contains(err.Error(), "quota.keys") {
				t.Fatal(err)
			}
		}
		_, err := alice.Sessions().CloseSession(t.Context(), connect.NewRequest(&apiv1.CloseSessionRequest{Id: id.String()}))
		mustDo(t, "close it", err)
	}
	if locked != 20 {
		t.Errorf("%d keys are under a delay, 20 are allowed", locked)
	}
	id := incumbent.NewSessionID()
	mustDo(t, "open a session", openAs(t, bob, id, time.Minute))
	mustDo(t, "another's lock", lock(bob, id.String(), "bobs"))

	tags := make([]string, 100)
	for i := range tags {
		tags[i] = fmt.Sprintf("%q", fmt.Sprintf("%03d", i)+strings.Repeat("x", 500))
	}
	large := `{"Node":"n%d","Address":"192.0.2.1","Service":{"Service":"s","Tags":[` + strings.Join(tags, ",") + `]}}`
	if code, text := p.askConsul(t, "alice", http.MethodPut, "/v1/catalog/register", fmt.Sprintf(large, 1)); code != http.StatusRequestEntityTooLarge || !strings.Contains(text, "quota.registrations") {
		t.Errorf("a service of fifty thousand bytes: %d %s", code, text)
	}
	if code, text := p.askConsul(t, "bob", http.MethodPut, "/v1/catalog/register", fmt.Sprintf(large, 2)); code != http.StatusOK {
		t.Errorf("one of somebody with room: %d %s", code, text)
	}
	if code, text := p.askConsul(t, "alice", http.MethodPut, "/v1/catalog/register", `{"Node":"n3","Address":"192.0.2.1","Service":{"Service":"s"}}`); code != http.StatusOK {
		t.Errorf("a small one: %d %s", code, text)
	}
}

// An idempotency key is its principal's: whoever guesses another's neither learns what that
// has done, nor has the other's request taken for one of its own.
func TestG12_G25_NobodyUsesAnothersIdempotencyKey(t *testing.T) {
	p := startPeople(t)
	put := func(who, key, value string) (*apiv1.PutResponse, error) {
		res, err := p.as(t, who).Keys().Put(t.Context(), connect.NewRequest(&apiv1.PutRequest{
			Key: key, Value: []byte(value), Idempotency: &apiv1.Idempotency{Key: []byte("deploy-42")},
		}))
		if err != nil {
			return nil, client.AsError(err)
		}
		return res.Msg, nil
	}
	early, err := put("bob", "x", "bob's")
	mustDo(t, "bob's", err)
	first, err := put("alice", "x", "alice's")
	mustDo(t, "alice's", err)
	again, err := put("alice", "x", "alice's again")
	mustDo(t, "alice's repeated", err)
	got, err := p.as(t, "alice").Keys().Get(t.Context(), connect.NewRequest(&apiv1.GetKeyRequest{Key: "x"}))
	mustDo(t, "look", err)
	if first.Index == early.Index || again.Index != first.Index || string(got.Msg.Entry.Value) != "alice's" {
		t.Errorf("bob's was %d, alice's %d and %d; there is %q", early.Index, first.Index, again.Index, got.Msg.Entry.Value)
	}
}

// keptOpen sends a request over a connection of its own and leaves that open. kept is false
// if the server ends it with its answer.
func keptOpen(t *testing.T, address, request string) (c net.Conn, kept bool, answer string) {
	t.Helper()
	c = dialPlain(t, address)
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return c, !res.Close, string(text)
}

// One credential had all connections that a listener may have, and nobody else came in.
func TestG39_OneCredentialHasNotAllConnections(t *testing.T) {
	p := startPeople(t)
	p.set(t, "quota.connections@agent:alice", "3")
	native := strings.TrimPrefix(p.url, "http://")
	for name, at := range map[string]struct{ address, path, header string }{
		"native":         {native, "/metrics", "Authorization: Bearer "},
		"native, a call": {native, "/incumbent.v1.ClusterService/Members", "Authorization: Bearer "},
		"consul":         {p.consul, "/v1/kv/x", "X-Consul-Token: "},
	} {
		ask := func(who string) (net.Conn, bool, string) {
			method, body := "GET", ""
			if strings.HasPrefix(at.path, "/incumbent") {
				method, body = "POST", "{}"
			}
			return keptOpen(t, at.address, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				method, at.path, at.header, p.tokens[who], len(body), body))
		}
		var open []net.Conn
		refused := 0
		for range 6 {
			c, kept, answer := ask("alice")
			if kept {
				open = append(open, c)
				continue
			}
			refused++
			if !strings.Contains(answer, "quota.connections") {
				t.Errorf("%s: refused with %s", name, answer)
			}
		}
		if len(open) != 3 || refused != 3 {
			t.Fatalf("%s: %d are open and %d refused", name, len(open), refused)
		}
		if _, kept, answer := ask("bob"); !kept {
			t.Errorf("%s: another is told %s", name, answer)
		}
		open[0].Close()
		eventually(t, patience, "there is room again", func() bool {
			c, kept, _ := ask("alice")
			if kept {
				open[0] = c
			}
			return kept
		})
		for _, c := range open {
			c.Close()
		}
		eventually(t, patience, "nothing is counted that has ended", func() bool {
			for range 3 {
				c, kept, _ := ask("alice")
				defer c.Close()
				if !kept {
					return false
				}
			}
			return true
		})
	}
	// A stream keeps the place of its connection, and gives it back when it ends.
	streams := 0
	dial := func() (net.Conn, error) {
		d := ws.Dialer{Timeout: patience, Header: ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + p.tokens["alice"]}}}
		c, _, _, err := d.Dial(t.Context(), "ws://"+native+"/v1/stream")
		return c, err
	}
	var last net.Conn
	eventually(t, patience, "three streams", func() bool {
		c, err := dial()
		if err == nil {
			t.Cleanup(func() { c.Close() })
			last = c
			streams++
		}
		return streams == 3
	})
	if c, err := dial(); err == nil {
		c.Close()
		t.Error("there is a fourth stream")
	}
	last.Close()
	eventually(t, patience, "there is room for a stream", func() bool {
		c, err := dial()
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}
