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
	own     *cluster.TLS        // nil: from files
	tokens  func() bool         // somebody may bring a bearer credential instead of a certificate
	trusts  func(auth.Roots)    // is told whose certificates of clients are taken
	loading sync.Mutex          // held for a reload, files and all: else one that read earlier could win, and roots and config be of two
	clients []*x509.Certificate // of the file client-ca, as last read; guarded by loading
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

// reload reads the files again. On an error what they said before stays: with a pair from
// files all of it, and nothing is swapped. The cluster's own certificate and authorities,
// which are no files, are taken all the same: what has ended there is to end here too.
func (c *certificates) reload() error {
	c.loading.Lock()
	defer c.loading.Unlock()
	pair, err := c.pair()
	if err != nil {
		return err
	}
	if c.cfg.ClientCA != "" {
		var read []*x509.Certificate
		if read, err = readClientCA(c.cfg.ClientCA); err == nil {
			c.clients = read
		} else if c.own == nil || c.clients == nil {
			return err
		}
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
			out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		}
		for _, cert := range c.clients {
			out.ClientCAs.AddCert(cert)
			roots.Add(cert)
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
	return err
}

// readClientCA returns the certificates of a file, at least one.
func readClientCA(file string) (out []*x509.Certificate, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, invalid("client-ca", "%w", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 { // as x509.CertPool reads them
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
	if len(out) == 0 {
		return nil, invalid("client-ca", "%s holds no certificate in PEM form", file)
	}
	return out, nil
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
