package blackbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/incumbent-dev/incumbent/client"
)

// logPipe is a pipe for a server's standard error that is full from the start, so
// that the first line blocks whoever writes it.
func logPipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	// The server's end must block, as that of a supervisor does: it is not made a
	// file that Go polls.
	if err := unix.SetNonblock(fds[1], true); err != nil {
		t.Fatal(err)
	}
	filler := []byte(strings.Repeat(".", 4095) + "\n")
	for err := error(nil); err == nil; {
		_, err = unix.Write(fds[1], filler)
	}
	for err := error(nil); err == nil; { // the last page
		_, err = unix.Write(fds[1], filler[:1])
	}
	if err := unix.SetNonblock(fds[1], false); err != nil {
		t.Fatal(err)
	}
	read, write = os.NewFile(uintptr(fds[0]), "log"), os.NewFile(uintptr(fds[1]), "log")
	t.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}

// startMuted starts a server whose standard error is that file, and waits until it
// is ready.
func startMuted(t *testing.T, stderr *os.File, wrap []string, args ...string) *member {
	t.Helper()
	dir := t.TempDir()
	url := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	argv := append(append([]string{}, wrap...), binary(t), "server", "--data-dir", dir, "--name", "n1", "--listen", url,
		"--return-time", "1s", "--log-segment-bytes", "4194304")
	m := &member{t: t, dir: dir, url: "http://" + url, cmd: exec.Command(argv[0], append(argv[1:], args...)...), exited: make(chan error, 1)}
	m.cmd.Stderr, m.cmd.Stdout = stderr, stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.kill)
	go func() { m.exited <- m.cmd.Wait() }()
	eventually(t, patience, "the server is ready", func() bool {
		res, err := http.Get(m.url + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return m
}

// freePort is one that nobody listens on: what a server names on standard output
// cannot be read where nobody reads it.
func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

func (m *member) metric(name string) string {
	m.t.Helper()
	res, err := http.Get(m.url + "/metrics")
	if err != nil {
		m.t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return value
		}
	}
	m.t.Fatalf("no metric %s", name)
	return ""
}

// A server whose log nobody reads starts, serves, and ends when it is told to.
// What it could not say is counted, and said once the log is read.
func TestALogThatNobodyReadsHoldsNothingUp(t *testing.T) {
	read, write := logPipe(t)
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	put := func(text string) {
		if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("log-level: debug\n")
	m := startMuted(t, write, nil, "--config", settings)
	c := m.client()
	mustClaim(t, c, "first", "h", time.Minute)
	put("log-level: " + strings.Repeat("x", 50<<10) + "\n") // each reload repeats that in a line
	eventually(t, patience, "lines are dropped", func() bool {
		_ = m.cmd.Process.Signal(syscall.SIGHUP)
		return m.metric("incumbent_log_lines_dropped_total") != "0"
	})
	mustClaim(t, c, "second", "h", time.Minute)

	write.Close() // the server has its own
	text := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(read) // until the server ends
		text <- string(all)
	}()
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	if code := m.wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	said := <-text
	for _, want := range []string{"msg=listening", "msg=ready", `msg="log lines were dropped" lines=`} {
		if !strings.Contains(said, want) {
			t.Errorf("it never said %s", want)
		}
	}
}

// It is no reason to end when the reader of the log has gone.
func TestAServerOutlivesTheReaderOfItsLog(t *testing.T) {
	read, write := logPipe(t)
	m := startMuted(t, write, nil)
	read.Close()
	mustClaim(t, m.client(), "first", "h", time.Minute)
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	if code := m.wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A fault ends the process although nobody reads why; where somebody does, both
// the log and the last line say it.
func TestG31_AFaultEndsAServerWhoseLogNobodyReads(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v: .ci/run installs it", err)
	}
	full, blocked := logPipe(t)
	defer full.Close()
	open, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, stderr := range []*os.File{blocked, open} {
		wrap := []string{"strace", "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO:when=40+"}
		m := startMuted(t, stderr, wrap)
		c, err := client.New(client.Config{Servers: []string{m.url}, CallTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range 1000 {
			if _, err := claim(t.Context(), c, fmt.Sprint("l", i), "h", time.Minute); err != nil {
				break
			}
		}
		if code := m.wait(patience); code != 1 {
			t.Errorf("exit code %d", code)
		}
	}
	said, err := os.ReadFile(open.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`level=ERROR msg="the member stops"`, "incumbent: internal:"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("it never said %s:\n%s", want, said)
		}
	}
}
