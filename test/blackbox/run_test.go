package blackbox

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// background is a command under a lease that goes on beside the test.
type background struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

func (m *member) background(args ...string) *background {
	m.t.Helper()
	b := &background{cmd: exec.Command(binary(m.t), args...)}
	b.cmd.Env = append(os.Environ(), "INCUMBENT_SERVER="+m.url)
	b.cmd.Stdout, b.cmd.Stderr = &b.out, &b.out
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Grandchildren may keep the pipe open that collects what is said.
	b.cmd.WaitDelay = patience
	if err := b.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = b.cmd.Process.Kill() })
	return b
}

func (b *background) code() int {
	_ = b.cmd.Wait() // the code says it
	return b.cmd.ProcessState.ExitCode()
}

// Commands under one lease never overlap, each has a greater token than the one
// before, and each of those that wait gets its turn.
func TestG01_CommandsUnderALeaseNeverOverlap(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	journal := filepath.Join(t.TempDir(), "journal")
	script := `echo begin $INCUMBENT_TOKEN >> "$0"; sleep 0.1; echo end $INCUMBENT_TOKEN >> "$0"`
	var wg sync.WaitGroup
	const runs = 6
	for range runs {
		wg.Go(func() {
			b := m.background("run", "job", "--ttl", "30s", "--", "/bin/sh", "-c", script, journal)
			if code := b.code(); code != 0 {
				t.Errorf("exit code %d: %s", code, &b.out)
			}
		})
	}
	wg.Wait()
	lines := strings.Split(strings.TrimSpace(readFile(t, journal)), "\n")
	if len(lines) != 2*runs {
		t.Fatalf("%d lines, want %d: %q", len(lines), 2*runs, lines)
	}
	last := uint64(0)
	for i := 0; i < len(lines); i += 2 {
		token, ok := strings.CutPrefix(lines[i], "begin ")
		if !ok || lines[i+1] != "end "+token {
			t.Fatalf("two overlap: %q", lines)
		}
		if n := number(t, token); n <= last {
			t.Errorf("token %d after %d", n, last)
		} else {
			last = n
		}
	}
}

func TestRunExitCodes(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	mustClaim(t, m.client(), "taken", "somebody", time.Hour)
	for _, c := range []struct {
		args string
		code int
		said string
	}{
		{"run free -- /bin/sh -c :", 0, ""},
		{"run free -- /bin/false", 1, ""},
		{"run taken --no-wait -- /bin/true", 123, "explain taken"},
		{"run taken --wait 300ms -- /bin/true", 124, "waited 300ms for taken"},
		{"run free --wait 300ms --server http://127.0.0.1:1 -- /bin/true", 124, "waited 300ms"},
		{"run free --no-wait --timeout 5s --server http://127.0.0.1:1 -- /bin/true", 125, "connection refused"},
		{"run free", 125, "--help"},
		{"run free --ttl 1ms -- /bin/true", 125, "ttl 1ms"},
		{"run free -- /etc/passwd", 126, "permission denied"},
		{"run free -- /does/not/exist", 127, "no such file"},
	} {
		b := m.background(strings.Fields(c.args)...)
		if code := b.code(); code != c.code || !strings.Contains(b.out.String(), c.said) {
			t.Errorf("%s: exit code %d, want %d; said %q, want %q", c.args, code, c.code, &b.out, c.said)
		}
	}
}

// A signal to the parent reaches the child, whose own end is passed on, and the
// lease is free at once.
func TestRunForwardsSignals(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	up := filepath.Join(t.TempDir(), "up")
	b := m.background("run", "job", "--ttl", "1h", "--", "/bin/sh", "-c", `trap "exit 41" TERM; : > "$0"; while :; do sleep 0.05; done`, up)
	eventually(t, patience, "the child is up", func() bool { _, err := os.Stat(up); return err == nil })
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := b.code(); code != 41 {
		t.Errorf("exit code %d, want 41: %s", code, &b.out)
	}
	if l := get(t, m.client(), "job"); l.Token != 0 {
		t.Errorf("the lease is still held by %s", l.Holder)
	}
}

// At a terminal the kernel sends the keyboard's signals to the child itself: one
// Ctrl-C is one interrupt.
func TestRunAtATerminal(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	master, slave := terminal(t)
	dir := t.TempDir()
	up, hits := filepath.Join(dir, "up"), filepath.Join(dir, "hits")
	cmd := exec.Command(binary(t), "run", "job", "--server", m.url, "--", "/bin/sh", "-c",
		`trap 'echo hit >> "$1"' INT; trap "exit 41" TERM; : > "$0"; while :; do sleep 0.05; done`, up, hits)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, patience, "the child is up", func() bool { _, err := os.Stat(up); return err == nil })
	if _, err := master.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	eventually(t, patience, "the interrupt arrived", func() bool { _, err := os.Stat(hits); return err == nil })
	// Whatever else was sent to the child came before this.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 41 {
		t.Errorf("exit code %d, want 41", got)
	}
	if got, _ := os.ReadFile(hits); string(got) != "hit\n" {
		t.Errorf("the child was interrupted: %q, want once", got)
	}
}

// terminal makes a pseudo-terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// A parent that is killed takes its child with it.
func TestRunDiesWithItsChild(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	pidFile := filepath.Join(t.TempDir(), "pid")
	b := m.background("run", "job", "--", "/bin/sh", "-c", `echo $$ > "$0"; while :; do sleep 0.05; done`, pidFile)
	pid := 0
	eventually(t, patience, "the child is up", func() bool {
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(readFile(t, pidFile)))
		return err == nil
	})
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the child is gone", func() bool { return !running(t, pid) })
	_ = b.cmd.Wait() // it was killed
}

// running reports whether a process is there and no zombie: whoever inherits
// orphans may take its time to collect them.
func running(t *testing.T, pid int) bool {
	t.Helper()
	_, state, ok := strings.Cut(readFile(t, filepath.Join("/proc", strconv.Itoa(pid), "stat")), ") ")
	return ok && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// When the server is gone the command is stopped, and the exit code says why.
func TestRunStopsWhenTheLeaseIsLost(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	up := filepath.Join(t.TempDir(), "up")
	b := m.background("run", "job", "--ttl", "8s", "--", "/bin/sh", "-c", `trap "" TERM; : > "$0"; while :; do sleep 0.05; done`, up)
	eventually(t, patience, "the child is up", func() bool { _, err := os.Stat(up); return err == nil })
	m.kill()
	// That it is killed before the deadline, and says so, is for a machine that lets
	// it: a test of supervision looks at that on a clock of its own.
	if code := b.code(); code != 122 || !strings.Contains(b.out.String(), "killed before its deadline") && !strings.Contains(b.out.String(), "the lease was lost") {
		t.Errorf("exit code %d, %q", code, &b.out)
	}
}

// A client that never ends its request does not keep a member from leaving in order.
func TestLeavingDoesNotWaitForOneClient(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(m.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /incumbent.v1.LeaseService/Claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t.Context(), m.client(), "a", "h", time.Minute); err != nil { // the request before is being read by now
		t.Fatal(err)
	}
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := m.wait(patience); code != 0 {
		t.Errorf("exit code %d\n%s", code, m.stderr)
	}
}
