// Package ca is a cluster's own certificate authority, and the tokens with
// which members join.
//
// An [Authority] is made when a cluster is made, and may be exchanged while it runs.
// Only the members that are to sign have its key; it may be kept apart from all of
// them between two certificates. What a cluster trusts is a [Trust]: its authority,
// and for a while the one that takes its place. Whoever has the key can be anybody.
//
// A member's certificate says in a URI which member of which cluster it belongs
// to (see [MemberURI]); names and addresses are there for clients who look at
// them. An operator's certificate says in its organizational unit that it is
// one, as package auth reads it, and names no member: it opens no peer's door.
//
// A [Token] carries a code that only members can make and each of them can check;
// the replicated state knows whether it was used.
//
// # Invariants
//
//   - Nothing is signed that outlives the authority.
//   - Keys are ECDSA on P-256 and never leave the member that made them, except
//     the authority's, which travels between members that sign.
//
// # Concurrency
//
// An Authority is immutable.
package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Lifetimes.
const (
	AuthorityLifetime = 10 * 365 * 24 * time.Hour
	MemberLifetime    = 90 * 24 * time.Hour
	OperatorLifetime  = 365 * 24 * time.Hour

	// backdated is how long before its making a certificate begins to be valid:
	// clocks of members are not in step.
	backdated = time.Hour
)

// Types of PEM blocks.
const (
	certificateType = "CERTIFICATE"
	keyType         = "PRIVATE KEY"
)

// Authority signs the certificates of one cluster.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes the authority of a cluster.
func New(cluster [16]byte, now time.Time) (*Authority, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "incumbent cluster " + hex.EncodeToString(cluster[:])},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(AuthorityLifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
		MaxPathLen: 1, // for the authority that is to take its place: see Cross
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, broken(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, broken(err)
	}
	return &Authority{cert, key}, nil
}

// Load reads an authority as [Authority.CertPEM] and [Authority.KeyPEM] wrote
// it. The error is Corrupt.
func Load(certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := ParseCertificate(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	return With(cert, key)
}

// With returns the authority of a certificate and its key. The error is Corrupt.
func With(cert *x509.Certificate, key *ecdsa.PrivateKey) (*Authority, error) {
	if !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, incumbent.Errorf(incumbent.Corrupt, "the certificate of the authority and its key do not belong together")
	}
	return &Authority{cert, key}, nil
}

// Cross certifies the key of the authority that is to take this one's place (DER):
// who trusts this one follows it to the certificates that the next one signs.
func (a *Authority) Cross(next *x509.Certificate, now time.Time) ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: next.Subject, NotBefore: now.Add(-backdated), NotAfter: next.NotAfter, SubjectKeyId: next.SubjectKeyId,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, next.PublicKey, a.key)
	if err != nil {
		return nil, broken(err)
	}
	return der, nil
}

// Certificate returns the authority's own.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// CertPEM returns the authority's certificate, for whoever is to trust it.
func (a *Authority) CertPEM() []byte { return certPEM(a.cert.Raw) }

// KeyPEM returns the authority's key. It is the cluster's greatest secret.
func (a *Authority) KeyPEM() ([]byte, error) { return KeyPEM(a.key) }

// Hash returns what a join token carries of the authority.
func (a *Authority) Hash() string { return Hash(a.cert) }

// Hash returns the SHA-256 of a certificate, in hexadecimal.
func Hash(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// sign makes a certificate that ends with the authority at the latest.
func (a *Authority) sign(template *x509.Certificate, public any, now time.Time, lifetime time.Duration) ([]byte, error) {
	template.SerialNumber = serial()
	template.NotBefore, template.NotAfter = now.Add(-backdated), now.Add(lifetime)
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, broken(err)
	}
	return certPEM(der), nil
}

// Operator makes a certificate, with its key, for a person or tool that may do
// everything.
func (a *Authority) Operator(name string, now time.Time) (cert, key []byte, err error) {
	own, err := NewKey()
	if err != nil {
		return nil, nil, err
	}
	if cert, err = a.OperatorFor(name, own.Public(), now); err != nil {
		return nil, nil, err
	}
	key, err = KeyPEM(own)
	return cert, key, err
}

// OperatorFor makes the certificate of Operator for a key that is there already.
func (a *Authority) OperatorFor(name string, public crypto.PublicKey, now time.Time) ([]byte, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, OrganizationalUnit: []string{operatorUnit}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	return a.sign(template, public, now, OperatorLifetime)
}

// IsOperator reports whether a certificate is one as [Authority.Operator] makes for a
// name, whoever signed it and whether or not it has ended.
func IsOperator(c *x509.Certificate, name string) bool {
	return c.Subject.CommonName == name && slices.Equal(c.Subject.OrganizationalUnit, []string{operatorUnit})
}

// operatorUnit is the organizational unit by which a server knows an operator.
const operatorUnit = "incumbent-operator"

// RenewAt is when a certificate is to be replaced: after two thirds of its
// lifetime.
func RenewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// NewKey makes a key.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, broken(err)
	}
	return key, nil
}

// KeyPEM encodes a key.
func KeyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, broken(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}

// ParseKey decodes a key. The error is Corrupt.
func ParseKey(text []byte) (*ecdsa.PrivateKey, error) {
	der, err := block(text, keyType)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Corrupt, "private key: %w", err)
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok || own.Curve != elliptic.P256() {
		return nil, incumbent.Errorf(incumbent.Corrupt, "private key: not one of ECDSA on P-256")
	}
	return own, nil
}

// ParseCertificate decodes the first certificate of a PEM text. The error is
// Corrupt.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	der, err := block(text, certificateType)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Corrupt, "certificate: %w", err)
	}
	return cert, nil
}

func block(text []byte, kind string) ([]byte, error) {
	b, _ := pem.Decode(bytes.TrimSpace(text))
	if b == nil || b.Type != kind {
		return nil, incumbent.Errorf(incumbent.Corrupt, "no PEM block %q", kind)
	}
	return b.Bytes, nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: der})
}

// serial is random: 127 bits, so that two never meet.
func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	b[15] |= 1 // never zero
	return new(big.Int).SetBytes(b[:])
}

// broken is an error of a primitive that has no reason to fail.
func broken(err error) error { return incumbent.Errorf(incumbent.Internal, "certificates: %w", err) }
