package echo

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent/park"
)

const (
	benchConns    = 1000
	messageBytes  = 60
	replyFrame    = 2 + ReplyBytes
	setupParallel = 16
)

func newSet(tb testing.TB, cfg park.Config) *park.Set {
	tb.Helper()
	set, err := park.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := set.Close(ctx); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return set
}

func listen(tb testing.TB, secure bool) net.Listener {
	tb.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ln := park.Listen(inner, 0)
	if secure {
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{selfSigned(tb)}})
	}
	tb.Cleanup(func() { ln.Close() })
	return ln
}

func selfSigned(tb testing.TB) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// dial opens a WebSocket that can be parked.
func dial(ln net.Listener, secure bool) (net.Conn, error) {
	tcp, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	var conn net.Conn = park.NewSocket(tcp)
	if secure {
		t := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if err := t.Handshake(); err != nil {
			return nil, err
		}
		conn = t
	}
	_, _, err = ws.Dialer{}.Upgrade(conn, &url.URL{Scheme: "ws", Host: "echo"})
	return conn, err
}

// request is a masked frame with a payload of n bytes that begins with id.
func request(id uint64, n int) []byte {
	payload := make([]byte, n)
	binary.BigEndian.PutUint64(payload, id)
	f := ws.MaskFrame(ws.NewBinaryFrame(payload))
	return ws.MustCompileFrame(f)
}

// caller is a client that sends the next message when the reply has come.
type caller struct {
	msg  []byte
	left *atomic.Int64 // exchanges to go, of all callers
	done *sync.WaitGroup
	bad  *atomic.Int64
	tb   testing.TB

	finished bool
}

func (c *caller) Readable(conn *park.Conn, data []byte) (int, error) {
	if len(data) < replyFrame {
		return 0, nil
	}
	if data[0] != 0x82 || data[1] != ReplyBytes || data[replyFrame-1] != 0 {
		c.bad.Add(1)
	}
	if c.left.Add(-1) < 0 {
		c.finished = true
		c.done.Done()
		return replyFrame, nil
	}
	_, err := conn.Write(c.msg)
	return replyFrame, err
}

// Closed gives up for this caller if its connection ends too early.
func (c *caller) Closed(_ *park.Conn, r park.Reason, err error) {
	if !c.finished {
		c.tb.Errorf("connection ended: %v, %v", r, err)
		c.done.Done()
	}
}

func benchmark(b *testing.B, secure bool, serve func(ln net.Listener) error) {
	ln := listen(b, secure)
	var served sync.WaitGroup
	served.Go(func() {
		if err := serve(ln); err != nil {
			b.Error(err)
		}
	})
	clients := newSet(b, park.Config{})
	var left, bad atomic.Int64
	var done sync.WaitGroup
	left.Store(int64(b.N))
	done.Add(benchConns)
	conns := make([]*park.Conn, benchConns)
	var setup sync.WaitGroup
	for g := range setupParallel {
		setup.Go(func() {
			for i := g; i < benchConns; i += setupParallel {
				raw, err := dial(ln, secure)
				if err != nil {
					b.Error(err)
					return
				}
				conns[i], err = clients.Park(raw, nil, &caller{msg: request(uint64(i), messageBytes), left: &left, done: &done, bad: &bad, tb: b})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	setup.Wait()
	if b.Failed() {
		b.FailNow()
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu := processCPU()
	for i, c := range conns {
		if _, err := c.Write(request(uint64(i), messageBytes)); err != nil {
			b.Fatal(err)
		}
	}
	done.Wait()
	b.StopTimer()
	exchanges := float64(b.N + benchConns)
	b.ReportMetric(exchanges/b.Elapsed().Seconds(), "exchanges/s")
	b.ReportMetric((processCPU()-cpu).Seconds()*1e6/exchanges, "cpu-µs/exchange") // of both ends
	if n := bad.Load(); n > 0 {
		b.Errorf("%d replies were wrong", n)
	}
	ln.Close()
	served.Wait()
}

// BenchmarkEcho measures 60-byte messages with 20-byte replies over 1,000
// WebSockets, one under way on each, both ends in this process.
func BenchmarkEcho(b *testing.B) {
	for _, secure := range []bool{false, true} {
		kind := map[bool]string{false: "tcp", true: "tls"}[secure]
		b.Run("parked/"+kind, func(b *testing.B) {
			set := newSet(b, park.Config{})
			benchmark(b, secure, func(ln net.Listener) error { return Serve(ln, set) })
		})
		b.Run("portable/"+kind, func(b *testing.B) {
			set := newSet(b, park.Config{Portable: true})
			benchmark(b, secure, func(ln net.Listener) error { return Serve(ln, set) })
		})
		b.Run("goroutine/"+kind, func(b *testing.B) { benchmark(b, secure, serveGoroutines) })
	}
}

// serveGoroutines is the usual way: a goroutine and a buffer each.
func serveGoroutines(ln net.Listener) error {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go echoAlone(conn)
	}
}

func echoAlone(conn net.Conn) {
	defer conn.Close()
	if _, err := ws.Upgrade(conn); err != nil {
		return
	}
	var s scratch
	buf, have := make([]byte, 4096), 0
	for {
		n, err := conn.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		s.out.Reset()
		used, err := s.frame(buf[:have])
		if err != nil {
			return
		}
		have = copy(buf, buf[used:have])
		if _, err := conn.Write(s.out.Bytes()); err != nil {
			return
		}
	}
}

func TestEcho(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			ln := listen(t, secure)
			set := newSet(t, park.Config{})
			var served sync.WaitGroup
			served.Go(func() {
				if err := Serve(ln, set); err != nil {
					t.Error(err)
				}
			})
			conn, err := dial(ln, secure)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{8, 60, 126, 70, 65000} {
				if _, err := conn.Write(request(uint64(n), n)); err != nil {
					t.Fatal(err)
				}
				h, err := ws.ReadHeader(conn)
				if err != nil || h.Length != ReplyBytes {
					t.Fatalf("reply to %d bytes has %d: %v", n, h.Length, err)
				}
				got := make([]byte, ReplyBytes)
				if _, err := io.ReadFull(conn, got); err != nil || binary.BigEndian.Uint64(got) != uint64(n) {
					t.Fatalf("reply to %d bytes is %x: %v", n, got, err)
				}
			}
			if _, err := conn.Write(ws.MustCompileFrame(ws.MaskFrame(ws.NewCloseFrame(nil)))); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil {
				t.Errorf("after good-bye: %v", err)
			}
			conn.Close()
			ln.Close()
			served.Wait()
		})
	}
}

// FuzzFrame feeds the decoder: no panic, and never more used than given.
func FuzzFrame(f *testing.F) {
	f.Add(request(1, 60))
	f.Add(request(1, 200)[:100])
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		var s scratch
		n, err := s.frame(data)
		if n < 0 || n > len(data) || err != nil && n != 0 {
			t.Fatalf("used %d of %d bytes, error %v", n, len(data), err)
		}
	})
}
