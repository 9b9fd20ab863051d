package cluster

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/vfs"
)

// OperatorCertificate says where an operator's certificate is, and when it ends.
type OperatorCertificate struct {
	CAFile, CertFile, KeyFile string
	Ends                      time.Time
}

// RenewOperator makes the operator's certificate of a data directory anew, for the
// key that is there: copies of the key go on with a copy of the certificate. Where
// there is none it makes both. A server may run meanwhile. The error is NotFound
// if the directory has no authority.
func RenewOperator(dir string) (OperatorCertificate, error) {
	return renewOperatorOf(dir, time.Now())
}

func renewOperatorOf(dir string, now time.Time) (out OperatorCertificate, err error) {
	if !HasAuthority(dir) {
		return out, incumbent.Errorf(incumbent.NotFound, "%s has no authority of a cluster", dir).
			WithHint("give the data directory of a member of a cluster that 'incumbent cluster init' made")
	}
	folder := filepath.Join(dir, tlsFolder)
	out = OperatorCertificate{
		CAFile: filepath.Join(folder, caCertFile), CertFile: filepath.Join(folder, operatorCert), KeyFile: filepath.Join(folder, operatorKey),
	}
	a, err := readAuthority(folder)
	if err != nil {
		return out, err
	}
	key, err := ReadOrMakeKey(out.KeyFile)
	if err != nil {
		return out, err
	}
	text, err := a.OperatorFor(operatorName, key.Public(), now)
	if err != nil {
		return out, err
	}
	if err := WriteFile(out.CertFile, text); err != nil {
		return out, err
	}
	cert, err := ca.ParseCertificate(text)
	if err != nil {
		return out, err
	}
	out.Ends = cert.NotAfter
	return out, nil
}

// operatorName is what the operator of a cluster is called in leases' history.
const operatorName = "operator"

// operatorLeaf reads the operator's certificate beside a member's, and notes its
// end for operatorEnds; nil if there is none, as on all members but the one that
// init made.
func (m *TLS) operatorLeaf() (*x509.Certificate, error) {
	leaf, err := m.readOperator()
	if leaf == nil {
		m.operatorEnd.Store(nil)
		return nil, err
	}
	m.operatorEnd.Store(&leaf.NotAfter)
	return leaf, nil
}

func (m *TLS) readOperator() (*x509.Certificate, error) {
	text, err := vfs.ReadFile(m.fs, filepath.Join(m.dir, operatorCert))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%s: %w", operatorCert, err)
	}
	return ca.ParseCertificate(text)
}

// operatorEnds is when the operator's certificate ends, as it was last read; zero
// if none could be. One that ends within early is read again: people may have
// renewed it since.
func (m *TLS) operatorEnds(early time.Duration) time.Time {
	end := m.operatorEnd.Load()
	if end != nil && end.Sub(m.now()) < early {
		_, _ = m.operatorLeaf() // run tells of what it cannot read
		end = m.operatorEnd.Load()
	}
	if end == nil {
		return time.Time{}
	}
	return *end
}

// renewOperator renews the operator's certificate when it is time, as that of the
// member, or when another authority has signed that, and reports when it did. One
// that somebody else's authority made, or that was put in its place for another name
// or purpose, is left alone, as is any where the authority's key is not.
func (m *TLS) renewOperator() (ends time.Time, renewed bool, err error) {
	old, err := m.operatorLeaf()
	s := m.state.Load()
	if err != nil || old == nil || s.signer == nil || !ca.IsOperator(old, operatorName) {
		return time.Time{}, false, err
	}
	by := s.trust.SignedBy(old)
	if by == nil || by == s.signer && m.now().Before(ca.RenewAt(old)) {
		return time.Time{}, false, nil
	}
	if _, err := m.authority(s.signer); err != nil {
		if incumbent.KindOf(err) == incumbent.NotFound {
			err = nil // Warnings tell in time
		}
		return time.Time{}, false, err
	}
	made, err := renewOperatorOf(filepath.Dir(m.dir), m.now())
	if err != nil {
		return time.Time{}, false, err
	}
	m.operatorEnd.Store(&made.Ends)
	return made.Ends, true, nil
}
