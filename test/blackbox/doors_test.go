package blackbox

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// askConsul asks at the door for Consul's clients, with somebody's token.
func (p *people) askConsul(t *testing.T, name, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.consul+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Consul-Token", p.tokens[name])
	res, err := (&http.Client{Timeout: patience}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func dialPlain(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// let sets the one policy of somebody.
func (p *people) let(t *testing.T, who, rules string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, file, "for: [\"agent:"+who+"\"]\nrules:\n"+rules)
	token := filepath.Join(t.TempDir(), "root")
	writeFile(t, token, p.tokens["root"])
	if _, stderr, code := runCLI(t, "policy", "set", who, "-f", file, "--server", p.url, "--credential-file", token); code != 0 {
		t.Fatal(stderr)
	}
}

// Any agent took the lease by which members agree on who writes backups, or on who runs
// checks; and by storing the keys of a prepared query, or by writing anew one that had been
// given a token, saw of the catalog what somebody else may.
func TestG12_NobodyActsForTheMembersOrForAnother(t *testing.T) {
	p := startPeople(t)
	alice := p.as(t, "alice")
	claim := func(lease string) error {
		_, err := alice.Leases().Claim(t.Context(), connect.NewRequest(&apiv1.ClaimRequest{
			Name: &apiv1.LeaseName{Namespace: incumbent.ServerNamespace, Model: "server", Name: lease}, Holder: "alice", TtlMs: 15000,
		}))
		return err
	}
	mustBeDenied(t, "claim the lease of backups", claim("backup"))
	all := func(name string) string {
		return fmt.Sprintf(`
  - {kind: keys, namespace: "*", verbs: [see, watch, write]}
  - {kind: leases, namespace: "*", verbs: [see, watch, write, release-others, administer]}
  - {kind: nodes, namespace: default, name: %q, verbs: [see, write]}
  - {kind: services, namespace: default, name: %q, verbs: [see, write]}
`, name, name)
	}
	p.let(t, "alice", all("alice*"))
	p.let(t, "bob", all("*"))
	mustBeDenied(t, "claim the lease of backups by a policy", claim("backup"))
	mustBeDenied(t, "claim that of a member that runs checks", claim("checks/1"))

	ask := func(who, method, path, body string, want int) string {
		t.Helper()
		status, answer := p.askConsul(t, who, method, path, body)
		if status != want {
			t.Fatalf("%s %s %s: %d %s, want %d", who, method, path, status, answer, want)
		}
		return answer
	}
	seen := func(query string) string {
		t.Helper()
		_, answer := p.askConsul(t, "alice", "GET", "/v1/query/"+query+"/execute", "")
		return answer
	}
	ask("bob", "PUT", "/v1/catalog/register", `{"Node":"hidden","Address":"10.9.8.7","Service":{"Service":"secret","Port":9}}`, 200)
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(ask("bob", "POST", "/v1/query", `{"Name":"bobs","Token":"`+p.tokens["bob"]+`","Service":{"Service":"web"}}`, 200)), &made); err != nil {
		t.Fatal(err)
	}
	ask("alice", "PUT", "/v1/query/"+made.ID, `{"Name":"bobs","Token":"<hidden>","Service":{"Service":"secret"}}`, 500)
	id := incumbent.NewSessionID().String()
	for key, value := range map[string]string{
		"id/" + id:    `{"ID":"` + id + `","Name":"forged","Service":{"Service":"secret"},"As":{"Who":"operator:root"}}`,
		"name/forged": id, "id/" + made.ID: `{"ID":"` + made.ID + `","Name":"bobs","Service":{"Service":"secret"},"As":"operator:root"}`,
	} {
		_, err := alice.Keys().Put(t.Context(), connect.NewRequest(&apiv1.PutRequest{Namespace: "consul-queries-default", Key: key, Value: []byte(value)}))
		mustBeDenied(t, "store "+key, err)
	}
	for _, query := range []string{"bobs", made.ID, "forged"} {
		if answer := seen(query); strings.Contains(answer, "10.9.8.7") {
			t.Errorf("%s shows what its caller may not see: %s", query, answer)
		}
	}
	ask("bob", "PUT", "/v1/query/"+made.ID, `{"Name":"bobs","Token":"`+p.tokens["bob"]+`","Service":{"Service":"secret"}}`, 200)
	if answer := seen("bobs"); !strings.Contains(answer, "10.9.8.7") {
		t.Fatalf("with the right of whose token it has the query shows: %s", answer)
	}
	lines := strings.SplitAfter(readFile(t, p.credentials), "\n")
	kept := ""
	for _, line := range lines {
		if !strings.Contains(line, "bob") {
			kept += line
		}
	}
	writeFile(t, p.credentials, kept)
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the end of the rights of a token that was taken back", func() bool { return !strings.Contains(seen("bobs"), "10.9.8.7") })
}

// One request of 8 MiB took two gigabytes and half a minute; and nine strangers whose
// bodies did not end kept everybody else from sending any.
func TestG47_BodiesAtConsulsDoorAreBounded(t *testing.T) {
	p := startPeople(t)
	before := p.memory(t)
	for range 3 {
		body := `{"Node":"a","Address":"b","Checks":[` + strings.Repeat("{},", 8<<20/3-100) + `{}]}`
		if status, answer := p.askConsul(t, "alice", "PUT", "/v1/catalog/register", body); status != http.StatusRequestEntityTooLarge {
			t.Errorf("%d %.200s", status, answer)
		}
	}
	if after := p.memory(t); after > before+mostGrowth {
		t.Errorf("%d MiB at most, were %d", after, before)
	}
	for range 10 {
		c := dialPlain(t, p.consul)
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "PUT /v1/kv/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 8<<20)
		_, _ = io.WriteString(c, strings.Repeat("x", 7<<20)) // it is answered before it is sent
	}
	c := dialPlain(t, p.consul)
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "PUT /v1/kv/x HTTP/1.1\r\nHost: x\r\nX-Consul-Token: %s\r\nContent-Length: %d\r\n\r\n", p.tokens["alice"], 300<<10)
	_, _ = io.WriteString(c, strings.Repeat("x", 300<<10))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("beside strangers' bodies: %s", res.Status)
	}
}

// A message of 63 MiB took five gigabytes.
func TestG47_MessagesOfSwitchesAreBounded(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	authority := newOVSDBAuthority(t, dir)
	cert, key := selfSigned(t, dir)
	g := startGuarded(t, "--ovsdb-listen", address, "--ovsdb-cert", cert, "--ovsdb-key", key, "--ovsdb-ca", authority.file, "--ovsdb-probe", "1h")
	before := g.memory(t)
	text := `{"id":1,"method":"transact","params":["Mini",` + strings.Repeat("0,", 31<<20) + `0]}`
	for range 2 {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{authority.client("c1")}})
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, text)
		if _, err := io.Copy(io.Discard, conn); err != nil && os.IsTimeout(err) {
			t.Errorf("it is not cut off: %v", err)
		}
		conn.Close()
	}
	if after := g.memory(t); after > before+1500 {
		t.Errorf("%d MiB at most, were %d", after, before)
	}
}
