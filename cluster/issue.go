package cluster

import (
	"path/filepath"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
)

// SignClient makes a client's certificate for the key of a request, and returns the
// authorities with it by which to know the servers. The error is NotFound if the authority's key is not here.
func (m *TLS) SignClient(request []byte, c ca.Client) (cert, authority []byte, err error) {
	return signClient(m.dir, request, c, m.now())
}

func signClient(dir string, request []byte, c ca.Client, now time.Time) (cert, authority []byte, err error) {
	a, err := readAuthority(dir)
	if err != nil {
		return nil, nil, err
	}
	trusted, err := readTrust(dir)
	if err != nil {
		return nil, nil, err
	}
	cert, err = a.SignClient(request, c, now)
	return cert, trusted.PEM(), err
}

// SignClientIn does so with the authority of a data directory, beside whose server it
// may run. The error is NotFound if the directory has no authority, or not its key.
func SignClientIn(dir string, request []byte, c ca.Client) (cert, authority []byte, err error) {
	if !HasAuthority(dir) {
		return nil, nil, incumbent.Errorf(incumbent.NotFound, "%s has no authority of a cluster", dir).
			WithHint("give the data directory of a member of a cluster that 'incumbent cluster init' made")
	}
	return signClient(filepath.Join(dir, tlsFolder), request, c, time.Now())
}
