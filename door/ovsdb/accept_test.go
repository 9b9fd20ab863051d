package ovsdb

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
)

// A certificate's common name is an agent, without what ovs-pki puts behind it unless it is
// told that the name is unique. Roles compare with all of it.
func TestCertificatesNameAgents(t *testing.T) {
	m := startMember(t, func(c *Config) {
		c.OwnCA, c.TLS = true, func() *tls.Config { return &tls.Config{ClientCAs: x509.NewCertPool()} } //nolint:gosec // nobody connects
	})
	identify := func(name string, serial int64) (*caller, error) {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
		peer := auth.Peer{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}}
		return m.door.identify(peer, &Remote{})
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
