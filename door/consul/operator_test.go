package consul

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
)

func (m *member) decoded(path string, into any) answer {
	m.tb.Helper()
	a := m.do("GET", path, "")
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		m.tb.Fatalf("%s: %q: %v", path, a.body, err)
	}
	return a
}

func TestOperators(t *testing.T) {
	var removed, moved []uint64
	left := make(chan struct{}, 1)
	m := startMember(t, func(c *Config) {
		c.NodeID = [16]byte{1}
		c.Operator = Operator{
			RemoveMember:   func(id uint64) error { removed = append(removed, id); return nil },
			TransferLeader: func(to uint64) error { moved = append(moved, to); return errors.New("nobody is fit") },
			Leave:          func() { left <- struct{}{} },
		}
	})
	m.lone.mu.Lock()
	m.lone.members = append(m.lone.members,
		Member{ID: 8, Name: "n2", Address: "127.0.0.2:8300", Voter: true, Alive: true}, Member{ID: 9, Name: "n3", Address: "127.0.0.3:8300", Voter: true})
	m.lone.mu.Unlock()
	var raft struct{ Servers []raftServer }
	m.decoded("/v1/operator/raft/configuration", &raft)
	if len(raft.Servers) != 3 || !raft.Servers[0].Leader || raft.Servers[1].Leader || raft.Servers[2].Address != "127.0.0.3:8300" {
		t.Errorf("raft: %+v", raft)
	}
	var state struct {
		Healthy          bool
		FailureTolerance int
		Leader           string
		Voters           []string
	}
	if m.decoded("/v1/operator/autopilot/state", &state); state.Healthy || state.FailureTolerance != 0 || state.Leader != raft.Servers[0].ID || len(state.Voters) != 3 {
		t.Errorf("state: %+v", state)
	}
	if a := m.do("GET", "/v1/operator/autopilot/health", ""); a.StatusCode != http.StatusTooManyRequests {
		t.Errorf("health with a member that is gone: %s", a.Status)
	}
	for _, tt := range []struct {
		method, path string
		status       int
		text         string
	}{
		{"DELETE", "/v1/operator/raft/peer", 400, "Must specify either"},
		{"DELETE", "/v1/operator/raft/peer?id=a&address=b", 400, "Must specify only one"},
		{"DELETE", "/v1/operator/raft/peer?id=none", 500, `id "none" was not found`},
		{"DELETE", "/v1/operator/raft/peer?address=127.0.0.3:8300", 200, ""},
		{"POST", "/v1/operator/raft/transfer-leader?id=" + memberID(8), 500, "nobody is fit"},
		{"PUT", "/v1/agent/force-leave/none", 500, "No node found"},
		{"PUT", "/v1/agent/force-leave/n2", 200, ""},
		{"PUT", "/v1/agent/force-leave/n3", 200, ""},
		{"PUT", "/v1/agent/join/127.0.0.2:8300", 200, ""},
		{"PUT", "/v1/agent/join/127.0.0.9", 500, "Failed to join"},
		{"PUT", "/v1/agent/reload", 500, "cannot"},
		{"PUT", "/v1/agent/leave", 200, ""},
	} {
		if a := m.do(tt.method, tt.path, ""); a.StatusCode != tt.status || !strings.Contains(a.body, tt.text) {
			t.Errorf("%s %s: %s %q", tt.method, tt.path, a.Status, a.body)
		}
	}
	<-left
	m.wantRecorded("what operators do, and what fails", "admin n3 done", "admin leadership failed", "admin n3 done", "admin member done")
	if len(removed) != 2 || removed[0] != 9 || removed[1] != 9 || len(moved) != 1 || moved[0] != 8 {
		t.Errorf("removed %v, moved to %v", removed, moved)
	}
}

func TestRoots(t *testing.T) {
	m := startMember(t, func(c *Config) { c.NodeID = [16]byte{7} })
	var roots struct {
		ActiveRootID, TrustDomain string
		Roots                     []rootJSON
	}
	a := m.decoded("/v1/agent/connect/ca/roots", &roots)
	if len(roots.Roots) != 1 || roots.ActiveRootID != roots.Roots[0].ID || !roots.Roots[0].Active || a.Header.Get("X-Consul-Index") != "1" || a.Header.Get("X-Cache") != "HIT" {
		t.Fatalf("%v %s", a.Header, a.body)
	}
	block, _ := pem.Decode([]byte(roots.Roots[0].RootCert))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !cert.IsCA || cert.CheckSignatureFrom(cert) != nil {
		t.Errorf("%v", err)
	}
	again, err := makeRoot([16]byte{7})
	if err != nil || again.RootCert != roots.Roots[0].RootCert {
		t.Error("another member shows another root")
	}
}

func TestTokensAreToldOnlyWithPolicies(t *testing.T) {
	token := auth.NewToken()
	line, _ := auth.CredentialLine("app", auth.Agent, token)
	creds, err := auth.ParseCredentials(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Guard = auth.NewAuthenticator(false, creds) })
	if a := m.do("GET", "/v1/acl/token/self", "", "X-Consul-Token", token); a.StatusCode != http.StatusUnauthorized || a.body != textNoACL {
		t.Errorf("%s %q", a.Status, a.body)
	}
	if r := m.group.Do(allowing("k")); r.Err != nil {
		t.Fatal(r.Err)
	}
	a := m.do("GET", "/v1/acl/token/self", "", "X-Consul-Token", token)
	var self struct{ AccessorID, SecretID, Description string }
	if err := json.Unmarshal([]byte(a.body), &self); err != nil || self.SecretID != token || self.Description != "agent:app" {
		t.Errorf("%s %q", a.Status, a.body)
	}
	if _, err := incumbent.ParseSessionID(self.AccessorID); err != nil {
		t.Error(err)
	}
	if a := m.do("GET", "/v1/acl/token/self", ""); a.StatusCode != http.StatusForbidden {
		t.Errorf("nobody: %s %q", a.Status, a.body)
	}
}

// Members are listed as a filter selects them.
func TestMembersAreFiltered(t *testing.T) {
	m := startMember(t, nil)
	m.lone.mu.Lock()
	m.lone.members = append(m.lone.members, Member{ID: 8, Name: "n2", Address: "127.0.0.2:8301", Voter: true})
	m.lone.mu.Unlock()
	for filter, want := range map[string]string{
		``: "n1 n2", `Name==n2`: "n2", `Status==1`: "n1", `Port==8301 or Tags.id==none`: "n2", `Tags.dc==dc1`: "n1 n2", `Name==n3`: "",
	} {
		var list []agentMember
		m.decoded("/v1/agent/members?filter="+url.QueryEscape(filter), &list)
		var names []string
		for _, of := range list {
			names = append(names, of.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", filter, got, want)
		}
	}
	for _, filter := range []string{`Name`, `Nothing==1`, `Addr=="127.0.0.1"`} {
		a := m.do("GET", "/v1/agent/members?filter="+url.QueryEscape(filter), "")
		if a.StatusCode != http.StatusInternalServerError || !strings.HasPrefix(a.body, "Failed to create boolean expression evaluator: ") {
			t.Errorf("%s: %s %q", filter, a.Status, a.body)
		}
	}
}

// Metrics are shown as Prometheus reads them to who says so, in the ways that Consul knows.
func TestMetricsAsTheyAreAccepted(t *testing.T) {
	m := startMember(t, func(c *Config) {
		c.Operator.Prometheus = func() ([]byte, string, error) { return []byte("up 1\n"), "text/plain; version=0.0.4", nil }
	})
	for accept, want := range map[string]bool{
		"*/*": false, "text/plain": false, "text/plain;version=0.0.4": false, "application/json, text/plain; q=1; version=0.4.0": false,
		"application/openmetrics-text":                     true,
		"application/OpenMetrics-text; version=1.0.0":      true,
		"text/html,  text/plain; version=0.4.0 ;q=0.5,*/*": true,
	} {
		a := m.do("GET", "/v1/agent/metrics", "", "Accept", accept)
		if got := a.body == "up 1\n"; got != want || a.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %q", accept, a.Status, a.body)
		}
	}
	if a := m.get("/v1/agent/metrics?format=prometheus"); a.body != "up 1\n" {
		t.Errorf("%q", a.body)
	}
}
