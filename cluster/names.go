package cluster

import (
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// ValidReachable checks an address that others are to dial.
func ValidReachable(setting, address string) error {
	if err := ValidAddress(setting, address); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "" || port == "0" || ip != nil && ip.IsUnspecified() {
		return invalid(setting, "%q names no host and port that others can dial", address)
	}
	return nil
}

// ValidAddress checks an address to listen on.
func ValidAddress(setting, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return invalid(setting, "%q is not HOST:PORT", address)
	}
	return nil
}

// ValidName checks a member's name.
func ValidName(name string) error {
	if len(name) > 63 || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
	}) {
		return invalid("name", "%q is not 1 to 63 letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// HostName is the name of a member that nobody gave one.
func HostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}

func invalid(setting, format string, args ...any) *incumbent.Error {
	return incumbent.Errorf(incumbent.Invalid, "setting "+setting+": "+format, args...)
}
