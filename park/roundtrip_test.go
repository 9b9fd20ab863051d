package park

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i * 7)
	}
	return p
}

func exchange(t *testing.T, conn net.Conn, msg []byte) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := conn.Write(frame(msg)); err != nil {
			t.Errorf("write: %v", err)
		}
	})
	got, err := readFrame(conn)
	wg.Wait()
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if !bytes.Equal(got, msg) {
		t.Fatalf("%d bytes came back different (%d bytes)", len(msg), len(got))
	}
}

func TestRoundTrip(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		noLeak(t)
		for _, shared := range []bool{false, true} {
			e := newEchoer()
			e.shared = shared
			r := newRig(t, v, Config{}, func() Handler { return e })
			conn := r.dial()
			for _, n := range []int{1, 60, 0, 1000, 16 << 10, 70_000, 900_000, 3} {
				exchange(t, conn, pattern(n))
			}
			conn.Close()
			if got := receive(t, "end", e.ended); got.reason != PeerClosed {
				t.Errorf("ended for %v (%v), want %v", got.reason, got.err, PeerClosed)
			}
		}
	})
}

func TestDribbledBytes(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{}, func() Handler { return e })
		conn := r.dial()
		msg := pattern(100)
		for _, b := range frame(msg) {
			if _, err := conn.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
			barrierOf(t, r.set)
		}
		got, err := readFrame(conn)
		if err != nil || !bytes.Equal(got, msg) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	})
}

func TestPipelinedFrames(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{}, func() Handler { return e })
		conn := r.dial()
		var all []byte
		const frames = 2000
		for i := range frames {
			all = append(all, frame(pattern(i%97))...)
		}
		var wg sync.WaitGroup
		wg.Go(func() { conn.Write(all) })
		for i := range frames {
			got, err := readFrame(conn)
			if err != nil || !bytes.Equal(got, pattern(i%97)) {
				t.Fatalf("frame %d: %d bytes, %v", i, len(got), err)
			}
		}
		wg.Wait()
	})
}
