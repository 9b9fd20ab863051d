package server

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/door/native"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/overload"
	"github.com/incumbent-dev/incumbent/tally"
)

// guard says who calls, for the doors and for what the member serves itself:
// metrics and profiles. Only liveness, readiness and the front page are for
// everybody.
type guard struct {
	*auth.Authenticator
	file string // of bearer credentials; empty: none
	note func(audit.Record)

	tally *tally.Tally // counts connections; nil: nobody does
}

// policy is how the configured listener is guarded. The cluster's own authority,
// where there is one, stands in for files that are not configured.
func (c Config) policy(ownTLS bool) auth.ListenerPolicy {
	ownTLS = ownTLS && c.TLSCert == "" && c.TLSKey == ""
	return auth.ListenerPolicy{
		Address: c.Listen, Cert: c.TLSCert != "" || ownTLS, Key: c.TLSKey != "" || ownTLS,
		ClientCA: c.ClientCA != "" || ownTLS, Credentials: c.CredentialFile != "",
	}
}

// peerPolicy is how the listener for other members is guarded.
func (c Config) peerPolicy(ownTLS bool) error {
	p := auth.ListenerPolicy{Address: c.PeerListen, Cert: ownTLS, Key: ownTLS, ClientCA: ownTLS}
	if p.Check() != nil {
		return invalid("peer-listen", "other machines can reach %s, and the cluster has no authority of its own", c.PeerListen).
			WithHint("make one with 'incumbent cluster init', or listen on 127.0.0.1")
	}
	return nil
}

// Trust says whether whoever connects from this machine, without TLS, is an operator.
type Trust uint8

// TrustAuto is on where nothing else was asked for: no listener can be reached from
// elsewhere, nor is an address advertised that can, and there are neither credentials
// nor client certificates, the cluster's own authority included.
const (
	TrustAuto Trust = iota
	TrustOff
	TrustOn
)

var trustNames = [...]string{"auto", "off", "on"}

// ParseTrust is the inverse of [Trust.String].
func ParseTrust(s string) (Trust, error) {
	for t, name := range trustNames {
		if name == s {
			return Trust(t), nil
		}
	}
	return TrustAuto, invalid("trust-loopback", "%q is none of auto, on, off", s)
}

// String returns the name, as in the setting.
func (t Trust) String() string { return trustNames[t] }

// trustsLoopback decides about [TrustAuto], and says why.
func (c Config) trustsLoopback() (trusts bool, why string) {
	switch c.TrustLoopback {
	case TrustOn:
		return true, "--trust-loopback"
	case TrustOff:
		return false, "--trust-loopback"
	}
	if c.CredentialFile != "" {
		return false, "--credential-file"
	}
	if c.ClientCA != "" {
		return false, "--client-ca"
	}
	if c.expectsOwnTLS() {
		return false, "the cluster's own authority"
	}
	listeners := []struct{ setting, address string }{
		{"--listen", c.Listen},
		{"--advertise", c.Advertise},
		{"--juju-listen", c.Juju.Listen},
		{"--consul-listen", c.Consul.Listen},
		{"--peer-listen", c.PeerListen},
		{"--peer-advertise", c.PeerAdvertise},
	}
	for _, at := range c.OVSDB.addresses() {
		listeners = append(listeners, struct{ setting, address string }{"--ovsdb-listen", at})
	}
	for _, l := range listeners {
		if l.address != "" && !(auth.ListenerPolicy{Address: l.address}).OnlyLoopback() {
			return false, l.setting + " " + l.address
		}
	}
	return true, "every listener is on loopback"
}

// sayTrust tells at the start who needs no proof.
func (s *Server) sayTrust() {
	trusts, why := s.cfg.trustsLoopback()
	at := s.withoutTLS()
	switch {
	case len(at) == 0:
		s.log.Info("everybody shows who they are", "because", "every listener has TLS")
	case trusts:
		s.log.Info("whoever connects from this machine is an operator, and so is whom a proxy on it lets through",
			"at", strings.Join(at, " "), "because", why, "otherwise", "--trust-loopback off")
	default:
		s.log.Info("everybody shows who they are", "because", why)
	}
}

// withoutTLS are the listeners for clients at which somebody may be known by being on
// this machine: those without TLS, and columns whose rows may say to open such ones.
func (s *Server) withoutTLS() (at []string) {
	if s.certs == nil {
		at = append(at, s.gate.Addr().String())
	}
	for _, o := range s.opened {
		for i, address := range o.addresses() {
			if !o.tls || o.unix[i] {
				at = append(at, address)
			}
		}
	}
	for _, l := range s.cfg.OVSDB.Listen {
		if strings.HasPrefix(l, sourcePrefix) {
			at = append(at, l)
		}
	}
	return at
}

// newGuard reads the credentials.
func newGuard(cfg Config, note func(audit.Record), more ...auth.Option) (*guard, error) {
	trust, _ := cfg.trustsLoopback()
	g := &guard{Authenticator: auth.NewAuthenticator(trust, nil, more...), file: cfg.CredentialFile, note: note}
	return g, g.reload()
}

// reload reads the credentials again. On an error the old ones stay in force.
func (g *guard) reload() error {
	if g.file == "" {
		return nil
	}
	f, err := os.Open(g.file)
	if err != nil {
		return invalid("credential-file", "%w", err)
	}
	defer f.Close()
	found, err := auth.ParseCredentials(f)
	if err != nil {
		return invalid("credential-file", "%s: %w", g.file, err)
	}
	g.SetCredentials(found)
	return nil
}

// protect hides a handler from those who may not make the call.
func (s *Server) protect(c calls.Call, h http.Handler) http.Handler {
	if c.Row().Judged == calls.Everyone {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.guard.of(r)
		denied := audit.Record{Door: doorHTTP, Address: r.RemoteAddr, Action: audit.Login, Subject: r.URL.Path, Outcome: audit.Denied, Reason: audit.Identity}
		if err == nil {
			denied.Principal, denied.Action, denied.Reason = p.String(), c.Action().String(), audit.Permission
			err = c.Allowed(policy.Of(s.engine.View()).Rules().Of(p))
		}
		if err != nil && incumbent.KindOf(err) != incumbent.Denied { // another member may let it in
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", strconv.Itoa(1+rand.N(2)))
			writeText(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		if err != nil {
			s.guard.note(denied)
			code := http.StatusForbidden
			if p.Kind == auth.Anonymous {
				gate.VisitOfRequest(r.Context()).Failed()
				w.Header().Set("Connection", "close") // whoever asks again comes through the gate again
				w.Header().Set("WWW-Authenticate", "Bearer")
				code = http.StatusUnauthorized
			}
			writeText(w, code, err.Error())
			return
		}
		h.ServeHTTP(w, r)
	})
}

// of says who sends a request, in the way the doors do.
func (g *guard) of(r *http.Request) (auth.Principal, error) {
	bearer, ok := auth.Bearer(r.Header.Get("Authorization"))
	if !ok {
		return auth.Principal{}, incumbent.Errorf(incumbent.Denied, "the Authorization header is not a bearer credential")
	}
	peer := auth.Peer{TLS: r.TLS, Bearer: bearer, Forwarded: auth.Forwarded(r.Header) || gate.Proxied(r.Context())}
	peer.Remote, _ = netip.ParseAddrPort(r.RemoteAddr)
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		peer.Local, _ = netip.ParseAddrPort(local.String())
	}
	p, err := g.Identify(peer)
	if err != nil {
		gate.VisitOfRequest(r.Context()).Refused(err)
	}
	if err == nil {
		err = p.RefusePage(r)
	}
	if err == nil && p.Kind != auth.Anonymous && !gate.ProveRequest(r.Context(), p.Kind == auth.Operator) {
		err = overload.Errorf("this member has no place for another connection")
		gate.VisitOfRequest(r.Context()).Refused(err)
	}
	if c := gate.FromContext(r.Context()); err == nil && c != nil && p.Kind != auth.Anonymous {
		err = g.tally.Count(c, p, native.Listener)
	}
	if err != nil {
		return auth.Principal{}, err
	}
	return p, nil
}
