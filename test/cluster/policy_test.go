package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/client"
)

// agentsFile writes a credential file for agents and returns their tokens.
func agentsFile(t *testing.T, names ...string) (file string, tokens map[string]string) {
	t.Helper()
	tokens = map[string]string{}
	var lines strings.Builder
	for _, name := range names {
		tokens[name] = auth.NewToken()
		line, err := auth.CredentialLine(name, auth.Agent, tokens[name])
		if err != nil {
			t.Fatal(err)
		}
		lines.WriteString(line + "\n")
	}
	file = filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, tokens
}

// The attacks with what a fleet hands out: an agent took Juju's leadership, one called
// mysql held there as mysql/0, and every agent read every name and principal. And what
// policies allow and deny, on every member, at once, on what is open too.
func TestG12_PoliciesHoldOnEveryMember(t *testing.T) {
	file, tokens := agentsFile(t, "mysql", "mysql/0", "pg/0")
	t.Setenv("INCUMBENT_CREDENTIAL_FILE", file) // of the servers; for a client it would be its own
	c := start(t, "--members", "3", "--tls")
	os.Unsetenv("INCUMBENT_CREDENTIAL_FILE")
	agent := func(m *member, name string) *client.Client {
		t.Helper()
		cl, err := client.New(client.Config{Servers: []string{m.URL}, CAFile: c.CA, Credential: tokens[name], CallTimeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	operate := func(args ...string) (string, int) {
		t.Helper()
		out, said, code := cli(t, append([]string{"policy", args[0], "--server", c.Servers, "--ca", c.CA, "--cert", c.Cert, "--key", c.Key}, args[1:]...)...)
		return out + said, code
	}
	try := func(cl *client.Client, namespace, name, holder string) incumbent.Kind {
		t.Helper()
		_, err := cl.Leases().Claim(t.Context(), connect.NewRequest(&apiv1.ClaimRequest{
			Name: &apiv1.LeaseName{Namespace: namespace, Model: "m", Name: name}, Holder: holder, TtlMs: 30_000,
		}))
		return incumbent.KindOf(client.AsError(err))
	}
	read := func(cl *client.Client, name string) incumbent.Kind {
		t.Helper()
		_, err := cl.Leases().Get(t.Context(), connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Namespace: "db", Model: "m", Name: name}}))
		return incumbent.KindOf(client.AsError(err))
	}
	for _, m := range c.Members {
		for _, holder := range []string{"mysql", "mysql/0"} {
			if k := try(agent(m, "mysql"), "application-leadership", "mysql", holder); k != incumbent.Denied {
				t.Errorf("%s: an agent claims Juju's leadership as %s: %v", m.Name, holder, k)
			}
		}
	}
	if k := try(agent(c.Members[0], "mysql"), "db", "mysql", "mysql/0"); k != incumbent.OK {
		t.Fatalf("without a policy: %v", k)
	}
	watches := map[*member]chan error{}
	for _, m := range c.Members {
		if k := read(agent(m, "pg/0"), "mysql"); k != incumbent.OK {
			t.Errorf("%s: without a policy pg/0 reads: %v", m.Name, k)
		}
		watches[m] = follow(t, agent(m, "pg/0"))
	}

	policy := filepath.Join(t.TempDir(), "units.yaml")
	text := "for: [\"agent:mysql*\"]\nrules:\n- {kind: leases, namespace: \"*\", name: \"{parent}\", verbs: [see, watch, write]}\n- {kind: sessions, verbs: [write]}\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := operate("set", "units", "-f", policy, "--if-index", "0"); code != 0 {
		t.Fatalf("policy set: %d %s", code, out)
	}
	for _, m := range c.Members {
		// What is read is confirmed first: so at once, by every member.
		if k := read(agent(m, "pg/0"), "mysql"); k != incumbent.Denied {
			t.Errorf("%s: pg/0 reads what no policy allows: %v", m.Name, k)
		}
		if k := read(agent(m, "mysql/0"), "mysql"); k != incumbent.OK {
			t.Errorf("%s: mysql/0 reads what a policy allows: %v", m.Name, k)
		}
		list, err := agent(m, "pg/0").Leases().List(t.Context(), connect.NewRequest(&apiv1.ListRequest{}))
		if kind := incumbent.KindOf(client.AsError(err)); kind != incumbent.Denied && len(list.Msg.Leases) > 0 {
			t.Errorf("%s: pg/0 lists %v", m.Name, list)
		}
		if err := <-watches[m]; incumbent.KindOf(client.AsError(err)) != incumbent.Denied {
			t.Errorf("%s: a watch that is open ends with %v", m.Name, err)
		}
		if k := try(agent(m, "pg/0"), "db", "mysql", "pg/0"); k != incumbent.Denied {
			t.Errorf("%s: pg/0 claims: %v", m.Name, k)
		}
		if k := try(agent(m, "mysql"), "application-leadership", "mysql", "mysql/0"); k != incumbent.Denied {
			t.Errorf("%s: mysql claims as mysql/0: %v", m.Name, k)
		}
		if k := try(agent(m, "mysql/0"), "application-leadership", "mysql", "mysql/0"); k != incumbent.OK {
			t.Errorf("%s: what a policy allows in Juju's namespace: %v", m.Name, k)
		}
		if _, err := agent(m, "mysql/0").SetPolicy(t.Context(), &apiv1.Policy{Name: "x", For: []string{"*"}}, nil); incumbent.KindOf(err) != incumbent.Denied {
			t.Errorf("%s: an agent sets a policy: %v", m.Name, err)
		}
	}
	if out, code := operate("test", "--as", "agent:pg/0", "--verb", "see", "--kind", "leases", "--namespace", "db", "--model", "m", "mysql"); code != 7 || !strings.HasPrefix(out, "denied: ") {
		t.Errorf("policy test: %d %s", code, out)
	}
	out, _, _ := cli(t, "events", "--all-members", "--server", c.Servers, "--ca", c.CA, "--cert", c.Cert, "--key", c.Key)
	if n := strings.Count(out, "policy set"); n != len(c.Members) {
		t.Errorf("%d members have it in their events:\n%s", n, out)
	}
	if out, code := operate("rm", "units"); code != 0 {
		t.Fatalf("policy rm: %d %s", code, out)
	}
	for _, m := range c.Members {
		if k := read(agent(m, "pg/0"), "mysql"); k != incumbent.OK {
			t.Errorf("%s: without a policy again pg/0 reads: %v", m.Name, k)
		}
	}
}

// follow watches all leases of a namespace, and tells what the watch ends with. It has
// begun when this returns.
func follow(t *testing.T, cl *client.Client) chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := cl.Leases().Watch(ctx, connect.NewRequest(&apiv1.WatchRequest{Name: &apiv1.LeaseName{Namespace: "db", Model: "m"}, Prefix: true}))
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	ended := make(chan error, 1)
	go func() {
		for stream.Receive() {
		}
		ended <- stream.Err()
		stream.Close()
	}()
	return ended
}
