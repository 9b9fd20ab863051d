package ovsdb

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
)

// A certificate's common name is an agent, without what ovs-pki puts behind it unless it is
// told that the name is unique. Roles compare with all of it.
func TestCertificatesNameAgents(t *testing.T) {
	config := &tls.Config{ClientCAs: x509.NewCertPool()} //nolint:gosec // nobody connects
	m := startMember(t, func(c *Config) { c.OwnCA, c.TLS = true, func() *tls.Config { return config } })
	identify := func(name string, serial int64) (*caller, error) {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
		peer := auth.Peer{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}}
		return m.door.identify(peer, &Remote{}, config)
	}
	for name, agent := range map[string]string{
		"hv1":       "hv1",
		"hv1.a_b-c": "hv1.a_b-c",
		"hv1 id:5f2f4a3c-6d0f-4d52-9bb4-3e9d6a1c7f00": "hv1",
		"hv1 id:": "hv1",
		"hv1id:x": "hv1id:x",
	} {
		who, err := identify(name, 1)
		if err != nil || who.principal.Kind != auth.Agent || who.principal.Name != agent || who.name != name {
			t.Errorf("%q: %+v, %v", name, who, err)
		}
	}
	for _, name := range []string{"", " id:5f2f4a3c", "a b", "a\nb"} {
		if who, err := identify(name, 1); err == nil {
			t.Errorf("%q is %v", name, who.principal)
		}
	}
	one, _ := identify("hv1 id:1", 1)
	other, _ := identify("hv1 id:2", 2)
	if one.principal.Proof.ID == other.principal.Proof.ID {
		t.Error("two certificates of one name are taken back together")
	}
}

// certified returns a certificate of an authority with its key; nil: it is an authority itself.
func certified(t *testing.T, name string, by *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Who is in its handshake while the authorities are exchanged is known by the one that verified
// its certificate, and goes with that.
func TestG12_AHandshakeGoesWithItsAuthority(t *testing.T) {
	old, next := certified(t, "old", nil), certified(t, "next", nil)
	server, agent := certified(t, "server", old), certified(t, "hv1", old)
	trusting := func(authority *tls.Certificate) *tls.Config {
		pool := x509.NewCertPool()
		pool.AddCert(authority.Leaf)
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*server}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			RootCAs: pool, ServerName: "server", // of the client
		}
	}
	var config atomic.Pointer[tls.Config]
	config.Store(trusting(old))
	m := startMember(t, func(c *Config) { c.OwnCA, c.TLS = true, config.Load })
	dial := func(meanwhile func()) *client { // once the other side has asked for a certificate
		of := trusting(old)
		of.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			meanwhile()
			return agent, nil
		}
		c := tls.Client(m.dial().conn, of)
		return &client{t, c, json.NewDecoder(c)}
	}
	before := dial(func() {})
	want(t, "an echo", before.call("echo", `[]`), `[]`)
	during := dial(func() {
		config.Store(trusting(next))
		m.door.Recheck()
	})
	during.ended()
	before.ended()
}
