package blackbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

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
