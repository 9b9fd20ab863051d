package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
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
		"operator":     {"root", []string{"incumbent-operator"}, Principal{Name: "root", Kind: Operator, Via: Certificate}, incumbent.OK},
		"agent":        {"unit-1", []string{"ops", "incumbent-agent"}, Principal{Name: "unit-1", Kind: Agent, Via: Certificate}, incumbent.OK},
		"observer":     {"graphs", []string{"incumbent-observer"}, Principal{Name: "graphs", Kind: Observer, Via: Certificate}, incumbent.OK},
		"no unit":      {"unit-1", nil, Principal{Name: "unit-1", Kind: Anonymous, Via: Certificate}, incumbent.OK},
		"other unit":   {"unit-1", []string{"operator"}, Principal{Name: "unit-1", Kind: Anonymous, Via: Certificate}, incumbent.OK},
		"twice":        {"a", []string{"incumbent-agent", "incumbent-agent"}, Principal{Name: "a", Kind: Agent, Via: Certificate}, incumbent.OK},
		"two kinds":    {"a", []string{"incumbent-agent", "incumbent-operator"}, Principal{}, incumbent.Denied},
		"unknown kind": {"a", []string{"incumbent-root"}, Principal{}, incumbent.Denied},
		"anonymous":    {"a", []string{"incumbent-anonymous"}, Principal{}, incumbent.Denied},
		"no name":      {"", []string{"incumbent-operator"}, Principal{}, incumbent.Denied},
		"white space":  {"a b", []string{"incumbent-agent"}, Principal{}, incumbent.Denied},
	} {
		got, err := FromCertificate(&x509.Certificate{Subject: pkix.Name{CommonName: tt.cn, OrganizationalUnit: tt.units}})
		tt.want.Proof = got.Proof
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
	if err != nil || got.String() != "agent:unit-1" || got.Via != Certificate || got.Proof.ID != "\x02" || got.Proof.Ends < time.Now().UnixMilli() {
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

	if p, err := a.Identify(with(token)); err != nil || p.String() != "agent:unit-1" || p.Via != Credential {
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

// ledger is a book of tests.
type ledger struct {
	tokens    map[[sha256.Size]byte]Principal
	revoked   map[string]bool
	passwords map[string][]KeptPassword // by scope and tag
	behind    error
}

func (l *ledger) Token(sum [sha256.Size]byte) (Principal, bool) { p, ok := l.tokens[sum]; return p, ok }
func (l *ledger) Revoked(serial []byte) bool                    { return l.revoked[string(serial)] }
func (l *ledger) Behind() error                                 { return l.behind }
func (l *ledger) Passwords(scope, tag string) []KeptPassword    { return l.passwords[scope+" "+tag] }

// newToken puts a token into the book.
func (l *ledger) newToken(t *testing.T, name string, ends int64) (token string) {
	t.Helper()
	token = NewToken()
	sum, err := SumOf(token)
	if err != nil {
		t.Fatal(err)
	}
	if l.tokens == nil {
		l.tokens = map[[sha256.Size]byte]Principal{}
	}
	l.tokens[sum] = Principal{Name: name, Kind: Agent, Via: Credential, Proof: Proof{ID: string(sum[:]), Ends: ends}}
	return token
}

// A connection that was let in stays only while what it brought is good, whichever
// way it was known: by a file, by the book, or by a certificate.
func TestG12_WhoWasLetInStaysWhileTheProofIsGood(t *testing.T) {
	now := time.UnixMilli(1000)
	filed, other := NewToken(), NewToken()
	file := func(tokens ...string) *Credentials {
		lines := ""
		for _, token := range tokens {
			line, err := CredentialLine("unit-1", Agent, token)
			if err != nil {
				t.Fatal(err)
			}
			lines += line + "\n"
		}
		c, err := ParseCredentials(strings.NewReader(lines))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	books, horizon := &ledger{revoked: map[string]bool{}}, NewHorizon()
	kept, ending := books.newToken(t, "unit-2", 0), books.newToken(t, "unit-3", 2000)
	a := NewAuthenticator(true, file(filed, other), WithBook(books, horizon), WithClock(func() time.Time { return now }))
	who := func(p Peer) Principal {
		t.Helper()
		w, err := a.Identify(p)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	cert := func(serial, ends int64) Peer {
		c := &x509.Certificate{
			SerialNumber: big.NewInt(serial), NotAfter: time.UnixMilli(ends),
			Subject: pkix.Name{CommonName: "c", OrganizationalUnit: []string{"incumbent-agent"}},
		}
		return Peer{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}}
	}
	in := map[string]Principal{
		"of the file": who(Peer{Bearer: filed}), "of the book": who(Peer{Bearer: kept}), "with an end": who(Peer{Bearer: ending}),
		"by certificate": who(cert(7, 9000)), "by one that ends": who(cert(8, 3000)), "here": who(Peer{Unix: true}),
	}
	check := func(gone ...string) {
		t.Helper()
		known := a.Knows()
		for name, p := range in {
			if got := known(p); got == slices.Contains(gone, name) {
				t.Errorf("%s: known is %v", name, got)
			}
		}
	}
	check()
	if next := horizon.Next(); next.UnixMilli() != 2000 {
		t.Errorf("the horizon is %v", next)
	}
	<-horizon.Sooner()
	a.SetCredentials(file(other)) // the other one of the same name is no proof
	check("of the file")
	books.tokens = map[[sha256.Size]byte]Principal{in["with an end"].sum(): in["with an end"]}
	check("of the file", "of the book")
	books.revoked["\x07"] = true
	check("of the file", "of the book", "by certificate")
	if _, err := a.Identify(cert(7, 9000)); incumbent.KindOf(err) != incumbent.Denied || a.Denied(Revoked) != 1 {
		t.Errorf("a revoked certificate: %v", err)
	}
	now = time.UnixMilli(2000)
	horizon.Clear()
	check("of the file", "of the book", "by certificate", "with an end")
	if next := horizon.Next(); next.UnixMilli() != 3000 {
		t.Errorf("the horizon is %v: who stays counts again", next)
	}
	if _, err := a.Identify(Peer{Bearer: ending}); incumbent.KindOf(err) != incumbent.Denied || !strings.Contains(err.Error(), "ended at 1970") || a.Denied(Ended) != 1 {
		t.Errorf("a token that has ended: %v", err)
	}
	now = time.UnixMilli(3000)
	check("of the file", "of the book", "by certificate", "with an end", "by one that ends")
	if _, err := a.Identify(cert(8, 3000)); incumbent.KindOf(err) != incumbent.Denied || a.Denied(Ended) != 2 {
		t.Errorf("a certificate that has ended since the handshake: %v", err)
	}
}

// sum is the hash that a token was known by.
func (p Principal) sum() [sha256.Size]byte { return [sha256.Size]byte([]byte(p.Proof.ID)) }

// A member that has not caught up sends nobody away for good.
func TestG12_WhoIsNotKnownYetIsNotDenied(t *testing.T) {
	books := &ledger{behind: incumbent.Errorf(incumbent.Unavailable, "not caught up")}
	a := NewAuthenticator(false, nil, WithBook(books, NewHorizon()))
	if _, err := a.Identify(Peer{Bearer: NewToken()}); incumbent.KindOf(err) != incumbent.Unavailable || a.Denied(NotKnown) != 0 {
		t.Errorf("while it is behind: %v", err)
	}
	books.behind = nil
	if _, err := a.Identify(Peer{Bearer: NewToken()}); incumbent.KindOf(err) != incumbent.Denied || a.Denied(NotKnown) != 1 {
		t.Errorf("afterwards: %v", err)
	}
}

func TestParseSerial(t *testing.T) {
	for in, want := range map[string]string{"0a:ff": "\x0a\xff", "aff": "\x0a\xff", "000AFF": "\x0a\xff", "1": "\x01"} {
		if got, err := ParseSerial(in); err != nil || string(got) != want {
			t.Errorf("%s: %x, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "00:00", "xyz", strings.Repeat("ff", MaxSerialBytes+1)} {
		if got, err := ParseSerial(in); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %x, %v", in, got, err)
		}
	}
}

func TestParsePrincipal(t *testing.T) {
	for in, want := range map[string]Principal{
		"agent:db/1": {Name: "db/1", Kind: Agent}, "operator:a:b": {Name: "a:b", Kind: Operator}, "observer:o": {Name: "o", Kind: Observer},
	} {
		if got, err := ParsePrincipal(in); err != nil || got != want || got.String() != in {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "agent", "agent:", ":a", "root:a", "anonymous:a", "agent:a b"} {
		if got, err := ParsePrincipal(in); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
}

func FuzzParseSerial(f *testing.F) {
	f.Add("0a:ff")
	f.Fuzz(func(t *testing.T, in string) {
		if got, err := ParseSerial(in); err == nil && (len(got) == 0 || len(got) > MaxSerialBytes || got[0] == 0) {
			t.Fatalf("%q is %x", in, got)
		}
	})
}

// Who came in by an authority goes with it, at the next request and while nothing is
// asked; a certificate that another authority vouches for, too, stays good.
func TestG12_WhoCameInByAnAuthorityGoesWithIt(t *testing.T) {
	old, next := &x509.Certificate{Raw: []byte("old")}, &x509.Certificate{Raw: []byte("next")}
	rootsOfBoth, rootsOfNext := Roots{}, Roots{}
	rootsOfBoth.Add(old)
	rootsOfBoth.Add(next)
	rootsOfNext.Add(next)
	a := NewAuthenticator(false, nil)
	peer := func(ends ...*x509.Certificate) Peer {
		c := &x509.Certificate{
			SerialNumber: big.NewInt(7), NotAfter: time.Now().Add(time.Hour),
			Subject: pkix.Name{CommonName: "c", OrganizationalUnit: []string{"incumbent-operator"}},
		}
		cs := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
		for _, end := range ends {
			cs.VerifiedChains = append(cs.VerifiedChains, []*x509.Certificate{c, end})
		}
		return Peer{TLS: cs}
	}
	for name, c := range map[string]struct {
		of    Peer
		stays bool
	}{
		"of the old": {peer(old), false}, "of the next": {peer(next), true}, "of both": {peer(old, next), true},
	} {
		for when, step := range map[string]struct {
			trusted Roots
			in      bool
		}{"before": {rootsOfBoth, true}, "after": {rootsOfNext, c.stays}} {
			a.SetRoots(rootsOfBoth)
			who, err := a.Identify(c.of)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			a.SetRoots(step.trusted)
			if known := a.Knows()(who); known != step.in {
				t.Errorf("%s, %s the end: known is %v", name, when, known)
			}
			if _, err := a.Identify(c.of); (err == nil) != step.in {
				t.Errorf("%s, %s the end: a request is answered %v", name, when, err)
			}
		}
	}
}
