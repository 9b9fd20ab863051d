package peers

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
// and counting them is one step under the socket's mutex. Else a barrier could
// look in the moment between the two, and miss bytes that are neither in the
// kernel nor counted.
type kernelReader struct {
	raw    syscall.RawConn
	socket *socket
	step   func(fd uintptr) bool // made once: a closure for each read would be garbage

	// Of the goroutine that reads, while it reads.
	p   []byte
	n   int
	err error
}

// newKernelReader returns nil if the connection has no descriptor.
func newKernelReader(s *socket, c net.Conn) *kernelReader {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	k := &kernelReader{raw: raw, socket: s}
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
		return 0, os.NewSyscallError("read", k.err)
	case k.n == 0:
		return 0, io.EOF
	}
	return k.n, nil
}

// once reports false if there is nothing to read yet.
func (k *kernelReader) once(fd uintptr) bool {
	k.socket.mu.Lock()
	defer k.socket.mu.Unlock()
	for {
		n, err := rawio.Read(int(fd), k.p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		case err == nil:
			k.n = n
			k.socket.read += uint64(n)
		default:
			k.err = err
		}
		return true
	}
}

// arrived returns how many bytes the kernel holds. The socket's mutex is held.
func (k *kernelReader) arrived() (uint64, error) {
	var n int
	var err error
	if cerr := k.raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); cerr != nil {
		return 0, cerr
	}
	return uint64(max(n, 0)), err
}

// kernelWriter writes to a descriptor what the kernel takes at once. It belongs
// to whoever is writing.
type kernelWriter struct {
	raw  syscall.RawConn
	step func(fd uintptr) bool // made once
	bufs [][]byte
	n    int
}

// newKernelWriter returns nil if the connection has no descriptor.
func newKernelWriter(c net.Conn) *kernelWriter {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	k := &kernelWriter{raw: raw}
	k.step = k.once
	return k
}

// write returns what was not written. Errors are left to whoever writes that.
func (k *kernelWriter) write(chunks []*chunk) (rest []*chunk) {
	k.bufs, k.n = k.bufs[:0], 0
	for _, c := range chunks {
		k.bufs = append(k.bufs, c.unwritten())
	}
	_ = k.raw.Write(k.step) // fails when closed: then nothing has been written
	clear(k.bufs)
	left := k.n
	for i, c := range chunks {
		if n := len(c.unwritten()); left < n {
			c.written += left
			return chunks[i:]
		}
		left -= len(c.unwritten())
		c.release()
	}
	return nil
}

func (k *kernelWriter) once(fd uintptr) bool {
	for {
		var n int
		var err error
		if len(k.bufs) == 1 {
			n, err = rawio.Write(int(fd), k.bufs[0])
		} else {
			n, err = unix.Writev(int(fd), k.bufs)
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		k.n = max(n, 0)
		return true // in no case is waited
	}
}
