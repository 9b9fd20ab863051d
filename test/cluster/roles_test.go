package cluster

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keepersSchema is that of a database with roles, as OVN's southbound one has them.
const keepersSchema = `{"name":"Zoo","version":"1.0.0","tables":{
"RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},"permissions":{"type":{"key":"string","value":{"type":"uuid","refTable":"RBAC_Permission"},"min":0,"max":"unlimited"}}}},
"RBAC_Permission":{"isRoot":true,"columns":{"table":{"type":"string"},"authorization":{"type":"string"},"insert_delete":{"type":"boolean"},"update":{"type":"string"}}},
"Pet":{"isRoot":true,"columns":{"owner":{"type":"string"},"age":{"type":"integer"}}}}}`

// keeper is a client of Open vSwitch's databases.
type keeper struct {
	t    *testing.T
	conn *tls.Conn
	in   *json.Decoder
}

func newKeeper(t *testing.T, m *member, certificate tls.Certificate) *keeper {
	t.Helper()
	conn, err := tls.Dial("tcp", m.OVSDB, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}) //nolint:gosec // as clients of tests do
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &keeper{t, conn, json.NewDecoder(conn)}
}

// transact executes operations on the database, and returns what they answer.
func (k *keeper) transact(ops string) string {
	k.t.Helper()
	_ = k.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(k.conn, `{"id":1,"method":"transact","params":["Zoo",`+ops+`]}`); err != nil {
		k.t.Fatal(err)
	}
	for {
		var m struct{ ID, Result, Error json.RawMessage }
		if err := k.in.Decode(&m); err != nil {
			k.t.Fatal(err)
		}
		if string(m.ID) == "1" { // else it is asked for an echo itself
			return string(m.Result) + string(m.Error)
		}
		if _, err := io.WriteString(k.conn, `{"id":"echo","result":[],"error":null}`); err != nil {
			k.t.Fatal(err)
		}
	}
}

func ages(owner string, age int) string {
	return fmt.Sprintf(`{"op":"update","table":"Pet","where":[["owner","==","%s"]],"row":{"age":%d}}`, owner, age)
}

// With the certificate of one hypervisor its owner changed what all may write, at any
// listener without a role. A policy binds whoever has it to a role of the database, at
// every listener of every member, and by the native API, while another writes all by the
// same listener.
func TestG12_RolesOfPoliciesBindOnEveryMember(t *testing.T) {
	dir := t.TempDir()
	schema := filepath.Join(dir, "zoo.ovsschema")
	if err := os.WriteFile(schema, []byte(keepersSchema), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, "--members", "3", "--tls", "--ovsdb-listen", "127.0.0.1:0", "--ovsdb-schema", schema)
	first := c.Members[0]
	certificates := map[string]tls.Certificate{}
	for _, who := range []string{"north", "hv1", "hv2"} {
		folder := filepath.Join(dir, who)
		c.as(first, "tls", "issue", "agent:"+who, "--out", folder)
		var err error
		if certificates[who], err = tls.LoadX509KeyPair(filepath.Join(folder, "client.crt"), filepath.Join(folder, "client.key")); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name, who, verbs string) {
		t.Helper()
		file := filepath.Join(dir, name+".yaml")
		text := fmt.Sprintf("for: [%q]\nrules:\n- {kind: tables, namespace: default, name: Zoo, verbs: [%s]}\n", who, verbs)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.as(first, "policy", "set", name, "-f", file)
	}
	const done, refused, another = `[{"count":1}]null`, `role \"keeper\" prohibit`, `role \"none\" prohibit`
	check := func(what, got, want string) {
		t.Helper()
		if got != want && (want == done || !strings.Contains(got, want)) {
			t.Errorf("%s: %s", what, got)
		}
	}

	north := newKeeper(t, first, certificates["north"])
	if got := north.transact(`{"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{"authorization":"owner","update":"age"}},
{"op":"insert","table":"RBAC_Role","row":{"name":"keeper","permissions":["map",[["Pet",["named-uuid","p"]]]]}},
{"op":"insert","table":"Pet","row":{"owner":"hv1"}},{"op":"insert","table":"Pet","row":{"owner":"hv2"}}`); strings.Contains(got, "error") {
		t.Fatal(got)
	}
	open := map[*member]*keeper{}
	for i, m := range c.Members {
		open[m] = newKeeper(t, m, certificates["hv1"])
		check("without a policy, at "+m.Name, open[m].transact(ages("hv2", 100+i)), done)
	}
	set("north", "agent:north", "see, watch, write")
	set("hypervisors", "agent:hv*", `see, watch, "write:keeper"`)
	for i, m := range c.Members {
		for what, k := range map[string]*keeper{"open before": open[m], "new": newKeeper(t, m, certificates["hv1"])} {
			check(what+", its own row, at "+m.Name, k.transact(ages("hv1", 10*i+len(what))), done)
			check(what+", another's, at "+m.Name, k.transact(ages("hv2", 1)), refused)
			check(what+", a new one, at "+m.Name, k.transact(`{"op":"insert","table":"Pet","row":{"owner":"hv1"}}`), refused)
			check(what+", the role itself, at "+m.Name, k.transact(`{"op":"delete","table":"RBAC_Role","where":[]}`), refused)
		}
		check("hv2's own, at "+m.Name, newKeeper(t, m, certificates["hv2"]).transact(ages("hv2", 200+i)), done)
		check("north, at "+m.Name, newKeeper(t, m, certificates["north"]).transact(ages("hv2", 300+i)), done)
		check("the native API, another's row, at "+m.Name, transactBy(t, m, certificates["hv1"], ages("hv2", 2)), `keeper`)
		if got := transactBy(t, m, certificates["hv1"], ages("hv1", 400+i)); !strings.Contains(got, `count`) {
			t.Errorf("the native API, its own row, at %s: %s", m.Name, got)
		}
	}
	test := c.as(first, "policy", "test", "--as", "agent:hv1", "--verb", "write", "--kind", "tables", "Zoo")
	if want := "allowed: rule 1 of policy hypervisors, as far as these roles of the database allow: keeper\n"; test != want {
		t.Errorf("policy test says %s", test)
	}
	if got := c.as(c.Members[1], "policy", "get", "hypervisors"); !strings.Contains(got, "write:keeper") {
		t.Errorf("policy get says %s", got)
	}
	set("hypervisors", "agent:hv*", `see, "write:none"`)
	for _, m := range c.Members { // what changes something is judged in the log, so at once
		check("another role, at "+m.Name, open[m].transact(ages("hv1", 3)), another)
	}
	c.as(first, "policy", "rm", "hypervisors")
	for _, m := range c.Members {
		check("no policy lets it write, at "+m.Name, open[m].transact(ages("hv1", 4)), "permission error")
	}
}

// transactBy executes operations by the native API.
func transactBy(t *testing.T, m *member, certificate tls.Certificate, ops string) string {
	t.Helper()
	h := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}, //nolint:gosec // as clients of tests do
	}}}
	defer h.CloseIdleConnections()
	body, err := json.Marshal(map[string]string{"database": "Zoo", "operations": "[" + ops + "]"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.URL+"/incumbent.v1.TableService/Transact", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := h.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
