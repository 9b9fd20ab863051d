package native

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// begin sends a part of a call's body, and returns the connection.
func (m *member) begin(method string, length int, part string) net.Conn {
	m.tb.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(m.url, "http://"))
	if err != nil {
		m.tb.Fatal(err)
	}
	m.tb.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(conn, "POST /incumbent.v1.%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, length, part); err != nil {
		m.tb.Fatal(err)
	}
	return conn
}

// reply reads the answer to what a connection has sent.
func reply(t *testing.T, conn net.Conn) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(said)
}

// Bodies that have not come whole take memory up to a bound, whoever sends them, and of one client
// they leave room for others. Those that are small are not refused for what others send.
func TestG39_UnfinishedBodiesAreBounded(t *testing.T) {
	m := newMember(t)
	const whole, sent = 5 * smallBody, 4 * smallBody
	text := `{"namespace":"n","key":"k","value":"` + strings.Repeat("A", whole-38) + `"}`
	first := m.begin("KeyValueService/Put", len(text), text[:sent])
	eventually(t, "what came beyond a little is counted", func() bool { return m.door.BodyBytes() == sent-smallBody })
	const rest = MaxBodiesBytes - 2*(sent-smallBody) + 1
	if !m.door.bodies.Take(admit.Who{}, rest, MaxBodiesBytes) {
		t.Fatal("there is no room")
	}
	status, said := reply(t, m.begin("KeyValueService/Put", len(text), text[:sent]))
	if status != http.StatusTooManyRequests || !strings.Contains(said, "overloaded") || !strings.Contains(said, "retryAfterMs") {
		t.Errorf("beyond the bound: HTTP %d %s", status, said)
	}
	if resp, body := m.post("KeyValueService/Put", `{"namespace":"n","key":"small","value":"`+strings.Repeat("A", smallBody/2)+`"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("a small one: HTTP %d %s", resp.StatusCode, body)
	}
	m.door.bodies.Give(admit.Who{}, rest)
	if _, err := io.WriteString(first, text[sent:]); err != nil {
		t.Fatal(err)
	}
	if status, said := reply(t, first); status != http.StatusOK {
		t.Errorf("the first: HTTP %d %s", status, said)
	}
	gone := m.begin("KeyValueService/Put", len(text), text[:sent])
	eventually(t, "it is counted", func() bool { return m.door.BodyBytes() > 0 })
	gone.Close()
	eventually(t, "nothing is", func() bool { return m.door.BodyBytes() == 0 })
}

// What a compressed body becomes counts as well: a kilobyte can say a megabyte.
// Where there is little memory, less is enough for the bound to be met.
func TestG39_WhatIsInflatedIsBounded(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lanes.SetMemory(0, 128<<20)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, `{"namespace":"n","key":"k","value":"`+strings.Repeat("A", 8*smallBody)+`"}`); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	const most = 16 << 20
	const rest = most - smallBody
	if !m.door.bodies.Take(admit.Who{}, rest, most) {
		t.Fatal("there is no room")
	}
	if resp, said := m.post("KeyValueService/Put", packed.String(), "Content-Encoding", "gzip"); resp.StatusCode == http.StatusOK || !strings.Contains(said, "overloaded") {
		t.Errorf("beyond the bound: HTTP %d %s", resp.StatusCode, said)
	}
	m.door.bodies.Give(admit.Who{}, rest)
	if resp, said := m.post("KeyValueService/Put", packed.String(), "Content-Encoding", "gzip"); resp.StatusCode != http.StatusOK {
		t.Errorf("HTTP %d %s", resp.StatusCode, said)
	}
	if n := m.door.BodyBytes(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
