package blackbox

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
)

// Clients that take all file descriptors a member gives to clients do not stop it: the log
// begins new files, backups are written, an operator is answered and is told.
func TestG39_NoDescriptorsForMoreClients(t *testing.T) {
	const allowed, clients = 400, 600
	address := freeAddress(t)
	m := start(t, t.TempDir(), []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, allowed), "sh"}, "--consul-listen", address)
	writer := m.client().KV("")
	if _, err := writer.Put(t.Context(), "first", nil); err != nil {
		t.Fatal(err)
	}
	open := 0
	for range clients {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := fmt.Fprintf(c, "GET /v1/kv/first HTTP/1.1\r\nHost: %s\r\n\r\n", address); err != nil {
			continue // it was closed
		}
		if n, err := c.Read(make([]byte, 1)); n == 1 && err == nil {
			open++
		}
	}
	if open < allowed/4 || open > allowed*3/4+20 {
		t.Errorf("%d of %d clients are served by a member that may have %d descriptors", open, clients, allowed)
	}
	for i := range 48 { // six files of the log
		if _, err := writer.Put(t.Context(), fmt.Sprint("large/", i), bytes.Repeat([]byte{byte(i)}, 500_000)); err != nil {
			t.Fatal(err, m.stderr)
		}
	}
	if _, stderr, code := m.cli("backup", "create", t.TempDir()+"/backup"); code != 0 {
		t.Errorf("backup: exit code %d, %s", code, stderr)
	}
	out, stderr, code := m.cli("status")
	if code != 0 || !strings.Contains(out, "connections were refused, for few file descriptors are left") {
		t.Errorf("status: exit code %d\n%s%s", code, out, stderr)
	}
}
