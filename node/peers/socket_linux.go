package peers

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/incumbent-dev/incumbent/rawio"
)

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
	raw, err := rawio.Raw(c)
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
