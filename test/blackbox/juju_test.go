package blackbox

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

const jujuModel = "deadbeef-0bad-400d-8000-4b1d0d06f00d"

// unit is an agent as Juju's own are: one connection, requests numbered from 1,
// no deadline for a call, every error but a denial the end.
type unit struct {
	t    *testing.T
	conn net.Conn
	last int
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// newUnit connects and logs in.
func newUnit(t *testing.T, address, tag, password string) *unit {
	t.Helper()
	d := ws.Dialer{TLSConfig: &tls.Config{InsecureSkipVerify: true}, Timeout: patience}
	conn, _, _, err := d.Dial(context.Background(), "wss://"+address+"/model/"+jujuModel+"/api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	u := &unit{t: t, conn: conn}
	got := u.call("Admin", 3, "Login", fmt.Sprintf(`{"auth-tag":%q,"credentials":%q,"nonce":"","macaroons":null,"bakery-version":3,"cli-args":"claimer --password %s","user-data":"","client-version":"2.9.52"}`, tag, password, password))
	if !strings.Contains(got, `"model-tag":"model-`+jujuModel+`"`) {
		t.Fatalf("login of %s: %s", tag, got)
	}
	return u
}

func (u *unit) send(facade string, version int, method, params string) int {
	u.t.Helper()
	u.last++
	text := fmt.Sprintf(`{"request-id":%d,"type":%q,"version":%d,"request":%q,"params":%s}`, u.last, facade, version, method, params)
	if err := wsutil.WriteClientText(u.conn, []byte(text)); err != nil {
		u.t.Fatal(err)
	}
	return u.last
}

// read returns the next reply's id and what it says.
func (u *unit) read(within time.Duration) (id int, says string) {
	u.t.Helper()
	_ = u.conn.SetReadDeadline(time.Now().Add(within))
	data, err := wsutil.ReadServerText(u.conn)
	if err != nil {
		u.t.Fatal(err)
	}
	var reply struct {
		ID       int             `json:"request-id"`
		Response json.RawMessage `json:"response"`
		Error    string          `json:"error"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		u.t.Fatal(err)
	}
	return reply.ID, reply.Error + string(reply.Response)
}

func (u *unit) call(facade string, version int, method, params string) string {
	u.t.Helper()
	id := u.send(facade, version, method, params)
	got, says := u.read(patience)
	if got != id {
		u.t.Fatalf("reply to %d, asked %d", got, id)
	}
	return says
}

func claimParams(application string, number int, seconds float64) string {
	return fmt.Sprintf(`{"params":[{"application-tag":"application-%[1]s","unit-tag":"unit-%[1]s-%[2]d","duration":%[3]g}]}`, application, number, seconds)
}

func (u *unit) claim(application string, number int, seconds float64) string {
	u.t.Helper()
	return u.call("LeadershipService", 2, "ClaimLeadership", claimParams(application, number, seconds))
}

const (
	jujuGranted = `{"results":[{}]}`
	jujuDenied  = `{"results":[{"error":{"message":"leadership claim denied","code":"leadership claim denied"}}]}`
)

// A unit holds and extends, another is denied and blocks; when the first goes
// silent the second is told, claims, and holds.
func TestJujuLeadership(t *testing.T) {
	address := freeAddress(t)
	agents := filepath.Join(t.TempDir(), "agents")
	var lines strings.Builder
	for _, args := range [][]string{{"unit-app-0"}, {"unit-app-1", "--grant", "claim-any"}} {
		file := filepath.Join(t.TempDir(), args[0])
		line, stderr, code := runCLI(t, append([]string{"credential", "create", "--password-file", file, "--model", jujuModel, "--juju-agent"}, args...)...)
		if code != 0 {
			t.Fatalf("credential create: %d, %s", code, stderr)
		}
		if strings.Contains(line, strings.TrimSpace(readFile(t, file))) {
			t.Error("the line shows the password")
		}
		lines.WriteString(line)
		t.Setenv("PASSWORD_"+args[0], strings.TrimSpace(readFile(t, file)))
	}
	writeFile(t, agents, lines.String())
	m := start(t, t.TempDir(), nil, "--juju-listen", address, "--juju-credential-file", agents)
	a := newUnit(t, address, "unit-app-0", os.Getenv("PASSWORD_unit-app-0"))
	b := newUnit(t, address, "unit-app-1", os.Getenv("PASSWORD_unit-app-1"))
	const seconds = 10 // longer than a loaded machine stands still
	if got := a.claim("app", 0, seconds); got != jujuGranted {
		t.Fatal(got)
	}
	if got := b.claim("app", 1, seconds); got != jujuDenied {
		t.Error(got)
	}
	if got := a.claim("other", 0, 5); !strings.Contains(got, "permission denied") {
		t.Errorf("a claim for another application: %s", got)
	}
	if got := b.claim("other", 0, 5); got != jujuGranted {
		t.Errorf("with the grant for any: %s", got)
	}
	block := b.send("LeadershipService", 2, "BlockUntilLeadershipReleased", `{"Name":"app"}`)
	held := time.Now()
	if got := a.claim("app", 0, seconds); got != jujuGranted {
		t.Error(got)
	}
	ping := b.send("Pinger", 1, "Ping", "null")
	if id, says := b.read(patience); id != ping || says != "{}" {
		t.Errorf("reply to %d: %s", id, says)
	}
	a.conn.Close()
	if id, says := b.read(patience); id != block || says != "{}" {
		t.Errorf("reply to %d: %s", id, says)
	}
	if took := time.Since(held); took < seconds*time.Second {
		t.Errorf("freed after %v of %d s", took, seconds)
	}
	if got := b.claim("app", 1, 60); got != jujuGranted {
		t.Error(got)
	}
	out, _, _ := m.cli("lease", "explain", "app", "--namespace", "application-leadership", "--model", jujuModel)
	if !strings.Contains(out, "app/1") || !strings.Contains(out, "app/0") {
		t.Errorf("explain does not know who holds it, and who did:\n%s", out)
	}
	if log := m.stderr.String(); strings.Contains(log, os.Getenv("PASSWORD_unit-app-0")) || strings.Contains(log, "claimer --password") {
		t.Error("the log shows a password")
	}
}

// On three members: who holds goes on holding while the leader is killed, every
// claim and wait is answered, and never with something transient.
func TestJujuThroughAnElection(t *testing.T) {
	cmd := exec.Command(binary(t), "cluster", "local", "--members", "3", "--port", "0", "--juju-listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "-o", "json",
		"--", "--dev", "--juju-password", "pw", "--return-time", "1s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	var cluster struct {
		Leader  string
		Members []struct {
			Name, ID, URL, Juju string
			PID                 int
		}
	}
	if err := json.NewDecoder(out).Decode(&cluster); err != nil {
		t.Fatal(err)
	}
	var units []*unit
	leader, server := 0, ""
	for _, m := range cluster.Members {
		if m.Name == cluster.Leader || m.ID == cluster.Leader {
			leader = m.PID
			continue
		}
		server = m.URL
		units = append(units, newUnit(t, m.Juju, "unit-app-0", "pw"))
	}
	if leader == 0 || len(units) != 2 {
		t.Fatalf("leader %q of %+v", cluster.Leader, cluster.Members)
	}
	holder, other := units[0], units[1]
	if got := holder.claim("app", 0, 30); got != jujuGranted {
		t.Fatal(got)
	}
	block := other.send("LeadershipService", 2, "BlockUntilLeadershipReleased", `{"Name":"app"}`)
	if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if got := holder.claim("app", 0, 30); got != jujuGranted {
			t.Errorf("extension %d: %s", i, got)
		}
		id := other.send("LeadershipService", 2, "ClaimLeadership", claimParams("app", 1, 30))
		if got, says := other.read(patience); got != id || says != jujuDenied {
			t.Errorf("claim %d: reply to %d: %s (the wait is %d)", i, got, says, block)
		}
		if got := holder.claim(fmt.Sprint("a", string(rune('a'+i))), 0, 30); got != jujuGranted {
			t.Errorf("new lease %d: %s", i, got)
		}
	}
	// The wait that began under the old leader ends under the new one.
	if _, stderr, code := runCLI(t, "lease", "revoke", "app", "--force", "--namespace", "application-leadership", "--model", jujuModel, "--server", server); code != 0 {
		t.Fatalf("revoke: %d, %s", code, stderr)
	}
	if got, says := other.read(patience); got != block || says != "{}" {
		t.Errorf("the wait: reply to %d: %s, it is %d", got, says, block)
	}
	if got := other.claim("app", 1, 30); got != jujuGranted {
		t.Error(got)
	}
}

// Whatever an agent sends, and however it is answered, the log never has its
// password, nor its command line, which holds it; not at the level debug either.
func TestJujuSecretsAreNotLogged(t *testing.T) {
	const secret = "s3cret-4711"
	address := freeAddress(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "password"), secret+"\n")
	line, stderr, code := runCLI(t, "credential", "create", "--password-file", filepath.Join(dir, "password"), "--model", jujuModel, "--juju-agent", "unit-app-0")
	if code != 0 {
		t.Fatalf("credential create: %d, %s", code, stderr)
	}
	agents := filepath.Join(dir, "agents")
	writeFile(t, agents, line)
	m := start(t, t.TempDir(), nil, "--juju-listen", address, "--juju-credential-file", agents, "--log-level", "debug")
	login := func(tag, credentials string) string {
		return fmt.Sprintf(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":%q,"credentials":%s,"cli-args":"claimer --password %s"}}`, tag, credentials, secret)
	}
	in := login("unit-app-0", `"`+secret+`"`)
	for name, messages := range map[string][]string{
		"right":           {in},
		"another":         {login("unit-app-0", `"`+secret+`2"`)},
		"unknown":         {login("unit-app-1", `"`+secret+`"`)},
		"no agent":        {login("user-"+secret, `"`+secret+`"`)},
		"no text":         {login("unit-app-0", `["`+secret+`"]`)},
		"no JSON":         {login("unit-app-0", secret)},
		"too long":        {login("unit-app-0", `"`+strings.Repeat(secret, 10_000)+`"`)},
		"unknown facade":  {`{"request-id":1,"type":"` + secret + `","version":3,"request":"Login"}`},
		"twice":           {in, in},
		"no JSON inside":  {in, secret},
		"unknown inside":  {in, `{"request-id":2,"type":"Uniter","request":"` + secret + `"}`},
		"malformed claim": {in, `{"request-id":2,"type":"LeadershipService","version":2,"request":"ClaimLeadership","params":"` + secret + `"}`},
	} {
		d := ws.Dialer{TLSConfig: &tls.Config{InsecureSkipVerify: true}, Timeout: patience}
		conn, _, _, err := d.Dial(context.Background(), "wss://"+address+"/model/"+jujuModel+"/api")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		for _, text := range messages {
			_ = wsutil.WriteClientText(conn, []byte(text)) // what is too long may be cut off meanwhile
			h, err := ws.ReadHeader(conn)
			if err == nil {
				_, err = io.CopyN(io.Discard, conn, h.Length)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: no answer", name)
			}
		}
		conn.Close()
	}
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := m.wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	log := m.stderr.String()
	if !strings.Contains(log, "listening for agents of juju") {
		t.Errorf("this is not its log:\n%s", log)
	}
	if at := strings.Index(log, secret); at >= 0 {
		t.Errorf("the log shows a secret: %s", log[max(0, at-200):min(len(log), at+200)])
	}
}
