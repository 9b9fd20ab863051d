package rawio

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// A reader counts what it takes out of the kernel, and knows what is still there.
func TestReader(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var count uint64
	r := NewReader(conn, &mu, &count)
	p := make([]byte, 3)
	if n, err := r.Read(nil); n != 0 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if _, err := peer.Write([]byte("bytes")); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(p); n != 3 || err != nil || string(p) != "byt" || count != 3 {
		t.Errorf("read %d of %q, counted %d, %v", n, p, count, err)
	}
	if n, err := r.Arrived(); n != 2 || err != nil {
		t.Errorf("%d bytes have arrived, %v", n, err)
	}
	peer.Close()
	if n, err := io.ReadFull(r, p); n != 2 || !errors.Is(err, io.ErrUnexpectedEOF) || count != 5 {
		t.Errorf("read %d, counted %d, %v", n, count, err)
	}
	conn.Close()
	if _, err := r.Read(p); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed connection: %v", err)
	}
	if _, err := r.Arrived(); err == nil {
		t.Error("a closed connection says what has arrived")
	}
	pipe, _ := net.Pipe()
	if _, err := Raw(pipe); !errors.Is(err, errors.ErrUnsupported) || NewReader(pipe, &mu, &count) != nil {
		t.Errorf("the descriptor of a pipe: %v", err)
	}
}
