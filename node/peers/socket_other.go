//go:build !linux

package peers

import (
	"errors"
	"net"
)

// kernelReader exists on Linux only: elsewhere a barrier asks the other side.
type kernelReader struct{}

func newKernelReader(*socket, net.Conn) *kernelReader { return nil }

func (*kernelReader) read([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (*kernelReader) arrived() (uint64, error) { return 0, errors.ErrUnsupported }

// kernelWriter exists on Linux only: elsewhere the writer writes everything.
type kernelWriter struct{}

func newKernelWriter(net.Conn) *kernelWriter { return nil }

func (*kernelWriter) write(chunks []*chunk) []*chunk { return chunks }
