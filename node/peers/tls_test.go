package peers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/node"
)

// authority makes certificates of members.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	last atomic.Int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	a.key = newKey(t)
	a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, &a.key.PublicKey)
	a.pool.AddCert(a.cert)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(c *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	a.t.Helper()
	c.SerialNumber = big.NewInt(a.last.Add(1))
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := a.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// member returns a certificate whose common name is the member's id.
func (a *authority) member(id uint64) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	cert := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: fmt.Sprint(id)}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, &key.PublicKey)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func verify(cs tls.ConnectionState, id uint64) error {
	if got := cs.PeerCertificates[0].Subject.CommonName; got != fmt.Sprint(id) {
		return fmt.Errorf("certificate is of member %s, not %d", got, id)
	}
	return nil
}

// secured gives every member a certificate of its own.
func secured(a *authority) option { return securedAs(a, 0) }

// securedAs gives a member the certificate of another, unless that is 0.
func securedAs(a *authority, as uint64) option {
	return func(c *Config) {
		id := c.Self
		if as != 0 {
			id = as
		}
		cert := a.member(id)
		c.ServerTLS = func() *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert}
		}
		c.ClientTLS = func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: a.pool} }
		c.Verify = verify
	}
}

func TestCertificateOfAnotherMemberIsRefused(t *testing.T) {
	ca := newAuthority(t)
	for name, ids := range map[string][2]uint64{"of the one that dials": {5, 0}, "of the one that is dialed": {0, 5}} {
		t.Run(name, func(t *testing.T) {
			a, b := newMember(t, 1, securedAs(ca, ids[0])), newMember(t, 2, securedAs(ca, ids[1]))
			know(a, b)
			judge := b
			if ids[1] != 0 {
				judge = a
			}
			judge.until("the refusal", func() bool { return len(judge.refusals) > 0 && judge.refusals[0] == WrongCertificate })
			if l := judge.set.Links()[0]; l.Control || l.Bulk {
				t.Error("they are connected")
			}
		})
	}
}

func TestPlaintextMeetsTLS(t *testing.T) {
	a, b := newMember(t, 1), newMember(t, 2, secured(newAuthority(t)))
	know(a, b)
	eventually(t, "the dial fails", func() bool { return a.set.Links()[0].Trouble != "" })
	if l := a.set.Links()[0]; l.Control || l.Bulk {
		t.Error("they are connected")
	}
}

// TestRotationLosesNothing opens new connections again and again, from either
// side, while messages flow: all of them arrive, and nobody is lost.
func TestRotationLosesNothing(t *testing.T) {
	for name, opts := range map[string][]option{"plain": nil, "tls": {secured(newAuthority(t))}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, opts...)
			const messages = 400
			for i := range messages {
				if i%50 == 0 {
					before := a.set.Links()[0].Since
					[]*member{a, b}[i/50%2].set.Rotate()
					eventually(t, "new connections", func() bool { l := a.set.Links()[0]; return l.Connected && l.Since.After(before) })
				}
				a.set.Send([]node.Message{heartbeat(1, 2, uint64(i)), appendOf(1, 2, uint64(i), 1000)})
				b.set.Send([]node.Message{heartbeat(2, 1, uint64(i))})
			}
			b.until("all messages", func() bool { return len(b.got) == 2*messages })
			a.until("all messages", func() bool { return len(a.got) == messages })
			if len(a.now().lost)+len(b.now().lost) != 0 {
				t.Errorf("lost %v and %v", a.now().lost, b.now().lost)
			}
		})
	}
}
