package blackbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

type lease struct {
	Holder         string `json:"holder"`
	Token          string `json:"token"`
	TTLMs          int    `json:"ttl_ms"`
	ExpiresInMs    int    `json:"expires_in_ms"`
	PreviousHolder string `json:"previous_holder"`
}

// One lease's life, as somebody at a terminal lives it.
func TestLeaseOnTheCommandLine(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	out, _, code := m.cli("lease", "claim", "db", "--holder", "a", "--ttl", "1m", "-o", "json")
	first := decode[lease](t, out)
	if code != 0 || first.Holder != "a" || first.Token == "" || first.TTLMs != 60_000 {
		t.Fatalf("claim: exit code %d, %q", code, out)
	}
	if out, _, code := m.cli("lease", "extend", "db", "--token", first.Token); code != 0 || !strings.Contains(out, "held for another 1m0s") {
		t.Errorf("extend: exit code %d, %q", code, out)
	}
	_, said, code := m.cli("lease", "claim", "db", "--holder", "b")
	if code != 3 || !strings.Contains(said, "held: ") || !strings.Contains(said, "answered by: n1") || !strings.Contains(said, "hint: ") {
		t.Errorf("claim by another: exit code %d, %q", code, said)
	}
	out, _, code = m.cli("lease", "explain", "db")
	for _, want := range []string{"db is held by a with token " + first.Token, "(native)", "127.0.0.1:", "Extended 1 times"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("explain: exit code %d, no %q in %q", code, want, out)
		}
	}
	if _, _, code := m.cli("lease", "release", "db", "--holder", "b"); code != 3 {
		t.Errorf("release by another: exit code %d, want 3", code)
	}
	if out, _, code := m.cli("lease", "release", "db", "--holder", "a"); code != 0 || out != "db released\n" {
		t.Errorf("release: exit code %d, %q", code, out)
	}
	out, _, code = m.cli("lease", "claim", "db", "--holder", "b", "-o", "json")
	second := decode[lease](t, out)
	if code != 0 || second.PreviousHolder != "a" || number(t, second.Token) <= number(t, first.Token) {
		t.Errorf("claim after release: exit code %d, %q, the token before was %s", code, out, first.Token)
	}
	out, _, code = m.cli("lease", "history", "db", "-o", "json")
	var got []string
	for _, h := range decode[[]struct{ What, Holder string }](t, out) {
		got = append(got, h.What+" "+h.Holder)
	}
	if want := "granted a, released a, granted b"; code != 0 || strings.Join(got, ", ") != want {
		t.Errorf("history: exit code %d, %q, want %q", code, got, want)
	}
	if _, said, code := m.cli("lease", "get", "nothing"); code != 3 || !strings.Contains(said, "not_found") {
		t.Errorf("get of nothing: exit code %d, %q", code, said)
	}
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// SIGTERM: blocked calls get an answer, the process ends well and in time.
func TestG48_SigtermAnswersBlockedCalls(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			m := start(t, t.TempDir(), nil)
			c := m.client()
			mustClaim(t, c, "held", "a", time.Hour)
			const blocked = 20
			answers := make(chan error, blocked)
			for range blocked {
				go func() {
					_, err := c.Leases().WaitReleased(t.Context(), connect.NewRequest(&apiv1.WaitReleasedRequest{Name: &apiv1.LeaseName{Name: "held"}, WaitMs: 60_000}))
					answers <- client.AsError(err)
				}()
			}
			eventually(t, patience, "all calls are blocked", func() bool {
				return status(t, c).Watches >= blocked
			})
			if err := m.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := m.wait(patience); code != 0 {
				t.Errorf("exit code %d\n%s", code, m.stderr)
			}
			for range blocked {
				err := <-answers
				if k := incumbent.KindOf(err); err != nil && k != incumbent.Unavailable {
					t.Errorf("a blocked call was told %v", err)
				}
			}
		})
	}
}

// Who is told twice to end leaves at once, and loses nothing by it.
func TestASecondSigtermEndsAtOnce(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	address := strings.TrimPrefix(m.url, "http://")
	half, err := net.Dial("tcp", address) // whose request it waits for
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := io.WriteString(half, "PUT /v1/kv HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "it takes no more connections", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) { // it may have done without
		t.Fatal(err)
	}
	if code := m.wait(patience); code != 0 {
		t.Errorf("exit code %d\n%s", code, m.stderr)
	}
}

func status(t *testing.T, c *client.Client) *apiv1.StatusResponse {
	t.Helper()
	res, err := c.Cluster().Status(t.Context(), connect.NewRequest(&apiv1.StatusRequest{}))
	if err != nil {
		t.Fatal(client.AsError(err))
	}
	return res.Msg
}

// SIGHUP takes the log level from the settings file, notes one that is none, and
// the server goes on.
func TestSighupReloads(t *testing.T) {
	path := t.TempDir() + "/incumbent.yaml"
	writeFile(t, path, "log-level: error\ngrace: 400ms\n")
	m := start(t, t.TempDir(), nil, "--config", path)
	type setting struct{ Name, Value, Source string }
	out, _, code := m.cli("config", "show", "--effective", "-o", "json")
	sources := map[string]string{}
	for _, s := range decode[[]setting](t, out) {
		sources[s.Name] = s.Source
	}
	if code != 0 || sources["grace"] != "file" || sources["name"] != "flag" || sources["drift"] != "default" {
		t.Errorf("sources: exit code %d, %v", code, sources)
	}
	writeFile(t, path, "log-level: loud\n")
	hangup := func(noted string) {
		t.Helper()
		if err := m.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "it notes: "+noted, func() bool {
			out, _, code := m.cli("events")
			return code == 0 && strings.Contains(out, noted)
		})
	}
	hangup("still the old: log level;")
	writeFile(t, path, "log-level: warn\n")
	hangup("reloaded")
	mustClaim(t, m.client(), "after", "a", time.Hour)
	writeFile(t, path, "max-connections: 77\nlog-level: debug\n")
	reloaded := func(name string) (is setting) {
		out, _, _ := m.cli("config", "show", "--effective", "-o", "json")
		for _, s := range decode[[]setting](t, out) {
			if s.Name == name {
				is = s
			}
		}
		return is
	}
	hangup("reloaded")
	eventually(t, patience, "the new ones are in force", func() bool {
		return reloaded("log-level") == setting{"log-level", "debug", "file"} && reloaded("max-connections") == setting{"max-connections", "77", "file"}
	})
}

func TestUnsafeListenersAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "--tls-cert and --tls-key, and --client-ca or --credential-file"},
		{[]string{"--listen", "[::]:0"}, "--tls-cert"},
		{[]string{"--listen", "0.0.0.0:0", "--credential-file", "x"}, "lacks --tls-cert and --tls-key"},
		{[]string{"--listen", "127.0.0.1:0", "--client-ca", "x"}, "--client-ca without --tls-cert"},
		{[]string{"--listen", "127.0.0.1:0", "--tls-cert", "x"}, "come together"},
	} {
		_, said, code := runCLI(t, append([]string{"server", "--data-dir", t.TempDir()}, c.args...)...)
		if code != 2 || !strings.Contains(said, c.want) {
			t.Errorf("%v: exit code %d, %q", c.args, code, said)
		}
	}
}

// A watch goes on after a restart of the server with the index it has seen: each
// change once, in order, none left out.
func TestG16_WatchResumesAfterRestart(t *testing.T) {
	dir := t.TempDir()
	m := start(t, dir, nil)
	address := strings.TrimPrefix(m.url, "http://")
	c := m.client()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	tokens := make(chan uint64, 100)
	ended := make(chan error, 1)
	go func() {
		defer close(tokens)
		for msg, err := range c.Watch(ctx, client.WatchOptions{Name: incumbent.Name{Namespace: "default", Model: "default", Lease: "w/"}, Prefix: true}) {
			if err != nil {
				ended <- err
				return
			}
			for _, e := range msg.Events {
				tokens <- e.Lease.Token
			}
		}
	}()
	next := func(want uint64) {
		t.Helper()
		select {
		case got, ok := <-tokens:
			if !ok {
				t.Fatalf("the watch ended: %v", <-ended)
			}
			if got != want {
				t.Errorf("the watch shows token %d, want %d", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("the watch never shows token %d", want)
		}
	}
	for i := range 5 {
		next(mustClaim(t, c, fmt.Sprintf("w/%d", i), "a", time.Hour).Token)
	}
	m.kill()
	m = start(t, dir, nil, "--listen", address)
	for i := 5; i < 10; i++ {
		next(mustClaim(t, m.client(), fmt.Sprintf("w/%d", i), "a", time.Hour).Token)
	}
}

// An address in use is said so, with what helps.
func TestAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, said, code := runCLI(t, "server", "--data-dir", t.TempDir(), "--listen", ln.Addr().String())
	if code != 5 || !strings.Contains(said, "address already in use") || !strings.Contains(said, "--listen") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

// A command that reads standard input ends when it is told to.
func TestReadingStandardInputIsInterrupted(t *testing.T) {
	for _, args := range [][]string{{"backup", "verify", "-"}, {"kv", "put", "a", "-"}, {"kv", "import", "-"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		cmd := exec.Command(binary(t), args...)
		cmd.Stdin = r
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.Close()
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		time.Sleep(200 * time.Millisecond) // it listens for signals by then, and reads
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Errorf("%v goes on", args)
		}
	}
}

// What is out of range is refused, rather than taken for the default.
func TestNothingIsNotTheDefault(t *testing.T) {
	for _, setting := range []string{"--disk-reserve-bytes=0", "--backup-keep=0", "--cut-off-after=0s", "--max-connections=0"} {
		_, stderr, code := runCLI(t, "server", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", setting)
		if code != 2 || !strings.Contains(stderr, "out of its range") {
			t.Errorf("%s: exit code %d, %s", setting, code, stderr)
		}
	}
}
