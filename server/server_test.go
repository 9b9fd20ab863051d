package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/node"
)

// testTimeout bounds every wait; a test that reaches it has failed.
const testTimeout = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// testConfig is a small member on a free port.
func testConfig(t testing.TB) Config {
	return Config{
		DataDir: t.TempDir(), Name: "n1", Listen: "127.0.0.1:0", Version: "test",
		SegmentBytes: node.MinSegmentBytes, DiskReserve: 1 << 20, ReturnTime: time.Millisecond,
	}
}

func open(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	if err := s.WaitReady(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

func dialer(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func clientOf(t testing.TB, s *Server) *client.Client {
	t.Helper()
	return dialer(t, client.Config{Servers: []string{s.URL()}})
}

// web is an HTTP client that leaves no connection behind.
func web(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testTimeout}
}

func get(t testing.TB, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := web(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func claim(t testing.TB, c *client.Client, name, holder string) (*apiv1.ClaimResponse, error) {
	t.Helper()
	res, err := c.Leases().Claim(testContext(t), connect.NewRequest(&apiv1.ClaimRequest{
		Name: &apiv1.LeaseName{Name: name}, Holder: holder, TtlMs: 60_000,
	}))
	if err != nil {
		return nil, client.AsError(err)
	}
	return res.Msg, nil
}

// ours are the stacks of goroutines that run code of this module, but for
// tests' own.
func ours() []string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var out []string
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(g, "incumbent-dev/incumbent/") && !strings.Contains(g, "testing.tRunner") {
			out = append(out, g)
		}
	}
	return out
}

func TestG48_CloseAnswersAndLeavesNoGoroutine(t *testing.T) {
	s := open(t, testConfig(t))
	c := clientOf(t, s)
	if _, err := claim(t, c, "db", "a"); err != nil {
		t.Fatal(err)
	}
	session, err := c.Open(testContext(t), client.SessionConfig{})
	if err != nil {
		t.Fatal(err)
	}
	waited, watched := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Leases().WaitReleased(testContext(t), connect.NewRequest(&apiv1.WaitReleasedRequest{Name: &apiv1.LeaseName{Name: "db"}}))
		waited <- client.AsError(err)
	}()
	first := make(chan struct{})
	go func() {
		stream, err := c.Leases().Watch(testContext(t), connect.NewRequest(&apiv1.WatchRequest{Name: &apiv1.LeaseName{}, Prefix: true}))
		if err == nil && stream.Receive() {
			close(first)
			for stream.Receive() {
			}
			err = stream.Err()
		}
		watched <- client.AsError(err)
	}()
	<-first
	for s.engine.Hub().Stats().Waiters == 0 {
		runtime.Gosched()
	}
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for what, ended := range map[string]chan error{"wait": waited, "watch": watched} {
		if err := <-ended; incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("the %s ended with %v, want Unavailable", what, err)
		}
	}
	if err := s.Wait(); err != nil {
		t.Errorf("Wait says %v after Close", err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = session.Close(gone) // there is nobody to tell
	c.Close()
	// Goroutines end a moment after what they signal.
	left := ours()
	for deadline := time.Now().Add(testTimeout); len(left) > 0 && time.Now().Before(deadline); left = ours() {
		runtime.Gosched()
	}
	if len(left) > 0 {
		t.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
	}
}

func TestCloseTwiceAndReopen(t *testing.T) {
	cfg := testConfig(t)
	s := open(t, cfg)
	first, err := claim(t, clientOf(t, s), "db", "a")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, cfg)
	got, err := clientOf(t, again).Leases().Get(testContext(t), connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Name: "db"}}))
	if err != nil {
		t.Fatal(err)
	}
	if got.Msg.Lease.Token != first.Lease.Token || got.Msg.Lease.Holder != "a" {
		t.Errorf("after a restart: %v, want token %d of holder a", got.Msg.Lease, first.Lease.Token)
	}
}

// What Open has begun it undoes when it fails: the data directory is free and
// nothing runs.
func TestOpenUndoes(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	cfg := testConfig(t)
	cfg.Listen = busy.Addr().String()
	if _, err := Open(cfg); incumbent.KindOf(err) != incumbent.Unavailable || !strings.Contains(err.Error(), "listen") {
		t.Fatalf("on a busy port: %v, want Unavailable naming listen", err)
	}
	cfg.Listen = "127.0.0.1:0"
	open(t, cfg)
	second := cfg
	if _, err := Open(second); err == nil {
		t.Fatal("a second member opened the same data directory")
	}
}

func TestReadyz(t *testing.T) {
	s := open(t, testConfig(t))
	if code, body := get(t, s.URL()+"/readyz"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("ready: %d %q", code, body)
	}
	if code, _ := get(t, s.URL()+"/livez"); code != http.StatusOK {
		t.Errorf("live: %d", code)
	}
	s.draining.Store(true)
	if code, body := get(t, s.URL()+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "leaving") {
		t.Errorf("leaving: %d %q", code, body)
	}
	if code, _ := get(t, s.URL()+"/livez"); code != http.StatusOK {
		t.Errorf("a member that leaves is alive, but says %d", code)
	}
	s.draining.Store(false)
}

// A member whose node has not caught up answers /readyz and calls with
// Unavailable.
func TestNotReadyBeforeCaughtUp(t *testing.T) {
	s := newServer(testConfig(t).withDefaults())
	s.park = parkSet(t)
	var err error
	if s.admission, err = newAdmission(s.begun); err != nil {
		t.Fatal(err)
	}
	var undo undoing
	t.Cleanup(func() { undo.all() })
	if err := s.openIdentity(testContext(t), &undo); err != nil {
		t.Fatal(err)
	}
	if err := s.openEngine(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.node.Close(context.Background()); s.engine.Hub().Close() })
	rec := newRecorder()
	s.readyz(rec, fromHere())
	if rec.code != http.StatusServiceUnavailable || !strings.Contains(rec.body.String(), "not caught up") || rec.header.Get("Retry-After") == "" {
		t.Errorf("before: %d %q", rec.code, rec.body.String())
	}
	soon, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.WaitReady(soon); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("WaitReady: %v", err)
	}
	fault := errors.New("the disk is gone")
	s.fail(fault)
	if err := s.WaitReady(testContext(t)); !errors.Is(err, fault) {
		t.Errorf("WaitReady of a member that failed: %v", err)
	}
}
