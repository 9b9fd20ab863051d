package cluster

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// besiege keeps n silent connections to an address open until the test ends: one
// that is closed is opened again.
func besiege(t *testing.T, address string, n int) {
	t.Helper()
	var all sync.WaitGroup
	over := make(chan struct{})
	t.Cleanup(func() { close(over); all.Wait() })
	for range n {
		all.Go(func() {
			for {
				nc, err := net.Dial("tcp", address)
				if err == nil {
					stop := make(chan struct{})
					go func() {
						select {
						case <-over:
							nc.Close()
						case <-stop:
						}
					}()
					_, _ = io.Copy(io.Discard, nc) // until it is closed
					close(stop)
					nc.Close()
				}
				select {
				case <-over:
					return
				case <-time.After(10 * time.Millisecond): // the attacker's machine is this one, too
				}
			}
		})
	}
}

// A member that was restarted comes back although others keep the listeners for
// members full: with as many connections as there are places, and with far more.
func TestG35_SilentConnectionsKeepNoMemberOut(t *testing.T) {
	c := start(t, "--members", "3")
	leader := c.leader()
	m := c.others(leader)[0]
	for _, n := range []int{64, 1200} {
		for _, other := range c.others(m) {
			besiege(t, other.Peer, n)
		}
		m.kill(t)
		m.again(t, nil)
		rest := c.others(m)
		eventually(t, patience, fmt.Sprintf("it is back beside %d silent connections to each", n), func() bool {
			for _, at := range rest {
				got, err := c.membersAt(at)
				if err != nil {
					return false
				}
				for _, one := range got.Members {
					if !one.Connected {
						return false
					}
				}
			}
			return true
		})
		if _, err := claimWithin(t, c.clientOf(m), fmt.Sprintf("beside-%d", n), patience); err != nil {
			t.Fatal(err)
		}
	}
}

// trustAt is how far the members have come, as one of them knows it.
func (c *trio) trustAt(m *member) *apiv1.GetTrustResponse {
	c.t.Helper()
	res, err := c.clientOf(m).Trust().GetTrust(c.t.Context(), connect.NewRequest(&apiv1.GetTrustRequest{}))
	if err != nil {
		c.t.Fatal(client.AsError(err))
	}
	return res.Msg
}

// verb runs the command line against a member, as an operator.
func (c *trio) verb(m *member, want int, args ...string) string {
	c.t.Helper()
	out, errs, code := cli(c.t, append(args, "--server", m.URL, "--ca", c.CA, "--cert", c.Cert, "--key", c.Key)...)
	if code != want {
		c.t.Fatalf("%s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
	}
	return out
}

// claims are leases, claimed one after the other until it is stopped, and tells what failed.
type claims struct {
	done   atomic.Int64
	failed atomic.Pointer[error]
	stop   chan struct{}
	ended  sync.WaitGroup
}

func (c *trio) claiming(name string, ms ...*member) *claims {
	l := &claims{stop: make(chan struct{})}
	cl := c.clientOf(ms...)
	l.ended.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			default:
			}
			// Again and again until it is sure: what fails while a leader changes is
			// tried anew, and what was granted is the prober's own.
			_, err := claim(c.t.Context(), cl, fmt.Sprintf("%s-%d", name, i), "prober", time.Hour)
			switch {
			case incumbent.KindOf(err) == incumbent.Overloaded: // the machine has other things to do
				i--
				time.Sleep(50 * time.Millisecond) // as a client that is refused would
				continue
			case err != nil:
				err = fmt.Errorf("%s %d: %w", name, i, err)
				l.failed.Store(&err)
				return
			}
			l.done.Add(1)
		}
	})
	return l
}

func (l *claims) over(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.ended.Wait()
	if err := l.failed.Load(); err != nil {
		t.Error(*err)
	}
	if l.done.Load() == 0 {
		t.Error("nothing was claimed")
	}
}

// rotationClients is how many hold leases while everything is exchanged, each over a
// connection of its own: INCUMBENT_ROTATION_CLIENTS, else few.
func rotationClients(t *testing.T) int {
	t.Helper()
	text := os.Getenv("INCUMBENT_ROTATION_CLIENTS")
	if text == "" {
		return 30
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("INCUMBENT_ROTATION_CLIENTS: %v", err)
	}
	t.Setenv("INCUMBENT_ROTATION_CLIENTS", text) // restored behind the test
	os.Unsetenv("INCUMBENT_ROTATION_CLIENTS")    // it is none of the servers' settings
	return n
}

// Secret, authority and certificates are exchanged while leases are held and
// claimed, a member being down at first: nothing is lost and nobody locked out, but
// whoever has the old ones alone.
func TestG33_EverythingIsExchangedWhileItRuns(t *testing.T) {
	clients := rotationClients(t)
	c := start(t, "--members", "3", "--tls")
	first := c.named("n1") // has the authority's key and the operator's
	down := c.named("n3")
	unused := strings.TrimSpace(c.verb(first, 0, "cluster", "token", "n4"))
	held := c.holders(clients, holdersTTL)
	probing := c.claiming("before", first, c.named("n2"))
	before := c.trustAt(first)
	oldCA, oldCert := copied(t, c.CA), copied(t, c.Cert)

	down.kill(t)
	for _, verb := range []string{"rotate-secret", "rotate-ca"} {
		// It says what is true: no member has been waited for, and one is down.
		if got := c.verb(first, 0, "cluster", verb, "--wait", "0"); !strings.Contains(got, "has begun") || strings.Contains(got, "every member has the") || strings.Contains(got, "every member shows") {
			t.Errorf("%s says %q", verb, got)
		}
	}
	c.verb(first, 6, "cluster", "rotate-secret", "--wait", "0") // one at a time
	c.verb(first, 6, "cluster", "rotate-ca", "--finish")        // n3 has not come so far
	eventually(t, patience, "the others trust the new one, and wait", func() bool {
		for _, m := range c.trustAt(first).Members {
			if m.ShowsAuthority || m.Name != down.Name && !(m.HasSecret && m.TrustsAuthority) {
				return false
			}
		}
		return c.trustAt(first).SecretRotating
	})
	// Whoever leads goes on with it.
	c.verb(first, 0, "cluster", "transfer-leader", "--server", c.Servers)
	down.again(t, nil)
	eventually(t, patience, "all have the secret, and show the new authority", func() bool {
		got := c.trustAt(first)
		for _, m := range got.Members {
			if !m.HasSecret || !m.TrustsAuthority || !m.ShowsAuthority {
				return false
			}
		}
		return !got.SecretRotating
	})
	held.stillHeld("the exchange of secret and authority")
	// Who trusts the old authority alone still comes in, and learns the new one.
	strangers := client.Config{Servers: []string{c.named("n2").URL}, CAFile: oldCA, CertFile: oldCert, KeyFile: c.Key, CallTimeout: patience}
	if err := opens(t, strangers); err != nil {
		t.Errorf("with the old authority and certificate, before it was finished: %v", err)
	}
	newCA := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(newCA, []byte(c.verb(first, 0, "cluster", "trust", "--pem")), 0o600); err != nil {
		t.Fatal(err)
	}
	probing.over(t)
	for _, l := range held.leases {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}

	c.CA = newCA
	held = c.holders(clients, holdersTTL)
	probing = c.claiming("after", c.named("n2"), first)
	c.verb(first, 0, "cluster", "rotate-ca", "--finish")
	c.verb(first, 0, "cluster", "rotate-certs")
	after := c.trustAt(first)
	if after.NextAuthority != "" || after.Authority == before.Authority || after.SecretRotating {
		t.Errorf("it ends with %v", after)
	}
	for _, m := range after.Members {
		if !m.HasSecret || !m.TrustsAuthority || !m.ShowsAuthority || !m.KeyRenewed {
			t.Errorf("%v", m)
		}
	}
	for name, cfg := range map[string]client.Config{
		"the old certificate": {CAFile: newCA, CertFile: oldCert, KeyFile: c.Key}, "the old authority": {CAFile: oldCA, CertFile: c.Cert, KeyFile: c.Key},
	} {
		cfg.Servers, cfg.CallTimeout = []string{c.named("n2").URL}, time.Second
		if err := opens(t, cfg); err == nil {
			t.Errorf("%s is good still", name)
		}
	}
	joins := newServer(t, "n4")
	if out, errs, code := cli(t, append([]string{"cluster", "join", "--join-file", tokenFile(t, unused)}, joins.args...)...); code != 7 {
		t.Errorf("a token made under the old secret: exit code %d\n%s%s", code, out, errs)
	}
	// A member that is started again finds the others.
	down.kill(t)
	down.again(t, nil)
	eventually(t, patience, "it is back", func() bool {
		got, err := c.membersAt(first)
		if err != nil {
			return false
		}
		for _, m := range got.Members {
			if !m.Connected {
				return false
			}
		}
		return true
	})
	held.stillHeld("all of it")
	probing.over(t)
}

// opens makes one call with a client of its own.
func opens(t *testing.T, cfg client.Config) error {
	t.Helper()
	cl, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = cl.Cluster().Members(t.Context(), connect.NewRequest(&apiv1.MembersRequest{}))
	if err != nil {
		return client.AsError(err)
	}
	return nil
}

// copied is a file with what another holds now.
func copied(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// A certificate that the cluster's authority has signed for somebody else does not
// make a server of whoever has it: one that joins keeps its token to itself.
func TestATokenIsSentToMembersOnly(t *testing.T) {
	c := start(t, "--members", "1", "--tls")
	first := c.named("n1")
	token := c.verb(first, 0, "cluster", "token", "n2")
	got := make(chan string, 1)
	address := impostor(t, c.CA, c.Cert, c.Key, got)
	joins := newServer(t, "n2")
	forged := redirected(t, strings.TrimSpace(token), "https://"+address)
	if out, errs, code := cli(t, append([]string{"cluster", "join", "--join-file", tokenFile(t, forged)}, joins.args...)...); code == 0 {
		t.Errorf("it joined\n%s%s", out, errs)
	}
	select {
	case body := <-got:
		t.Errorf("it said %q", body)
	default:
	}
	if _, err := os.Stat(filepath.Join(joins.dir, "tls", "ca.crt")); err == nil {
		t.Error("it believes what it was told")
	}
}

// impostor serves whoever comes with an operator's certificate of the cluster, the
// authority's behind it, and tells what it is sent.
func impostor(t *testing.T, ca, cert, key string, got chan<- string) (address string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	pair.Certificate = append(pair.Certificate, block.Bytes)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case got <- string(body):
		default:
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// redirected is a token that names another server.
func redirected(t *testing.T, token, to string) string {
	t.Helper()
	prefix, word, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(word)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	fields["a"] = []string{to}
	if text, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return prefix + "." + base64.RawURLEncoding.EncodeToString(text)
}
