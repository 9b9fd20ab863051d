package server

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
)

// certificates holds what TLS needs from files, swapped as a whole on reload so
// that a handshake never sees half of it.
type certificates struct {
	cfg     Config
	current atomic.Pointer[tls.Config]
}

// loadCertificates reads the files; nil without TLS.
func loadCertificates(cfg Config) (*certificates, error) {
	if cfg.TLSCert == "" {
		return nil, nil
	}
	c := &certificates{cfg: cfg}
	return c, c.reload()
}

// reload reads the files again. On an error the old certificates stay.
func (c *certificates) reload() error {
	pair, err := tls.LoadX509KeyPair(c.cfg.TLSCert, c.cfg.TLSKey)
	if err != nil {
		return incumbent.Errorf(incumbent.Invalid, "setting tls-cert: %w", err)
	}
	out := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if c.cfg.ClientCA != "" {
		pem, err := os.ReadFile(c.cfg.ClientCA)
		if err != nil {
			return incumbent.Errorf(incumbent.Invalid, "setting client-ca: %w", err)
		}
		out.ClientCAs = x509.NewCertPool()
		if !out.ClientCAs.AppendCertsFromPEM(pem) {
			return incumbent.Errorf(incumbent.Invalid, "setting client-ca: %s holds no certificate in PEM form", c.cfg.ClientCA)
		}
		// Bearer credentials may stand in for a certificate where both are set.
		out.ClientAuth = tls.RequireAndVerifyClientCert
		if c.cfg.CredentialFile != "" {
			out.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	c.current.Store(out)
	return nil
}

// config is what the listener uses: each handshake takes the current files.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.current.Load(), nil
		},
	}
}
