package consul

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// target is a server that speaks Consul's HTTP API, started as harnesses of clients
// do: a program named consul, with a file of settings.
type target struct {
	url    string
	client *http.Client
	own    []string // the nodes that are there from the start
}

const (
	nodeName = "n1"
	nodeID   = "6b2f3a52-6d2a-4f0e-9a59-3a4d0c1b2e01"
)

// ours is our binary under the name that such harnesses start.
func ours(t *testing.T) string {
	t.Helper()
	if *own != "" {
		return *own
	}
	path := filepath.Join(t.TempDir(), "consul")
	if err := os.Symlink(outside.Binary(t), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// freePorts are n ports of the loopback that nobody listened on a moment ago.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func startTarget(t *testing.T, binary string) *target {
	t.Helper()
	ports := freePorts(t, 3)
	dir := t.TempDir()
	settings := map[string]any{
		"node_name": nodeName, "node_id": nodeID, "bind_addr": "127.0.0.1", "log_level": "warn",
		"server": true, "bootstrap": true, "data_dir": filepath.Join(dir, "data"), "connect": map[string]any{"enabled": true},
		"addresses":            map[string]any{"http": "127.0.0.1"},
		"ports":                map[string]any{"http": ports[0], "server": ports[1], "serf_lan": ports[2], "serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1},
		"disable_update_check": true,
		"performance":          map[string]any{"raft_multiplier": 1},
	}
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "settings.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(binary, "agent", "-config-file", file)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	target := &target{
		url: fmt.Sprintf("http://127.0.0.1:%d", ports[0]),
		client: &http.Client{
			Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	t.Cleanup(func() {
		target.client.CloseIdleConnections()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	})
	outside.Eventually(t, patience, "the server has a leader, and its node is known", func() bool {
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("the server ended: %v\n%s", err, said.String())
		default:
		}
		var leader string
		var nodes []nodeEntry
		target.read("/v1/status/leader", &leader)
		served := target.read("/v1/health/state/passing", &nodes)
		return leader != "" && (len(nodes) > 0 || served == http.StatusNotFound)
	})
	for _, n := range target.nodes() {
		target.own = append(target.own, n.Node)
	}
	return target
}

// read decodes what a path answers, if it does, and returns the status.
func (t *target) read(path string, into any) int {
	res, err := t.client.Get(t.url + path)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		_ = json.NewDecoder(res.Body).Decode(into) // what is not there is not cleared away
	}
	return res.StatusCode
}

func (t *target) put(method, path, body string) {
	req, err := http.NewRequest(method, t.url+path, strings.NewReader(body))
	if err != nil {
		return
	}
	if res, err := t.client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

type nodeEntry struct{ Node string }

func (t *target) nodes() []nodeEntry {
	var list []nodeEntry
	t.read("/v1/catalog/nodes", &list)
	return list
}

// reset clears away what the file before has left.
func (t *target) reset(tt *testing.T) {
	tt.Helper()
	t.put("PUT", "/v1/agent/maintenance?enable=false", "")
	var sessions, queries []struct{ ID string }
	t.read("/v1/session/list", &sessions)
	for _, s := range sessions {
		t.put("PUT", "/v1/session/destroy/"+s.ID, "")
	}
	t.read("/v1/query", &queries)
	for _, q := range queries {
		t.put("DELETE", "/v1/query/"+q.ID, "")
	}
	t.put("DELETE", "/v1/kv/?recurse", "")
	var services, checks map[string]any
	t.read("/v1/agent/services", &services)
	for id := range services {
		t.put("PUT", "/v1/agent/service/deregister/"+url.PathEscape(id), "")
	}
	t.read("/v1/agent/checks", &checks)
	for id := range checks {
		t.put("PUT", "/v1/agent/check/deregister/"+url.PathEscape(id), "")
	}
	for _, n := range t.nodes() {
		if slices.Contains(t.own, n.Node) {
			continue
		}
		body, _ := json.Marshal(map[string]string{"Node": n.Node})
		t.put("PUT", "/v1/catalog/deregister", string(body))
	}
	t.client.CloseIdleConnections()
}
