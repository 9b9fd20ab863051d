package client

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// bindLate has the kernel choose the port of a connection from a given address when the
// other end is known: else each port is taken for all members, and looked for among all
// that are.
func bindLate(_, _ string, conn syscall.RawConn) error {
	var err error
	if outer := conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}); outer != nil {
		return outer
	}
	return err
}
