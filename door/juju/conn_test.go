package juju

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/watch"
)

const pingText = `{"request-id":2,"type":"Pinger","version":1,"request":"Ping"}`

func loginText(tag, password string) string {
	return fmt.Sprintf(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":%q,"credentials":%q}}`, tag, password)
}

// dial connects and does not log in.
func (m *member) dial() *client {
	m.tb.Helper()
	c, err := m.connect("/model/" + testModel + "/api")
	if err != nil {
		m.tb.Fatal(err)
	}
	return c
}

// What comes right behind the login is served after it: none of it is lost on the
// way to being parked, wherever it is cut.
func TestRequestsBehindTheLogin(t *testing.T) {
	m := newMember(t, nil)
	var all bytes.Buffer
	for _, text := range []string{loginText("unit-app-0", "unit-app-0"), pingText, claimText(3, "app", "app-0", "60"), pingText} {
		if err := wsutil.WriteClientText(&all, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, cut := range []int{all.Len(), all.Len() - 10, all.Len() / 2, 130} {
		c := m.dial()
		for _, part := range [][]byte{all.Bytes()[:cut], all.Bytes()[cut:]} {
			if _, err := c.conn.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		c.read() // the login's
		got := map[string]int{}
		for range 3 {
			got[c.read()]++
		}
		if got[empty(2)] != 2 || got[granted(3)] != 1 {
			t.Errorf("cut at %d: %v", cut, got)
		}
	}
}

// Frames that are no request get the same answer before the login and after it.
func TestFramesThatAreNoRequest(t *testing.T) {
	m := newMember(t, nil, func(c *Config) { c.MaxMessageBytes = 10_000 })
	text := func(s string) ws.Frame { return ws.NewTextFrame([]byte(s)) }
	for name, tt := range map[string]struct {
		frame ws.Frame
		want  string
	}{
		"too long":   {text(strings.Repeat("x", 10_001)), "closed 1009"},
		"binary":     {ws.NewBinaryFrame([]byte("x")), "closed 1003"},
		"no JSON":    {text("x"), "closed 1008"},
		"no id":      {text(`{"type":"Pinger","request":"Ping"}`), "closed 1008"},
		"two deep":   {text(`{"request-id":1,"params":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`), "closed 1008"},
		"a good-bye": {ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, "")), "closed 1000"},
	} {
		for _, c := range []*client{m.dial(), m.login("unit-app-0")} {
			err := ws.WriteFrame(c.conn, ws.MaskFrame(tt.frame))
			if err != nil && name != "too long" { // that is answered, and cut off, as soon as its header has come
				t.Fatal(err)
			}
			if got := c.read(); got != tt.want {
				t.Errorf("%s: %s, want %s", name, got, tt.want)
			}
		}
	}
	pings := ws.NewPingFrame([]byte("alive?"))
	begin, end := ws.NewFrame(ws.OpText, false, []byte(pingText[:10])), ws.NewFrame(ws.OpContinuation, true, []byte(pingText[10:]))
	for _, c := range []*client{m.dial(), m.login("unit-app-0")} {
		for _, f := range []ws.Frame{pings, begin, pings, end} {
			if err := ws.WriteFrame(c.conn, ws.MaskFrame(f)); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(patience))
		for i := range 2 {
			h, err := ws.ReadHeader(c.in)
			said := make([]byte, len("alive?"))
			if err == nil && h.Length == int64(len(said)) {
				_, err = io.ReadFull(c.in, said)
			}
			if err != nil || h.OpCode != ws.OpPong || string(said) != "alive?" {
				t.Errorf("ping %d: %+v, %v", i, h, err)
			}
		}
		if got := c.read(); !strings.HasPrefix(got, `{"request-id":2,`) {
			t.Errorf("the message in two frames: %s", got)
		}
	}
}

// What is no WebSocket is told so by HTTP.
func TestUpgradeSaysWhatIsWrong(t *testing.T) {
	m := newMember(t, nil, func(c *Config) { c.Passwords = busyPasswords{c.Passwords} })
	for name, tt := range map[string]struct {
		change func(*http.Request)
		want   int
		header string
	}{
		"as it should be": {func(*http.Request) {}, http.StatusServiceUnavailable, "Retry-After"},
		"path":            {func(r *http.Request) { r.URL.Path = "/model/" + strings.ToUpper(testModel) + "/api" }, http.StatusNotFound, ""},
		"method":          {func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed, ""},
		"no upgrade":      {func(r *http.Request) { r.Header.Del("Upgrade") }, http.StatusUpgradeRequired, "Upgrade"},
		"no connection":   {func(r *http.Request) { r.Header.Set("Connection", "keep-alive") }, http.StatusUpgradeRequired, "Upgrade"},
		"version":         {func(r *http.Request) { r.Header.Set("Sec-WebSocket-Version", "8") }, http.StatusUpgradeRequired, "Upgrade"},
		"key":             {func(r *http.Request) { r.Header.Set("Sec-WebSocket-Key", "short") }, http.StatusBadRequest, ""},
	} {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+m.addr+"/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{
			"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		} {
			r.Header.Set(key, value)
		}
		tt.change(r)
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		res, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		transport.CloseIdleConnections()
		if res.StatusCode != tt.want || len(text) == 0 || tt.header != "" && res.Header.Get(tt.header) == "" {
			t.Errorf("%s: %s %v %q, want %d with %q", name, res.Status, res.Header, text, tt.want, tt.header)
		}
	}
}

// guarded does something right after a password was found right.
type guarded struct {
	Passwords
	then func()
	err  error
}

func (g *guarded) Verify(ctx context.Context, scope, tag, password string, from netip.Addr) (auth.Pass, error) {
	if g.err != nil {
		return auth.Pass{}, g.err
	}
	pass, err := g.Passwords.Verify(ctx, scope, tag, password, from)
	g.then()
	return pass, err
}

// What happens between the password and being parked is not missed: who is taken
// back, or comes while the door drains, goes.
func TestNobodySlipsInMeanwhile(t *testing.T) {
	for name, then := range map[string]func(*member){
		"taken back": func(m *member) { m.checks.SetPasswords(nil); m.door.Recheck() },
		"draining":   func(m *member) { m.door.Drain() },
	} {
		t.Run(name, func(t *testing.T) {
			g := new(guarded)
			m := newMember(t, nil, func(c *Config) { g.Passwords, c.Passwords = c.Passwords, g })
			g.then = func() { then(m) }
			c := m.dial()
			c.send(loginText("unit-app-0", "unit-app-0"))
			got := c.read()
			if strings.HasPrefix(got, "{") {
				got = c.read()
			}
			if !strings.HasPrefix(got, "closed") {
				t.Error(got)
			}
			c.conn.Close()
			eventually(t, "it is gone", func() bool { return m.door.Stats().Connections == 0 })
		})
	}
}

// Too many verifications are a reason to come back, not a wrong password. And what
// is no agent is none with the right password either.
func TestLoginsThatAreRefused(t *testing.T) {
	g := &guarded{err: incumbent.Errorf(incumbent.Overloaded, "too many")}
	m := newMember(t, nil, func(c *Config) { g.Passwords, c.Passwords = c.Passwords, g })
	if got, want := m.dial().ask(loginText("unit-app-0", "unit-app-0")), `{"request-id":1,"error":"try again","error-code":"try again"}`; got != want {
		t.Error(got)
	}
	m = newMember(t, nil, func(c *Config) { c.Passwords = auth.NewVerifier(auth.VerifierConfig{Everybody: "pw"}, nil) })
	for _, tag := range []string{"user-admin", "unit-app", "app/0", "model-" + testModel, ""} {
		if got, want := m.dial().ask(loginText(tag, "pw")), `{"request-id":1,"error":"invalid entity name or password","error-code":"unauthorized access"}`; got != want {
			t.Errorf("%q: %s", tag, got)
		}
	}
}

// A request that is served when its connection has ended leaves nothing behind.
func TestServedTooLate(t *testing.T) {
	m := newMember(t, nil)
	if got := m.login("unit-app-1").ask(claimText(2, "app", "app-1", "60")); got != granted(2) {
		t.Fatal(got)
	}
	c := m.login("unit-app-0")
	eventually(t, "both are in", func() bool { return m.door.Stats().Agents == 2 })
	var server *conn
	for _, x := range m.door.conns.All() {
		if x.who.tag == "unit-app-0" {
			server = x
		}
	}
	c.conn.Close()
	eventually(t, "it is gone", server.isGone)
	for _, text := range []string{blockText(2, "app"), claimText(3, "app", "app-0", "60"), `{"request-id":4,"type":"LeadershipPinner","version":1,"request":"PinnedLeadership"}`} {
		r, ok := decodeRequest([]byte(text))
		if !ok {
			t.Fatal(text)
		}
		server.serve(&r)
	}
	eventually(t, "nothing is open", func() bool {
		st := m.door.Stats()
		return st.Blocked == 0 && st.Claims == 0 && server.open.Load() == 0 && m.group.Hub().Stats().Waiters == 0
	})
}

// Places among unanswered requests are given back, however many a call takes, and
// places in lanes.
func TestPlacesAreGivenBack(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, func() float64 { return 0.5 })
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(t, nil, func(c *Config) { c.MaxOutstanding, c.Admission = 3, lanes })
	c := m.login("machine-0")
	entity := `{"tag":"model-` + testModel + `"}`
	for range 4 {
		if got, want := c.ask(`{"request-id":3,"type":"Singular","version":2,"request":"Wait","params":{"entities":[`+entity+`,`+entity+`,`+entity+`]}}`),
			`{"request-id":3,"response":{"results":[{},{},{}]}}`; got != want {
			t.Fatal(got)
		}
		if got, want := c.ask(`{"request-id":4,"type":"LeadershipPinner","version":1,"request":"PinnedLeadership"}`), `{"request-id":4,"response":{"result":{}}}`; got != want {
			t.Fatal(got)
		}
		if got := c.ask(singularClaimText); got != granted(2) {
			t.Fatal(got)
		}
		m.free(incumbent.Name{Namespace: singularNamespace, Model: testModel, Lease: testModel})
	}
	four := strings.Repeat(entity+",", 3) + entity
	if got := c.ask(`{"request-id":5,"type":"Singular","version":2,"request":"Wait","params":{"entities":[` + four + `]}}`); got != `{"request-id":5,"error":"too many requests are unanswered","error-code":"try again"}` {
		t.Error(got)
	}
	eventually(t, "no lane has anything under way", func() bool {
		for _, s := range lanes.Stats() {
			if s.Inflight != 0 {
				return false
			}
		}
		return true
	})
}

// Calls are timed by the clock of the door, each as what it is.
func TestCallsAreTimed(t *testing.T) {
	var clock atomic.Int64
	m := newMember(t, nil, func(c *Config) { c.Monotonic = clock.Load })
	a, b := m.login("unit-app-0"), m.login("unit-app-1")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	b.send(blockText(2, "app"))
	eventually(t, "it waits", func() bool { return m.group.Hub().Stats().Waiters == 1 })
	clock.Add(int64(7 * time.Second))
	m.free(nameOf(testModel, "app"))
	if got := b.read(); got != empty(2) {
		t.Fatal(got)
	}
	for _, s := range m.door.Stats().Methods {
		switch s.Method {
		case "BlockUntilLeadershipReleased":
			if s.Facade != "LeadershipService" || s.Count != 1 || s.Sum != 7 || s.Buckets[5] != 0 || s.Buckets[10] != 1 {
				t.Errorf("%+v", s)
			}
		case "ClaimLeadership":
			if s.Count != 1 || s.Sum != 0 || s.Buckets[.001] != 1 {
				t.Errorf("%+v", s)
			}
		default:
			if s.Count != 0 {
				t.Errorf("%+v", s)
			}
		}
	}
}

// A wait that cannot go on and is tried again remembers whose end it waits for: what
// ended meanwhile has ended, whoever holds the lease by then.
func TestG10_AWaitThatIsTriedAgainKnowsItsHolding(t *testing.T) {
	m := newMember(t, nil)
	a, b := m.login("unit-app-0"), m.login("unit-app-1")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	eventually(t, "the door follows the policies", func() bool { return m.group.Hub().Stats().Readers == 1 })
	m.group.Hub().SetLimits(watch.Limits{MaxListeners: 2})
	a.send(blockText(3, "app")) // has the only place that is left
	eventually(t, "the place is taken", func() bool { return m.group.Hub().Stats().Waiters == 1 })
	b.send(blockText(2, "app"))
	eventually(t, "there is no place", func() bool { return m.door.Stats().Retries > 2 })
	m.free(nameOf(testModel, "app"))
	if got := a.read(); got != empty(3) {
		t.Fatal(got)
	}
	if got := a.ask(claimText(4, "app", "app-0", "60")); got != granted(4) {
		t.Fatal(got)
	}
	if got := b.read(); got != empty(2) {
		t.Error(got)
	}
}

// A thousand waits that end at once are answered at the pace that is set.
func TestWaitsThatEndTogetherAreAnsweredInTurn(t *testing.T) {
	const clients, each = 4, 250
	var clock atomic.Int64 // stands still: beyond the burst nothing is owed to anybody
	m := newMember(t, nil, func(c *Config) { c.WakesPerSecond, c.MaxOutstanding, c.Monotonic = 1, each, clock.Load })
	a := m.login("unit-app-0")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	for range clients {
		c := m.login("unit-app-1")
		for i := range each {
			c.send(blockText(2+i, "app"))
		}
	}
	eventually(t, "all wait", func() bool { return m.group.Hub().Stats().Waiters == clients*each })
	m.free(nameOf(testModel, "app"))
	eventually(t, "all have been woken, and a burst was answered", func() bool {
		return m.group.Hub().Stats().Waiters == 0 && m.door.Stats().Blocked <= clients*each-wakeBurst
	})
	for range 500 { // what is not waiting goes on
		if got := a.ask(pingText); got != empty(2) {
			t.Fatal(got)
		}
	}
	if n := m.door.Stats().Blocked; n == 0 {
		t.Error("all were answered at once")
	}
}

// hopeless has the passwords of one tag wait for a turn that never comes.
type hopeless struct{ Passwords }

func (h hopeless) Verify(ctx context.Context, scope, tag, password string, from netip.Addr) (auth.Pass, error) {
	if tag == "unit-app-1" {
		<-ctx.Done()
		return auth.Pass{}, incumbent.Errorf(incumbent.Overloaded, "too many")
	}
	return h.Passwords.Verify(ctx, scope, tag, password, from)
}

// Logins that wait for their password to be checked have no place for longer than a login
// may take, and by default half of the places at most.
func TestG41_SlowChecksKeepNobodyOut(t *testing.T) {
	const pending = 2
	m := newMember(t, nil, func(c *Config) {
		c.Passwords, c.MaxPending, c.LoginTimeout = hopeless{c.Passwords}, pending, 5*time.Second
	})
	for range pending {
		m.dial().send(loginText("unit-app-1", "chosen"))
	}
	eventually(t, "all places are taken", func() bool { return m.door.Stats().Pending == pending })
	if got := m.login("unit-app-0").ask(pingText); got != empty(2) {
		t.Error(got)
	}
	eventually(t, "who waited is gone", func() bool { return m.door.Stats().Connections == 1 })
	if auth.DefaultMaxChecking > DefaultMaxPending/2 {
		t.Errorf("%d of %d places may be taken by those who wait", auth.DefaultMaxChecking, DefaultMaxPending)
	}
}

// Who waits for their password to be checked when the door drains is not waited for.
func TestDrainEndsChecks(t *testing.T) {
	m := newMember(t, nil, func(c *Config) { c.Passwords, c.LoginTimeout = hopeless{c.Passwords}, time.Hour })
	m.dial().send(loginText("unit-app-1", "chosen"))
	eventually(t, "it waits", func() bool { return m.door.Stats().Pending == 1 })
	m.stop()
}

// Whose password is found right after the time of its login is over is not left without an
// answer: the connection ends, and takes no place.
func TestALoginThatIsCheckedTooLateEnds(t *testing.T) {
	const timeout = 200 * time.Millisecond
	g := &guarded{then: func() { time.Sleep(2 * timeout) }}
	m := newMember(t, nil, func(c *Config) { g.Passwords, c.Passwords, c.LoginTimeout = c.Passwords, g, timeout })
	c := m.dial()
	c.send(loginText("unit-app-0", "unit-app-0"))
	if n, err := c.conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
	eventually(t, "it is gone", func() bool { return m.door.Stats().Connections == 0 })
}
