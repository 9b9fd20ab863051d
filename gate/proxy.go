package gate

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// The PROXY protocol. Version 1 is a line:
//
//	PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n
//	PROXY UNKNOWN\r\n
//
// Version 2 is a header of 16 bytes, addresses, and what else a proxy has to say:
//
//	+-----------------------------+---------+--------+--------+----------------
//	| \r \n \r \n 0 \r \n Q U I T \n | ver cmd | family | length | addresses, …
//	| 12 bytes                    | 1       | 1      | 2      | length bytes
//	+-----------------------------+---------+--------+--------+----------------
const (
	shortestProxy = 15       // bytes of either version: "PROXY UNKNOWN\r\n"
	longestLine   = 107      // bytes of version 1
	longestProxy  = 4 << 10  // bytes of version 2, with all it may say
	binaryHeader  = 16       // bytes
	proxyWord     = "PROXY " // begins version 1
	proxyMagic    = "\r\n\r\n\x00\r\nQUIT\n"

	versionAndLocal   = 0x20
	versionAndProxy   = 0x21
	familyTCP4        = 0x11
	familyTCP6        = 0x21
	addresses4        = 2 * (4 + 2) // bytes
	addresses6        = 2 * (16 + 2)
	proxyBeginsWithin = len(proxyMagic)
)

// proxyHeader reads the header that a connection begins with. need is how many more
// bytes it takes at least: none behind the header are ever asked for. At 0 it is
// whole; from is not valid if the proxy speaks for itself or for a client that has
// no address. The error is Invalid: this is no header.
func proxyHeader(b []byte) (from netip.AddrPort, need int, err error) {
	n := min(len(b), proxyBeginsWithin)
	word := min(n, len(proxyWord))
	switch {
	case string(b[:word]) == proxyWord[:word]:
		return proxyLine(b)
	case string(b[:n]) == proxyMagic[:n]:
		return proxyBinary(b)
	}
	return from, 0, errProxy("it does not begin like one")
}

func errProxy(what string) error {
	return incumbent.Errorf(incumbent.Invalid, "a connection of a proxy has no PROXY header: %s", what)
}

func proxyLine(b []byte) (from netip.AddrPort, need int, err error) {
	switch {
	case len(b) < shortestProxy:
		return from, shortestProxy - len(b), nil
	case bytes.HasSuffix(b, []byte("\r\n")):
	case len(b) < longestLine && bytes.IndexByte(b, '\n') < 0:
		return from, 1, nil
	default:
		return from, 0, errProxy("its line does not end")
	}
	words := strings.Split(string(b[len(proxyWord):len(b)-2]), " ")
	if words[0] == "UNKNOWN" {
		return from, 0, nil
	}
	if len(words) != 5 || words[0] != "TCP4" && words[0] != "TCP6" {
		return from, 0, errProxy("its line is malformed")
	}
	address, err := netip.ParseAddr(words[1])
	port, portErr := strconv.ParseUint(words[3], 10, 16)
	if err != nil || portErr != nil || address.Zone() != "" || address.Is4() != (words[0] == "TCP4") {
		return from, 0, errProxy("its source is malformed")
	}
	return netip.AddrPortFrom(address, uint16(port)), 0, nil
}

func proxyBinary(b []byte) (from netip.AddrPort, need int, err error) {
	if len(b) < binaryHeader {
		return from, binaryHeader - len(b), nil
	}
	length := int(binary.BigEndian.Uint16(b[14:]))
	whole := binaryHeader + length
	switch {
	case whole > longestProxy:
		return from, 0, errProxy("it is too long")
	case len(b) < whole:
		return from, whole - len(b), nil
	}
	rest := b[binaryHeader:whole]
	switch b[12] {
	case versionAndLocal:
		return from, 0, nil
	case versionAndProxy:
	default:
		return from, 0, errProxy("its version or command is unknown")
	}
	switch {
	case b[13] == familyTCP4 && length >= addresses4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(rest[:4])), binary.BigEndian.Uint16(rest[8:])), 0, nil
	case b[13] == familyTCP6 && length >= addresses6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(rest[:16])), binary.BigEndian.Uint16(rest[32:])), 0, nil
	case b[13] == familyTCP4 || b[13] == familyTCP6:
		return from, 0, errProxy("its addresses are cut off")
	}
	return from, 0, nil // a family that has no addresses of ours
}
