package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

const jujuModel = "deadbeef-0bad-400d-8000-4b1d0d06f00d"

// jujuAgent is an agent of Juju that has logged in.
type jujuAgent struct {
	t    *testing.T
	conn io.ReadWriteCloser
	id   int
	cert []byte // the server's
}

// jujuLogin logs in on a member; reply says how that went.
func jujuLogin(t *testing.T, s *Server, tag, password string) (*jujuAgent, string) {
	t.Helper()
	a := &jujuAgent{t: t}
	d := ws.Dialer{TLSConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(cs tls.ConnectionState) error {
		if cs.NegotiatedProtocol != "" {
			t.Errorf("negotiated %q", cs.NegotiatedProtocol)
		}
		a.cert = cs.PeerCertificates[0].Raw
		return nil
	}}}
	conn, _, _, err := d.Dial(testContext(t), "wss://"+s.JujuAddr()+"/model/"+jujuModel+"/api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(clusterTimeout))
	a.conn = conn
	return a, a.ask("Admin", 3, "Login", fmt.Sprintf(`{"auth-tag":%q,"credentials":%q,"cli-args":"--password %s"}`, tag, password, password))
}

func (a *jujuAgent) send(facade string, version int, method, params string) {
	a.t.Helper()
	a.id++
	text := fmt.Sprintf(`{"request-id":%d,"type":%q,"version":%d,"request":%q,"params":%s}`, a.id, facade, version, method, params)
	if err := wsutil.WriteClientText(a.conn, []byte(text)); err != nil {
		a.t.Fatal(err)
	}
}

// read returns the response of the next reply, or its error.
func (a *jujuAgent) read() string {
	a.t.Helper()
	data, err := wsutil.ReadServerText(a.conn)
	if err != nil {
		a.t.Fatal(err)
	}
	var reply struct {
		Response json.RawMessage `json:"response"`
		Error    string          `json:"error"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		a.t.Fatal(err)
	}
	if reply.Error != "" {
		return reply.Error
	}
	return string(reply.Response)
}

func (a *jujuAgent) ask(facade string, version int, method, params string) string {
	a.t.Helper()
	a.send(facade, version, method, params)
	return a.read()
}

func (a *jujuAgent) claim(unit string) string {
	a.t.Helper()
	application := unit[:strings.LastIndex(unit, "-")]
	return a.ask("LeadershipService", 2, "ClaimLeadership",
		fmt.Sprintf(`{"params":[{"application-tag":"application-%s","unit-tag":"unit-%s","duration":60}]}`, application, unit))
}

const (
	jujuGranted = `{"results":[{}]}`
	jujuDenied  = `{"results":[{"error":{"message":"leadership claim denied","code":"leadership claim denied"}}]}`
)

// withJuju opens the door, for agents of these tests.
func withJuju(t *testing.T, cfg Config) Config {
	t.Helper()
	cfg.Juju = Juju{Listen: "127.0.0.1:0", CredentialFile: filepath.Join(t.TempDir(), "agents")}
	writePasswords(t, cfg, "unit-app-0", "unit-app-1", "machine-0")
	return cfg
}

// writePasswords gives each agent its tag for a password.
func writePasswords(t *testing.T, cfg Config, tags ...string) {
	t.Helper()
	var file strings.Builder
	for _, tag := range tags {
		line, err := auth.PasswordLine("*", tag, tag, auth.RandomIterations, 0)
		if err != nil {
			t.Fatal(err)
		}
		file.WriteString(line + "\n")
	}
	if err := os.WriteFile(cfg.Juju.CredentialFile, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is asked for each native connection that is accepted counts agents out, and
// costs less than all numbers of the door together.
func TestConnectionsOfEachDoor(t *testing.T) {
	s := open(t, withJuju(t, testConfig(t)))
	jujuLogin(t, s, "unit-app-0", "unit-app-0")
	c, err := net.Dial("tcp", s.JujuAddr()) // accepted, not logged in
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	door := s.juju.door
	until(t, "two are connected and one is logged in", func() bool {
		return s.juju.connections() == 2 && door.Parked() == 1 && s.park.Stats().Parked == 1
	})
	if st := door.Stats(); st.Connections != 1 || st.Agents != 1 { // the other has said nothing
		t.Errorf("%d connections, %d agents", st.Connections, st.Agents)
	}
	if native, all := s.nativeParked(), s.openConnections(); native != 0 || all != 2 {
		t.Errorf("%d of the native door are parked, %d are open in all; want 0 and 2", native, all)
	}
	costs := testing.AllocsPerRun(1000, func() { s.nativeParked(); s.openConnections() })
	if whole := testing.AllocsPerRun(100, func() { door.Stats() }); costs > whole/10 {
		t.Errorf("%v allocations, and %v for all numbers", costs, whole)
	}
}

// The door serves with a certificate of its own that it keeps; status, reload and
// shutdown know it.
func TestJujuDoor(t *testing.T) {
	cfg := withJuju(t, testConfig(t))
	s := open(t, cfg)
	a, reply := jujuLogin(t, s, "unit-app-0", "unit-app-0")
	for _, part := range []string{`"model-tag":"model-` + jujuModel, `"controller-tag":"controller-`, `"server-version":"`, "LeadershipService", "Pinger"} {
		if !strings.Contains(reply, part) {
			t.Errorf("%s is missing in %s", part, reply)
		}
	}
	if _, reply := jujuLogin(t, s, "unit-app-0", "unit-app-1"); reply != "invalid entity name or password" {
		t.Error(reply)
	}
	if got := a.claim("app-0"); got != jujuGranted {
		t.Error(got)
	}
	l := leases.Of(s.engine.View()).Lease(incumbent.Name{Namespace: "application-leadership", Model: jujuModel, Lease: "app"})
	if l.Free() || l.Holder != "app/0" || l.Origin.Door != "juju" || l.Origin.Principal != "agent:app/0" {
		t.Errorf("the lease is %+v", l)
	}
	st, err := s.operator().Status(testContext(t))
	if err != nil || len(st.Doors) != 2 || st.Doors[1].Name != "juju" || !st.Doors[1].Tls || st.Doors[1].Address != s.JujuAddr() || st.Doors[1].Connections == 0 {
		t.Errorf("doors are %v, %v", st.Doors, err)
	}
	b, _ := jujuLogin(t, s, "unit-app-1", "unit-app-1")
	writePasswords(t, cfg, "unit-app-1")
	s.Reload()
	if _, err := wsutil.ReadServerText(a.conn); err == nil {
		t.Error("whose password was taken back is still connected")
	}
	if got := b.ask("Pinger", 1, "Ping", "null"); got != "{}" {
		t.Error(got)
	}
	if err := os.WriteFile(cfg.Juju.CredentialFile, []byte("* app/0 secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Reload("log level") // the old passwords stay
	if got := b.ask("Pinger", 1, "Ping", "null"); got != "{}" {
		t.Error(got)
	}
	kept, _, _ := s.events.after(s.events.last(2), 2)
	if len(kept) != 2 || kept[0].What != "reloaded" || kept[1].What != "reload failed" || !strings.Contains(kept[1].Detail, "old: log level, passwords of juju's agents;") {
		t.Errorf("events %v", kept)
	}
	writePasswords(t, cfg, "unit-app-1")
	cert := a.cert
	ctx, cancel := context.WithTimeout(testContext(t), clusterTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if b, _ = jujuLogin(t, s, "unit-app-1", "unit-app-1"); string(b.cert) != string(cert) {
		t.Error("the certificate was made anew")
	}
	if got := b.claim("app-1"); got != jujuDenied {
		t.Errorf("after the restart: %s", got)
	}
}

// What an operator of Juju's agents looks at is in status: who is connected, claims
// without an answer, who is blocked, extensions, and that somebody was turned away.
func TestJujuInStatus(t *testing.T) {
	cfg := withJuju(t, testConfig(t))
	cfg.MaxConnections = 2
	s := open(t, cfg)
	status := func() *apiv1.StatusResponse {
		t.Helper()
		st, err := s.operator().Status(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	a, _ := jujuLogin(t, s, "unit-app-0", "unit-app-0")
	b, _ := jujuLogin(t, s, "unit-app-1", "unit-app-1")
	before := s.counts()
	for range 2 {
		if got := a.claim("app-0"); got != jujuGranted {
			t.Error(got)
		}
	}
	b.send("LeadershipService", 2, "BlockUntilLeadershipReleased", `{"Name":"app"}`)
	until(t, "one is blocked, and one claim and one extension are counted", func() bool {
		d, now := status().Doors[1], s.counts()
		claims, extensions := now[rateClaims]-before[rateClaims], now[rateExtensions]-before[rateExtensions]
		return d.Connections == 2 && d.Agents == 2 && d.OutstandingClaims == 0 && d.BlockedCalls == 1 && claims == 1 && extensions == 1
	})
	var used uint64
	for _, l := range status().Limits {
		if l.Name == "connections of juju's agents" && l.Value == 2 {
			used = l.Used
		}
	}
	if used != 2 {
		t.Errorf("limits %v", status().Limits)
	}
	third, err := net.Dial("tcp", s.JujuAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if err := third.SetDeadline(time.Now().Add(clusterTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := third.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Fatalf("a third of two connections: %v", err)
	}
	if got := status().Warnings; len(got) != 1 || !strings.HasPrefix(got[0], "1 connections of Juju's agents were refused") {
		t.Errorf("warnings %q", got)
	}
}

// Every member serves every call: one claims on each, and who waits on a third is
// answered by a release on any.
func TestJujuOnThreeMembers(t *testing.T) {
	first := open(t, withJuju(t, memberConfig(t, "n1")))
	members := []*Server{first, join(t, first, withJuju(t, memberConfig(t, "n2"))), join(t, first, withJuju(t, memberConfig(t, "n3")))}
	leader := leaderOf(t, members...)
	var agents []*jujuAgent
	for _, s := range members {
		a, reply := jujuLogin(t, s, "unit-app-0", "unit-app-0")
		if !strings.Contains(reply, "controller-tag") {
			t.Fatal(reply)
		}
		for range 2 {
			if got := a.claim("app-0"); got != jujuGranted {
				t.Errorf("%s: %s", s.cfg.Name, got)
			}
		}
		b, _ := jujuLogin(t, s, "unit-app-1", "unit-app-1")
		if got := b.claim("app-1"); got != jujuDenied {
			t.Errorf("%s: %s", s.cfg.Name, got)
		}
		b.send("LeadershipService", 2, "BlockUntilLeadershipReleased", `{"Name":"app"}`)
		agents = append(agents, b)
	}
	for _, s := range members {
		until(t, "a call waits on "+s.cfg.Name, func() bool { return s.engine.Hub().Stats().Waiters == 1 })
	}
	propose(t, leader, leases.RevokeCommand{Name: incumbent.Name{Namespace: "application-leadership", Model: jujuModel, Lease: "app"}})
	won := 0
	for _, a := range agents {
		if got := a.read(); got != "{}" {
			t.Errorf("answer %s", got)
		}
		if got := a.claim("app-1"); got == jujuGranted {
			won++
		}
	}
	if won != len(agents) {
		t.Errorf("%d of %d claims of one unit were granted", won, len(agents))
	}
}

func TestJujuSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		juju Juju
		dev  bool
		want string
	}{
		"closed":               {Juju{}, false, ""},
		"with a file":          {Juju{Listen: "0.0.0.0:17070", CredentialFile: file}, false, ""},
		"to try":               {Juju{Listen: "127.0.0.1:17070", Password: "p"}, true, ""},
		"by the cluster alone": {Juju{Listen: "127.0.0.1:17070"}, false, ""},
		"password for all":     {Juju{Listen: "127.0.0.1:17070", Password: "p"}, false, "juju-password"},
		"password for anybody": {Juju{Listen: "0.0.0.0:17070", Password: "p", CredentialFile: file}, true, "juju-password"},
		"no address":           {Juju{Listen: "17070", CredentialFile: file}, false, "juju-listen"},
		"no listener":          {Juju{CredentialFile: file}, false, "juju-listen"},
	} {
		cfg := testConfig(t)
		cfg.Juju, cfg.Dev = tt.juju, tt.dev
		err := cfg.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (incumbent.KindOf(err) != incumbent.Invalid || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := testConfig(t)
	cfg.Juju = Juju{Listen: "127.0.0.1:0", CredentialFile: file + ".missing"}
	if _, err := Open(cfg); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a file that is not there: %v", err)
	}
	line, err := auth.PasswordLine("*", "app/0", "p", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("# agents\n"+line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Juju.CredentialFile = file
	if _, err := Open(cfg); incumbent.KindOf(err) != incumbent.Invalid || !strings.Contains(err.Error(), "line 2: invalid: the tag is none of") {
		t.Errorf("a line by which nobody can log in: %v", err)
	}
}

// TestJujuTLSVersion: what is older than TLS 1.2 is not spoken.
func TestJujuTLSVersion(t *testing.T) {
	cfg, err := jujuCertificate(t.TempDir(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		ours, theirs := net.Pipe()
		go func() {
			_ = tls.Server(ours, cfg).Handshake() // the client says how it ended
			ours.Close()
		}()
		client := tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}) //nolint:gosec // old versions are what is tested
		if err := client.Handshake(); (err == nil) != want {
			t.Errorf("version %x: %v", version, err)
		}
		theirs.Close()
	}
}
