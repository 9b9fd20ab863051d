package player

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/test/outside"
)

const (
	// patience is how long anything may take that must happen, on a machine that
	// does other things too.
	patience = time.Minute

	lookEvery = 50 * time.Millisecond // whether all processes are still there
	logLines  = 30                    // of each member that a failure shows
	password  = "played"              // of Juju's agents
)

// member is one process, started again on the same data whenever it was killed.
type member struct {
	Name    string   `json:"name"`
	URL     string   `json:"url"`
	Juju    string   `json:"juju"`
	Consul  string   `json:"consul"`
	OVSDB   string   `json:"ovsdb"`
	PID     int      `json:"pid"`
	Log     string   `json:"log"`
	Command []string `json:"command"`

	c *processes

	mu    sync.Mutex // guards the rest, and PID; held while the process is replaced
	lives int        // how often it was killed
	cmd   *exec.Cmd  // once this test has started it itself
	ended chan struct{}
	dead  bool // by our hand
}

// processes is a cluster that `incumbent cluster local` has started.
type processes struct {
	t       *testing.T
	dir     string
	cmd     *exec.Cmd
	Members []*member `json:"members"`
	CA      string    `json:"ca"` // these three with TLS
	Cert    string    `json:"cert"`
	Key     string    `json:"key"`

	tls *tls.Config  // nil: without
	web *http.Client // of calls that no library makes
}

// startProcesses starts a cluster that compares its members' states every second.
func startProcesses(t *testing.T, members int, args ...string) *processes {
	t.Helper()
	c := &processes{t: t, dir: t.TempDir()}
	argv := append([]string{
		"cluster", "local", "--members", strconv.Itoa(members), "--port", "0", "--juju-listen", "127.0.0.1:0", "--consul-listen", "127.0.0.1:0", "--ovsdb-listen", "127.0.0.1:0",
		"--data-dir", c.dir, "-o", "json",
	}, args...)
	c.cmd = exec.Command(outside.Binary(t), append(argv, "--", "--dev", "--juju-password", password, "--return-time", "1s", "--checkpoint-interval", "1s",
		"--log-segment-bytes", "4194304", "--snapshot-bytes", "4194304", "--disk-reserve-bytes", "16777216")...)
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
	go func() {
		decoded <- json.NewDecoder(out).Decode(c)
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case err := <-decoded:
		if err != nil {
			t.Fatalf("the cluster did not start: %v\n%s", err, &stderr)
		}
	case <-time.After(2 * patience):
		t.Fatalf("the cluster did not start in time\n%s", &stderr)
	}
	c.identify()
	return c
}

// identify makes what an operator shows, with TLS, and trusts.
func (c *processes) identify() {
	for _, m := range c.Members {
		m.c = c
	}
	if c.CA != "" {
		authority, err := os.ReadFile(c.CA)
		if err != nil {
			c.t.Fatal(err)
		}
		own, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			c.t.Fatal(err)
		}
		c.tls = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
		c.tls.RootCAs.AppendCertsFromPEM(authority)
	}
	over := &http.Transport{TLSClientConfig: c.tls.Clone()}
	c.web = &http.Client{Transport: over}
	c.t.Cleanup(over.CloseIdleConnections)
}

// address is where the member listens.
func (m *member) address() string {
	_, address, _ := strings.Cut(m.URL, "://")
	return address
}

func (c *processes) stop() {
	for _, m := range c.Members {
		m.mu.Lock()
		m.dead = true
		if m.cmd != nil {
			_ = m.cmd.Process.Kill()
			<-m.ended
		}
		m.mu.Unlock()
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.cmd.Wait()
	if c.t.Failed() {
		for _, m := range c.Members {
			c.t.Logf("the end of %s's log:\n%s", m.Name, m.lastWords())
		}
	}
}

// lastWords is the end of what the member has logged.
func (m *member) lastWords() string {
	said, _ := os.ReadFile(m.Log) // one that cannot be read says nothing
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}

// kill ends the process at once, as kill -9 does.
func (m *member) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	m.lives++
	_ = syscall.Kill(m.PID, syscall.SIGKILL)
	for m.alive() {
		time.Sleep(time.Millisecond) // the kernel lets go of it, and its parent takes note
	}
}

// again starts the process anew on the same data.
func (m *member) again(t *testing.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	log, err := os.OpenFile(m.Log, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer log.Close()
	cmd := exec.Command(m.Command[0], m.Command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	ended := make(chan struct{})
	m.cmd, m.PID, m.dead, m.ended = cmd, cmd.Process.Pid, false, ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
}

// alive reports whether the process is there. m.mu is held.
func (m *member) alive() bool {
	if m.cmd == nil {
		return syscall.Kill(m.PID, 0) == nil
	}
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// missing reports whether the process ended by itself.
func (m *member) missing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.dead && !m.alive()
}

// life is how often the member was killed: a call during which it changes may end
// in any way.
func (m *member) life() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lives
}
