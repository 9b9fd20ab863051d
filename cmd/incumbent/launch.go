package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/client"
)

// launchTimeout is how long a server that the load tool starts may take.
const launchTimeout = 30 * time.Second

// process is one server that the load tool started on this machine.
type process struct {
	cmd    *exec.Cmd
	url    string
	dir    string // removed at the end
	client client.Config
	log    *os.File
}

// launchServers starts this same binary on free ports of loopback: one server, or
// a cluster.
func launchServers(ctx context.Context, dataDir string, what bench.Launch) (bench.Cluster, error) {
	dir, err := os.MkdirTemp(dataDir, "incumbent-bench-")
	if err != nil {
		return nil, err
	}
	if what.Members+what.Learners == 1 {
		args := what.Args
		if what.Juju != "" {
			args = append([]string{"--juju-listen", "127.0.0.1:0", "--dev", "--juju-password", what.Juju}, args...)
		}
		if what.Consul {
			args = append([]string{"--consul-listen", "127.0.0.1:0"}, args...)
		}
		if what.DNS {
			args = append([]string{"--consul-dns-listen", "127.0.0.1:0"}, args...)
		}
		flags, err := bench.OVSDBFlags(dir, what.OVSDB)
		if err != nil {
			return nil, err
		}
		return launchServer(ctx, dir, what.TLS, append(flags, args...))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l, err := bench.StartLocal(ctx, bench.LocalConfig{Binary: self, Dir: dir, Launch: what})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// launchServer starts one server, with its data below dir.
func launchServer(ctx context.Context, dir string, tls bool, args []string) (bench.Cluster, error) {
	argv := append([]string{"server", "--data-dir", filepath.Join(dir, "data"), "--name", "bench", "--listen", "127.0.0.1:0", "--log-level", "warn"}, args...)
	if !tls {
		return launch(ctx, dir, false, "", argv)
	}
	// Over TLS nobody is trusted for where they come from.
	token := auth.NewToken()
	line, err := auth.CredentialLine("bench", auth.Operator, token)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "credentials")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		return nil, err
	}
	return launch(ctx, dir, true, token, append(argv, "--credential-file", file))
}

// launchRestored makes a data directory of a backup and starts a server on it.
func launchRestored(ctx context.Context, dataDir, file string) (bench.Cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(dataDir, "incumbent-bench-")
	if err != nil {
		return nil, err
	}
	restore := exec.CommandContext(ctx, self, "backup", "restore", file, "--data-dir", filepath.Join(dir, "data"), "--name", "bench")
	if said, err := restore.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir) // in the system's temporary folder
		return nil, incumbent.Errorf(incumbent.Unavailable, "backup restore: %w\n%s", err, said)
	}
	return launchServer(ctx, dir, false, nil)
}

// launchEcho starts the bare echo.
func launchEcho(ctx context.Context, tls bool) (bench.Cluster, error) {
	dir, err := os.MkdirTemp("", "incumbent-bench-")
	if err != nil {
		return nil, err
	}
	return launch(ctx, dir, tls, "", []string{"bench", "echo", "--listen", "127.0.0.1:0"})
}

// launchBare starts a server that answers all requests with the same bytes.
func launchBare(ctx context.Context, answer []byte) (bench.Cluster, error) {
	dir, err := os.MkdirTemp("", "incumbent-bench-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "answer")
	if err := os.WriteFile(file, answer, 0o600); err != nil {
		return nil, err
	}
	return launch(ctx, dir, false, "", []string{"bench", "bare", "--listen", "127.0.0.1:0", "--answer", file})
}

// Other systems that this program drives itself: each speaks the protocol of one of our
// doors.
const (
	consulPeer = "consul"
	ovsdbPeer  = "ovsdb"
)

// launchDoorPeer starts servers of such a system.
func launchDoorPeer(ctx context.Context, dataDir, peer, binary string, what bench.Launch) (bench.Cluster, error) {
	dir, err := os.MkdirTemp(dataDir, "incumbent-bench-")
	if err != nil {
		return nil, err
	}
	if peer == ovsdbPeer {
		return bench.StartOVSDB(ctx, bench.OVSDBConfig{Binary: binary, Dir: dir, Members: what.Members, Schemas: what.OVSDB})
	}
	return bench.StartConsul(ctx, bench.ConsulConfig{Binary: binary, Dir: dir, Members: what.Members})
}

func launch(ctx context.Context, dir string, tls bool, token string, argv []string) (_ bench.Cluster, err error) {
	p := &process{dir: dir, client: client.Config{Credential: token}}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	if tls {
		cert, key, err := writeTestCertificate(dir)
		if err != nil {
			return nil, err
		}
		p.client.CAFile = cert
		argv = append(argv, "--tls-cert", cert, "--tls-key", key)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if p.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(self, argv...)
	p.cmd.Stderr = p.log
	// A group of its own: Ctrl-C ends the load tool, which ends the server.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.url, err = firstURL(ctx, out)
	if err != nil {
		said, _ := os.ReadFile(p.log.Name())
		return nil, incumbent.Errorf(incumbent.Unavailable, "the server did not start: %w\n%s", err, said)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // so that the server never waits for us
	return p, nil
}

// firstURL reads what the server prints until it names its address.
func firstURL(ctx context.Context, out io.Reader) (string, error) {
	found := make(chan string, 1)
	go func() {
		defer close(found)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			for word := range strings.FieldsSeq(lines.Text()) {
				if strings.HasPrefix(word, "http://") || strings.HasPrefix(word, "https://") {
					found <- word
					return
				}
			}
		}
	}()
	select {
	case url, ok := <-found:
		if !ok {
			return "", fmt.Errorf("it ended before it named its address")
		}
		return url, nil
	case <-time.After(launchTimeout):
		return "", fmt.Errorf("no address after %v", launchTimeout)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (p *process) Servers() []bench.Server {
	return []bench.Server{{Name: "bench", URL: p.url, PID: p.cmd.Process.Pid}}
}
func (p *process) Client() client.Config { return p.client }

func (p *process) Signal(_ int, sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop ends the server, in order if it will, and removes its data.
func (p *process) Stop() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(15*time.Second, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait()
		kill.Stop()
	}
	if p.log != nil {
		p.log.Close()
	}
	_ = os.RemoveAll(p.dir) // in the system's temporary folder
}
