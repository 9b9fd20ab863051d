package auth

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"

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
}

// NewAuthenticator returns an authenticator for one listener. trustLoopback
// makes whoever connects from this machine without TLS an operator: it is for
// listeners that nobody else can connect to ([ListenerPolicy.OnlyLoopback]). creds
// may be nil.
func NewAuthenticator(trustLoopback bool, creds *Credentials) *Authenticator {
	a := &Authenticator{trustLoopback: trustLoopback}
	a.SetCredentials(creds)
	return a
}

// SetCredentials replaces the credentials, for requests from now on.
func (a *Authenticator) SetCredentials(c *Credentials) { a.credentials.Store(c) }

// Knows returns a function that says whether a principal would still be let in
// with the credentials of now: it is for connections that were let in earlier. Of
// those who did not come by a credential it says yes.
func (a *Authenticator) Knows() func(Principal) bool {
	in := map[Principal]bool{}
	if c := a.credentials.Load(); c != nil {
		for _, x := range c.bySum {
			in[x.principal] = true
		}
	}
	return func(p Principal) bool { return p.Via != Credential || in[p] }
}

// Identify returns who the peer is. A credential goes before a certificate,
// as it belongs to the request and the certificate to the connection, which a
// proxy may share out. The error is Denied: what the peer brought is wrong.
// Who brings nothing is anonymous, or the local operator.
func (a *Authenticator) Identify(p Peer) (Principal, error) {
	if p.Bearer != "" {
		return a.credentials.Load().lookup(p.Bearer)
	}
	if p.TLS != nil && len(p.TLS.PeerCertificates) > 0 {
		// Certificates that were asked for but not verified prove nothing.
		if len(p.TLS.VerifiedChains) == 0 {
			return Principal{}, incumbent.Errorf(incumbent.Denied, "the client certificate was not verified").
				WithHint("set --client-ca to the authority that issued it")
		}
		return FromCertificate(p.TLS.VerifiedChains[0][0])
	}
	if a.trustLoopback && p.TLS == nil && !p.Forwarded && p.local() {
		return Principal{Name: localName, Kind: Operator, Via: Loopback}, nil
	}
	return Principal{}, nil
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
// not be where it comes from: see [Peer].
func Forwarded(h http.Header) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if h.Get(name) != "" {
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
