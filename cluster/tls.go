package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Files of a member's tls folder.
const (
	tlsFolder     = "tls"
	caCertFile    = "ca.crt"
	caKeyFile     = "ca.key"
	memberCert    = "member.crt"
	memberKey     = "member.key"
	memberNextKey = "member.next.key" // waits for a certificate
	caNextKeyFile = "ca.next.key"     // of the authority that takes the current one's place
	operatorCert  = "operator.crt"
	operatorKey   = "operator.key"
)

// renewEvery is how often a member looks whether its certificate is to be
// renewed, and renewRetry how soon again after it could not be written.
const (
	renewEvery = time.Hour
	renewRetry = time.Minute
)

// When a certificate that has not been renewed is worth a warning. Members'
// and operators' renew themselves long before that.
const (
	CertificateWarning = 14 * 24 * time.Hour
	OperatorWarning    = 30 * 24 * time.Hour
	authorityWarning   = 180 * 24 * time.Hour
)

// HasAuthority reports whether a data directory belongs to a cluster with an
// authority of its own.
func HasAuthority(dir string) bool {
	_, err := vfs.OS{}.Size(filepath.Join(dir, tlsFolder, caCertFile))
	return err == nil
}

// TLS is a member's certificate, and what it trusts. The certificate is renewed by
// itself; connections that are open keep the one they began with.
type TLS struct {
	fs     vfs.FS
	dir    string // tls folder
	member ca.Member
	hosts  []string
	now    func() time.Time
	log    *slog.Logger
	// Renewed is told when what is shown or trusted has changed. It is set before Run and
	// [Cluster.Run].
	Renewed func()

	changing sync.Mutex // makes changes of files and state one after the other
	state    atomic.Pointer[shown]

	operatorEnd atomic.Pointer[time.Time] // of operatorCert as last read; nil while none was
}

// shown is what a member shows and trusts at one moment. It never changes.
type shown struct {
	trust  ca.Trust
	cross  []byte            // see [trust.Root]; nil: none
	cert   tls.Certificate   // with its Leaf
	signer *x509.Certificate // that made it, of trust
}

// OpenTLS reads the tls folder of a data directory; nil if it has none. A
// certificate that is due or lacks a host is made anew, if the authority's key is
// there; without it one that is missing or has ended is an error.
func OpenTLS(dir string, r *Record, name string, hosts []string, log *slog.Logger) (*TLS, error) {
	cluster, _ := ParseClusterID(r.Cluster)
	m := ca.Member{Cluster: cluster, ID: ParseID(r.ID), Name: name}
	if !HasAuthority(dir) {
		return nil, nil
	}
	out := &TLS{
		fs: vfs.OS{}, dir: filepath.Join(dir, tlsFolder), member: m, hosts: hosts, now: time.Now, log: log, Renewed: func() {},
	}
	trusted, err := readTrust(out.dir)
	if err != nil {
		return nil, err
	}
	out.state.Store(&shown{trust: trusted})
	err = out.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("certificate replaced", "cause", err)
	}
	if _, err := out.operatorLeaf(); err != nil {
		log.Warn("operator's certificate not read", "cause", err)
	}
	if err == nil && !out.due() {
		return out, nil
	}
	renewed := out.Renew()
	if err == nil && incumbent.KindOf(renewed) == incumbent.NotFound {
		return out, nil // another member signs it
	}
	return out, renewed
}

// read uses the certificate that is there, with whichever key it is for.
func (m *TLS) read() error {
	text, err := vfs.ReadFile(m.fs, filepath.Join(m.dir, memberCert))
	if err != nil {
		return err
	}
	for _, name := range []string{memberKey, memberNextKey} {
		key, kerr := readKey(filepath.Join(m.dir, name))
		if kerr != nil {
			err = kerr
			continue
		}
		if err = m.use(text, key); err == nil {
			return nil
		}
	}
	return err
}

// use makes a certificate the one that is shown from now on.
func (m *TLS) use(text []byte, key *ecdsa.PrivateKey) error {
	leaf, err := ca.ParseCertificate(text)
	if err != nil {
		return err
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return incumbent.Errorf(incumbent.Corrupt, "%s and its key do not belong together", memberCert)
	}
	next := *m.state.Load()
	if err := next.trust.VerifyMember([]*x509.Certificate{leaf}, m.member.Cluster, m.member.ID, m.now()); err != nil {
		return err
	}
	next.cert = tls.Certificate{PrivateKey: key, Leaf: leaf}
	m.show(&next)
	return nil
}

// show makes a state the one that holds. Behind the certificate it shows the
// authority: whoever joins knows it by its hash only. While another one takes its
// place, whoever trusts either of them finds a way.
func (m *TLS) show(next *shown) {
	leaf := next.cert.Leaf
	next.signer = next.trust.SignedBy(leaf)
	chain := [][]byte{leaf.Raw}
	if next.signer != nil && next.signer != next.trust[0] && next.cross != nil {
		chain = append(chain, next.cross)
	}
	if next.signer != nil {
		chain = append(chain, next.signer.Raw)
	}
	if next.signer != next.trust[0] {
		chain = append(chain, next.trust[0].Raw)
	}
	next.cert.Certificate = chain
	m.state.Store(next)
}

// setTrust is what the cluster has come to trust: the current authority, and perhaps
// the next one with its cross certificate.
func (m *TLS) setTrust(trusted ca.Trust, cross []byte) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	next := *m.state.Load()
	if slices.EqualFunc(next.trust, trusted, (*x509.Certificate).Equal) && bytes.Equal(next.cross, cross) {
		return nil
	}
	if err := m.promoteKey(trusted[0]); err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(m.dir, caCertFile), trusted.PEM()); err != nil {
		return err
	}
	next.trust, next.cross = trusted, cross
	m.show(&next)
	m.Renewed()
	return nil
}

// promoteKey gives the key of an authority that has become the current one its
// place; the old one's is gone.
func (m *TLS) promoteKey(current *x509.Certificate) error {
	key, err := readKey(filepath.Join(m.dir, caNextKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !key.PublicKey.Equal(current.PublicKey) {
		return err
	}
	return m.moveKey(key, caNextKeyFile, caKeyFile)
}

// moveKey gives a key the name of the one that it replaces.
func (m *TLS) moveKey(key *ecdsa.PrivateKey, from, to string) error {
	text, err := ca.KeyPEM(key)
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(m.dir, to), text); err != nil {
		return err
	}
	return m.fs.Remove(filepath.Join(m.dir, from))
}

// due reports whether the certificate is to be replaced because of its age or its
// hosts.
func (m *TLS) due() bool {
	leaf := m.state.Load().cert.Leaf
	if !m.now().Before(ca.RenewAt(leaf)) {
		return true
	}
	have := ca.Hosts(leaf)
	return slices.ContainsFunc(m.hosts, func(h string) bool { return !slices.Contains(have, h) })
}

// Renew makes a certificate for the key the member has, and uses it. The error is
// NotFound if the authority's key is not here.
func (m *TLS) Renew() error {
	s := m.state.Load()
	by := s.signer
	if by == nil {
		by = s.trust[0]
	}
	return m.renewBy(by, false)
}

// renewBy does so by one authority, and perhaps for a new key.
func (m *TLS) renewBy(by *x509.Certificate, newKey bool) error {
	a, err := m.authority(by)
	if err != nil {
		return err
	}
	csr, err := m.request(newKey)
	if err != nil {
		return err
	}
	text, err := a.Sign(csr, m.member, m.now())
	if err != nil {
		return err
	}
	_, err = m.take(text)
	return err
}

// request asks for a certificate, for the key the member has or for a new one, which
// waits beside it.
func (m *TLS) request(newKey bool) ([]byte, error) {
	name := memberKey
	if newKey {
		name = memberNextKey
	}
	key, err := ReadOrMakeKey(filepath.Join(m.dir, name))
	if err != nil {
		return nil, err
	}
	return ca.Request(key, m.member.Name, m.hosts)
}

// take uses a certificate that was made for a request, and keeps it. newKey: it is for
// the key that waited, which takes its place.
func (m *TLS) take(text []byte) (newKey bool, err error) {
	m.changing.Lock()
	defer m.changing.Unlock()
	leaf, err := ca.ParseCertificate(text)
	if err != nil {
		return false, err
	}
	key, err := readKey(filepath.Join(m.dir, memberNextKey))
	if newKey = err == nil && key.PublicKey.Equal(leaf.PublicKey); !newKey {
		if key, err = ReadOrMakeKey(filepath.Join(m.dir, memberKey)); err != nil {
			return false, err
		}
	}
	if err := m.use(text, key); err != nil {
		return false, err
	}
	// The certificate first: with it, the key that waits is found.
	if err := WriteFile(filepath.Join(m.dir, memberCert), text); err != nil {
		return false, err
	}
	if newKey {
		err = m.moveKey(key, memberNextKey, memberKey)
	}
	m.Renewed()
	return newKey, err
}

// Run renews the certificate when it is time, and that of an operator beside it,
// until ctx ends. What this member cannot sign another does: see keepAuthority.
func (m *TLS) Run(ctx context.Context) {
	pause := time.NewTimer(renewEvery)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		next := renewEvery
		if m.due() {
			err := m.Renew()
			switch {
			case err == nil:
				m.log.Info("certificate renewed", "ends", m.Ends())
			case incumbent.KindOf(err) != incumbent.NotFound:
				m.log.Warn("certificate not renewed", "cause", err, "ends", m.Ends())
				next = renewRetry
			}
		}
		m.keepOperator()
		pause.Reset(next)
	}
}

// keepOperator renews the operator's certificate if it is time.
func (m *TLS) keepOperator() {
	if ends, renewed, err := m.renewOperator(); err != nil {
		m.log.Warn("operator's certificate not renewed", "cause", err)
	} else if renewed {
		m.log.Info("operator's certificate renewed", "ends", ends)
	}
}

// Ends is when the member's certificate ends.
func (m *TLS) Ends() time.Time { return m.state.Load().cert.Leaf.NotAfter }

// Warnings name what ends soon.
func (m *TLS) Warnings() (out []string) {
	dir := filepath.Dir(m.dir)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	for _, w := range []string{
		EndWarning(m.now(), "this member's certificate", m.Ends(), CertificateWarning, "it could not be renewed: start a member that has tls/ca.key, or see the log"),
		EndWarning(m.now(), "the operator's certificate", m.operatorEnds(OperatorWarning), OperatorWarning,
			"it could not be renewed, see the log, or run 'incumbent credential renew --data-dir "+dir+"'"),
		EndWarning(m.now(), "the cluster's authority", m.state.Load().trust[0].NotAfter, authorityWarning,
			"run 'incumbent cluster rotate-ca'"),
	} {
		if w != "" {
			out = append(out, w)
		}
	}
	return out
}

// EndWarning says that something ends within early, and what helps; "" if it does
// not, or at is zero.
func EndWarning(now time.Time, what string, at time.Time, early time.Duration, help string) string {
	if at.IsZero() || at.Sub(now) >= early {
		return ""
	}
	return fmt.Sprintf("%s ends at %s: %s", what, at.UTC().Format(time.RFC3339), help)
}

// Accept is the TLS of a peer that dials this member.
func (m *TLS) Accept() *tls.Config {
	s := m.state.Load()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{s.cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: s.trust.Pool(), SessionTicketsDisabled: true,
	}
}

// Dial is the TLS of a peer that this member dials. Which member answers is
// checked by its certificate's URI (see verify), not by where it was found.
func (m *TLS) Dial() *tls.Config {
	s := m.state.Load()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{s.cert},
		InsecureSkipVerify: true, //nolint:gosec // the chain is verified by VerifyConnection, the member by verify
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return incumbent.Errorf(incumbent.Denied, "the peer showed no certificate")
			}
			_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: s.trust.Pool(), CurrentTime: m.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			return err
		},
	}
}

// Certificate is what the member shows now, the authority behind it.
func (m *TLS) Certificate() tls.Certificate { return m.state.Load().cert }

// CAHash is by what whoever joins knows the authority that signed it.
func (m *TLS) CAHash() string {
	s := m.state.Load()
	if s.signer == nil {
		return ca.Hash(s.trust[0])
	}
	return ca.Hash(s.signer)
}

// Pool holds the authorities that are trusted.
func (m *TLS) Pool() (*x509.CertPool, ca.Trust) {
	trusted := m.state.Load().trust
	return trusted.Pool(), trusted
}

// Verify checks that a connection's certificate belongs to a member.
func (m *TLS) Verify(cs tls.ConnectionState, id uint64) error {
	return m.state.Load().trust.VerifyMember(cs.PeerCertificates, m.member.Cluster, id, m.now())
}

// HostsOf collects the hosts of addresses (HOST:PORT) and URLs for a
// certificate, behind more. localhost is among them where the listener is on loopback.
// Each is there once, an IP address in the form that [ca.Hosts] gives it back in, however
// it was written: else a certificate that has it would be due.
func HostsOf(more []string, addresses ...string) (out []string) {
	add := func(h string) {
		if ip := net.ParseIP(h); ip != nil {
			h = ip.String()
		}
		if h != "" && !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	for _, h := range more { // a record may have it as it was written
		add(h)
	}
	for _, a := range addresses {
		if u, err := url.Parse(a); err == nil && u.Host != "" {
			a = u.Host
		}
		host, _, err := net.SplitHostPort(a)
		if err != nil {
			host = a
		}
		ip := net.ParseIP(host)
		if ip != nil && ip.IsUnspecified() {
			continue
		}
		add(host)
		if ip != nil && ip.IsLoopback() {
			add("localhost")
		}
	}
	return out
}
