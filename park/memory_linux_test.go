package park

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"testing"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"
)

// idleConns is enough for the noise of the heap to be a few bytes each.
const idleConns = 3000

// counter counts its connections; it has no state for each.
type counter struct{ parked sync.WaitGroup }

func (*counter) Readable(c *Conn, data []byte) (int, error) { return len(data), nil }
func (*counter) Closed(*Conn, Reason, error)                {}

// BenchmarkIdleMemory reports the user-space bytes that an idle WebSocket
// costs, upgraded by net/http as the doors do: heap and stacks, after garbage
// collection. The kernel's part comes on top.
func BenchmarkIdleMemory(b *testing.B) {
	run := func(name string, v variant, o idleOptions) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				b.ReportMetric(idleBytes(b, v, o), "B/conn")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	for _, v := range variants() {
		run(v.name, v, idleOptions{say: 60})
	}
	secure := variant{tls: true}
	run("poller/tls/client-without-mlkem", secure, idleOptions{say: 60, curves: []tls.CurveID{tls.X25519}})
	run("poller/tls/client-p256", secure, idleOptions{say: 60, curves: []tls.CurveID{tls.CurveP256}})
	run("poller/tls/no-tickets", secure, idleOptions{say: 60, noTickets: true})
	run("poller/tls/heard-4kB-record", secure, idleOptions{say: 4 << 10})
	run("poller/tls/heard-16kB-record", secure, idleOptions{say: 16 << 10})
}

// idleOptions are what the bytes crypto/tls keeps depend on.
type idleOptions struct {
	say       int // bytes of the client's one message, in one record
	curves    []tls.CurveID
	noTickets bool
}

func idleBytes(tb testing.TB, v variant, o idleOptions) float64 {
	set, err := New(Config{Portable: v.portable})
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{tb: tb, v: v, set: set}
	defer r.close()
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
		conf := serverTLS(v)
		conf.SessionTicketsDisabled = o.noTickets
		conf.NextProtos = []string{"http/1.1"}
		r.ln = tls.NewListener(r.ln, conf)
	}
	var h counter
	h.parked.Add(idleConns + 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		conn, rw, _, err := ws.UpgradeHTTP(req, w)
		if err != nil {
			tb.Error(err)
			return
		}
		var early []byte
		if n := rw.Reader.Buffered(); n > 0 {
			early, _ = rw.Reader.Peek(n)
		}
		if _, err := set.Park(conn, early, &h); err != nil {
			tb.Error(err)
		}
		h.parked.Done()
	})}
	r.wait.Go(func() { _ = srv.Serve(r.ln) })
	defer srv.Close()

	fds := []int{connectBare(tb, r, o)} // warms caches and pools
	before := inUse()
	for range idleConns {
		fds = append(fds, connectBare(tb, r, o))
	}
	h.parked.Wait()
	barrierOf(tb, set)
	after := inUse()
	if path := os.Getenv("PARK_HEAP_PROFILE"); path != "" {
		f, err := os.Create(path)
		if err != nil {
			tb.Fatal(err)
		}
		_ = pprof.WriteHeapProfile(f)
		f.Close()
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return (after - before) / idleConns
}

// connectBare opens a WebSocket, says one thing on it, and keeps nothing but
// the descriptor, so that the client does not count.
func connectBare(tb testing.TB, r *rig, o idleOptions) int {
	conn, err := net.Dial(r.ln.Addr().Network(), r.ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tcp := conn
	if r.v.tls {
		t := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, CurvePreferences: o.curves, DynamicRecordSizingDisabled: true})
		if err := t.Handshake(); err != nil {
			tb.Fatal(err)
		}
		conn = t
	}
	if _, _, err := (ws.Dialer{}).Upgrade(conn, &url.URL{Scheme: "ws", Host: "park"}); err != nil {
		tb.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, o.say)); err != nil {
		tb.Fatal(err)
	}
	fd := -1
	raw, err := tcp.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Control(func(old uintptr) { fd, _ = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	}
	if err != nil || fd < 0 {
		tb.Fatalf("duplicate: %v", err)
	}
	tcp.Close()
	return fd
}

func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
