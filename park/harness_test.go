package park

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// variant is one way of running the same test: both implementations, with
// and without TLS.
type variant struct {
	name     string
	portable bool
	tls      bool
	tls12    bool
	unix     bool
}

func variants() []variant {
	return []variant{
		{name: "poller/tcp"},
		{name: "poller/tls", tls: true},
		{name: "poller/tls12", tls: true, tls12: true},
		{name: "poller/unix", unix: true},
		{name: "portable/tcp", portable: true},
		{name: "portable/tls", portable: true, tls: true},
		{name: "portable/unix", portable: true, unix: true},
	}
}

func forAll(t *testing.T, f func(t *testing.T, v variant)) {
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) { f(t, v) })
	}
}

// testCert makes a self-signed certificate once.
var testCert = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "park"}, DNSNames: []string{"park"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

func serverTLS(v variant) *tls.Config {
	c := &tls.Config{Certificates: []tls.Certificate{testCert()}}
	if v.tls12 {
		c.MaxVersion = tls.VersionTLS12
	}
	return c
}

// rig is a set with a listener whose connections are parked with handlers
// made by handle.
type rig struct {
	tb   testing.TB
	v    variant
	set  *Set
	ln   net.Listener
	wait sync.WaitGroup
}

func newRig(tb testing.TB, v variant, cfg Config, handle func() Handler) *rig {
	tb.Helper()
	cfg.Portable = v.portable
	set, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{tb: tb, v: v, set: set}
	network, address := "tcp", "127.0.0.1:0"
	if v.unix {
		network, address = "unix", tb.TempDir()+"/s"
	}
	inner, err := net.Listen(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	r.ln = Listen(inner, 0)
	if v.tls {
		r.ln = tls.NewListener(r.ln, serverTLS(v))
	}
	r.wait.Go(func() { r.serve(handle) })
	tb.Cleanup(r.close)
	return r
}

func (r *rig) serve(handle func() Handler) {
	for {
		conn, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.wait.Go(func() {
			if t, ok := conn.(*tls.Conn); ok && t.Handshake() != nil {
				conn.Close()
				return
			}
			_, _ = r.set.Park(conn, nil, handle())
		})
	}
}

func (r *rig) close() {
	r.ln.Close()
	r.wait.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.set.Close(ctx); err != nil {
		r.tb.Errorf("close: %v", err)
	}
	st := r.set.Stats()
	if st.Parked != 0 || st.QueuedBytes != 0 || st.HeldBytes != 0 {
		r.tb.Errorf("after close: %d parked, %d queued, %d held; want none", st.Parked, st.QueuedBytes, st.HeldBytes)
	}
}

// connect connects a client, with its TLS handshake done.
func (r *rig) connect() (net.Conn, error) {
	conn, err := net.Dial(r.ln.Addr().Network(), r.ln.Addr().String())
	if err != nil {
		return nil, err
	}
	if r.v.tls {
		t := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if err := t.Handshake(); err != nil {
			conn.Close()
			return nil, err
		}
		conn = t
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// dial is connect for the length of the test.
func (r *rig) dial() net.Conn {
	r.tb.Helper()
	conn, err := r.connect()
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { conn.Close() })
	return conn
}

// frame prefixes a message with its length.
func frame(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(msg))), msg...)
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	msg := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r, msg)
	return msg, err
}

// firstFrame returns the first message of data and what it takes, or 0.
func firstFrame(data []byte) (msg []byte, size int) {
	if len(data) < 4 {
		return nil, 0
	}
	n := int(binary.BigEndian.Uint32(data))
	if len(data)-4 < n {
		return nil, 0
	}
	return data[4 : 4+n], 4 + n
}

// ending is how a connection ended.
type ending struct {
	reason Reason
	err    error
}

// echoer sends every frame back, and tells how its connections begin and end.
type echoer struct {
	shared bool // send with Send instead of Write
	began  chan *Conn
	ended  chan ending
	seen   bool
}

func newEchoer() *echoer {
	return &echoer{began: make(chan *Conn, 1), ended: make(chan ending, 4)}
}

func (e *echoer) Readable(c *Conn, data []byte) (int, error) {
	if !e.seen {
		e.seen = true
		e.began <- c
	}
	used := 0
	for {
		_, n := firstFrame(data[used:])
		if n == 0 {
			return used, nil
		}
		whole := data[used : used+n]
		if e.shared {
			_ = c.Send(append([]byte(nil), whole[:4]...), append([]byte(nil), whole[4:]...))
		} else {
			_, _ = c.Write(whole)
		}
		used += n
	}
}

func (e *echoer) Closed(c *Conn, r Reason, err error) { e.ended <- ending{r, err} }

func receive[T any](tb testing.TB, what string, ch <-chan T) T {
	tb.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		tb.Fatalf("%s: nothing came within %v\n%s", what, patience, buf[:runtime.Stack(buf, true)])
		panic("unreachable")
	}
}

// barrier waits for a barrier of the set.
func barrierOf(tb testing.TB, s *Set) {
	tb.Helper()
	done := make(chan struct{})
	s.Barrier(func() { close(done) })
	receive(tb, "barrier", done)
}

// noLeak fails the test if goroutines of this package are left at its end.
func noLeak(t *testing.T) {
	t.Cleanup(func() {
		for deadline := time.Now().Add(patience); ; runtime.Gosched() {
			buf := make([]byte, 1<<20)
			stacks := string(buf[:runtime.Stack(buf, true)])
			left := 0
			for _, g := range strings.Split(stacks, "\n\n") {
				if strings.Contains(g, "incumbent/park.(*") {
					left++
				}
			}
			if left == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines left:\n%s", left, stacks)
			}
		}
	})
}

// wantEOF fails unless the client sees the end of the connection.
func wantEOF(tb testing.TB, conn net.Conn) {
	tb.Helper()
	_, err := io.Copy(io.Discard, conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		tb.Fatalf("connection is still open")
	}
}
