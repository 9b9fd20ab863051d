package peers

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// awaitArrival waits until the other's kernel has acknowledged everything that m
// wrote: a barrier covers what has arrived.
func awaitArrival(t *testing.T, m *member) {
	t.Helper()
	m.set.mu.Lock()
	var raws []syscall.RawConn
	for sock := range m.set.sockets {
		raw, err := sock.Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raws = append(raws, raw)
	}
	m.set.mu.Unlock()
	eventually(t, "what was written arrives", func() bool {
		left := 0
		for _, raw := range raws {
			_ = raw.Control(func(fd uintptr) {
				n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
				if err != nil {
					t.Error(err)
				}
				left += n
			})
		}
		return left == 0
	})
}
