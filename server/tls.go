package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/accept"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/cluster"
)

// certificates holds what TLS of the native listener needs, swapped as a whole on
// reload so that a handshake never sees half of it. It comes from the files that
// are configured, else from the cluster's own authority.
type certificates struct {
	cfg     Config
	own     *cluster.TLS     // nil: from files
	tokens  func() bool      // somebody may bring a bearer credential instead of a certificate
	trusts  func(auth.Roots) // is told whose certificates of clients are taken
	loading sync.Mutex       // held for a reload, files and all: else one that read earlier could win, and roots and config be of two
	current atomic.Pointer[tls.Config]
	lenient atomic.Pointer[tls.Config] // current, and a certificate may be missing
}

// loadCertificates reads the files; nil without TLS. own is nil in a cluster
// without an authority.
func loadCertificates(cfg Config, own *cluster.TLS, tokens func() bool, trusts func(auth.Roots)) (*certificates, error) {
	if cfg.TLSCert != "" {
		own = nil
	} else if own == nil {
		return nil, nil
	}
	c := &certificates{cfg: cfg, own: own, tokens: tokens, trusts: trusts}
	return c, c.reload()
}

// pair is the listener's certificate and key.
func (c *certificates) pair() (tls.Certificate, error) {
	if c.own != nil {
		return c.own.Certificate(), nil
	}
	pair, err := tls.LoadX509KeyPair(c.cfg.TLSCert, c.cfg.TLSKey)
	if err != nil {
		return pair, incumbent.Errorf(incumbent.Invalid, "setting tls-cert: %w", err)
	}
	return pair, nil
}

// reload reads the files again. On an error the old certificates stay.
func (c *certificates) reload() error {
	c.loading.Lock()
	defer c.loading.Unlock()
	pair, err := c.pair()
	if err != nil {
		return err
	}
	out := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	roots := auth.Roots{}
	if c.own != nil {
		var trusted ca.Trust
		out.ClientCAs, trusted = c.own.Pool()
		for _, cert := range trusted {
			roots.Add(cert)
		}
		// Whoever joins has no certificate yet, only a token.
		out.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if c.cfg.ClientCA != "" {
		if out.ClientCAs == nil {
			out.ClientAuth = tls.RequireAndVerifyClientCert
		}
		if out.ClientCAs, err = readClientCA(out.ClientCAs, roots, c.cfg.ClientCA); err != nil {
			return err
		}
		// Bearer credentials may stand in for a certificate where both are set.
		if c.cfg.CredentialFile != "" {
			out.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	c.trusts(roots)
	c.current.Store(out)
	lenient := out
	if out.ClientAuth == tls.RequireAndVerifyClientCert {
		lenient = out.Clone()
		lenient.ClientAuth = tls.VerifyClientCertIfGiven
	}
	c.lenient.Store(lenient)
	return nil
}

// readClientCA adds the certificates of a file to a pool, or to a new one.
func readClientCA(pool *x509.CertPool, roots auth.Roots, file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, invalid("client-ca", "%w", err)
	}
	if pool == nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, invalid("client-ca", "%s holds no certificate in PEM form", file)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil { // what the pool has taken, too
			roots.Add(cert)
		}
	}
	return pool, nil
}

// ends is when the listener's certificate ends.
func (c *certificates) ends() time.Time {
	if leaf := c.current.Load().Certificates[0].Leaf; leaf != nil {
		return leaf.NotAfter
	}
	return time.Time{}
}

// top is the hash of the certificate that whoever joins knows the listener by: the
// authority's that signed it, else the last one that it shows. own: it is the cluster's
// own authority.
func (c *certificates) top() (hash string, own bool, err error) {
	if c.own != nil {
		return c.own.CAHash(), true, nil
	}
	chain := c.current.Load().Certificates[0].Certificate
	cert, err := x509.ParseCertificate(chain[len(chain)-1])
	if err != nil {
		return "", false, incumbent.Errorf(incumbent.Internal, "setting tls-cert: %w", err)
	}
	return ca.Hash(cert), false, nil
}

// config is what the listener uses: each handshake takes the current files.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if err := accept.Turn(hello); err != nil {
				return nil, err
			}
			if c.tokens() {
				return c.lenient.Load(), nil
			}
			return c.current.Load(), nil
		},
	}
}
