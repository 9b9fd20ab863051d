package consul

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

var (
	patroni  = flag.String("patroni", "", "the Patroni that keeps two databases by us")
	postgres = flag.String("postgres", "/usr/lib/postgresql/15/bin", "folder of PostgreSQL's programs, for -patroni")
)

// database is one instance of Patroni with its PostgreSQL.
type database struct {
	t      *testing.T
	name   string
	config string
	rest   string
	as     *syscall.Credential
	runs   *program
}

// patroniConfig has the shortest times that Patroni allows.
const patroniConfig = `scope: pair
name: %[1]s
restapi: {listen: '%[2]s', connect_address: '%[2]s'}
consul: {host: '%[3]s', register_service: true}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    maximum_lag_on_failover: 1048576
    postgresql: {use_pg_rewind: true, parameters: {max_connections: 20, shared_buffers: 16MB, fsync: 'off', wal_log_hints: 'on'}}
  initdb: [{encoding: UTF8}, data-checksums, no-sync]
postgresql:
  listen: '%[4]s'
  connect_address: '%[4]s'
  data_dir: '%[5]s/data'
  bin_dir: '%[6]s'
  pgpass: '%[5]s/pgpass'
  parameters: {unix_socket_directories: '%[5]s'}
  pg_hba: ['local all all trust', 'host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust']
  authentication: {superuser: {username: postgres, password: p}, replication: {username: replica, password: p}, rewind: {username: rewind, password: p}}
`

// TestPatroni has two databases elect a primary, fail over when it dies, take it back,
// and switch over.
func TestPatroni(t *testing.T) {
	if *patroni == "" {
		t.Skip("needs -patroni")
	}
	target := startTarget(t, ours(t))
	a, b := newDatabase(t, target, "a"), newDatabase(t, target, "b")
	a.start()
	a.is("primary", "running")
	b.start()
	b.is("replica", "streaming")
	serviceHas(t, target, "primary", "a")
	a.kill()
	b.is("primary", "running")
	a.start()
	a.is("replica", "streaming")
	serviceHas(t, target, "primary", "b")
	out, code := b.call("POST", "/switchover", `{"leader":"b","candidate":"a"}`)
	if code != http.StatusOK {
		t.Errorf("switching over: %d %s", code, out)
	}
	a.is("primary", "running")
	b.is("replica", "streaming")
	var key []struct{ Session, Key string }
	target.read("/v1/kv/service/pair/leader", &key)
	if len(key) != 1 || key[0].Session == "" {
		t.Errorf("the leader's key: %+v", key)
	}
}

func newDatabase(t *testing.T, target *target, name string) *database {
	t.Helper()
	dir, err := os.MkdirTemp("", "incumbent-patroni-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &database{t: t, name: name, config: filepath.Join(dir, "patroni.yml")}
	ports := freePorts(t, 2)
	d.rest = fmt.Sprintf("127.0.0.1:%d", ports[0])
	text := fmt.Sprintf(patroniConfig, name, d.rest, strings.TrimPrefix(target.url, "http://"), fmt.Sprintf("127.0.0.1:%d", ports[1]), dir, *postgres)
	if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		d.as = credential(t, "postgres")
		for _, path := range []string{dir, d.config} {
			if err := os.Chown(path, int(d.as.Uid), int(d.as.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d
}

func credential(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Skip(err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (d *database) start() {
	d.t.Helper()
	cmd := exec.Command(*patroni, d.config)
	cmd.Dir = filepath.Dir(d.config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.as}
	d.runs = launch(d.t, cmd)
	d.t.Cleanup(d.kill)
}

// kill ends Patroni and its PostgreSQL, which has a process group of its own, at once.
func (d *database) kill() {
	_ = syscall.Kill(-d.runs.cmd.Process.Pid, syscall.SIGKILL)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(d.config), "data", "postmaster.pid"))
	if err != nil {
		return
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if pid, err := strconv.Atoi(first); err == nil && pid > 1 {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (d *database) call(method, path, body string) (string, int) {
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.rest+path, strings.NewReader(body))
	if err != nil {
		return err.Error(), 0
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error(), 0
	}
	defer res.Body.Close()
	var b strings.Builder
	if _, err := fmt.Fprint(&b, readAll(res)); err != nil {
		return err.Error(), 0
	}
	return b.String(), res.StatusCode
}

func readAll(res *http.Response) string {
	var v any
	if json.NewDecoder(res.Body).Decode(&v) != nil {
		return ""
	}
	text, _ := json.Marshal(v) // what was decoded has an encoding
	return string(text)
}

// is waits until the instance has a role and a state.
func (d *database) is(role, state string) {
	d.t.Helper()
	outside.Eventually(d.t, 2*patience, d.name+" is a "+role+" that is "+state, func() bool {
		text, _ := d.call("GET", "/patroni", "")
		var got struct {
			Role  string
			State string
			Repl  string `json:"replication_state"`
		}
		return json.Unmarshal([]byte(text), &got) == nil && got.Role == role && (got.State == state || got.Repl == state)
	})
}

// serviceHas waits until the service that Patroni registers has an instance under a tag.
func serviceHas(t *testing.T, target *target, tag, name string) {
	t.Helper()
	outside.Eventually(t, patience, "the service has "+name+" as "+tag, func() bool {
		var list []struct{ ServiceID string }
		target.read("/v1/catalog/service/pair?tag="+tag, &list)
		return len(list) == 1 && strings.HasSuffix(list[0].ServiceID, "/"+name)
	})
}
