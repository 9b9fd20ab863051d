package blackbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// guarded is a server of whose clients everybody brings a credential.
type guarded struct {
	*member
	address  string // of the native listener
	juju     string
	operator string // token
	password string // of unit-app-0
}

// startGuarded runs a server with TLS, credentials, and the door for Juju's agents.
func startGuarded(t *testing.T, args ...string) *guarded {
	t.Helper()
	dir := t.TempDir()
	line := func(args ...string) string {
		out, stderr, code := runCLI(t, append([]string{"credential", "create"}, args...)...)
		if code != 0 {
			t.Fatalf("credential create: %d, %s", code, stderr)
		}
		return out
	}
	token, password := filepath.Join(dir, "token"), filepath.Join(dir, "password")
	writeFile(t, filepath.Join(dir, "credentials"), line("--name", "ops", "--kind", "operator", "--token-file", token))
	writeFile(t, filepath.Join(dir, "agents"), line("--password-file", password, "--model", jujuModel, "--juju-agent", "unit-app-0"))
	cert, key := selfSigned(t, dir)
	g := &guarded{juju: freeAddress(t), operator: strings.TrimSpace(readFile(t, token)), password: strings.TrimSpace(readFile(t, password))}
	g.member = start(t, t.TempDir(), nil, append([]string{
		"--tls-cert", cert, "--tls-key", key, "--credential-file", filepath.Join(dir, "credentials"),
		"--juju-listen", g.juju, "--juju-credential-file", filepath.Join(dir, "agents"),
	}, args...)...)
	g.address = strings.TrimPrefix(g.url, "https://")
	return g
}

func selfSigned(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeFile(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	writeFile(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key
}

// anyTLS trusts whoever answers.
func anyTLS() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// asOperator sends a request as the operator, over a connection of its own.
func (g *guarded) asOperator(t *testing.T, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: anyTLS(), DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.operator)
	res, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// metric adds up a metric's series whose labels match.
func (g *guarded) metric(t *testing.T, name, labels string) float64 {
	t.Helper()
	_, text := g.asOperator(t, "/metrics")
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{([^}]*)\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], labels) {
			continue
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// crowd keeps so many connections to an address open, and comes back whenever one is
// closed, until the test ends. Each sends some bytes first.
func crowd(t *testing.T, from, to string, n int, says string) {
	t.Helper()
	var all sync.WaitGroup
	stop, up := make(chan struct{}), make(chan struct{}, n)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range n {
		all.Go(func() {
			for first := true; ; first = false {
				c, err := d.DialContext(t.Context(), "tcp", to)
				if err == nil {
					_, _ = io.WriteString(c, says)
				}
				if first {
					up <- struct{}{}
				}
				if err == nil {
					gone := make(chan struct{})
					go func() { _, _ = io.Copy(io.Discard, c); close(gone) }()
					select {
					case <-gone:
					case <-stop:
					}
					c.Close()
					<-gone
				}
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond): // as a client that is refused would
				}
			}
		})
	}
	for range n {
		<-up
	}
	t.Cleanup(func() { close(stop); all.Wait() })
}

const (
	// halfHello is the beginning of a TLS handshake that does not go on.
	halfHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	// elsewhere is another address of this machine.
	elsewhere = "127.0.0.66"
)

// Thousands of connections that say nothing, or half of something, from one address
// and again whenever they are closed: whoever knows a password logs in.
func TestG47_StrangersKeepNobodyOut(t *testing.T) {
	for name, tt := range map[string]struct {
		connections int
		says        string
		args        []string
	}{
		"silent":                   {2000, "", nil},
		"silent, listener of 300":  {400, "", []string{"--max-connections", "300"}},
		"half a handshake":         {1000, halfHello, nil},
		"half, listener of 300":    {400, halfHello, []string{"--max-connections", "300"}},
		"half a request":           {600, "GET / HTTP/1.1\r\nHost: ", nil},
		"a header of a proxy, too": {600, "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + halfHello, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGuarded(t, tt.args...)
			old := newUnit(t, g.juju, "unit-app-0", g.password)
			crowd(t, elsewhere, g.juju, tt.connections, tt.says)
			crowd(t, elsewhere, g.address, tt.connections, tt.says)
			for range 3 {
				u := newUnit(t, g.juju, "unit-app-0", g.password)
				if got := u.claim("app", 0, 30); got != jujuGranted {
					t.Error(got)
				}
				if code, text := g.asOperator(t, "/"); code != http.StatusOK || !strings.Contains(text, "member n1") {
					t.Errorf("an operator: %d %s", code, text)
				}
			}
			if got := old.claim("app", 0, 30); got != jujuGranted {
				t.Errorf("who was there before: %s", got)
			}
			// At a moment none may be there: who is sent away comes back a little later.
			eventually(t, patience, "strangers are counted", func() bool {
				return g.metric(t, "incumbent_strangers", "")+g.metric(t, "incumbent_strangers_closed_total", "") > 0
			})
		})
	}
}

// From the same address, too, as behind a NAT.
func TestG47_SilentNeighboursKeepNobodyOut(t *testing.T) {
	g := startGuarded(t, "--max-connections", "300")
	crowd(t, "127.0.0.1", g.juju, 400, "")
	crowd(t, "127.0.0.1", g.address, 400, "")
	if got := newUnit(t, g.juju, "unit-app-0", g.password).claim("app", 0, 30); got != jujuGranted {
		t.Error(got)
	}
	// How many had to go is one line in the log, and counted.
	eventually(t, patience, "strangers are counted", func() bool {
		return g.metric(t, "incumbent_strangers_closed_total", `listener="juju"`) > 50
	})
	if err := g.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	g.wait(patience)
	if n := strings.Count(g.stderr.String(), "strangers are closed\" listener=juju"); n != 1 {
		t.Errorf("%d lines of the log:\n%s", n, g.stderr)
	}
}

// Behind a proxy that says so, the address of the client counts and is recorded, and
// is trusted with nothing.
func TestAProxyIsBelievedIfItIsNamed(t *testing.T) {
	m := start(t, t.TempDir(), nil, "--proxy-from", elsewhere)
	address := strings.TrimPrefix(m.url, "http://")
	answer := func(from, says string) string {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, says+"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"); err != nil {
			return "" // it was refused meanwhile
		}
		text, _ := io.ReadAll(c) // of a connection that is refused there is nothing
		return string(text)
	}
	const local = "PROXY TCP4 127.0.0.1 127.0.0.1 4711 80\r\n"
	if got := answer("127.0.0.1", ""); !strings.Contains(got, "member n1") {
		t.Errorf("on this machine: %q", got)
	}
	if got := answer("127.0.0.1", local); strings.Contains(got, "member") || !strings.Contains(got, "400") {
		t.Errorf("a header of a proxy that nobody has named: %q", got)
	}
	if got := answer(elsewhere, local); !strings.Contains(got, "200 OK") || strings.Contains(got, "member") {
		t.Errorf("through the proxy, from its own machine: %q", got)
	}
	if got := answer(elsewhere, ""); got != "" {
		t.Errorf("the proxy without its header: %q", got)
	}
}

// Who is on this machine is an operator if nobody else can connect, and the log says
// so.
func TestG12_TrustInThisMachineIsSaid(t *testing.T) {
	dir := t.TempDir()
	line, stderr, code := runCLI(t, "credential", "create", "--password-file", filepath.Join(dir, "password"), "--model", jujuModel, "--juju-agent", "unit-app-0")
	if code != 0 {
		t.Fatalf("credential create: %d, %s", code, stderr)
	}
	agents := filepath.Join(dir, "agents")
	writeFile(t, agents, line)
	open := []string{"--juju-listen", "0.0.0.0:0", "--juju-credential-file", agents}
	const trusted, shown = "whoever connects from this machine is an operator", "everybody shows who they are"
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"alone":                   {nil, http.StatusOK, trusted},
		"off":                     {[]string{"--trust-loopback", "off"}, http.StatusUnauthorized, shown},
		"another listener":        {open, http.StatusUnauthorized, shown},
		"another listener, on":    {append([]string{"--trust-loopback", "on"}, open...), http.StatusOK, trusted},
		"an address for others":   {[]string{"--advertise", "db.example:7600"}, http.StatusUnauthorized, shown},
		"an address for this one": {[]string{"--advertise", "127.0.0.1:7600"}, http.StatusOK, trusted},
	} {
		t.Run(name, func(t *testing.T) {
			m := &member{}
			if strings.HasPrefix(name, "an address") {
				m = startAt(t, tt.args...)
			} else {
				m = start(t, t.TempDir(), nil, tt.args...)
			}
			if code, text := ask(t, http.MethodGet, m.url+"/metrics", ""); code != tt.code {
				t.Errorf("%d %s", code, text)
			}
			m.kill()
			if log := m.stderr.String(); strings.Count(log, trusted)+strings.Count(log, shown) != 1 || !strings.Contains(log, tt.says) {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
	if _, stderr, code := runCLI(t, "server", "--data-dir", t.TempDir(), "--trust-loopback", "maybe"); code != 2 || !strings.Contains(stderr, "trust-loopback") {
		t.Errorf("an unknown word: %d %s", code, stderr)
	}
	if _, stderr, code := runCLI(t, "server", "--data-dir", t.TempDir(), "--proxy-from", "proxy.example"); code != 2 || !strings.Contains(stderr, "proxy-from") {
		t.Errorf("an unknown proxy: %d %s", code, stderr)
	}
}

// startAt starts a server that names another address than it listens on.
func startAt(t *testing.T, args ...string) *member {
	t.Helper()
	address := freeAddress(t)
	m := start(t, t.TempDir(), nil, append(args, "--listen", address)...)
	m.url = "http://" + address
	return m
}

// What a browser sends on behalf of a page, and what a proxy passes on, has no part
// in the trust in this machine: not at the profiles, nor anywhere else.
func TestG12_PagesAndProxiesAreNoOperators(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	host := strings.TrimPrefix(m.url, "http://")
	const call, upgrade = "Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
		"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x88\x80\x00\x00\x00\x00"
	for path, rest := range map[string]string{
		"GET /debug/pprof/": closing, "GET /debug/pprof/cmdline": closing, "GET /debug/pprof/heap": closing, "GET /metrics": closing,
		"GET /v1/stream": upgrade, "POST /incumbent.v1.ClusterService/Status": call,
	} {
		for name, tt := range map[string]struct {
			header [2]string
			ok     bool
		}{
			"no browser":             {[2]string{"User-Agent", "curl"}, true},
			"typed":                  {[2]string{"Sec-Fetch-Site", "none"}, true},
			"a page of ours":         {[2]string{"Sec-Fetch-Site", "same-origin"}, true},
			"another site":           {[2]string{"Sec-Fetch-Site", "cross-site"}, false},
			"another port":           {[2]string{"Sec-Fetch-Site", "same-site"}, false},
			"another origin":         {[2]string{"Origin", "https://evil.example"}, false},
			"no origin":              {[2]string{"Origin", "null"}, false},
			"a name that leads here": {[2]string{"Host", "evil.example"}, false},
			"forwarded":              {[2]string{"X-Forwarded-For", "192.0.2.1"}, false},
			"forwarded, twice":       {[2]string{"X-Forwarded-For", "\r\nX-Forwarded-For: 192.0.2.1"}, false}, // the first is the client's own
			"via":                    {[2]string{"Via", "1.1 proxy"}, false},
		} {
			headers := "Host: " + host + "\r\n"
			if tt.header[0] == "Host" {
				headers = ""
			}
			text := rawAnswer(t, host, fmt.Sprintf("%s HTTP/1.1\r\n%s%s: %s\r\n%s", path, headers, tt.header[0], tt.header[1], rest))
			refused := strings.Contains(text, " 401 ") || strings.Contains(text, " 403 ") || strings.Contains(text, " 404 ")
			if refused == tt.ok || text == "" {
				t.Errorf("%s, %s: %.200q", path, name, text)
			}
		}
	}
}

// closing ends the header of a request without a body.
const closing = "Connection: close\r\n\r\n"

func rawAnswer(t *testing.T, address, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 4096)
	n, err := c.Read(text) // the status comes first, and a stream that was opened stays
	if n == 0 {
		t.Fatal(err)
	}
	return string(text[:n])
}

// A stranger learns that there is a server, and whether it serves: nothing of what it
// is, and nothing of who is who.
func TestG12_StrangersLearnNothing(t *testing.T) {
	g := startGuarded(t)
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: anyTLS(), Protocols: &protocols}, Timeout: patience}
	for path, want := range map[string]int{
		"/": http.StatusOK, "/livez": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusUnauthorized, "/debug/pprof/": http.StatusUnauthorized,
		"/v1/stream": http.StatusForbidden,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      http.StatusForbidden,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": http.StatusForbidden,
		"/grpc.health.v1.Health/Check":                                   http.StatusOK,
		"/grpc.health.v1.Health/Watch":                                   http.StatusForbidden,
		"/incumbent.v1.ClusterService/Status":                            http.StatusForbidden,
		"/incumbent.v1.ClusterService/Members":                           http.StatusForbidden,
		"/incumbent.v1.LeaseService/Get":                                 http.StatusForbidden,
		"/incumbent.v1.KeyValueService/Get":                              http.StatusForbidden,
	} {
		method, body := http.MethodGet, ""
		if strings.Count(path, ".") > 0 {
			method, body = http.MethodPost, "{}"
		}
		req, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if streams := strings.HasSuffix(path, "Info") || strings.HasSuffix(path, "Watch"); streams {
			req.Header.Set("Content-Type", "application/grpc+proto")
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.Trailer.Get("Grpc-Status") == "7" || res.Header.Get("Grpc-Status") == "7" {
			res.StatusCode = http.StatusForbidden
		}
		text := fmt.Sprint(res.Header, string(data))
		if res.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", path, res.StatusCode, text, want)
		}
		for _, secret := range []string{"n1", "incumbent v", "member", g.address, "go1."} {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells %q: %s", path, secret, text)
			}
		}
	}
}
