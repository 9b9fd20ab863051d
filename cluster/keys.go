package cluster

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Keys are read where they are needed and kept nowhere else: that of the authority
// may come and go while the server runs.

// readTrust reads the authorities of a tls folder.
func readTrust(dir string) (ca.Trust, error) {
	text, err := vfs.ReadFile(vfs.OS{}, filepath.Join(dir, caCertFile))
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "the cluster's authority: %w", err)
	}
	return ca.ParseTrust(text)
}

// authorityOf returns one with its key. The error is NotFound if that is not in the
// tls folder.
func authorityOf(dir string, cert *x509.Certificate) (*ca.Authority, error) {
	for _, name := range []string{caKeyFile, caNextKeyFile} {
		key, err := readKey(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case key.PublicKey.Equal(cert.PublicKey):
			return ca.With(cert, key)
		}
	}
	return nil, incumbent.Errorf(incumbent.NotFound, "the key of the cluster's authority is not in %s", dir).
		WithHint("do it on a member that has tls/ca.key: 'incumbent cluster trust' says which do; or put the key there while it is needed")
}

func (m *TLS) authority(cert *x509.Certificate) (*ca.Authority, error) {
	return authorityOf(m.dir, cert)
}

// readAuthority returns the authority that signs in a tls folder: that of the
// member's certificate if its key is there, else any whose key is. The error is
// NotFound if no key is there.
func readAuthority(dir string) (*ca.Authority, error) {
	trusted, err := readTrust(dir)
	if err != nil {
		return nil, err
	}
	if text, err := vfs.ReadFile(vfs.OS{}, filepath.Join(dir, memberCert)); err == nil {
		if leaf, err := ca.ParseCertificate(text); err == nil {
			if by := trusted.SignedBy(leaf); by != nil {
				trusted = append(ca.Trust{by}, trusted...)
			}
		}
	}
	var missing error
	for _, cert := range trusted {
		a, err := authorityOf(dir, cert)
		if err == nil || incumbent.KindOf(err) != incumbent.NotFound {
			return a, err
		}
		missing = err
	}
	return nil, missing
}

// readKey returns the key of a file. The cause is fs.ErrNotExist if there is none.
func readKey(name string) (*ecdsa.PrivateKey, error) {
	text, err := vfs.ReadFile(vfs.OS{}, name)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	return ca.ParseKey(text)
}

// ReadOrMakeKey returns the key of a file, which is made if it is not there.
func ReadOrMakeKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := readKey(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = ca.NewKey(); err != nil {
		return nil, err
	}
	text, err := ca.KeyPEM(key)
	if err != nil {
		return nil, err
	}
	return key, WriteFile(name, text)
}

// WriteFile makes a file durable, and its folder if that is not there.
func WriteFile(name string, text []byte) error {
	err := vfs.MkdirAll(vfs.OS{}, filepath.Dir(name))
	if err == nil {
		err = vfs.WriteFile(vfs.OS{}, name, text)
	}
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	return nil
}
