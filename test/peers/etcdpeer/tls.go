//go:build linux

package etcdpeer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is longer than any measurement.
const certificateLife = 7 * 24 * time.Hour

// certify makes one self-signed certificate for loopback, for all members: each
// shows it to clients and to the others, and is known by it.
func (cl *Cluster) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "etcd under load"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	cl.cert, cl.key = filepath.Join(cl.dir, "cert.pem"), filepath.Join(cl.dir, "key.pem")
	if err := writePEM(cl.cert, "CERTIFICATE", der); err != nil {
		return err
	}
	if err := writePEM(cl.key, "PRIVATE KEY", private); err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	cl.tls = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return nil
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func (cl *Cluster) scheme() string {
	if cl.tls != nil {
		return "https://"
	}
	return "http://"
}

func (cl *Cluster) tlsArgs() []string {
	if cl.tls == nil {
		return nil
	}
	return []string{
		"--cert-file", cl.cert, "--key-file", cl.key, "--peer-cert-file", cl.cert, "--peer-key-file", cl.key,
		"--peer-trusted-ca-file", cl.cert, "--peer-client-cert-auth",
	}
}

func (cl *Cluster) http() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: cl.tls, DisableKeepAlives: true}}
}
