package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

var (
	loop4   = netip.MustParseAddrPort("127.0.0.1:40000")
	loop6   = netip.MustParseAddrPort("[::1]:40000")
	mapped  = netip.MustParseAddrPort("[::ffff:127.0.0.1]:40000")
	outside = netip.MustParseAddrPort("192.0.2.1:40000")
)

func TestIdentifyLoopback(t *testing.T) {
	local := Principal{Name: "local", Kind: Operator, Via: Loopback}
	for name, tt := range map[string]struct {
		trust bool
		peer  Peer
		want  Principal
	}{
		"ipv4":              {true, Peer{Remote: loop4, Local: loop4}, local},
		"ipv6":              {true, Peer{Remote: loop6, Local: loop6}, local},
		"mapped":            {true, Peer{Remote: mapped, Local: mapped}, local},
		"unix":              {true, Peer{Unix: true}, local},
		"not trusted":       {false, Peer{Remote: loop4, Local: loop4}, Principal{}},
		"unix, not trusted": {false, Peer{Unix: true}, Principal{}},
		"from outside":      {true, Peer{Remote: outside, Local: loop4}, Principal{}},
		"to outside":        {true, Peer{Remote: loop4, Local: outside}, Principal{}},
		"nothing known":     {true, Peer{}, Principal{}},
		"with TLS":          {true, Peer{Remote: loop4, Local: loop4, TLS: &tls.ConnectionState{}}, Principal{}},
		"through a proxy":   {true, Peer{Remote: loop4, Local: loop4, Forwarded: true}, Principal{}},
	} {
		got, err := NewAuthenticator(tt.trust, nil).Identify(tt.peer)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, tt.want)
		}
	}
}

func TestFromCertificate(t *testing.T) {
	for name, tt := range map[string]struct {
		cn    string
		units []string
		want  Principal
		kind  incumbent.Kind
	}{
		"operator":     {"root", []string{"incumbent-operator"}, Principal{"root", Operator, Certificate}, incumbent.OK},
		"agent":        {"unit-1", []string{"ops", "incumbent-agent"}, Principal{"unit-1", Agent, Certificate}, incumbent.OK},
		"observer":     {"graphs", []string{"incumbent-observer"}, Principal{"graphs", Observer, Certificate}, incumbent.OK},
		"no unit":      {"unit-1", nil, Principal{"unit-1", Anonymous, Certificate}, incumbent.OK},
		"other unit":   {"unit-1", []string{"operator"}, Principal{"unit-1", Anonymous, Certificate}, incumbent.OK},
		"twice":        {"a", []string{"incumbent-agent", "incumbent-agent"}, Principal{"a", Agent, Certificate}, incumbent.OK},
		"two kinds":    {"a", []string{"incumbent-agent", "incumbent-operator"}, Principal{}, incumbent.Denied},
		"unknown kind": {"a", []string{"incumbent-root"}, Principal{}, incumbent.Denied},
		"anonymous":    {"a", []string{"incumbent-anonymous"}, Principal{}, incumbent.Denied},
		"no name":      {"", []string{"incumbent-operator"}, Principal{}, incumbent.Denied},
		"white space":  {"a b", []string{"incumbent-agent"}, Principal{}, incumbent.Denied},
	} {
		got, err := FromCertificate(&x509.Certificate{Subject: pkix.Name{CommonName: tt.cn, OrganizationalUnit: tt.units}})
		if got != tt.want || incumbent.KindOf(err) != tt.kind {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// TestIdentifyOverRealTLS has a server and clients talk TLS: one with a
// certificate of the CA, one with somebody else's that the server asked for
// but did not check.
func TestIdentifyOverRealTLS(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	client := ca.issue(t, "unit-1", "incumbent-agent")
	got, err := NewAuthenticator(true, nil).Identify(Peer{Remote: loop4, Local: loop4, TLS: handshake(t, ca, client, tls.RequireAndVerifyClientCert)})
	if want := (Principal{"unit-1", Agent, Certificate}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	forged := other.issue(t, "root", "incumbent-operator")
	_, err = NewAuthenticator(true, nil).Identify(Peer{Remote: loop4, Local: loop4, TLS: handshake(t, ca, forged, tls.RequestClientCert)})
	if incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("a certificate nobody verified: %v", err)
	}
}

type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T) *testCA {
	ca := &testCA{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	ca.cert, ca.key = ca.sign(t, template, template)
	return ca
}

func (ca *testCA) sign(t *testing.T, template, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := ca.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (ca *testCA) issue(t *testing.T, name, unit string) tls.Certificate {
	t.Helper()
	cert, key := ca.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{unit}},
		DNSNames: []string{"server"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, ca.cert)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func handshake(t *testing.T, ca *testCA, client tls.Certificate, want tls.ClientAuthType) *tls.ConnectionState {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	server := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "server", "x")}, ClientAuth: want, ClientCAs: pool})
	caller := tls.Client(b, &tls.Config{Certificates: []tls.Certificate{client}, RootCAs: pool, ServerName: "server"})
	done := make(chan error, 1)
	go func() {
		err := caller.Handshake()
		if err == nil {
			_, err = caller.Read(make([]byte, 1)) // session tickets, then the byte below
		}
		done <- err
	}()
	if _, err := server.Write([]byte{1}); err != nil { // handshakes first
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	state := server.ConnectionState()
	return &state
}

func TestIdentifyCredential(t *testing.T) {
	token, stranger := NewToken(), NewToken()
	line, err := CredentialLine("unit-1", Agent, token)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := ParseCredentials(strings.NewReader("# agents\n\n" + line + "\n"))
	if err != nil || creds.Len() != 1 {
		t.Fatal(creds, err)
	}
	a := NewAuthenticator(true, creds)
	local := Peer{Remote: loop4, Local: loop4}
	with := func(token string) Peer { p := local; p.Bearer = token; return p }

	if p, err := a.Identify(with(token)); err != nil || p != (Principal{"unit-1", Agent, Credential}) {
		t.Errorf("got %+v, %v", p, err)
	}
	// A wrong credential is not passed off as the local operator.
	for _, wrong := range []string{stranger, "x", token + "x", token[:len(token)-1], strings.ToUpper(token), line} {
		if p, err := a.Identify(with(wrong)); incumbent.KindOf(err) != incumbent.Denied || p != (Principal{}) {
			t.Errorf("%q: got %+v, %v", wrong, p, err)
		}
	}
	// It goes before a certificate, even one that would allow more.
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "root", OrganizationalUnit: []string{"incumbent-operator"}}}
	both := with(token)
	both.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{root}, VerifiedChains: [][]*x509.Certificate{{root}}}
	if p, err := a.Identify(both); err != nil || p.Kind != Agent {
		t.Errorf("got %+v, %v", p, err)
	}
	a.SetCredentials(nil)
	if _, err := a.Identify(with(token)); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("a credential taken away still works: %v", err)
	}
}

func TestBearer(t *testing.T) {
	for header, want := range map[string]struct {
		token string
		ok    bool
	}{
		"": {"", true}, "Bearer abc": {"abc", true}, "bearer abc": {"abc", true},
		"Bearer": {"", false}, "Bearer ": {"", false}, "Basic abc": {"", false}, "abc": {"", false},
	} {
		if token, ok := Bearer(header); token != want.token || ok != want.ok {
			t.Errorf("%q: %q, %v", header, token, ok)
		}
	}
}

// What a browser brings along by itself proves nothing about the page it shows.
func TestG12_PagesHaveNoPartInWhatABrowserBringsAlong(t *testing.T) {
	request := func(host, origin string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/x", nil)
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		return r
	}
	for _, c := range []struct {
		via          Via
		host, origin string
		refused      bool
	}{
		{Loopback, "127.0.0.1:7600", "", false},
		{Loopback, "127.0.0.1:7600", "http://127.0.0.1:7600", false},
		{Loopback, "127.0.0.1:7600", "http://evil.example", true},
		{Loopback, "rebound.example", "", true},
		{Certificate, "n1.example:7600", "", false},
		{Certificate, "n1.example:7600", "https://n1.example:7600", false},
		{Certificate, "n1.example:7600", "https://evil.example", true},
		{Certificate, "n1.example:7600", "null", true},
		{Credential, "n1.example:7600", "https://evil.example", false},
	} {
		err := Principal{Via: c.via}.RefusePage(request(c.host, c.origin))
		if refused := incumbent.KindOf(err) == incumbent.Denied; refused != c.refused {
			t.Errorf("%v, host %s, origin %q: %v, want refused %v", c.via, c.host, c.origin, err, c.refused)
		}
	}
}

// A connection that was let in stays only while its credential is there.
func TestKnows(t *testing.T) {
	line, err := CredentialLine("unit-1", Agent, NewToken())
	if err != nil {
		t.Fatal(err)
	}
	creds, err := ParseCredentials(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	a := NewAuthenticator(false, creds)
	for p, want := range map[Principal]bool{
		{"unit-1", Agent, Credential}:    true,
		{"unit-2", Agent, Credential}:    false,
		{"unit-1", Operator, Credential}: false,
		{"unit-2", Agent, Certificate}:   true,
		{localName, Operator, Loopback}:  true,
	} {
		if got := a.Knows()(p); got != want {
			t.Errorf("%+v: %v", p, got)
		}
	}
	a.SetCredentials(nil)
	if a.Knows()(Principal{"unit-1", Agent, Credential}) {
		t.Error("a credential that was taken back is known")
	}
}
