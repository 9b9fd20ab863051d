// Package ovsdb runs the real binary with the programs that people use with Open
// vSwitch's databases, as Debian packages them.
package ovsdb

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/test/outside"
)

const (
	patience = 30 * time.Second

	northbound = "/usr/share/ovn/ovn-nb.ovsschema"
	southbound = "/usr/share/ovn/ovn-sb.ovsschema"
)

// need skips unless the programs are there.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed: the packages are ovn-central, ovn-common, openvswitch-common and python3-openvswitch", p)
		}
	}
}

// server is our binary with both databases of OVN.
type server struct {
	t    *testing.T
	unix string // unix:PATH
	dir  string
}

// start starts it; more are further arguments.
func start(t *testing.T, more ...string) *server {
	t.Helper()
	return startServer(t, []string{northbound, southbound}, more...)
}

// startServer starts our binary with the databases of schema files, and returns when
// these are there.
func startServer(t *testing.T, schemas []string, more ...string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, unix: "unix:" + filepath.Join(dir, "s"), dir: dir}
	args := []string{"server", "--dev", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--ovsdb-listen", s.unix}
	for _, schema := range schemas {
		args = append(args, "--ovsdb-schema", schema)
	}
	s.run(outside.Binary(t), append(args, more...)...)
	outside.Eventually(t, patience, "all databases are there", func() bool {
		out, err := s.try("ovsdb-client", "list-dbs", s.unix)
		return err == nil && strings.Count(out, "\n") == len(schemas)+1 // and _Server
	})
	return s
}

// run runs a program until the test ends.
func (s *server) run(program string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(program, args...)
	log, err := os.Create(filepath.Join(s.dir, filepath.Base(program)+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), "OVN_RUNDIR="+s.dir, "OVS_RUNDIR="+s.dir, "OVN_LOGDIR="+s.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		log.Close()
		if text, _ := os.ReadFile(log.Name()); s.t.Failed() {
			s.t.Logf("%s said:\n%s", program, text)
		}
	})
}

// try runs a program to its end.
func (s *server) try(program string, args ...string) (string, error) {
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "OVN_RUNDIR="+s.dir, "OVS_RUNDIR="+s.dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// do is try of what has to succeed.
func (s *server) do(program string, args ...string) string {
	s.t.Helper()
	out, err := s.try(program, args...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

func (s *server) nbctl(args ...string) string {
	s.t.Helper()
	return s.do("ovn-nbctl", append([]string{"--db=" + s.unix}, args...)...)
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// want fails unless a text, without its uuids, is what it should be.
func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got = uuids.ReplaceAllString(got, "UUID"); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

func TestClient(t *testing.T) {
	need(t, "ovsdb-client")
	s := start(t)
	want(t, "list-dbs", s.do("ovsdb-client", "list-dbs", s.unix), "OVN_Northbound\nOVN_Southbound\n_Server\n")
	want(t, "get-schema-version", s.do("ovsdb-client", "get-schema-version", s.unix, "OVN_Northbound"), s.do("ovsdb-tool", "schema-version", northbound))
	want(t, "list-tables", s.do("ovsdb-client", "list-tables", s.unix, "_Server"), "Table\n--------\nDatabase\n")
	want(t, "transact", s.do("ovsdb-client", "transact", s.unix,
		`["OVN_Northbound",{"op":"insert","table":"Address_Set","row":{"name":"a","addresses":["set",["b","a"]]}},{"op":"select","table":"Address_Set","where":[["name","==","a"]],"columns":["name","addresses"]}]`),
		`[{"uuid":["uuid","UUID"]},{"rows":[{"addresses":["set",["a","b"]],"name":"a"}]}]`+"\n")
	want(t, "dump", strings.TrimSpace(s.do("ovsdb-client", "dump", s.unix, "OVN_Northbound", "Address_Set", "name", "addresses")),
		"Address_Set table\naddresses name\n--------- ----\n[a, b]    a")
	if dump := s.do("ovsdb-client", "dump", s.unix, "OVN_Northbound"); !strings.Contains(dump, "NB_Global table\n") {
		t.Errorf("dump of everything: %s", dump)
	}
}

func TestNorthbound(t *testing.T) {
	need(t, "ovn-nbctl")
	s := start(t)
	s.nbctl("init")
	s.nbctl("ls-add", "sw0", "--", "lsp-add", "sw0", "p1", "--", "lsp-set-addresses", "p1", "00:00:00:00:00:01 10.0.0.1")
	s.nbctl("lr-add", "lr0", "--", "lrp-add", "lr0", "lrp0", "00:00:00:00:00:02", "10.0.0.254/24")
	want(t, "show", s.nbctl("show"), `switch UUID (sw0)
    port p1
        addresses: ["00:00:00:00:00:01 10.0.0.1"]
router UUID (lr0)
    port lrp0
        mac: "00:00:00:00:00:02"
        networks: ["10.0.0.254/24"]
`)
	s.nbctl("ls-del", "sw0")
	want(t, "the ports of a switch that is gone", s.nbctl("--bare", "--columns=name", "list", "Logical_Switch_Port"), "")
	if out, err := s.try("ovn-nbctl", "--db="+s.unix, "lsp-add", "sw0", "p3"); err == nil {
		t.Errorf("a port of no switch: %s", out)
	}
}

// What monitors of Python's implementation hold is what was changed.
func TestPython(t *testing.T) {
	need(t, "python3", "ovn-nbctl")
	if err := exec.Command("python3", "-c", "import ovs.db.idl").Run(); err != nil {
		t.Skip("python3-openvswitch is not installed")
	}
	s := start(t)
	out := s.do("python3", "testdata/idl.py", s.unix, northbound)
	want(t, "the script", out, "added\nresumable True\nseen a 1\nchanged 2\ndeleted\n")
}

// A member's socket is there again when it starts again.
func TestListening(t *testing.T) {
	need(t, "ovsdb-client")
	s := start(t)
	c, err := net.Dial("unix", strings.TrimPrefix(s.unix, "unix:"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out, err := s.try(outside.Binary(t), "server", "--dev", "--data-dir", filepath.Join(s.dir, "other"), "--listen", "127.0.0.1:0", "--ovsdb-listen", s.unix)
	if err == nil || !strings.Contains(out, "somebody listens at") {
		t.Errorf("a second server on the socket: %v\n%s", err, out)
	}
}
