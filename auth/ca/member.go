package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// MaxHosts is how many names and addresses a certificate may have.
const MaxHosts = 64

// Member is whom a certificate is for.
type Member struct {
	Cluster [16]byte
	ID      uint64
	Name    string
}

// MemberURI is what a certificate says of the member it belongs to:
//
//	incumbent://<cluster, 32 hexadecimal digits>/member/<id, 16 of them>
func MemberURI(cluster [16]byte, id uint64) *url.URL {
	return &url.URL{Scheme: "incumbent", Host: hex.EncodeToString(cluster[:]), Path: fmt.Sprintf("/member/%016x", id)}
}

// Request makes a request (PKCS #10, DER) to sign a key for these DNS names and
// IP addresses.
func Request(key *ecdsa.PrivateKey, name string, hosts []string) ([]byte, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}
	template.DNSNames, template.IPAddresses = split(hosts)
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, broken(err)
	}
	return der, nil
}

// split sorts hosts into names and addresses, each once. Wildcard addresses and
// what is empty name nobody.
func split(hosts []string) (names []string, ips []net.IP) {
	for _, h := range hosts {
		ip := net.ParseIP(h)
		switch {
		case h == "" || ip != nil && ip.IsUnspecified():
		case ip != nil:
			if !slices.ContainsFunc(ips, ip.Equal) {
				ips = append(ips, ip)
			}
		case !slices.Contains(names, h):
			names = append(names, h)
		}
	}
	return names, ips
}

// Sign answers a request with a member's certificate (PEM). Of the request it
// takes the key and the hosts; who it is for is the caller's to say. The error
// is Invalid if the request is malformed.
func (a *Authority) Sign(csr []byte, m Member, now time.Time) ([]byte, error) {
	r, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "certificate request: %w", err)
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, incumbent.Errorf(incumbent.Invalid, "certificate request: its key is not one of ECDSA on P-256")
	}
	if n := len(r.DNSNames) + len(r.IPAddresses); n > MaxHosts {
		return nil, incumbent.Errorf(incumbent.TooLarge, "certificate request: %d hosts, limit is %d", n, MaxHosts)
	}
	return a.member(key, m, r.DNSNames, r.IPAddresses, now)
}

// Issue makes a member's certificate (PEM) for a key of its own.
func (a *Authority) Issue(key *ecdsa.PrivateKey, m Member, hosts []string, now time.Time) ([]byte, error) {
	names, ips := split(hosts)
	if n := len(names) + len(ips); n > MaxHosts {
		return nil, incumbent.Errorf(incumbent.TooLarge, "certificate: %d hosts, limit is %d", n, MaxHosts)
	}
	return a.member(&key.PublicKey, m, names, ips, now)
}

func (a *Authority) member(key *ecdsa.PublicKey, m Member, names []string, ips []net.IP, now time.Time) ([]byte, error) {
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: m.Name}, URIs: []*url.URL{MemberURI(m.Cluster, m.ID)},
		DNSNames: names, IPAddresses: ips,
		// A member is a server to whoever dials it and a client of whom it dials.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key, now, MemberLifetime)
}

// Hosts returns the names and addresses of a certificate.
func Hosts(c *x509.Certificate) []string {
	hosts := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// Trust is the authorities whose members are believed: the current one, and perhaps
// the one that takes its place. It is not to be changed.
type Trust []*x509.Certificate

// ParseTrust reads what [Trust.PEM] wrote. The error is Corrupt.
func ParseTrust(text []byte) (Trust, error) {
	var out Trust
	for rest := bytes.TrimSpace(text); len(rest) > 0; {
		b, after := pem.Decode(rest)
		if b == nil || b.Type != certificateType {
			return nil, incumbent.Errorf(incumbent.Corrupt, "no PEM block %q", certificateType)
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil || !cert.IsCA {
			return nil, incumbent.Errorf(incumbent.Corrupt, "not the certificate of an authority: %v", err)
		}
		out, rest = append(out, cert), bytes.TrimSpace(after)
	}
	if len(out) == 0 {
		return nil, incumbent.Errorf(incumbent.Corrupt, "no certificate of an authority")
	}
	return out, nil
}

// PEM is for whoever is to trust the same.
func (t Trust) PEM() (text []byte) {
	for _, c := range t {
		text = append(text, certPEM(c.Raw)...)
	}
	return text
}

// Pool returns the authorities as the only ones to trust.
func (t Trust) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range t {
		pool.AddCert(c)
	}
	return pool
}

// SignedBy returns the authority that signed a certificate; nil: none of these did.
func (t Trust) SignedBy(c *x509.Certificate) *x509.Certificate {
	for _, a := range t {
		if c.CheckSignatureFrom(a) == nil {
			return a
		}
	}
	return nil
}

// Newest is the one that was added last.
func (t Trust) Newest() *x509.Certificate { return t[len(t)-1] }

// VerifyMember returns nil if a peer has shown a certificate of an authority
// that says it is this member; else a Denied error. chain is what the peer sent
// in its handshake, its own certificate first.
func (t Trust) VerifyMember(chain []*x509.Certificate, cluster [16]byte, id uint64, now time.Time) error {
	if len(chain) == 0 {
		return incumbent.Errorf(incumbent.Denied, "the peer showed no certificate")
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: t.Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return incumbent.Errorf(incumbent.Denied, "the peer's certificate: %w", err)
	}
	want := MemberURI(cluster, id).String()
	if len(chain[0].URIs) != 1 || chain[0].URIs[0].String() != want {
		return incumbent.Errorf(incumbent.Denied, "the peer's certificate belongs to %v, not to %s", chain[0].URIs, want)
	}
	return nil
}

// IsMember reports whether a certificate says that it is of a member of a cluster,
// whichever.
func IsMember(c *x509.Certificate, cluster [16]byte) bool {
	return len(c.URIs) == 1 && strings.HasPrefix(c.URIs[0].String(), strings.TrimSuffix(MemberURI(cluster, 0).String(), "0000000000000000"))
}

// KeyHash is the SHA-256 of the public key that a request (PKCS #10, DER) asks to
// sign. The error is Invalid.
func KeyHash(csr []byte) ([sha256.Size]byte, error) {
	r, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return [sha256.Size]byte{}, incumbent.Errorf(incumbent.Invalid, "certificate request: %w", err)
	}
	return sha256.Sum256(r.RawSubjectPublicKeyInfo), nil
}
