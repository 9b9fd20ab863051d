package auth

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// The organizational units that give a certificate its kind. A certificate of
// our CA without one of them is anonymous: known, and allowed nothing.
const (
	unitPrefix = "incumbent-"
	localName  = "local" // of the operator on the same machine
)

// Peer is what a connection and a request bring.
type Peer struct {
	Remote    netip.AddrPort
	Local     netip.AddrPort
	Unix      bool                 // a unix socket instead of addresses: its permissions guard it
	TLS       *tls.ConnectionState // nil without TLS
	Bearer    string               // credential of the request, "" if none
	Forwarded bool                 // the request says that somebody passed it on for another
}

// Authenticator finds out who a peer is.
type Authenticator struct {
	trustLoopback bool
	credentials   atomic.Pointer[Credentials]
	roots         atomic.Pointer[Roots] // nil: whatever the handshake took
	book          Book
	horizon       *Horizon
	now           func() time.Time
	denials       [numDenials]atomic.Uint64
}

// Option says more about an authenticator.
type Option func(*Authenticator)

// WithBook gives it what the cluster itself knows of credentials, and the horizon of
// what ends.
func WithBook(b Book, h *Horizon) Option {
	return func(a *Authenticator) { a.book, a.horizon = b, h }
}

// WithClock gives it a wall clock.
func WithClock(now func() time.Time) Option {
	return func(a *Authenticator) { a.now = now }
}

// NewAuthenticator returns an authenticator for one listener. trustLoopback
// makes whoever connects from this machine without TLS an operator: it is for
// listeners that nobody else can connect to ([ListenerPolicy.OnlyLoopback]). creds
// may be nil.
func NewAuthenticator(trustLoopback bool, creds *Credentials, more ...Option) *Authenticator {
	a := &Authenticator{trustLoopback: trustLoopback, book: noBook{}, horizon: NewHorizon(), now: time.Now}
	for _, o := range more {
		o(a)
	}
	a.SetCredentials(creds)
	return a
}

// SetCredentials replaces the credentials, for requests from now on.
func (a *Authenticator) SetCredentials(c *Credentials) { a.credentials.Store(c) }

// Knows returns a function that says whether a principal would still be let in
// with the credentials of now: it is for connections that were let in earlier. Of
// those who brought nothing it says yes. What has an end counts for the horizon again.
func (a *Authenticator) Knows() func(Principal) bool {
	file := a.credentials.Load()
	return func(p Principal) bool {
		if p.Proof.over(a.now()) {
			return false
		}
		switch p.Via {
		case Credential:
			if !a.has(file, p) {
				return false
			}
		case Certificate:
			if !a.trusts(p.Proof) || a.book.Revoked([]byte(p.Proof.ID)) {
				return false
			}
		}
		a.horizon.note(p.Proof.Ends)
		return true
	}
}

// has reports whether a token lets in whom it has let in.
func (a *Authenticator) has(file *Credentials, p Principal) bool {
	if len(p.Proof.ID) != sha256.Size {
		return false
	}
	sum := [sha256.Size]byte([]byte(p.Proof.ID))
	q, found := file.lookup(&sum)
	if !found {
		q, found = a.book.Token(sum)
	}
	return found && q == p
}

// Identify returns who the peer is. A credential goes before a certificate,
// as it belongs to the request and the certificate to the connection, which a
// proxy may share out. The error is Denied: what the peer brought is wrong; or that
// of a book which does not know it yet. Who brings nothing is anonymous, or the local
// operator.
func (a *Authenticator) Identify(p Peer) (Principal, error) {
	if p.Bearer != "" {
		return a.bearer(p.Bearer)
	}
	if p.TLS != nil && len(p.TLS.PeerCertificates) > 0 {
		return a.certificate(p.TLS)
	}
	if a.trustLoopback && p.TLS == nil && !p.Forwarded && p.local() {
		return Principal{Name: localName, Kind: Operator, Via: Loopback}, nil
	}
	return Principal{}, nil
}

// bearer returns whose token it is.
func (a *Authenticator) bearer(token string) (Principal, error) {
	if len(token) != tokenLength {
		return a.deny(NotKnown, errUnknownToken())
	}
	sum := sha256.Sum256([]byte(token))
	who, found := a.credentials.Load().lookup(&sum)
	if !found {
		who, found = a.book.Token(sum)
	}
	switch {
	case !found:
		// Nobody is sent away for good by a member that does not know better.
		if err := a.book.Behind(); err != nil {
			return Principal{}, err
		}
		return a.deny(NotKnown, errUnknownToken())
	case who.Proof.over(a.now()):
		return a.deny(Ended, incumbent.Errorf(incumbent.Denied, "the credential of %s ended at %s", who, atMillis(who.Proof.Ends)).
			WithHint("ask an operator for a new one: incumbent credential create"))
	}
	a.horizon.note(who.Proof.Ends)
	return who, nil
}

// certificate returns whom a client certificate names.
func (a *Authenticator) certificate(cs *tls.ConnectionState) (Principal, error) {
	// Certificates that were asked for but not verified prove nothing.
	if len(cs.VerifiedChains) == 0 {
		return a.deny(NotVerified, incumbent.Errorf(incumbent.Denied, "the client certificate was not verified").
			WithHint("set --client-ca to the authority that issued it"))
	}
	who, err := FromCertificate(cs.VerifiedChains[0][0])
	who.Proof.Roots = rootsOf(cs.VerifiedChains)
	switch {
	case err != nil:
		return a.deny(NotVerified, err)
	case !a.trusts(who.Proof): // since the handshake
		return a.deny(NotVerified, incumbent.Errorf(incumbent.Denied, "the client certificate of %s is of an authority that is not trusted any more", who).
			WithHint("ask an operator for a new one: incumbent tls issue"))
	case who.Proof.over(a.now()): // since the handshake
		return a.deny(Ended, incumbent.Errorf(incumbent.Denied, "the client certificate of %s ended at %s", who, atMillis(who.Proof.Ends)).
			WithHint("ask an operator for a new one: incumbent tls issue"))
	case a.book.Revoked([]byte(who.Proof.ID)):
		return a.deny(Revoked, incumbent.Errorf(incumbent.Denied, "the client certificate of %s, serial number %x, was revoked", who, who.Proof.ID).
			WithHint("ask an operator for a new one: incumbent tls issue"))
	}
	a.horizon.note(who.Proof.Ends)
	return who, nil
}

func atMillis(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

func errUnknownToken() error {
	return incumbent.Errorf(incumbent.Denied, "this credential is not known here").
		WithHint("'incumbent credential ls' says which are; else the server's --credential-file must have it; see incumbent credential create")
}

func (p Peer) local() bool {
	return p.Unix || p.Remote.Addr().Unmap().IsLoopback() && p.Local.Addr().Unmap().IsLoopback()
}

// FromCertificate returns the principal that a verified client certificate
// names, or a Denied error if it names none or several.
func FromCertificate(c *x509.Certificate) (Principal, error) {
	name := c.Subject.CommonName
	if err := incumbent.ValidateHolder(name); err != nil {
		return Principal{}, incumbent.Errorf(incumbent.Denied, "the common name of the client certificate names nobody: %w", err)
	}
	p := Principal{Name: name, Via: Certificate}
	if c.SerialNumber != nil {
		p.Proof.ID = string(c.SerialNumber.Bytes())
	}
	if !c.NotAfter.IsZero() {
		p.Proof.Ends = c.NotAfter.UnixMilli()
	}
	for _, unit := range c.Subject.OrganizationalUnit {
		word, ours := strings.CutPrefix(unit, unitPrefix)
		if !ours {
			continue
		}
		kind, err := ParseKind(word)
		if err != nil || p.Kind != Anonymous && p.Kind != kind {
			return Principal{}, incumbent.Errorf(incumbent.Denied, "the client certificate of %q has organizational units %q: not one kind", name, c.Subject.OrganizationalUnit).
				WithHint("exactly one of incumbent-operator, incumbent-agent, incumbent-observer")
		}
		p.Kind = kind
	}
	return p, nil
}

// Bearer returns the token of an HTTP Authorization header. ok is false if the
// header is there and not a bearer token: the request must then be denied.
func Bearer(header string) (token string, ok bool) {
	if header == "" {
		return "", true
	}
	scheme, token, found := strings.Cut(header, " ")
	if !found || !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", false
	}
	return token, true
}

// Forwarded reports whether somebody passed a request on for another, who need
// not be where it comes from: see [Peer]. That one of the headers is there decides,
// whatever it says: a proxy may add its own line behind one that the client sent
// empty, and only the first is what Get looks at.
func Forwarded(h http.Header) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if len(h.Values(name)) > 0 {
			return true
		}
	}
	return false
}

// OfPage reports whether a request may come from a web page that somebody on
// this machine looks at: its Host is a name that was made to lead here (DNS
// rebinding), its Origin is another server's, or the browser says so (Fetch
// Metadata, https://www.w3.org/TR/fetch-metadata/).
func OfPage(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" {
		return true
	}
	return crossOrigin(r)
}

// crossOrigin reports whether a page of another server had the request sent, or led
// whoever looks at it here. Browsers send no Origin with what a page merely loads,
// an image or a frame, but then they say what it is to the page.
func crossOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // no browser, our own page, or typed by a person
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}

// RefusePage returns a Denied error if a web page may be using what a browser
// brings along without being asked: its place on this machine, or the client
// certificate of whoever looks at the page. A bearer credential the page must
// know itself.
func (p Principal) RefusePage(r *http.Request) error {
	switch {
	case p.Via == Loopback && OfPage(r):
		return incumbent.Errorf(incumbent.Denied, "a web page has no part in the trust in this machine").
			WithHint("bring a credential, or name the server by its address")
	case p.Via == Certificate && crossOrigin(r):
		return incumbent.Errorf(incumbent.Denied, "a page of another server has no part in the trust in this certificate").
			WithHint("bring a credential")
	}
	return nil
}
