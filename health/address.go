package health

import (
	"fmt"
	"net/netip"
	"syscall"
)

// Addresses that no check connects to unless it is allowed: those of the link, where
// clouds answer questions about the machine and hand out its credentials, the
// addresses outside of it that do the same, and those that stand for many machines.
// They are looked at when a connection is made, so that neither a name that resolves
// to one nor a redirect leads there.
var (
	// linkNetworks are of the link, RFC 3927 and RFC 4291.
	linkNetworks = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}
	// metadataAddresses are of services that tell a machine about itself: AWS over
	// IPv6, Alibaba, Azure, Oracle.
	metadataAddresses = []netip.Prefix{
		netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("100.100.100.200/32"),
		netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("192.0.0.192/32"),
	}
	// embedding are networks whose addresses hold one of IPv4 in their last four
	// bytes: RFC 6052, and the compatible ones of RFC 4291.
	embedding = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("::/96")}
)

// addresses says where checks may connect to.
type addresses struct {
	all   bool                              // also to what is refused by default
	never func(netip.AddrPort) (why string) // whatever is allowed; nil: nowhere
}

// errRefused is why a check was not run: what it would connect to is not allowed.
type errRefused struct{ why string }

func (e errRefused) Error() string { return e.why }

// control is net.Dialer's: it sees the address after names were resolved.
func (a addresses) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errRefused{fmt.Sprintf("%s is no address", address)}
	}
	return a.check(to)
}

// check returns an error if checks may not connect to an address.
func (a addresses) check(to netip.AddrPort) error {
	ip := embedded(to.Addr())
	if a.never != nil {
		if why := a.never(netip.AddrPortFrom(ip, to.Port())); why != "" {
			return errRefused{fmt.Sprintf("checks do not connect to %s: %s", to, why)}
		}
	}
	if a.all {
		return nil
	}
	if why := refused(ip); why != "" {
		return errRefused{fmt.Sprintf("checks do not connect to %s: %s", to, why)}
	}
	return nil
}

// refused says what an address is that checks do not connect to by default; "":
// they do.
func refused(ip netip.Addr) string {
	switch {
	case within(linkNetworks, ip):
		return "an address of the link"
	case within(metadataAddresses, ip):
		return "an address where a machine's metadata may be"
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "an address of more than one machine"
	}
	return ""
}

// embedded is the address of IPv4 that an address of IPv6 stands for, if it does.
func embedded(ip netip.Addr) netip.Addr {
	ip = ip.WithZone("").Unmap()
	if !within(embedding, ip) || ip == netip.IPv6Loopback() || ip == netip.IPv6Unspecified() {
		return ip
	}
	b := ip.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

func within(networks []netip.Prefix, ip netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}
