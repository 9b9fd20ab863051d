package park

import (
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mustArrive waits until the peer's kernel has acknowledged everything written
// to conn. A barrier covers what has arrived; on a loaded machine what was just
// written to loopback may still be on its way.
func mustArrive(t *testing.T, conn net.Conn) {
	t.Helper()
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return // bytes on a Unix socket are there at once
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); runtime.Gosched() {
		left := 0
		if cerr := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
		if left == 0 {
			return
		}
	}
	t.Fatal("what was written does not arrive")
}
