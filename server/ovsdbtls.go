package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/incumbent-dev/incumbent/auth"
)

func (o OVSDB) validateTLS() error {
	switch {
	case (o.Cert == "") != (o.Key == ""):
		return invalid("ovsdb-cert", "and --ovsdb-key come together")
	case o.CA != "" && o.Cert == "":
		return invalid("ovsdb-ca", "goes with --ovsdb-cert and --ovsdb-key")
	case o.Cert != "" && o.Plaintext:
		return invalid("ovsdb-plaintext", "goes without --ovsdb-cert")
	}
	return nil
}

// load reads the door's own certificates. Who has a certificate of its authority
// is an agent; whoever has none is let in if anybody is. The pool stays the one there was
// if it says the same: connections are known by it.
func (o *ovsdbDoor) load(c OVSDB) error {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return invalid("ovsdb-cert", "%w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, DynamicRecordSizingDisabled: true}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return invalid("ovsdb-ca", "%w", err)
		}
		if o.pool == nil || !bytes.Equal(text, o.poolText) {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(text) {
				return invalid("ovsdb-ca", "%s holds no certificate in PEM form", c.CA)
			}
			o.pool, o.poolText = pool, text
		}
		config.ClientCAs, config.ClientAuth = o.pool, tls.RequireAndVerifyClientCert
		if c.Anonymous != "" {
			config.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	o.own.Store(config)
	return nil
}

// reloadOVSDB reads the door's own certificates again. On an error the old ones stay.
func (s *Server) reloadOVSDB() error {
	if s.ovsdb == nil || s.cfg.OVSDB.Cert == "" {
		return nil
	}
	return s.ovsdb.load(s.cfg.OVSDB)
}

// policyOf is how a listener of the door is guarded.
func (o OVSDB) policyOf(native auth.ListenerPolicy) auth.ListenerPolicy {
	if o.Cert != "" {
		native.Cert, native.Key, native.ClientCA, native.Credentials = true, true, o.CA != "", o.Anonymous != ""
	}
	return native
}
