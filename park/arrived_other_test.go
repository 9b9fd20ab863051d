//go:build !linux

package park

import (
	"net"
	"testing"
)

// mustArrive trusts loopback where the kernel cannot be asked.
func mustArrive(*testing.T, net.Conn) {}
