package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
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

// hasOwnTLS reports whether a data directory belongs to a cluster with an
// authority of its own.
func hasOwnTLS(fsys vfs.FS, dir string) bool {
	_, err := fsys.Size(filepath.Join(dir, tlsFolder, caCertFile))
	return err == nil
}

// memberTLS is a member's certificate, and the cluster's authority that signed
// it. The certificate is renewed by itself; connections that are open keep the
// one they began with.
type memberTLS struct {
	fs        vfs.FS
	dir       string // tls folder
	authority *ca.Authority
	member    ca.Member
	hosts     []string
	key       *ecdsa.PrivateKey
	now       func() time.Time
	log       *slog.Logger
	current   atomic.Pointer[tls.Certificate] // with its Leaf
	renewed   func()                          // is told of a new one

	operatorEnd atomic.Pointer[time.Time] // of operatorCert as last read; nil while none was
}

// openMemberTLS reads the tls folder of a data directory; nil if it has none. A
// certificate that is missing, due or lacks a host is made anew.
func openMemberTLS(fsys vfs.FS, dir string, m ca.Member, hosts []string, log *slog.Logger) (*memberTLS, error) {
	if !hasOwnTLS(fsys, dir) {
		return nil, nil
	}
	out := &memberTLS{
		fs: fsys, dir: filepath.Join(dir, tlsFolder), member: m, hosts: hosts, now: time.Now, log: log, renewed: func() {},
	}
	var err error
	if out.authority, err = readAuthority(fsys, out.dir); err != nil {
		return nil, err
	}
	if out.key, err = readOrMakeKey(fsys, filepath.Join(out.dir, memberKey)); err != nil {
		return nil, err
	}
	text, err := vfs.ReadFile(fsys, filepath.Join(out.dir, memberCert))
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
		return out, out.renew()
	}
	return out, nil
}

func readAuthority(fsys vfs.FS, dir string) (*ca.Authority, error) {
	cert, err := vfs.ReadFile(fsys, filepath.Join(dir, caCertFile))
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "the cluster's authority: %w", err)
	}
	key, err := vfs.ReadFile(fsys, filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "the key of the cluster's authority: %w", err)
	}
	return ca.Load(cert, key)
}

// readOrMakeKey returns the key of a file, which is made if it is not there.
func readOrMakeKey(fsys vfs.FS, name string) (*ecdsa.PrivateKey, error) {
	text, err := vfs.ReadFile(fsys, name)
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
	return key, writeFile(fsys, name, text)
}

// writeFile makes a file durable, and its folder if that is not there.
func writeFile(fsys vfs.FS, name string, text []byte) error {
	err := vfs.MkdirAll(fsys, filepath.Dir(name))
	if err == nil {
		err = vfs.WriteFile(fsys, name, text)
	}
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	return nil
}

// use makes a certificate the one that is shown from now on.
func (m *memberTLS) use(text []byte) error {
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
func (m *memberTLS) due() bool {
	leaf := m.current.Load().Leaf
	if !m.now().Before(ca.RenewAt(leaf)) {
		return true
	}
	have := ca.Hosts(leaf)
	return slices.ContainsFunc(m.hosts, func(h string) bool { return !slices.Contains(have, h) })
}

// renew makes a certificate for the key the member has, and uses it.
func (m *memberTLS) renew() error {
	text, err := m.authority.Issue(m.key, m.member, m.hosts, m.now())
	if err != nil {
		return err
	}
	if err := writeFile(m.fs, filepath.Join(m.dir, memberCert), text); err != nil {
		return err
	}
	if err := m.use(text); err != nil {
		return err
	}
	m.renewed()
	return nil
}

// run renews the certificate when it is time, and that of an operator beside it,
// until ctx ends.
func (m *memberTLS) run(ctx context.Context) {
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
			if err := m.renew(); err != nil {
				m.log.Warn("certificate not renewed", "cause", err, "ends", m.leafEnds())
				next = renewRetry
			} else {
				m.log.Info("certificate renewed", "ends", m.leafEnds())
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

// leafEnds is when the member's certificate ends.
func (m *memberTLS) leafEnds() time.Time { return m.current.Load().Leaf.NotAfter }

// accept is the TLS of a peer that dials this member.
func (m *memberTLS) accept() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*m.current.Load()},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: m.authority.Pool(), SessionTicketsDisabled: true,
	}
}

// dial is the TLS of a peer that this member dials. Which member answers is
// checked by its certificate's URI (see verify), not by where it was found.
func (m *memberTLS) dial() *tls.Config {
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

// verify checks that a connection's certificate belongs to a member.
func (m *memberTLS) verify(cs tls.ConnectionState, id uint64) error {
	return m.authority.VerifyMember(cs.PeerCertificates, m.member.Cluster, id, m.now())
}

// hostsOf collects the hosts of addresses (HOST:PORT) and URLs for a
// certificate. localhost is among them where the listener is on loopback.
func hostsOf(more []string, addresses ...string) []string {
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
