package ovsdb

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// trio is three members that `incumbent cluster local` has started.
type trio struct {
	t       *testing.T
	Servers string `json:"servers"`
	Members []*struct {
		Name  string `json:"name"`
		OVSDB string `json:"ovsdb"`
		Log   string `json:"log"`
		PID   int    `json:"pid"`
	} `json:"members"`
}

// startCluster starts three members with the databases that args give.
func startCluster(t *testing.T, args ...string) *trio {
	t.Helper()
	c := &trio{t: t}
	argv := append([]string{"cluster", "local", "--port", "0", "--data-dir", t.TempDir(), "-o", "json", "--ovsdb-listen", "127.0.0.1:0"}, args...)
	cmd := exec.Command(outside.Binary(t), argv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
		for _, m := range c.Members {
			if text, _ := os.ReadFile(m.Log); t.Failed() {
				t.Logf("%s said:\n%s", m.Name, text)
			}
		}
	})
	decoded := make(chan error, 1)
	go func() { decoded <- json.NewDecoder(out).Decode(c) }()
	select {
	case err := <-decoded:
		if err != nil {
			t.Fatalf("the cluster did not start: %v\n%s", err, &stderr)
		}
	case <-time.After(2 * patience):
		t.Fatal("the cluster did not start in time")
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return c
}

// remotes is where the members listen, as it is given to programs.
func (c *trio) remotes() string {
	var list []string
	for _, m := range c.Members {
		list = append(list, "tcp:"+m.OVSDB)
	}
	return strings.Join(list, ",")
}

// killLeader kills the member that leads.
func (c *trio) killLeader() {
	c.t.Helper()
	out, errs, code := outside.Run(c.t, "cluster", "ls", "-o", "json", "--server", c.Servers)
	var is struct{ Leader string }
	if err := json.Unmarshal([]byte(out), &is); code != 0 || err != nil {
		c.t.Fatalf("who leads: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	for _, m := range c.Members {
		if m.Name == is.Leader {
			if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
				c.t.Fatal(err)
			}
			return
		}
	}
	c.t.Fatalf("no member is called %q", is.Leader)
}
