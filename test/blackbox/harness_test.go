// Package blackbox tests the real binary from outside: it starts servers as
// processes, speaks to them with the Go client, curl's HTTP and the command
// line, and kills, stops and starves them.
package blackbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// patience is how long a test waits for what must happen, on a machine that does
// other things too.
const patience = time.Minute

// binary is what `make build` makes; the tests of this folder run it.
func binary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/incumbent")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: 'make build' makes it", err)
	}
	return path
}

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

func runCLI(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func claim(t *testing.T, c *client.Client, name, holder string, ttl time.Duration) (*apiv1.Lease, error) {
	t.Helper()
	res, err := c.Leases().Claim(t.Context(), connect.NewRequest(&apiv1.ClaimRequest{
		Name: &apiv1.LeaseName{Name: name}, Holder: holder, TtlMs: uint32(ttl.Milliseconds()),
	}))
	if err != nil {
		return nil, client.AsError(err)
	}
	return res.Msg.Lease, nil
}

func mustClaim(t *testing.T, c *client.Client, name, holder string, ttl time.Duration) *apiv1.Lease {
	t.Helper()
	l, err := claim(t, c, name, holder, ttl)
	if err != nil {
		t.Fatalf("claim %s: %v", name, err)
	}
	return l
}

func get(t *testing.T, c *client.Client, name string) *apiv1.Lease {
	t.Helper()
	res, err := c.Leases().Get(t.Context(), connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Name: name}}))
	if err != nil {
		t.Fatalf("get %s: %v", name, client.AsError(err))
	}
	return res.Msg.Lease
}

// eventually waits for something that another process does.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(within)
	for {
		if ok() {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("after %v still not: %s", within, what)
		}
	}
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}
