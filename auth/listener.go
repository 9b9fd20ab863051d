package auth

import (
	"net"
	"net/netip"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// ListenerPolicy is how a listener is guarded.
type ListenerPolicy struct {
	Address     string // host:port, or unix:PATH
	Cert, Key   bool   // --tls-cert and --tls-key are given
	ClientCA    bool   // --client-ca is given
	Credentials bool   // --credential-file is given
}

// OnlyLoopback reports whether nobody can connect to the listener but from this
// machine.
func (p ListenerPolicy) OnlyLoopback() bool {
	local, err := p.local()
	return err == nil && local
}

// Check returns an Invalid error if the listener would be open to strangers:
// other machines can reach it, and it has no TLS or no way to know who calls.
// The error names the flags that are missing.
func (p ListenerPolicy) Check() error {
	local, err := p.local()
	if err != nil {
		return err
	}
	if p.Cert != p.Key {
		return incumbent.Errorf(incumbent.Invalid, "listener %s: --tls-cert and --tls-key come together", p.Address).WithHint("give both, or neither")
	}
	if p.ClientCA && !p.Cert {
		return incumbent.Errorf(incumbent.Invalid, "listener %s: --client-ca without --tls-cert and --tls-key", p.Address).
			WithHint("client certificates are checked within TLS")
	}
	if local {
		return nil
	}
	var missing []string
	if !p.Cert {
		missing = append(missing, "--tls-cert and --tls-key")
	}
	if !p.ClientCA && !p.Credentials {
		missing = append(missing, "--client-ca or --credential-file")
	}
	if len(missing) == 0 {
		return nil
	}
	return incumbent.Errorf(incumbent.Invalid, "listener %s can be reached from other machines and lacks %s", p.Address, strings.Join(missing, ", and ")).
		WithHint("set --tls-cert, --tls-key and --client-ca or --credential-file, or listen on 127.0.0.1")
}

// local reports whether only this machine can reach the address. A host name
// other than localhost may lead anywhere.
func (p ListenerPolicy) local() (bool, error) {
	if path, unix := strings.CutPrefix(p.Address, "unix:"); unix {
		if path == "" {
			return false, incumbent.Errorf(incumbent.Invalid, "listener %q has no path", p.Address)
		}
		return true, nil
	}
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		return false, incumbent.Errorf(incumbent.Invalid, "listener %q: %w", p.Address, err).WithHint("host:port, [host]:port or unix:PATH")
	}
	if host == "localhost" {
		return true, nil
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback(), nil
}
