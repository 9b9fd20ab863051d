//go:build unix

package park

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// readNow reads what is in conn's socket without waiting. tried says that the
// kernel was asked: an error of a deadline that had passed before tells nothing
// about the socket. An empty socket is n = 0 without an error. ok is false, and
// nothing was done, for a connection without a file descriptor.
func readNow(conn net.Conn, b []byte) (n int, tried, ok bool, err error) {
	raw, isRaw := conn.(syscall.Conn)
	if !isRaw {
		return 0, false, false, nil
	}
	rc, err := raw.SyscallConn()
	if err != nil {
		return 0, true, true, err
	}
	var rerr error
	err = rc.Read(func(fd uintptr) bool {
		tried = true
		for {
			n, rerr = syscall.Read(int(fd), b)
			if !errors.Is(rerr, syscall.EINTR) {
				return true
			}
		}
	})
	switch {
	case err != nil:
		return 0, tried, true, err
	case errors.Is(rerr, syscall.EAGAIN):
		return 0, true, true, nil
	case rerr != nil:
		return 0, true, true, rerr
	case n == 0:
		return 0, true, true, io.EOF
	}
	return n, true, true, nil
}
