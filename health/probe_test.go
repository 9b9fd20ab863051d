package health

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	healthv1 "github.com/incumbent-dev/incumbent/api/grpc/health/v1"
	"github.com/incumbent-dev/incumbent/api/grpc/health/v1/healthv1connect"
)

func found(t *testing.T, d Definition) Outcome {
	t.Helper()
	d.Timeout = time.Minute
	return newProber(addresses{}).run(t.Context(), &d)
}

// TestHTTP: what is sent, and what is made of what comes back.
func TestHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %s %s", r.Method, r.Host, r.Header.Values("X-A"), r.UserAgent(), r.Header.Get("Accept"), body)
	})
	mux.HandleFunc("/status/{n}", func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscan(r.PathValue("n"), &n)
		w.WriteHeader(n)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 100_000)) })
	mux.Handle("/moved", http.RedirectHandler("/status/204", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	web := httptest.NewServer(mux)
	defer web.Close()

	d := Definition{HTTP: web.URL + "/echo", Method: "PUT", Body: "ping", Header: map[string][]string{"X-A": {"1", "2"}, "Host": {"other"}}}
	want := Outcome{Status: Passing, Output: "HTTP PUT " + web.URL + "/echo: 200 OK Output: PUT other [1 2] " + userAgent + " " + accepts + " ping"}
	if got := found(t, d); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for path, want := range map[string]Status{
		"/status/204": Passing, "/status/299": Passing, "/status/429": Warning, "/status/404": Critical, "/status/500": Critical,
		"/moved": Passing, "/round": Critical,
	} {
		if got := found(t, Definition{HTTP: web.URL + path}); got.Status != want {
			t.Errorf("%s: %+v, want %s", path, got, want)
		}
	}
	if got := found(t, Definition{HTTP: web.URL + "/moved", DisableRedirects: true}); got.Status != Critical || !strings.Contains(got.Output, "302 Found") {
		t.Errorf("a redirect that is not followed: %+v", got)
	}
	for limit, most := range map[int]int{0: MaxOutputBytes, 100: 100, 1 << 20: MaxOutputBytes} {
		if got := found(t, Definition{HTTP: web.URL + "/long", MaxOutputBytes: limit}); len(got.Output) != most {
			t.Errorf("with a limit of %d an output of %d bytes, want %d", limit, len(got.Output), most)
		}
	}
}

// TestHTTPS: a certificate is verified unless the check says otherwise.
func TestHTTPS(t *testing.T) {
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.TLS.ServerName) }))
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail on purpose
	web.StartTLS()
	defer web.Close()
	if got := found(t, Definition{HTTP: web.URL}); got.Status != Critical {
		t.Errorf("a certificate of nobody: %+v", got)
	}
	got := found(t, Definition{HTTP: web.URL, TLSSkipVerify: true, TLSServerName: "db.example"})
	if got.Status != Passing || !strings.HasSuffix(got.Output, "db.example") {
		t.Errorf("%+v, want it to pass by the name db.example", got)
	}
	at := strings.TrimPrefix(web.URL, "https://")
	if got := found(t, Definition{TCP: at, TCPUseTLS: true}); got.Status != Critical {
		t.Errorf("TCP with TLS: %+v", got)
	}
	if got := found(t, Definition{TCP: at, TCPUseTLS: true, TLSSkipVerify: true}); got.Status != Passing {
		t.Errorf("TCP with TLS, not verified: %+v", got)
	}
}

// TestSockets: TCP passes when somebody accepts, UDP unless the host refuses.
func TestSockets(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	if got, want := found(t, Definition{TCP: at}), (Outcome{Status: Passing, Output: "TCP connect " + at + ": Success"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	ln.Close()
	if got := found(t, Definition{TCP: at}); got.Status != Critical || !strings.Contains(got.Output, "refused") {
		t.Errorf("closed: %+v", got)
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at = pc.LocalAddr().String()
	go func() {
		b := make([]byte, 100)
		if _, from, err := pc.ReadFrom(b); err == nil {
			_, _ = pc.WriteTo(b[:1], from)
		}
	}()
	if got := found(t, Definition{UDP: at}); got.Status != Passing {
		t.Errorf("UDP: %+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := newProber(addresses{}).run(ctx, &Definition{UDP: at, Timeout: time.Minute}); got.Status != Passing {
		t.Errorf("UDP that is silent: %+v", got)
	}
	pc.Close()
	if got := found(t, Definition{UDP: at}); got.Status != Critical {
		t.Errorf("UDP, closed: %+v", got)
	}
}

// serving says that one service is well.
type serving struct {
	healthv1connect.UnimplementedHealthHandler
}

func (serving) Check(_ context.Context, r *connect.Request[healthv1.HealthCheckRequest]) (*connect.Response[healthv1.HealthCheckResponse], error) {
	switch r.Msg.Service {
	case "", "db":
		return connect.NewResponse(&healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}), nil
	case "old":
		return connect.NewResponse(&healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING}), nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no service %s", r.Msg.Service))
}

// TestGRPC: the health protocol, with and without TLS.
func TestGRPC(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(healthv1connect.NewHealthHandler(serving{}))
	for _, secure := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(mux)
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
		srv.Config.Protocols.SetHTTP2(true)
		srv.EnableHTTP2 = true
		if secure {
			srv.StartTLS()
		} else {
			srv.Start()
		}
		at := srv.Listener.Addr().String()
		for service, want := range map[string]Status{"": Passing, "/db": Passing, "/old": Critical, "/none": Critical} {
			got := found(t, Definition{GRPC: at + service, GRPCUseTLS: secure, TLSSkipVerify: true})
			if got.Status != want {
				t.Errorf("TLS %v, %q: %+v, want %s", secure, service, got, want)
			}
		}
		srv.Close()
	}
}

// silent dials a service that reads and never answers, and says how many of its
// connections are open.
func silent(open *atomic.Int64) *prober {
	return &prober{dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		open.Add(1)
		go func() {
			defer open.Add(-1)
			_, _ = io.Copy(io.Discard, theirs) // ends when our side is closed
		}()
		return ours, nil
	}}
}

// TestNothingIsLeftOfARun: whichever way a service is asked that does not answer, its
// connection is closed when the timeout is over.
func TestNothingIsLeftOfARun(t *testing.T) {
	for what, d := range map[string]Definition{
		"HTTP": {HTTP: "http://a:1/"}, "TLS": {TCP: "a:1", TCPUseTLS: true}, "UDP": {UDP: "a:1"}, "gRPC": {GRPC: "a:1"},
		"gRPC over TLS": {GRPC: "a:1", GRPCUseTLS: true}, "H2PING": {H2Ping: "a:1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Int64
			p := silent(&open)
			d.Timeout = 20 * time.Millisecond
			for range 200 {
				p.run(t.Context(), &d)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if n := open.Load(); n != 0 {
				t.Errorf("%s: %d connections are open", what, n)
			}
		})
	}
}

// TestARunThatIsGivenUpEnds: at once, whatever it waits for.
func TestARunThatIsGivenUpEnds(t *testing.T) {
	for what, d := range map[string]Definition{
		"HTTP": {HTTP: "http://a:1/"}, "TLS": {TCP: "a:1", TCPUseTLS: true}, "UDP": {UDP: "a:1"}, "gRPC": {GRPC: "a:1"}, "H2PING": {H2Ping: "a:1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Second, cancel)
			began := time.Now()
			d.Timeout = time.Minute
			silent(&open).run(ctx, &d)
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("%s: it ended after %v", what, took)
			}
		})
	}
}

// TestAddressesThatAreRefused: what no check connects to, written in whichever way.
func TestAddressesThatAreRefused(t *testing.T) {
	for address, fine := range map[string]bool{
		"127.0.0.1:80": true, "10.1.2.3:80": true, "[::1]:80": true, "[2001:db8::1]:80": true, "192.0.2.1:1": true, "[fd00::1]:80": true,
		"169.254.169.254:80": false, "169.254.0.1:80": false, "[fe80::1]:80": false, "[fe80::1%eth0]:80": false,
		"[fd00:ec2::254]:80": false, "100.100.100.200:80": false, "168.63.129.16:80": false, "192.0.0.192:80": false,
		"[::ffff:169.254.169.254]:80": false, "[64:ff9b::a9fe:a9fe]:80": false, "[::169.254.169.254]:80": false,
		"224.0.0.1:80": false, "[ff02::1]:80": false, "255.255.255.255:80": false,
	} {
		to := netip.MustParseAddrPort(address)
		if err := (addresses{}).check(to); (err == nil) != fine {
			t.Errorf("%s: %v", address, err)
		}
		if err := (addresses{all: true}).check(to); err != nil {
			t.Errorf("%s, all allowed: %v", address, err)
		}
	}
	never := addresses{all: true, never: func(to netip.AddrPort) string {
		if to == netip.MustParseAddrPort("127.0.0.1:7600") {
			return "a listener of this member"
		}
		return ""
	}}
	for _, address := range []string{"127.0.0.1:7600", "[::ffff:127.0.0.1]:7600"} {
		if never.check(netip.MustParseAddrPort(address)) == nil {
			t.Errorf("%s is let through", address)
		}
	}
}

// TestRedirectsAreNotFollowedAnywhere: an answer cannot lead a check to where it may
// not connect.
func TestRedirectsAreNotFollowedAnywhere(t *testing.T) {
	web := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/latest/meta-data/", http.StatusFound))
	defer web.Close()
	got := found(t, Definition{HTTP: web.URL})
	if got.Status != Critical || !strings.Contains(got.Output, "checks do not connect to 169.254.169.254:80") {
		t.Errorf("%+v", got)
	}
	if got := found(t, Definition{GRPC: "169.254.169.254:80"}); !strings.Contains(got.Output, "checks do not connect") {
		t.Errorf("gRPC: %+v", got)
	}
}

// TestDefinitions: a definition comes back as it was stored, and one that can never be
// run is refused.
func TestDefinitions(t *testing.T) {
	d := Definition{
		HTTP: "https://x/y", Method: "PUT", Header: map[string][]string{"A": {"b", "c"}}, Body: "d", DisableRedirects: true, TLSServerName: "e", TLSSkipVerify: true,
		TCP: "f:1", TCPUseTLS: true, UDP: "g:2", GRPC: "h:3/i", GRPCUseTLS: true, Interval: 90 * time.Second, Timeout: 1500 * time.Millisecond, MaxOutputBytes: 7,
		Thresholds: Thresholds{1, 2, 3},
	}
	for _, want := range []Definition{d, {}} {
		got, err := Parse(want.Encode())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
	for _, text := range []string{"", "{", `{"Interval":"x"}`, `{"Timeout":"1"}`} {
		if _, err := Parse([]byte(text)); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, c := range []struct {
		Definition
		fine bool
	}{
		{Definition{}, false},
		{Definition{HTTP: "http://a"}, false},
		{Definition{HTTP: "http://a", Interval: time.Second}, true},
		{Definition{HTTP: "file:///etc/passwd", Interval: time.Second}, false},
		{Definition{HTTP: "http:///x", Interval: time.Second}, false},
		{Definition{HTTP: "://", Interval: time.Second}, false},
		{Definition{TCP: "a", Interval: time.Second}, false},
		{Definition{TCP: "a:1", Interval: 25 * time.Hour}, false},
		{Definition{TCP: "a:1", Interval: time.Second, Timeout: -1}, false},
		{Definition{UDP: "a:1", Interval: time.Second}, true},
		{Definition{GRPC: "a:1/b", Interval: time.Second}, true},
		{Definition{GRPC: "a/b", Interval: time.Second}, false},
	} {
		if err := c.Validate(); (err == nil) != c.fine {
			t.Errorf("%+v: %v", c.Definition, err)
		}
	}
}
