package rawio

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// SetUserTimeout bounds how long sent data may stay unacknowledged, or the peer's
// window shut, before the kernel gives the connection up: without it that takes a
// quarter of an hour. d counts in milliseconds; 0 is the system's choice. The error
// says that the connection is closed.
func SetUserTimeout(tcp *net.TCPConn, d time.Duration) error {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return errors.Join(err, os.NewSyscallError("setsockopt", setErr))
}
