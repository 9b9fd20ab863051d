//go:build !linux

package peers

import (
	"errors"
	"net"
	"time"
)

// kernelReader exists on Linux only: elsewhere a barrier asks the other side.
type kernelReader struct{}

func newKernelReader(*socket, net.Conn) *kernelReader { return nil }

func (*kernelReader) read([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (*kernelReader) arrived() (uint64, error) { return 0, errors.ErrUnsupported }

func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
