package ovsdb

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// pki is an authority as Open vSwitch's own tool makes it, with certificates of a server
// and of two hypervisors.
type pki struct{ dir string }

func newPKI(t *testing.T) *pki {
	t.Helper()
	need(t, "ovs-pki", "openssl")
	p := &pki{t.TempDir()}
	for _, args := range [][]string{{"init"}, {"-u", "req+sign", "server", "switch"}, {"-u", "req+sign", "hv1", "switch"}, {"-u", "req+sign", "hv2", "switch"}} {
		cmd := exec.Command("ovs-pki", append([]string{"-d", filepath.Join(p.dir, "pki"), "-l", filepath.Join(p.dir, "log")}, args...)...)
		cmd.Dir = p.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ovs-pki %v: %v\n%s", args, err, out)
		}
	}
	return p
}

func (p *pki) key(who string) string  { return filepath.Join(p.dir, who+"-privkey.pem") }
func (p *pki) cert(who string) string { return filepath.Join(p.dir, who+"-cert.pem") }
func (p *pki) ca() string             { return filepath.Join(p.dir, "pki", "switchca", "cacert.pem") }

// as are the arguments of a client with a certificate.
func (p *pki) as(who string, args ...string) []string {
	return append([]string{"-p", p.key(who), "-c", p.cert(who), "-C", p.ca()}, args...)
}

// connections is the column that says where clients of the southbound database connect.
const connections = "db:OVN_Southbound,SB_Global,connections"

const encap2 = "6c2d3bd7-37f0-4a3c-8d5b-6a1b1d0f0a02"

// grants are what two hypervisors, and their role, may do.
const grants = `["OVN_Southbound",
{"op":"insert","table":"Encap","uuid-name":"e1","row":{"type":"geneve","ip":"10.0.0.1","chassis_name":"hv1"}},
{"op":"insert","table":"Encap","uuid":"` + encap2 + `","row":{"type":"geneve","ip":"10.0.0.2","chassis_name":"hv2"}},
{"op":"insert","table":"Chassis","row":{"name":"hv1","encaps":["named-uuid","e1"]}},
{"op":"insert","table":"Chassis","row":{"name":"hv2","encaps":["uuid","` + encap2 + `"]}},
{"op":"insert","table":"RBAC_Permission","uuid-name":"p1","row":{"table":"Chassis","authorization":"name","insert_delete":true,"update":["set",["nb_cfg","external_ids"]]}},
{"op":"insert","table":"RBAC_Permission","uuid-name":"p2","row":{"table":"Encap","authorization":["set",["","chassis_name"]],"insert_delete":false,"update":["set",["ip","type"]]}},
{"op":"insert","table":"RBAC_Role","row":{"name":"ovn-controller","permissions":["map",[["Chassis",["named-uuid","p1"]],["Encap",["named-uuid","p2"]]]]}}]`

// asked are transactions of a client with that role.
var asked = []string{
	`{"op":"select","table":"Chassis","where":[["name","==","hv1"]],"columns":["name"]}`,
	`{"op":"update","table":"Chassis","where":[["name","==","hv1"]],"row":{"nb_cfg":1}}`,
	`{"op":"update","table":"Chassis","where":[["name","==","hv2"]],"row":{"nb_cfg":1}}`,
	`{"op":"update","table":"Chassis","where":[],"row":{"nb_cfg":2}}`,
	`{"op":"update","table":"Chassis","where":[["name","==","nobody"]],"row":{"nb_cfg":2}}`,
	`{"op":"update","table":"Chassis","where":[["name","==","hv1"]],"row":{"hostname":"x"}}`,
	`{"op":"update","table":"Chassis","where":[["name","==","nobody"]],"row":{"hostname":"x"}}`,
	`{"op":"mutate","table":"Chassis","where":[["name","==","nobody"]],"mutations":[["vtep_logical_switches","insert","x"]]}`,
	`{"op":"mutate","table":"Chassis","where":[["name","==","hv1"]],"mutations":[["external_ids","insert",["map",[["a","b"]]]]]}`,
	`{"op":"mutate","table":"Chassis","where":[["name","==","hv2"]],"mutations":[["external_ids","insert",["map",[["a","b"]]]]]}`,
	`{"op":"update","table":"Encap","where":[["chassis_name","==","hv2"]],"row":{"ip":"10.0.0.9"}}`,
	`{"op":"delete","table":"Encap","where":[["chassis_name","==","hv1"]]}`,
	`{"op":"insert","table":"Encap","row":{"type":"vxlan","ip":"1","chassis_name":"hv1"}}`,
	`{"op":"insert","table":"Address_Set","row":{"name":"a"}}`,
	`{"op":"delete","table":"Chassis","where":[["name","==","hv2"]]}`,
	`{"op":"comment","comment":"x"},{"op":"update","table":"Chassis","where":[["name","==","hv1"]],"row":{"nb_cfg":7}},{"op":"delete","table":"Chassis","where":[["name","==","hv2"]]}`,
	`{"op":"insert","table":"Chassis","row":{"name":"hv9","encaps":["uuid","` + encap2 + `"]}}`,
	`{"op":"delete","table":"Chassis","where":[["name","==","hv1"]]}`,
	`{"op":"insert","table":"Chassis","row":{"name":"hv1","encaps":["uuid","` + encap2 + `"]}}`,
}

// boundPort waits until the one row says by what port its target is listened at.
func (s *server) boundPort() string {
	s.t.Helper()
	port := ""
	outside.Eventually(s.t, patience, "the row says the port", func() bool {
		out, err := s.try("ovn-sbctl", "--db="+s.unix, "--bare", "get", "Connection", ".", "status:bound_port")
		port = strings.Trim(strings.TrimSpace(out), `"`)
		return err == nil && port != ""
	})
	return port
}

// play prepares a database and returns what a client with a role is answered there.
func (s *server) playRole(p *pki) (answers []string) {
	s.t.Helper()
	s.do("ovn-sbctl", "--db="+s.unix, "init")
	s.do("ovsdb-client", "transact", s.unix, grants)
	s.do("ovn-sbctl", "--db="+s.unix, "set-connection", "role=ovn-controller", "pssl:0:127.0.0.1")
	at := "ssl:127.0.0.1:" + s.boundPort()
	for _, ops := range asked {
		out, _ := s.try("ovsdb-client", p.as("hv1", "transact", at, `["OVN_Southbound",`+ops+`]`)...)
		answers = append(answers, uuids.ReplaceAllString(strings.TrimSpace(out), "UUID"))
	}
	out, _ := s.try("ovsdb-client", p.as("hv1", "convert", at, southbound)...)
	// An agent may not define tables here in any role, so the words are others.
	return append(answers, strconv.FormatBool(strings.Contains(out, `"error":"permission error"`)))
}

// startPeer starts the reference with a southbound database.
func startPeer(t *testing.T, p *pki) *server {
	t.Helper()
	need(t, "ovsdb-server", "ovsdb-tool")
	dir := t.TempDir()
	s := &server{t: t, unix: "unix:" + filepath.Join(dir, "s"), dir: dir}
	s.do("ovsdb-tool", "create", filepath.Join(dir, "sb.db"), southbound)
	s.run("ovsdb-server", append(p.as("server"), "--remote=p"+s.unix, "--remote="+connections, "--unixctl="+filepath.Join(dir, "ctl"), filepath.Join(dir, "sb.db"))...)
	outside.Eventually(t, patience, "the reference listens", func() bool {
		_, err := os.Stat(filepath.Join(dir, "s"))
		return err == nil
	})
	return s
}

// Clients with certificates of Open vSwitch's own authority, at a listener that a row of
// the database says, may do what the reference lets them do, and read the same errors.
func TestRoles(t *testing.T) {
	need(t, "ovsdb-client", "ovn-sbctl")
	p := newPKI(t)
	ours := start(t, "--ovsdb-listen", connections, "--ovsdb-cert", p.cert("server"), "--ovsdb-key", p.key("server"), "--ovsdb-ca", p.ca())
	got, expected := ours.playRole(p), startPeer(t, p).playRole(p)
	for i := range expected {
		if got[i] != expected[i] {
			t.Errorf("transaction %d: we answer\n%s\nthe reference\n%s", i, got[i], expected[i])
		}
	}
}

// readOnly is what a client is answered at a listener that a row says is read only.
func (s *server) readOnly() (answers []string) {
	s.t.Helper()
	s.do("ovn-sbctl", "--db="+s.unix, "init")
	path := filepath.Join(s.dir, "read-only")
	s.do("ovn-sbctl", "--db="+s.unix, "set-connection", "read-only", "punix:"+path)
	outside.Eventually(s.t, patience, "it is listened there", func() bool {
		c, err := dial("unix:" + path)
		if err == nil {
			c.conn.Close()
		}
		return err == nil
	})
	c := connect(s.t, "unix:"+path)
	for _, method := range []string{"lock", "steal", "unlock"} {
		for _, name := range []any{"l", 1} {
			m, err := c.ask(method, name)
			if err != nil {
				s.t.Fatal(err)
			}
			answers = append(answers, textOf(object{method: m.Result, "error": m.Error}))
		}
	}
	return answers
}

// Who connects where a row says read only has no locks, as of the reference.
func TestReadOnlyConnections(t *testing.T) {
	need(t, "ovn-sbctl")
	p := newPKI(t)
	got, expected := start(t, "--ovsdb-listen", connections).readOnly(), startPeer(t, p).readOnly()
	for i := range expected {
		if got[i] != expected[i] {
			t.Errorf("we answer\n%s\nthe reference\n%s", got[i], expected[i])
		}
	}
}

// Rows of connections are obeyed as they change, and say who is connected.
func TestConnectionRows(t *testing.T) {
	need(t, "ovsdb-client", "ovn-sbctl")
	p := newPKI(t)
	s := start(t, "--ovsdb-listen", connections, "--ovsdb-cert", p.cert("server"), "--ovsdb-key", p.key("server"), "--ovsdb-ca", p.ca())
	sbctl := func(args ...string) string {
		return s.do("ovn-sbctl", append([]string{"--db=" + s.unix}, args...)...)
	}
	sbctl("init", "--", "set-connection", "pssl:0:127.0.0.1")
	at := "ssl:127.0.0.1:" + s.boundPort()
	insert := func() string {
		out, _ := s.try("ovsdb-client", p.as("hv1", "transact", at, `["OVN_Southbound",{"op":"insert","table":"Address_Set","row":{"name":"x"}},{"op":"abort"}]`)...)
		return out
	}
	if out := insert(); !strings.Contains(out, "aborted") {
		t.Fatalf("a client without a role: %s", out)
	}
	s.run("ovsdb-client", p.as("hv2", "monitor", at, "OVN_Southbound", "SB_Global")...)
	says := func(what, text string) {
		outside.Eventually(t, patience, what, func() bool { return strings.Contains(sbctl("list", "Connection", "."), text) })
	}
	says("the row says that somebody is connected", "is_connected        : true")
	sbctl("set", "Connection", ".", "read_only=true")
	outside.Eventually(t, patience, "the listener is read only", func() bool {
		return strings.Contains(insert(), "insert operation not allowed when database server is in read only mode")
	})
	sbctl("set-connection", "ptcp:0:0.0.0.0")
	says("the row says that it cannot be listened at", "last_error")
	outside.Eventually(t, patience, "the first listener is closed", func() bool {
		out := insert()
		return strings.Contains(out, "refused") || strings.Contains(out, "failed to connect")
	})
	// Who shows no certificate is nobody.
	sbctl("set-connection", "pssl:0:127.0.0.1")
	says("the row says that it is listened at again", "bound_port")
	at = "ssl:127.0.0.1:" + s.boundPort()
	stranger := newPKI(t)
	if out, err := s.try("ovsdb-client", "-p", stranger.key("hv1"), "-c", stranger.cert("hv1"), "-C", p.ca(), "list-dbs", at); err == nil {
		t.Errorf("a certificate of another authority: %s", out)
	}
}
