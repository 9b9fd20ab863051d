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

// pair is the door's own certificate and key.
func (o OVSDB) pair() (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return pair, invalid("ovsdb-cert", "%w", err)
	}
	return pair, nil
}

// authorities are those of its clients, and the text of them.
func (o OVSDB) authorities() (pool *x509.CertPool, text []byte, err error) {
	if text, err = os.ReadFile(o.CA); err != nil {
		return nil, nil, invalid("ovsdb-ca", "%w", err)
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, nil, invalid("ovsdb-ca", "%s holds no certificate in PEM form", o.CA)
	}
	return pool, text, nil
}

// load reads the door's own certificates. Who has a certificate of its authority
// is an agent; whoever has none is let in if anybody is. The pool stays the one there was
// if it says the same: connections are known by it.
func (o *ovsdbDoor) load(c OVSDB) error {
	pair, err := c.pair()
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, DynamicRecordSizingDisabled: true}
	if c.CA != "" {
		pool, text, err := c.authorities()
		if err != nil {
			return err
		}
		if o.pool == nil || !bytes.Equal(text, o.poolText) {
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
