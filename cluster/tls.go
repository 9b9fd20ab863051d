package cluster

import (
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
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Files of a member's tls folder.
const (
	tlsFolder    = "tls"
	caCertFile   = "ca.crt"
	caKeyFile    = "ca.key"
	memberCert   = "member.crt"
	memberKey    = "member.key"
	operatorCert = "operator.crt"
	operatorKey  = "operator.key"
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

// TLS is a member's certificate, and the cluster's authority that signed
// it. The certificate is renewed by itself; connections that are open keep the
// one they began with.
type TLS struct {
	fs        vfs.FS
	dir       string // tls folder
	authority *ca.Authority
	member    ca.Member
	hosts     []string
	key       *ecdsa.PrivateKey
	now       func() time.Time
	log       *slog.Logger
	current   atomic.Pointer[tls.Certificate] // with its Leaf
	// Renewed is told of a new one. It is set before Run.
	Renewed func()

	operatorEnd atomic.Pointer[time.Time] // of operatorCert as last read; nil while none was
}

// OpenTLS reads the tls folder of a data directory; nil if it has none. A
// certificate that is missing, due or lacks a host is made anew.
func OpenTLS(dir string, r *Record, name string, hosts []string, log *slog.Logger) (*TLS, error) {
	cluster, _ := ParseClusterID(r.Cluster)
	m := ca.Member{Cluster: cluster, ID: ParseID(r.ID), Name: name}
	if !HasAuthority(dir) {
		return nil, nil
	}
	out := &TLS{
		fs: vfs.OS{}, dir: filepath.Join(dir, tlsFolder), member: m, hosts: hosts, now: time.Now, log: log, Renewed: func() {},
	}
	var err error
	if out.authority, err = readAuthority(out.dir); err != nil {
		return nil, err
	}
	if out.key, err = ReadOrMakeKey(filepath.Join(out.dir, memberKey)); err != nil {
		return nil, err
	}
	text, err := vfs.ReadFile(vfs.OS{}, filepath.Join(out.dir, memberCert))
	if err == nil {
		err = out.use(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("certificate replaced", "cause", err)
	}
	if _, err := out.operatorLeaf(); err != nil {
		log.Warn("operator's certificate not read", "cause", err)
	}
	if err != nil || out.due() {
		return out, out.Renew()
	}
	return out, nil
}

func readAuthority(dir string) (*ca.Authority, error) {
	cert, err := vfs.ReadFile(vfs.OS{}, filepath.Join(dir, caCertFile))
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "the cluster's authority: %w", err)
	}
	key, err := vfs.ReadFile(vfs.OS{}, filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "the key of the cluster's authority: %w", err)
	}
	return ca.Load(cert, key)
}

// ReadOrMakeKey returns the key of a file, which is made if it is not there.
func ReadOrMakeKey(name string) (*ecdsa.PrivateKey, error) {
	text, err := vfs.ReadFile(vfs.OS{}, name)
	if err == nil {
		return ca.ParseKey(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	key, err := ca.NewKey()
	if err != nil {
		return nil, err
	}
	if text, err = ca.KeyPEM(key); err != nil {
		return nil, err
	}
	return key, WriteFile(name, text)
}

// WriteFile makes a file durable, and its folder if that is not there.
func WriteFile(name string, text []byte) error {
	err := vfs.MkdirAll(vfs.OS{}, filepath.Dir(name))
	if err == nil {
		err = vfs.WriteFile(vfs.OS{}, name, text)
	}
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	return nil
}

// use makes a certificate the one that is shown from now on.
func (m *TLS) use(text []byte) error {
	leaf, err := ca.ParseCertificate(text)
	if err != nil {
		return err
	}
	if !m.key.PublicKey.Equal(leaf.PublicKey) {
		return incumbent.Errorf(incumbent.Corrupt, "%s and %s do not belong together", memberCert, memberKey)
	}
	if err := m.authority.VerifyMember([]*x509.Certificate{leaf}, m.member.Cluster, m.member.ID, m.now()); err != nil {
		return err
	}
	// The authority goes along: whoever joins knows it by its hash only.
	m.current.Store(&tls.Certificate{
		Certificate: [][]byte{leaf.Raw, m.authority.Certificate().Raw}, PrivateKey: m.key, Leaf: leaf,
	})
	return nil
}

// due reports whether the certificate is to be replaced.
func (m *TLS) due() bool {
	leaf := m.current.Load().Leaf
	if !m.now().Before(ca.RenewAt(leaf)) {
		return true
	}
	have := ca.Hosts(leaf)
	return slices.ContainsFunc(m.hosts, func(h string) bool { return !slices.Contains(have, h) })
}

// Renew makes a certificate for the key the member has, and uses it.
func (m *TLS) Renew() error {
	text, err := m.authority.Issue(m.key, m.member, m.hosts, m.now())
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(m.dir, memberCert), text); err != nil {
		return err
	}
	if err := m.use(text); err != nil {
		return err
	}
	m.Renewed()
	return nil
}

// Run renews the certificate when it is time, and that of an operator beside it,
// until ctx ends.
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
			if err := m.Renew(); err != nil {
				m.log.Warn("certificate not renewed", "cause", err, "ends", m.Ends())
				next = renewRetry
			} else {
				m.log.Info("certificate renewed", "ends", m.Ends())
			}
		}
		if ends, renewed, err := m.renewOperator(); err != nil {
			m.log.Warn("operator's certificate not renewed", "cause", err)
		} else if renewed {
			m.log.Info("operator's certificate renewed", "ends", ends)
		}
		pause.Reset(next)
	}
}

// Ends is when the member's certificate ends.
func (m *TLS) Ends() time.Time { return m.current.Load().Leaf.NotAfter }

// Warnings name what ends soon.
func (m *TLS) Warnings() (out []string) {
	dir := filepath.Dir(m.dir)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	for _, w := range []string{
		EndWarning(m.now(), "this member's certificate", m.Ends(), CertificateWarning, "it could not be renewed, see the log"),
		EndWarning(m.now(), "the operator's certificate", m.operatorEnds(OperatorWarning), OperatorWarning,
			"it could not be renewed, see the log, or run 'incumbent credential renew --data-dir "+dir+"'"),
		EndWarning(m.now(), "the cluster's authority", m.authority.Certificate().NotAfter, authorityWarning,
			"it cannot be replaced, move to a new cluster before"),
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
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*m.current.Load()},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: m.authority.Pool(), SessionTicketsDisabled: true,
	}
}

// Dial is the TLS of a peer that this member dials. Which member answers is
// checked by its certificate's URI (see verify), not by where it was found.
func (m *TLS) Dial() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*m.current.Load()},
		InsecureSkipVerify: true, //nolint:gosec // the chain is verified by VerifyConnection, the member by verify
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return incumbent.Errorf(incumbent.Denied, "the peer showed no certificate")
			}
			_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: m.authority.Pool(), CurrentTime: m.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			return err
		},
	}
}

// Sign makes the certificate of a member that joins, for its request, and returns it
// with what the member needs to make its next ones.
func (m *TLS) Sign(request []byte, id uint64, name string) (cert, authority, key []byte, err error) {
	cert, err = m.authority.Sign(request, ca.Member{Cluster: m.member.Cluster, ID: id, Name: name}, m.now())
	if err != nil {
		return nil, nil, nil, err
	}
	key, err = m.authority.KeyPEM()
	return cert, m.authority.CertPEM(), key, err
}

// Certificate is what the member shows now, the authority behind it.
func (m *TLS) Certificate() tls.Certificate { return *m.current.Load() }

// Pool holds the authority.
func (m *TLS) Pool() *x509.CertPool { return m.authority.Pool() }

// Verify checks that a connection's certificate belongs to a member.
func (m *TLS) Verify(cs tls.ConnectionState, id uint64) error {
	return m.authority.VerifyMember(cs.PeerCertificates, m.member.Cluster, id, m.now())
}

// HostsOf collects the hosts of addresses (HOST:PORT) and URLs for a
// certificate. localhost is among them where the listener is on loopback.
func HostsOf(more []string, addresses ...string) []string {
	out := slices.Clone(more)
	add := func(h string) {
		if h != "" && !slices.Contains(out, h) {
			out = append(out, h)
		}
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
