package rawio

import (
	"errors"
	"net"
	"syscall"
)

// Raw returns the descriptor of a connection. [errors.ErrUnsupported]: it has none.
func Raw(c net.Conn) (syscall.RawConn, error) {
	if sc, ok := c.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
