// Package blackbox tests the real binary from outside: it starts servers as
// processes, speaks to them with the Go client, curl's HTTP and the command
// line, and kills, stops and starves them.
package blackbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/test/outside"
)

// patience is how long a test waits for what must happen, on a machine that does
// other things too.
const patience = time.Minute

// What tests of clusters do as well.
var (
	binary     = outside.Binary
	runCLI     = outside.Run
	eventually = outside.Eventually
	claim      = outside.Claim
)

// member is one server process.
type member struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	dir    string
	stderr *bytes.Buffer
	exited chan error
}

// start runs a server on dir and waits until it names its address. The command
// may be wrapped, as by strace.
func start(t *testing.T, dir string, wrap []string, args ...string) *member {
	t.Helper()
	m, err := tryStart(t, dir, wrap, args...)
	if err != nil {
		t.Fatalf("server did not start: %v\n%s", err, m.stderr)
	}
	return m
}

func tryStart(t *testing.T, dir string, wrap []string, args ...string) (*member, error) {
	t.Helper()
	argv := append(append([]string{}, wrap...), binary(t), "server", "--data-dir", dir, "--name", "n1", "--listen", "127.0.0.1:0", "--return-time", "1s", "--log-segment-bytes", "4194304")
	argv = append(argv, args...)
	m := &member{t: t, dir: dir, cmd: exec.Command(argv[0], argv[1:]...), stderr: new(bytes.Buffer), exited: make(chan error, 1)}
	m.cmd.Stderr = m.stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.kill)
	named := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			for word := range strings.FieldsSeq(lines.Text()) {
				if strings.HasPrefix(word, "http") {
					select {
					case named <- word:
					default:
					}
				}
			}
		}
		m.exited <- m.cmd.Wait()
	}()
	select {
	case m.url = <-named:
		return m, nil
	case err := <-m.exited:
		m.exited <- err
		return m, fmt.Errorf("it ended: %w", err)
	case <-time.After(patience):
		return m, errors.New("it names no address")
	}
}

// kill ends the process group at once: wrapped servers have two processes.
func (m *member) kill() {
	_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGCONT)
	_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
	select {
	case err := <-m.exited:
		m.exited <- err
	case <-time.After(patience):
		m.t.Error("the server does not end")
	}
}

// wait returns the exit code when the process ends.
func (m *member) wait(within time.Duration) int {
	m.t.Helper()
	select {
	case err := <-m.exited:
		m.exited <- err
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		if err != nil {
			m.t.Fatal(err)
		}
		return 0
	case <-time.After(within):
		m.t.Fatalf("the server is still there after %v\n%s", within, m.stderr)
		return -1
	}
}

func (m *member) client() *client.Client {
	m.t.Helper()
	c, err := client.New(client.Config{Servers: []string{m.url}, CallTimeout: patience})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(c.Close)
	return c
}

// cli runs the command line against the member.
func (m *member) cli(args ...string) (stdout, stderr string, code int) {
	m.t.Helper()
	return runCLI(m.t, append(args, "--server", m.url)...)
}

func mustClaim(t *testing.T, c *client.Client, name, holder string, ttl time.Duration) *apiv1.Lease {
	t.Helper()
	l, err := claim(t.Context(), c, name, holder, ttl)
	if err != nil {
		t.Fatalf("claim %s: %v", name, err)
	}
	return l
}

func get(t *testing.T, c *client.Client, name string) *apiv1.Lease {
	t.Helper()
	l, err := outside.Get(t.Context(), c, name)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return l
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}
