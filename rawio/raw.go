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

// CloseWrite ends the sending side, where the connection can.
func CloseWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Below finds a connection of type T, a pointer, below TLS and whatever else has NetConn; nil if there
// is none.
func Below[T net.Conn](c net.Conn) (none T) {
	for {
		if found, ok := c.(T); ok {
			return found
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return none
		}
		c = outer.NetConn()
	}
}
