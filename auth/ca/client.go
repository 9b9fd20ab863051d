package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// MinClientLifetime is the shortest life of a client's certificate: clocks are not
// in step.
const MinClientLifetime = time.Minute

// clientUnits are the organizational units by which a server knows what a client is.
var clientUnits = map[string]string{
	"operator": operatorUnit, "agent": "incumbent-agent", "observer": "incumbent-observer",
}

// Client is whom a client's certificate is for.
type Client struct {
	Kind     string // operator, agent or observer
	Name     string
	Hosts    []string      // DNS names and IP addresses that it is for, too
	Lifetime time.Duration // 0: OperatorLifetime
}

// IssueClient makes a client's certificate (PEM) for a key. The error is Invalid or
// TooLarge.
func (a *Authority) IssueClient(key *ecdsa.PublicKey, c Client, now time.Time) ([]byte, error) {
	unit, known := clientUnits[c.Kind]
	if c.Lifetime == 0 {
		c.Lifetime = OperatorLifetime
	}
	switch {
	case !known:
		return nil, incumbent.Errorf(incumbent.Invalid, "certificate: %q is none of operator, agent, observer", c.Kind)
	case c.Lifetime < MinClientLifetime:
		return nil, incumbent.Errorf(incumbent.Invalid, "certificate: a lifetime of %v is shorter than %v", c.Lifetime, MinClientLifetime)
	case key == nil || key.Curve != elliptic.P256():
		return nil, incumbent.Errorf(incumbent.Invalid, "certificate: its key is not one of ECDSA on P-256")
	}
	if err := incumbent.ValidateHolder(c.Name); err != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "certificate: %w", err)
	}
	names, ips := split(c.Hosts)
	if n := len(names) + len(ips); n > MaxHosts {
		return nil, incumbent.Errorf(incumbent.TooLarge, "certificate: %d hosts, limit is %d", n, MaxHosts)
	}
	return a.sign(&x509.Certificate{
		Subject:  pkix.Name{CommonName: c.Name, OrganizationalUnit: []string{unit}},
		DNSNames: names, IPAddresses: ips, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key, now, c.Lifetime)
}

// SignClient is IssueClient for the key of a request (PKCS #10, DER), whose names do
// not count.
func (a *Authority) SignClient(request []byte, c Client, now time.Time) ([]byte, error) {
	r, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "certificate request: %w", err)
	}
	key, _ := r.PublicKey.(*ecdsa.PublicKey)
	return a.IssueClient(key, c, now)
}
