// Package clients runs Consul's own Go client, unmodified, against our server: what it
// offers its callers works. A module of its own, so that none of it reaches the
// product's go.mod.
//
//	make build && cd test/consul/clients && go test -count=1 ./...
//	go test -count=1 ./... -server /path/to/consul      the same against a real Consul
package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// patience is how long a test waits for what must happen, on a machine that does
// other things too.
const patience = time.Minute

var program = flag.String("server", "", "a program named consul to test instead of ours")

// server is the one server of all tests: they use names of their own.
var server struct {
	address string
	said    bytes.Buffer
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "incumbent-consul-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stop, err := startServer(dir)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s\n", err, server.said.String())
		return 1
	}
	defer stop()
	return m.Run()
}

// startServer starts it as harnesses of clients do: under the name consul, with a file.
func startServer(dir string) (stop func(), err error) {
	binary := *program
	if binary == "" {
		built, err := filepath.Abs("../../../bin/incumbent")
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(built); err != nil {
			return nil, fmt.Errorf("%w: 'make build' makes it", err)
		}
		binary = filepath.Join(dir, "consul")
		if err := os.Symlink(built, binary); err != nil {
			return nil, err
		}
	}
	ports := freePorts(3)
	settings, err := json.Marshal(map[string]any{
		"node_name": "n1", "bind_addr": "127.0.0.1", "log_level": "warn", "disable_update_check": true,
		"addresses": map[string]any{"http": "127.0.0.1"},
		"ports":     map[string]any{"http": ports[0], "server": ports[1], "serf_lan": ports[2], "serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1},
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "settings.json")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "agent", "-dev", "-config-file", file)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &server.said, &server.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	}
	server.address = fmt.Sprintf("127.0.0.1:%d", ports[0])
	client, err := api.NewClient(&api.Config{Address: server.address})
	if err != nil {
		stop()
		return nil, err
	}
	for end := time.Now().Add(patience); ; {
		if list, _, err := client.Health().State(api.HealthPassing, nil); err == nil && len(list) > 0 {
			return stop, nil
		}
		select {
		case err := <-exited:
			exited <- err
			return nil, fmt.Errorf("the server ended: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(end) {
			stop()
			return nil, fmt.Errorf("no leader after %v", patience)
		}
	}
}

func freePorts(n int) []int {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return make([]int, n)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func connect(t *testing.T) *api.Client {
	t.Helper()
	client, err := api.NewClient(&api.Config{Address: server.address})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that the server does by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// within waits for a channel.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("after %v still not: %s", patience, what)
		panic("not reached")
	}
}
