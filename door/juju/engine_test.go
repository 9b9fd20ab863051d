package juju

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"math/big"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/enginetest"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/park"
)

const (
	testModel  = "deadbeef-0bad-400d-8000-4b1d0d06f00d"
	otherModel = "00000000-0bad-400d-8000-4b1d0d06f00d"
	patience   = time.Minute
)

// member is a door on a real engine.
type member struct {
	tb     testing.TB
	group  *enginetest.Group
	park   *park.Set
	door   *Door
	checks *auth.Verifier
	addr   string
	stop   func()
}

var errNoLeader = incumbent.Errorf(incumbent.Unavailable, "no leader is known")

// account is a line of a password file; the tag is the password.
type account struct {
	scope, tag string
	grants     auth.Grant
}

// passwords lets the agents of these tests in.
func passwords(tb testing.TB) *auth.Passwords {
	tb.Helper()
	return passwordsOf(tb,
		account{"*", "unit-app-0", 0},
		account{"*", "unit-app-1", 0},
		account{"*", "application-app", 0},
		account{"*", "unit-other-0", 0},
		account{testModel, "unit-load-0", auth.ClaimAny},
		account{"*", "machine-0", auth.Controller},
		account{"*", "machine-1", auth.Controller},
		account{"*", "machine-2", 0},
	)
}

func passwordsOf(tb testing.TB, all ...account) *auth.Passwords {
	tb.Helper()
	var file strings.Builder
	for _, x := range all {
		line, err := auth.PasswordLine(x.scope, x.tag, x.tag, auth.RandomIterations, x.grants)
		if err != nil {
			tb.Fatal(err)
		}
		file.WriteString(line + "\n")
	}
	p, err := auth.ParsePasswords(strings.NewReader(file.String()), ValidateAccount)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

var testTLS = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
})

// newMember starts one; ticks, unless nil, replace the clock of silence.
func newMember(tb testing.TB, ticks <-chan time.Time, change ...func(*Config)) *member {
	tb.Helper()
	m := &member{tb: tb, checks: auth.NewVerifier(auth.VerifierConfig{}, passwords(tb))}
	var err error
	if m.park, err = park.New(park.Config{Ticks: ticks}); err != nil {
		tb.Fatal(err)
	}
	m.group = enginetest.Start(tb, engine.Config{Lease: lease.Options{Barrier: m.park.Barrier}})
	cfg := Config{
		Engine: m.group.Engine, Leases: m.group.Leases(), Park: m.park, Passwords: m.checks, TLS: testTLS,
		Cluster: [16]byte{0xc0, 15: 1},
	}
	for _, f := range change {
		f(&cfg)
	}
	if m.door, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	m.run()
	return m
}

func (m *member) run() {
	served := make(chan error, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.tb.Fatal(err)
	}
	m.addr = ln.Addr().String()
	go func() { served <- m.door.Serve(ln) }()
	m.stop = sync.OnceFunc(func() {
		end, done := context.WithTimeout(context.Background(), patience)
		defer done()
		m.door.Drain()
		ln.Close()
		if err := <-served; err != nil {
			m.tb.Errorf("serve: %v", err)
		}
		if err := m.park.Close(end); err != nil {
			m.tb.Errorf("park: %v", err)
		}
		if err := m.door.Close(end); err != nil {
			m.tb.Errorf("door: %v", err)
		}
		m.group.Stop()
	})
	m.tb.Cleanup(m.stop)
}

// free ends the holding of a lease.
func (m *member) free(name incumbent.Name) {
	m.tb.Helper()
	if r := m.group.Do(leases.RevokeCommand{Name: name}); r.Err != nil {
		m.tb.Fatal(r.Err)
	}
}

// eventually waits for something that goroutines of the door do.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			tb.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// client is an agent of these tests.
type client struct {
	tb   testing.TB
	conn net.Conn
	in   io.Reader
}

// connect performs TLS and the upgrade.
func (m *member) connect(path string) (*client, error) {
	dialer := ws.Dialer{TLSConfig: &tls.Config{InsecureSkipVerify: true}, Timeout: patience}
	conn, br, _, err := dialer.Dial(context.Background(), "wss://"+m.addr+path)
	if err != nil {
		return nil, err
	}
	c := &client{tb: m.tb, conn: conn, in: conn}
	if br != nil {
		c.in = io.MultiReader(br, conn)
	}
	m.tb.Cleanup(func() { conn.Close() })
	return c, nil
}

// login connects and logs in with the tag's password.
func (m *member) login(tag string) *client {
	m.tb.Helper()
	c, err := m.connect("/model/" + testModel + "/api")
	if err != nil {
		m.tb.Fatal(err)
	}
	got := c.ask(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":"` + tag + `","credentials":"` + tag + `"}}`)
	if strings.Contains(got, "error") {
		m.tb.Fatalf("login of %s: %s", tag, got)
	}
	return c
}

func (c *client) send(text string) {
	c.tb.Helper()
	if err := wsutil.WriteClientText(c.conn, []byte(text)); err != nil {
		c.tb.Fatal(err)
	}
}

// read returns the next message, or "closed CODE".
func (c *client) read() string {
	c.tb.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		h, err := ws.ReadHeader(c.in)
		if err == io.EOF {
			return "closed without a word"
		}
		payload := make([]byte, h.Length)
		if err == nil {
			_, err = io.ReadFull(c.in, payload)
		}
		switch {
		case err != nil:
			c.tb.Fatal(err)
		case h.OpCode == ws.OpClose:
			code, _ := ws.ParseCloseFrameData(payload)
			return "closed " + strconv.FormatUint(uint64(code), 10)
		case h.OpCode == ws.OpText:
			if !json.Valid(payload) {
				c.tb.Errorf("not JSON: %s", payload)
			}
			return string(payload)
		}
	}
}

func (c *client) ask(text string) string {
	c.tb.Helper()
	c.send(text)
	return c.read()
}

func claimText(id int, application, unit string, duration string) string {
	return `{"request-id":` + strconv.FormatUint(uint64(id), 10) + `,"type":"LeadershipService","version":2,"request":"ClaimLeadership","params":{"params":[{"application-tag":"application-` +
		application + `","unit-tag":"unit-` + unit + `","duration":` + duration + `}]}}`
}

func blockText(id int, application string) string {
	return `{"request-id":` + strconv.FormatUint(uint64(id), 10) + `,"type":"LeadershipService","version":2,"request":"BlockUntilLeadershipReleased","params":{"Name":"` + application + `"}}`
}

func granted(id int) string {
	return `{"request-id":` + strconv.FormatUint(uint64(id), 10) + `,"response":{"results":[{}]}}`
}

func empty(id int) string {
	return `{"request-id":` + strconv.FormatUint(uint64(id), 10) + `,"response":{}}`
}

func denied(id int) string {
	return `{"request-id":` + strconv.FormatUint(uint64(id), 10) + `,"response":{"results":[{"error":{"message":"leadership claim denied","code":"leadership claim denied"}}]}}`
}
