package rawio

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reader reads from a socket such that taking bytes out of the kernel and counting them
// is one step under the mutex of whoever counts. Else who looks in the moment between
// the two would miss bytes that are neither in the kernel nor counted.
type Reader struct {
	raw   syscall.RawConn
	mu    *sync.Mutex
	count *uint64
	step  func(fd uintptr) bool // made once: a closure for each read would be garbage

	// Of the goroutine that reads, while it reads.
	p   []byte
	n   int
	err error
}

// NewReader returns a reader of a connection that adds what it has read to count, under
// mu. nil: the connection has no descriptor, and nobody can know what has arrived.
func NewReader(c net.Conn, mu *sync.Mutex, count *uint64) *Reader {
	raw, err := Raw(c)
	if err != nil {
		return nil
	}
	r := &Reader{raw: raw, mu: mu, count: count}
	r.step = r.once
	return r
}

// Read implements [io.Reader]. It waits for bytes; deadlines of the connection hold.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r.p, r.n, r.err = p, 0, nil
	err := r.raw.Read(r.step)
	r.p = nil
	switch {
	case err != nil:
		return 0, err
	case r.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", r.err)}
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// once reports false if there is nothing to read yet.
func (r *Reader) once(fd uintptr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		n, err := Read(int(fd), r.p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		case err == nil:
			r.n = n
			*r.count += uint64(n) //nolint:gosec // it is not negative
		default:
			r.err = err
		}
		return true
	}
}

// Arrived returns how many bytes the kernel holds: none, with an error, of a connection
// that is closed. The caller holds the mutex.
func (r *Reader) Arrived() (n uint64, err error) {
	if cerr := r.raw.Control(func(fd uintptr) {
		var held int
		held, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		n = uint64(max(held, 0))
	}); cerr != nil {
		return 0, cerr
	}
	return n, err
}
