package server

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/cluster"
)

// credential writes a credential file and returns its path and the tokens, by
// name.
func credentialFile(t testing.TB, kinds map[string]auth.Kind) (path string, tokens map[string]string) {
	t.Helper()
	tokens = map[string]string{}
	lines := "# who may come in\n"
	for name, kind := range kinds {
		tokens[name] = auth.NewToken()
		line, err := auth.CredentialLine(name, kind, tokens[name])
		if err != nil {
			t.Fatal(err)
		}
		lines += line + "\n"
	}
	path = filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, tokens
}

func TestGuard(t *testing.T) {
	path, tokens := credentialFile(t, map[string]auth.Kind{"ops": auth.Operator, "unit-1": auth.Agent, "eyes": auth.Observer})
	guarded, err := newGuard(Config{Listen: "127.0.0.1:7600", CredentialFile: path}, func(audit.Record) {})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := newGuard(Config{Listen: "127.0.0.1:7600"}, func(audit.Record) {})
	if err != nil {
		t.Fatal(err)
	}
	open, err := newGuard(Config{Listen: "0.0.0.0:7600"}, func(audit.Record) {}) // Validate refuses it; the guard does not rely on that
	if err != nil {
		t.Fatal(err)
	}
	const denied = "denied"
	for name, tt := range map[string]struct {
		guard  *guard
		remote string
		local  string
		header []string // names and values; "Host" is the request's
		want   string   // the principal, or denied
	}{
		"the same machine":               {plain, "127.0.0.1:5", "127.0.0.1:7600", nil, "operator:local"},
		"the same machine, v6":           {plain, "[::1]:5", "[::1]:7600", []string{"Host", "[::1]:7600"}, "operator:local"},
		"by the name localhost":          {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Host", "localhost:7600"}, "operator:local"},
		"another machine":                {plain, "192.0.2.1:5", "192.0.2.2:7600", nil, "anonymous"},
		"loopback to an open listener":   {open, "127.0.0.1:5", "127.0.0.1:7600", nil, "anonymous"},
		"through a proxy":                {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"X-Forwarded-For", "192.0.2.1"}, "anonymous"},
		"through a proxy, behind one":    {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"X-Forwarded-For", "", "X-Forwarded-For", "192.0.2.1"}, "anonymous"},
		"through a proxy, RFC 7239":      {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Forwarded", "for=192.0.2.1"}, "anonymous"},
		"through a proxy, Via":           {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Via", "1.1 proxy"}, "anonymous"},
		"a rebound name":                 {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Host", "evil.example:7600"}, denied},
		"a page of another origin":       {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Origin", "https://evil.example"}, denied},
		"a page of another port":         {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Origin", "http://127.0.0.1:3000"}, denied},
		"a page without origin":          {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Origin", "null"}, denied},
		"a page of the server's own":     {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Origin", "http://127.0.0.1:7600"}, "operator:local"},
		"no credential where some are":   {guarded, "127.0.0.1:5", "127.0.0.1:7600", nil, "anonymous"},
		"an operator":                    {guarded, "192.0.2.1:5", "192.0.2.2:7600", []string{"Authorization", "Bearer " + tokens["ops"]}, "operator:ops"},
		"an agent":                       {guarded, "192.0.2.1:5", "192.0.2.2:7600", []string{"Authorization", "bearer " + tokens["unit-1"]}, "agent:unit-1"},
		"an agent through a proxy":       {guarded, "127.0.0.1:5", "127.0.0.1:7600", []string{"Authorization", "Bearer " + tokens["unit-1"], "Via", "1.1 proxy"}, "agent:unit-1"},
		"a token nobody has":             {guarded, "127.0.0.1:5", "127.0.0.1:7600", []string{"Authorization", "Bearer " + auth.NewToken()}, denied},
		"a token where there are none":   {plain, "127.0.0.1:5", "127.0.0.1:7600", []string{"Authorization", "Bearer " + tokens["ops"]}, denied},
		"another scheme":                 {guarded, "127.0.0.1:5", "127.0.0.1:7600", []string{"Authorization", "Basic b3BzOm9wcw=="}, denied},
		"an address that cannot be read": {plain, "@", "127.0.0.1:7600", nil, "anonymous"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7600/metrics", nil)
		r.RemoteAddr = tt.remote
		for i := 0; i < len(tt.header); i += 2 {
			if tt.header[i] == "Host" {
				r.Host = tt.header[i+1]
				continue
			}
			r.Header.Add(tt.header[i], tt.header[i+1])
		}
		local, err := net.ResolveTCPAddr("tcp", tt.local)
		if err != nil {
			t.Fatal(err)
		}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
		p, err := tt.guard.of(r)
		got := p.String()
		if err != nil {
			got = denied
			if incumbent.KindOf(err) != incumbent.Denied {
				t.Errorf("%s: %v is not of kind Denied", name, err)
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %s (%v), want %s", name, got, err, tt.want)
		}
	}
}

// Over a real listener: what the member serves beside the door is guarded too.
func TestProtectedPages(t *testing.T) {
	path, tokens := credentialFile(t, map[string]auth.Kind{"ops": auth.Operator, "eyes": auth.Observer})
	cfg := testConfig(t)
	cfg.CredentialFile = path
	s := open(t, cfg)
	for _, tt := range []struct {
		path, name string
		code       int
	}{
		{"/livez", "", 200},
		{"/readyz", "", 200},
		{"/", "", 200},
		{"/metrics", "", 401},
		{"/metrics", "eyes", 200},
		{"/metrics", "ops", 200},
		{"/debug/pprof/cmdline", "", 401},
		{"/debug/pprof/cmdline", "eyes", 403},
		{"/debug/pprof/cmdline", "ops", 200},
		{"/nothing/here", "ops", 404},
	} {
		var header []string
		if tt.name != "" {
			header = []string{"Authorization", "Bearer " + tokens[tt.name]}
		}
		if code, body := get(t, s.URL()+tt.path, header...); code != tt.code {
			t.Errorf("%s as %q: %d %q, want %d", tt.path, tt.name, code, body, tt.code)
		}
	}
}

// A web page in a browser on this machine reaches neither the door nor
// metrics, whatever name it gives the server.
func TestPagesHaveNoPartInLoopbacksTrust(t *testing.T) {
	s := open(t, testConfig(t))
	status := s.URL() + "/incumbent.v1.ClusterService/Status?connect=v1&encoding=json&message=%7B%7D"
	for _, url := range []string{s.URL() + "/metrics", s.URL() + "/debug/pprof/cmdline", status} {
		if code, body := get(t, url); code != 200 {
			t.Errorf("%s: %d %s", url, code, body)
		}
		for _, header := range [][]string{{"Host", "evil.example"}, {"Origin", "https://evil.example"}, {"X-Forwarded-For", "192.0.2.1"}} {
			if code, _ := get(t, url, header...); code != 403 && code != 401 && code != 404 {
				t.Errorf("%s with %v: %d, want a refusal", url, header, code)
			}
		}
	}
}

// The cluster's own authority is one of clients: where it is, nobody is an operator for
// being on this machine, at doors without TLS neither, unless it was asked for; and then
// the log says where.
func TestG12_TheClustersAuthorityEndsTheTrustInThisMachine(t *testing.T) {
	for _, tt := range []struct {
		trust   Trust
		trusted bool
	}{{TrustAuto, false}, {TrustOff, false}, {TrustOn, true}} {
		cfg := memberConfig(t, "n1")
		if _, err := cluster.Init(cluster.InitConfig{DataDir: cfg.DataDir, Name: "n1", TLS: true}); err != nil {
			t.Fatal(err)
		}
		cfg.TrustLoopback, cfg.Consul = tt.trust, Consul{Listen: "127.0.0.1:0", Plaintext: true}
		var lines bytes.Buffer
		log := NewLog(&lines, LogText, slog.LevelInfo)
		cfg.Logger = log.Logger()
		s := open(t, cfg)
		r, err := http.NewRequestWithContext(testContext(t), http.MethodPut, "http://"+s.ConsulAddr()+"/v1/kv/x", strings.NewReader("y"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := res.StatusCode == http.StatusOK; got != tt.trusted || !got && res.StatusCode != http.StatusForbidden {
			t.Errorf("trust %v: HTTP %d", tt.trust, res.StatusCode)
		}
		s.Close(testContext(t))
		log.Close(testTimeout) // its lines are written, and nobody writes any more
		says := "everybody shows who they are"
		if tt.trusted {
			says = "at=" + s.ConsulAddr()
		}
		if !strings.Contains(lines.String(), says) {
			t.Errorf("trust %v: the log does not say %q:\n%s", tt.trust, says, &lines)
		}
	}
}

func TestReloadOfCredentials(t *testing.T) {
	path, tokens := credentialFile(t, map[string]auth.Kind{"old": auth.Operator})
	cfg := testConfig(t)
	cfg.CredentialFile = path
	s := open(t, cfg)
	reach := func(token string) incumbent.Kind {
		_, err := claim(t, dialer(t, client.Config{Servers: []string{s.URL()}, Credential: token}), "db", "old")
		return incumbent.KindOf(err)
	}
	if got := reach(tokens["old"]); got != incumbent.OK {
		t.Fatalf("before: %v", got)
	}
	// A file that cannot be read leaves the old credentials in force.
	if err := os.WriteFile(path, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	if got := reach(tokens["old"]); got != incumbent.OK {
		t.Errorf("after a broken file: %v", got)
	}
	next, fresh := credentialFile(t, map[string]auth.Kind{"old": auth.Operator})
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	if got := reach(tokens["old"]); got != incumbent.Denied {
		t.Errorf("the replaced token: %v, want denied", got)
	}
	if got := reach(fresh["old"]); got != incumbent.OK {
		t.Errorf("the new token: %v", got)
	}
}

func TestOpenRefusesOpenListeners(t *testing.T) {
	cert := newAuthority(t)
	pair, key := cert.issue(t, "server", "")
	for name, tt := range map[string]struct {
		change func(*Config)
		words  []string // of message and hint
	}{
		"everywhere, nothing":      {func(c *Config) { c.Listen = ":0" }, []string{"--tls-cert", "--tls-key", "--client-ca", "--credential-file"}},
		"everywhere, TLS alone":    {func(c *Config) { c.Listen, c.TLSCert, c.TLSKey = "0.0.0.0:0", pair, key }, []string{"--client-ca or --credential-file"}},
		"everywhere, CA alone":     {func(c *Config) { c.Listen, c.ClientCA = "[::]:0", cert.file }, []string{"--tls-cert"}},
		"half a pair":              {func(c *Config) { c.TLSCert = pair }, []string{"--tls-key"}},
		"CA without TLS":           {func(c *Config) { c.ClientCA = cert.file }, []string{"--client-ca", "--tls-cert"}},
		"no such certificate":      {func(c *Config) { c.TLSCert, c.TLSKey = "/nowhere", key }, []string{"tls-cert", "/nowhere"}},
		"no such authority":        {func(c *Config) { c.TLSCert, c.TLSKey, c.ClientCA = pair, key, "/nowhere" }, []string{"client-ca", "/nowhere"}},
		"an authority that is not": {func(c *Config) { c.TLSCert, c.TLSKey, c.ClientCA = pair, key, key }, []string{"client-ca", "PEM"}},
		"no such credentials":      {func(c *Config) { c.CredentialFile = "/nowhere" }, []string{"credential-file", "/nowhere"}},
		"broken credentials":       {func(c *Config) { c.CredentialFile = key }, []string{"credential-file", "line 1"}},
	} {
		cfg := testConfig(t)
		tt.change(&cfg)
		s, err := Open(cfg)
		if err == nil {
			s.Close(testContext(t))
		}
		if incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v, want Invalid", name, err)
			continue
		}
		said := err.Error() + hintOf(err)
		for _, w := range tt.words {
			if !strings.Contains(said, w) {
				t.Errorf("%s: %q does not name %s", name, said, w)
			}
		}
		if left, _ := os.ReadDir(cfg.DataDir); len(left) > 0 {
			t.Errorf("%s: the data directory was touched: %v", name, left)
		}
	}
}
