package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/cluster"
)

func hintOf(err error) string {
	var e *incumbent.Error
	if errors.As(err, &e) {
		return " " + e.Hint
	}
	return ""
}

// authority signs certificates of servers and clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
	next int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, next: 2, file: writePEM(t, "CERTIFICATE", der)}
}

// issue returns the files of a certificate for this machine and name; with a
// unit it names a principal.
func (a *authority) issue(t testing.TB, name, unit string) (cert, key string) {
	t.Helper()
	private := newKey(t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if unit != "" {
		tmpl.Subject.OrganizationalUnit = []string{unit}
	}
	a.next++
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", der), writePEM(t, "PRIVATE KEY", secret)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t testing.TB, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secured is a member with TLS that wants client certificates of the authority.
func secured(t testing.TB, a *authority) *Server {
	t.Helper()
	cfg := testConfig(t)
	cfg.TLSCert, cfg.TLSKey = a.issue(t, "server", "")
	cfg.ClientCA = a.file
	return open(t, cfg)
}

func (a *authority) client(t testing.TB, s *Server, name, unit string) *client.Client {
	t.Helper()
	cfg := client.Config{Servers: []string{s.URL()}, CAFile: a.file}
	cfg.CertFile, cfg.KeyFile = a.issue(t, name, unit)
	return dialer(t, cfg)
}

func TestG12_AnAgentClaimsOnlyAsItself(t *testing.T) {
	ca := newAuthority(t)
	s := secured(t, ca)
	agent := ca.client(t, s, "unit-1", "incumbent-agent")
	other := ca.client(t, s, "unit-10", "incumbent-agent")
	operator := ca.client(t, s, "ops", "incumbent-operator")

	for holder, want := range map[string]incumbent.Kind{
		"unit-1": incumbent.OK, "unit-1/lock": incumbent.OK,
		"unit-2": incumbent.Denied, "unit-10": incumbent.Denied, "ops": incumbent.Denied,
	} {
		if _, err := claim(t, agent, "of-"+holder, holder); incumbent.KindOf(err) != want {
			t.Errorf("unit-1 claims as %s: %v, want %v", holder, err, want)
		}
	}
	// A token is no authority: it is known to whoever may read.
	mine, err := claim(t, agent, "db", "unit-1")
	if err != nil {
		t.Fatal(err)
	}
	release := &apiv1.ReleaseRequest{Name: &apiv1.LeaseName{Name: "db"}, Token: mine.Lease.Token}
	if _, err := other.Leases().Release(testContext(t), connect.NewRequest(release)); incumbent.KindOf(client.AsError(err)) != incumbent.Denied {
		t.Errorf("another agent releases by token: %v, want Denied", err)
	}
	if mine.Lease.Principal != "agent:unit-1" {
		t.Errorf("the grant is recorded of %q", mine.Lease.Principal)
	}
	// Sessions are their opener's.
	session, err := agent.Open(testContext(t), client.SessionConfig{Holder: "unit-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(testContext(t))
	closing := &apiv1.CloseSessionRequest{Id: session.ID().String()}
	if _, err := other.Sessions().CloseSession(testContext(t), connect.NewRequest(closing)); incumbent.KindOf(client.AsError(err)) != incumbent.Denied {
		t.Errorf("another agent closes the session: %v, want Denied", err)
	}
	// Operators may.
	if _, err := operator.Leases().Release(testContext(t), connect.NewRequest(release)); err != nil {
		t.Errorf("an operator releases: %v", err)
	}
	if _, err := agent.Cluster().Settings(testContext(t), connect.NewRequest(&apiv1.SettingsRequest{})); incumbent.KindOf(client.AsError(err)) != incumbent.Denied {
		t.Errorf("an agent reads settings: %v, want Denied", err)
	}
}

// With client certificates wanted, nobody without one gets as far as a request;
// a certificate that names no kind may do nothing.
func TestClientCertificatesAreRequired(t *testing.T) {
	ca := newAuthority(t)
	s := secured(t, ca)
	nobody := dialer(t, client.Config{Servers: []string{s.URL()}, CAFile: ca.file})
	if _, err := claim(t, nobody, "db", "a"); err == nil {
		t.Error("a claim without a certificate was granted")
	}
	strangers := newAuthority(t)
	cfg := client.Config{Servers: []string{s.URL()}, CAFile: ca.file}
	cfg.CertFile, cfg.KeyFile = strangers.issue(t, "unit-1", "incumbent-operator")
	if _, err := claim(t, dialer(t, cfg), "db", "a"); err == nil {
		t.Error("a claim with a stranger's certificate was granted")
	}
	if _, err := claim(t, ca.client(t, s, "a", ""), "db", "a"); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("a certificate without a kind: %v, want Denied", err)
	}
	if _, err := claim(t, ca.client(t, s, "a", "incumbent-agent"), "db", "a"); err != nil {
		t.Error(err)
	}
}

// With credentials beside the authority, either will do; TLS alone trusts
// nobody, on loopback neither.
func TestTLSWithCredentials(t *testing.T) {
	ca := newAuthority(t)
	path, tokens := credentialFile(t, map[string]auth.Kind{"unit-1": auth.Agent})
	cfg := testConfig(t)
	cfg.TLSCert, cfg.TLSKey = ca.issue(t, "server", "")
	cfg.ClientCA, cfg.CredentialFile = ca.file, path
	s := open(t, cfg)
	bearer := dialer(t, client.Config{Servers: []string{s.URL()}, CAFile: ca.file, Credential: tokens["unit-1"]})
	if _, err := claim(t, bearer, "db", "unit-1"); err != nil {
		t.Errorf("with a credential: %v", err)
	}
	session, err := bearer.Open(testContext(t), client.SessionConfig{Holder: "unit-1"})
	if err != nil {
		t.Fatalf("a stream with a credential: %v", err)
	}
	if err := session.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	if _, err := claim(t, ca.client(t, s, "unit-2", "incumbent-agent"), "db2", "unit-2"); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if _, err := claim(t, dialer(t, client.Config{Servers: []string{s.URL()}, CAFile: ca.file}), "db3", "x"); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("with neither: %v, want Denied", err)
	}
}

func TestReloadOfCertificates(t *testing.T) {
	ca := newAuthority(t)
	cfg := testConfig(t)
	cfg.TLSCert, cfg.TLSKey = ca.issue(t, "server", "")
	cfg.ClientCA = ca.file
	s := open(t, cfg)
	old := ca.client(t, s, "unit-1", "incumbent-agent")
	// Another authority takes over: the server's files are replaced in place.
	next := newAuthority(t)
	cert, key := next.issue(t, "server", "")
	for from, to := range map[string]string{cert: cfg.TLSCert, key: cfg.TLSKey, next.file: cfg.ClientCA} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := claim(t, old, "of-the-old", "unit-1"); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := old.Leases().WaitReleased(context.Background(), connect.NewRequest(&apiv1.WaitReleasedRequest{Name: &apiv1.LeaseName{Name: "of-the-old"}}))
		waited <- client.AsError(err)
	}()
	until(t, "a call of the old authority's waits", func() bool { return s.engine.Hub().Stats().Waiters == 1 })
	s.Reload()
	if err := <-waited; incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("a call that waits, of an authority that is gone: %v", err)
	}
	if _, err := claim(t, old, "another", "unit-1"); err == nil {
		t.Error("an authority that is gone lets in, on a connection that is open")
	}
	if _, err := claim(t, next.client(t, s, "unit-1", "incumbent-agent"), "db", "unit-1"); err != nil {
		t.Errorf("after the reload: %v", err)
	}
	// A pair that cannot be read leaves what was there in force.
	if err := os.WriteFile(cfg.TLSKey, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	if _, err := claim(t, next.client(t, s, "unit-1", "incumbent-agent"), "db", "unit-1"); err != nil {
		t.Errorf("after a broken reload: %v", err)
	}
}

// A SIGHUP and a renewal may reload at once: what is in force, and which authorities
// are trusted, is of one of them.
func TestReloadsOfCertificatesFollowEachOther(t *testing.T) {
	a := newAuthority(t)
	cfg := Config{ClientCA: a.file}
	cfg.TLSCert, cfg.TLSKey = a.issue(t, "server", "")
	var inside, together atomic.Int32
	c := &certificates{cfg: cfg, trusts: func(auth.Roots) {
		if inside.Add(1) > 1 {
			together.Add(1)
		}
		for range 100 {
			runtime.Gosched() // let the others come
		}
		inside.Add(-1)
	}}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				if err := c.reload(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := together.Load(); n > 0 {
		t.Errorf("%d reloads found another under way", n)
	}
}

// memberTLS is what a member of a cluster with an authority of its own shows and trusts.
func memberTLS(t *testing.T) *cluster.TLS {
	t.Helper()
	dir := t.TempDir()
	if _, err := cluster.Init(cluster.InitConfig{DataDir: dir, Name: "n1", TLS: true}); err != nil {
		t.Fatal(err)
	}
	record, err := cluster.ReadRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	own, err := cluster.OpenTLS(dir, record, "n1", []string{"localhost"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// The cluster's own authority may end while the file of others cannot be read: that it does
// holds at once, and what the file said last stays.
func TestAnAuthorityEndsWhileTheFileOfOthersIsNotRead(t *testing.T) {
	before, after := memberTLS(t), memberTLS(t)
	first, second := newAuthority(t), newAuthority(t)
	var trusted auth.Roots
	c, err := loadCertificates(Config{ClientCA: first.file}, before, func() bool { return false }, func(r auth.Roots) { trusted = r })
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, own *cluster.TLS, others *authority) {
		t.Helper()
		want := auth.Roots{}
		want.Add(others.cert)
		pool, authorities := own.Pool()
		pool.AddCert(others.cert)
		for _, cert := range authorities {
			want.Add(cert)
		}
		now := c.current.Load()
		if !maps.Equal(trusted, want) || !now.ClientCAs.Equal(pool) {
			t.Errorf("%s: others are trusted", what)
		}
		if !now.Certificates[0].Leaf.Equal(own.Certificate().Leaf) {
			t.Errorf("%s: another certificate is shown", what)
		}
	}
	check("at first", before, first)
	text, err := os.ReadFile(second.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.own = after // as after an exchange
	if err := c.reload(); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("of the file: %v", err)
	}
	check("while the file is empty", after, first)
	if err := os.WriteFile(first.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.reload(); err != nil {
		t.Error(err)
	}
	check("once the file names another", after, second)
}
