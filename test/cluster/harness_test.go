// Package cluster tests clusters of the real binary from outside: processes that
// are killed, stopped, starved and cut off from one another while clients hold
// leases, with histories that porcupine checks.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/test/outside"
)

// electionTimeout is the least time without a leader's word after which a member
// campaigns: ten ticks of 50 ms.
const electionTimeout = 500 * time.Millisecond

// patience is how long a test waits for what must happen, on a machine that does
// other things too.
const patience = 2 * time.Minute

// holdersTTL is what the holders of most tests have: longer than an election and
// what a loaded machine or its disk stands still besides.
const holdersTTL = 30 * time.Second

// What tests of one server do as well.
var (
	binary     = outside.Binary
	cli        = outside.Run
	eventually = outside.Eventually
	claim      = outside.Claim
	get        = outside.Get
)

// member is one server process; it can be started again on the same data.
type member struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	URL     string   `json:"url"`
	Peer    string   `json:"peer"`
	Juju    string   `json:"juju"`   // where Juju's agents connect
	Consul  string   `json:"consul"` // where Consul's clients do
	OVSDB   string   `json:"ovsdb"`  // where clients of Open vSwitch's databases do
	PID     int      `json:"pid"`
	DataDir string   `json:"data_dir"`
	Log     string   `json:"log"`
	Command []string `json:"command"`

	cmd *exec.Cmd // once this test has started it itself
}

// trio is a cluster that `incumbent cluster local` has started.
type trio struct {
	t       *testing.T
	cmd     *exec.Cmd
	dir     string
	Leader  string    `json:"leader"`
	Members []*member `json:"members"`
	Servers string    `json:"servers"`
	CA      string    `json:"ca"`
	Cert    string    `json:"cert"`
	Key     string    `json:"key"`
}

// start starts a cluster; what follows in args goes to `cluster local`.
func start(t *testing.T, args ...string) *trio {
	t.Helper()
	return startIn(t, t.TempDir(), args...)
}

// startIn does so with the members' folders in dir.
func startIn(t *testing.T, dir string, args ...string) *trio {
	t.Helper()
	c := &trio{t: t, dir: dir}
	argv := append([]string{"cluster", "local", "--port", "0", "--data-dir", c.dir, "-o", "json"}, args...)
	argv = append(argv, "--", "--return-time", "1s", "--log-segment-bytes", "4194304", "--disk-reserve-bytes", "16777216")
	c.cmd = exec.Command(binary(t), argv...)
	var stderr bytes.Buffer
	c.cmd.Stderr = &stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	decoded := make(chan error, 1)
	go func() { decoded <- json.NewDecoder(out).Decode(c) }()
	select {
	case err := <-decoded:
		if err != nil {
			t.Fatalf("the cluster did not start: %v\n%s", err, &stderr)
		}
	case <-time.After(2 * patience):
		t.Fatalf("the cluster did not start in time\n%s", &stderr)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return c
}

func (c *trio) stop() {
	for _, m := range c.Members {
		m.signal(syscall.SIGCONT)
		if m.cmd != nil {
			m.signal(syscall.SIGKILL)
			_ = m.cmd.Wait()
		}
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.cmd.Wait()
	c.nobodyIsLeft()
	if c.t.Failed() {
		c.showLogs()
	}
}

// nobodyIsLeft fails the test if a process of this cluster outlives it: it would
// disturb what runs next.
func (c *trio) nobodyIsLeft() {
	left := processesOf(c.dir)
	for end := time.Now().Add(patience); len(left) > 0 && time.Now().Before(end); left = processesOf(c.dir) {
		time.Sleep(20 * time.Millisecond) // between two looks: a tracer ends a moment after whom it traced
	}
	if len(left) > 0 {
		c.t.Errorf("still there:\n%s", strings.Join(left, "\n"))
	}
}

// processesOf returns the command lines of this machine's processes that name dir.
func processesOf(dir string) []string {
	var found []string
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is sound
	for _, path := range paths {
		text, _ := os.ReadFile(path) // one that has ended names nothing
		if bytes.Contains(text, []byte(dir)) {
			found = append(found, path+": "+string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// showLogs prints the end of what each member said.
func (c *trio) showLogs() {
	for _, m := range c.Members {
		said, _ := os.ReadFile(m.Log)
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		c.t.Logf("%s (%s):\n%s", m.Name, m.ID, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}

func (m *member) signal(s syscall.Signal) { _ = syscall.Kill(m.PID, s) }

// kill ends the process at once and waits until the kernel has let go of it.
func (m *member) kill(t *testing.T) {
	t.Helper()
	m.signal(syscall.SIGKILL)
	if m.cmd != nil {
		_ = m.cmd.Wait()
		m.cmd = nil
		return
	}
	eventually(t, patience, m.Name+" is gone", func() bool { return syscall.Kill(m.PID, 0) != nil })
}

// traced is strace(1) doing something to a server's syncs. The tracer steps aside
// (-D): the process that is started is the server itself, so that a signal reaches
// it, its exit code is its own, and a tracer that is killed leaves no server behind.
func traced(inject string) []string {
	return []string{"strace", "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:" + inject}
}

// again starts a member that has ended, perhaps wrapped, as by strace.
func (m *member) again(t *testing.T, wrap []string, more ...string) {
	t.Helper()
	argv := append(append(append([]string{}, wrap...), m.Command...), more...)
	m.cmd = exec.Command(argv[0], argv[1:]...)
	log, err := os.OpenFile(m.Log, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m.cmd.Stderr, m.cmd.Stdout = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.PID = m.cmd.Process.Pid
}

// clientOf returns a client of some members; the first is preferred.
func (c *trio) clientOf(ms ...*member) *client.Client {
	c.t.Helper()
	cfg := client.Config{CallTimeout: patience, CAFile: c.CA, CertFile: c.Cert, KeyFile: c.Key}
	for _, m := range ms {
		cfg.Servers = append(cfg.Servers, m.URL)
	}
	cl, err := client.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// from returns the members beginning with the i-th, in a circle.
func (c *trio) from(i int) []*member {
	n := len(c.Members)
	out := make([]*member, n)
	for k := range out {
		out[k] = c.Members[(i+k)%n]
	}
	return out
}

// members asks one member who belongs to the cluster.
func (c *trio) membersAt(m *member) (*apiv1.MembersResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	res, err := c.clientOf(m).Cluster().Members(ctx, connect.NewRequest(&apiv1.MembersRequest{}))
	if err != nil {
		return nil, client.AsError(err)
	}
	return res.Msg, nil
}

// leader waits until the members that are asked agree on who leads, and returns it.
func (c *trio) leader(among ...*member) *member {
	c.t.Helper()
	if len(among) == 0 {
		among = c.Members
	}
	var found *member
	eventually(c.t, patience, "a leader that all know", func() bool {
		name := ""
		for _, m := range among {
			got, err := c.membersAt(m)
			if err != nil || got.Leader == "" || name != "" && got.Leader != name {
				return false
			}
			name = got.Leader
		}
		found = c.named(name)
		return found != nil
	})
	return found
}

func (c *trio) named(name string) *member {
	for _, m := range c.Members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// others returns all members but one.
func (c *trio) others(than *member) []*member {
	var out []*member
	for _, m := range c.Members {
		if m != than {
			out = append(out, m)
		}
	}
	return out
}

// status asks one member how it is.
func (c *trio) status(m *member) *apiv1.StatusResponse {
	c.t.Helper()
	res, err := c.clientOf(m).Cluster().Status(c.t.Context(), connect.NewRequest(&apiv1.StatusRequest{}))
	if err != nil {
		c.t.Fatal(client.AsError(err))
	}
	return res.Msg
}

func leaseName(name string) incumbent.Name {
	return incumbent.Name{Namespace: incumbent.DefaultNamespace, Model: incumbent.DefaultModel, Lease: name}
}

// fleet is holders that keep their leases by the Go client's sessions while the
// cluster suffers; none may lose what it holds.
type fleet struct {
	t      *testing.T
	leases []*client.Lease
}

// holders opens n sessions, spread over the members, each with one lease.
func (c *trio) holders(n int, ttl time.Duration) *fleet {
	c.t.Helper()
	f := &fleet{t: c.t, leases: make([]*client.Lease, n)}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		cl := c.clientOf(c.from(i)...)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var s *client.Session
			err := unlessBusy(ctx, func() (err error) {
				s, err = cl.Open(ctx, client.SessionConfig{TTL: ttl, Holder: fmt.Sprintf("h%d", i)})
				return err
			})
			if err == nil {
				err = unlessBusy(ctx, func() (err error) {
					f.leases[i], err = s.Claim(ctx, leaseName(fmt.Sprintf("held-%d", i)), client.ClaimOptions{})
					return err
				})
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
	return f
}

// unlessBusy makes a call again, when the member asked for it, as long as it is refused
// early: a thousand at once are too many for a small machine, and the client leaves it
// to its user to come back.
func unlessBusy(ctx context.Context, call func() error) error {
	for {
		err := call()
		if incumbent.KindOf(err) != incumbent.Overloaded {
			return err
		}
		pause := 50 * time.Millisecond
		var refused *incumbent.Error
		if errors.As(err, &refused) {
			pause = max(pause, refused.RetryAfter)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// stillHeld fails unless every holder holds what it held, under its token.
func (f *fleet) stillHeld(after string) {
	f.t.Helper()
	for i, l := range f.leases {
		if !l.Held() {
			f.t.Errorf("holder %d lost its lease after %s: %v", i, after, context.Cause(l.Context()))
		}
	}
}

func claimWithin(t *testing.T, c *client.Client, name string, limit time.Duration) (*apiv1.Lease, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return claim(ctx, c, name, "prober", time.Minute)
}
