//go:build unix

package park

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestReadNow checks that only a socket that was asked is called empty: a
// deadline that passed before the read began says nothing about what is there.
func TestReadNow(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 10)
	want := func(when string, n int, tried bool, is error) {
		t.Helper()
		gotN, gotTried, ok, err := readNow(conn, buf)
		if gotN != n || gotTried != tried || !ok || !errors.Is(err, is) {
			t.Errorf("%s: %d bytes, tried %t, ok %t, error %v", when, gotN, gotTried, ok, err)
		}
	}
	want("empty", 0, true, nil)
	if _, err := peer.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	mustArrive(t, peer)
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	want("after a deadline", 0, false, os.ErrDeadlineExceeded)
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	want("full", 3, true, nil)
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	want("ended", 0, true, io.EOF)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	want("closed", 0, false, net.ErrClosed)

	if _, _, ok, _ := readNow(struct{ net.Conn }{conn}, buf); ok {
		t.Error("a connection without a descriptor was read")
	}
}

// TestBarrierWithoutDescriptors checks the barrier of connections whose socket
// cannot be asked.
func TestBarrierWithoutDescriptors(t *testing.T) {
	server, client := net.Pipe()
	defer client.Close()
	p := &portable{inner: struct{ net.Conn }{server}}
	p.conn = &Conn{worker: &worker{}}
	buf := make([]byte, 10)
	empty := false
	for end := time.Now().Add(patience); !empty && time.Now().Before(end); {
		n := 0
		if n, empty = p.drainInto(buf); n != 0 {
			t.Fatalf("silent: %d bytes", n)
		}
	}
	if !empty {
		t.Error("a silent connection is never seen empty")
	}
	go client.Write([]byte("abc"))
	got := 0
	for end := time.Now().Add(patience); got < 3 && time.Now().Before(end); {
		n, _ := p.drainInto(buf)
		got += n
	}
	if got != 3 {
		t.Errorf("%d bytes read, want 3", got)
	}
}
