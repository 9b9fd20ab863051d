package server

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/incumbent-dev/incumbent/rawio"
)

// kernelReader reads from a descriptor such that taking bytes out of the kernel
// and counting them is one step.
type kernelReader struct {
	raw  syscall.RawConn
	of   *arrival
	step func(fd uintptr) bool // made once: a closure for each read would be garbage

	// Of the goroutine that reads, while it reads.
	p   []byte
	n   int
	err error
}

// newKernelReader returns nil if the connection has no descriptor.
func newKernelReader(a *arrival, c net.Conn) *kernelReader {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	k := &kernelReader{raw: raw, of: a}
	k.step = k.once
	return k
}

// read waits for bytes; deadlines of the connection hold.
func (k *kernelReader) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	k.p, k.n, k.err = p, 0, nil
	err := k.raw.Read(k.step)
	k.p = nil
	switch {
	case err != nil:
		return 0, err
	case k.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", k.err)}
	case k.n == 0:
		return 0, io.EOF
	}
	return k.n, nil
}

// once reports false if there is nothing to read yet.
func (k *kernelReader) once(fd uintptr) bool {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	for {
		n, err := rawio.Read(int(fd), k.p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		case err == nil:
			k.n = n
			k.of.read += uint64(n)
		default:
			k.err = err
		}
		return true
	}
}

// arrived returns how many bytes the kernel holds. The arrival's mutex is held.
func (k *kernelReader) arrived() uint64 {
	var n int
	// A connection that was closed holds nothing more.
	_ = k.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return uint64(max(n, 0))
}

// SyscallConn is the descriptor, for park.
func (a *arrival) SyscallConn() (syscall.RawConn, error) {
	sc, ok := a.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sc.SyscallConn()
}
