package juju

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/park"
)

// Who logs in, for whom it claims or waits, and whether it may.
func TestG12_UnitsActOnlyForThemselves(t *testing.T) {
	m := newMember(t, nil)
	tests := []struct {
		who, application, unit string
		claim, follow          bool
	}{
		{"unit-app-0", "app", "app-0", true, true},
		{"unit-app-0", "app", "app-1", false, true},
		{"unit-app-0", "other", "other-0", false, false},
		{"unit-app-0", "other", "app-0", false, false}, // not a unit of it
		{"application-app", "app", "app-0", true, true},
		{"application-app", "app", "app-7", true, true},
		{"application-app", "other", "other-0", false, false},
		{"unit-load-0", "app", "app-0", true, true},
		{"unit-load-0", "other", "other-0", true, true},
		{"unit-load-0", "other", "app-0", false, true}, // granted any unit, but of its application
		{"machine-0", "app", "app-0", false, false},
		{"machine-2", "app", "app-0", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.who+" for "+tt.unit+" of "+tt.application, func(t *testing.T) {
			m.group.Do(leases.RevokeCommand{Name: nameOf(testModel, tt.application)})
			c := m.login(tt.who)
			got := c.ask(claimText(2, tt.application, tt.unit, "6"))
			if ok := got == granted(2); ok != tt.claim || !ok && !strings.Contains(got, "permission denied") {
				t.Errorf("claim: %s", got)
			}
			m.group.Do(leases.RevokeCommand{Name: nameOf(testModel, tt.application)})
			got = c.ask(blockText(3, tt.application))
			if ok := got == empty(3); ok != tt.follow || !ok && !strings.Contains(got, "permission denied") {
				t.Errorf("wait: %s", got)
			}
		})
	}
	// Models are disjoint: the same application elsewhere is another lease.
	c, err := m.connect("/model/" + otherModel + "/api")
	if err != nil {
		t.Fatal(err)
	}
	c.ask(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":"unit-app-1","credentials":"unit-app-1"}}`)
	if a := m.login("unit-app-0"); a.ask(claimText(2, "app", "app-0", "6")) != granted(2) {
		t.Error("the first model's lease was not granted")
	}
	if got := c.ask(claimText(2, "app", "app-1", "6")); got != granted(2) {
		t.Errorf("another model's lease: %s", got)
	}
}

// Every caller blocked on a lease is answered when it is released, however that
// happens, and nobody else is; an extension changes nothing.
func TestG10_BlockedUntilReleased(t *testing.T) {
	m := newMember(t, nil)
	for name, end := range map[string]func(l *leases.Lease) core.Command{
		"released": func(l *leases.Lease) core.Command { return leases.ReleaseCommand{Name: l.Name, Token: l.Token} },
		"expired":  func(l *leases.Lease) core.Command { return leases.ExpireCommand{Token: l.Token, Renewal: l.Renewal} },
		"revoked":  func(l *leases.Lease) core.Command { return leases.RevokeCommand{Name: l.Name} },
	} {
		t.Run(name, func(t *testing.T) {
			holder, other := m.login("unit-app-0"), m.login("unit-other-0")
			if got := holder.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
				t.Fatal(got)
			}
			if got := other.ask(claimText(2, "other", "other-0", "60")); got != granted(2) {
				t.Fatal(got)
			}
			other.send(blockText(3, "other"))
			var waiting []*client
			for range 5 {
				c := m.login("unit-app-1")
				c.send(blockText(2, "app"))
				c.send(blockText(3, "app"))
				waiting = append(waiting, c)
			}
			eventually(t, "eleven calls wait", func() bool { return m.group.Hub().Stats().Waiters == 11 })
			if got := holder.ask(claimText(3, "app", "app-0", "300")); got != granted(3) {
				t.Fatal(got)
			}
			if got := other.ask(claimText(4, "other", "other-0", "60")); got != granted(4) {
				t.Fatal(got)
			}
			if n := m.group.Hub().Stats().Waiters; n != 11 {
				t.Fatalf("an extension left %d waiting", n)
			}
			if r := m.group.Do(end(leases.Of(m.group.View()).Lease(nameOf(testModel, "app")))); r.Err != nil {
				t.Fatal(r.Err)
			}
			for _, c := range waiting {
				if got := map[string]bool{c.read(): true, c.read(): true}; !got[empty(2)] || !got[empty(3)] {
					t.Errorf("answers: %v", got)
				}
			}
			if n := m.door.Stats().Blocked; n != 1 {
				t.Errorf("%d wait, one does", n)
			}
			m.free(nameOf(testModel, "other"))
			if got := other.read(); got != empty(3) {
				t.Error(got)
			}
		})
	}
}

// A hand-over is never free: who blocks is answered by it.
func TestG10_WokenByAHandOver(t *testing.T) {
	m := newMember(t, nil)
	name := nameOf(testModel, "app")
	id := incumbent.NewSessionID()
	for _, cmd := range []core.Command{
		leases.ClaimCommand{Name: name, Holder: "app/9", TTL: time.Minute},
		core.OpenSessionCommand{ID: id, TTL: time.Minute},
		leases.ClaimCommand{Name: name, Holder: "app/8", Session: id, Wait: true},
	} {
		if r := m.group.Do(cmd); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	c := m.login("unit-app-0")
	c.send(blockText(2, "app"))
	eventually(t, "it waits", func() bool { return m.group.Hub().Stats().Waiters == 1 })
	if r := m.group.Do(leases.ReleaseCommand{Name: name, Holder: "app/9", Next: id}); r.Err != nil {
		t.Fatal(r.Err)
	}
	if l := leases.Of(m.group.View()).Lease(name); l.Free() {
		t.Fatal("the lease is free, and should have been handed over")
	}
	if got := c.read(); got != empty(2) {
		t.Error(got)
	}
}

// Without a leader claims and waits are held open, and answered by the next one.
func TestHeldOpenWithoutALeader(t *testing.T) {
	m := newMember(t, nil)
	a, b := m.login("unit-app-0"), m.login("unit-app-1")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	m.group.Refuse(true)
	a.send(claimText(3, "app", "app-0", "60")) // an extension
	b.send(claimText(2, "app", "app-1", "60")) // to be denied, when that is certain
	b.send(blockText(3, "app"))
	o := m.login("unit-other-0")
	o.send(claimText(2, "other", "other-0", "60")) // by the log
	o.send(blockText(3, "other"))
	eventually(t, "all were tried again", func() bool { return m.door.Stats().Retries >= 10 })
	if st := m.door.Stats(); st.Claims != 3 || st.Blocked != 2 {
		t.Fatalf("%d claims and %d waits are open, want 3 and 2", st.Claims, st.Blocked)
	}
	m.group.Refuse(false)
	if got := a.read(); got != granted(3) {
		t.Errorf("extension: %s", got)
	}
	if got := b.read(); got != denied(2) {
		t.Errorf("claim of another: %s", got)
	}
	// The other one's claim and wait overtake one another.
	first := o.read()
	if first == empty(3) {
		first = o.read()
	}
	if first != granted(2) {
		t.Errorf("claim: %s", first)
	}
	m.free(nameOf(testModel, "app"))
	if got := b.read(); got != empty(3) {
		t.Errorf("wait: %s", got)
	}
	for _, e := range m.door.Stats().Errors {
		if e.N > 0 && (e.Facade != leadershipFacade.name || e.Code != leadershipDenied.String()) {
			t.Errorf("clients were told %q by %s", e.Code, e.Facade)
		}
	}
}

// doubtful loses the first answers: whether the commands took effect is unknown.
type doubtful struct {
	Leases
	mu    sync.Mutex
	calls [][]lease.Op
	lose  int
}

func (d *doubtful) Do(c lease.Call, ops []lease.Op, done func()) {
	d.mu.Lock()
	d.calls = append(d.calls, append([]lease.Op(nil), ops...))
	lose := len(d.calls) <= d.lose
	d.mu.Unlock()
	d.Leases.Do(c, ops, func() {
		for i := range ops {
			if lose {
				ops[i].Result = core.Result{Err: incumbent.Errorf(incumbent.Unknown, "who knows")}
			}
		}
		done()
	})
}

// An unknown outcome is asked again: the same claim by the same holder. A bulk is
// handed in together.
func TestUnknownOutcomesAreAskedAgain(t *testing.T) {
	doubt := &doubtful{lose: 3}
	m := newMember(t, nil, func(c *Config) { doubt.Leases, c.Leases = c.Leases, doubt })
	c := m.login("unit-load-0")
	if got := c.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Error(got)
	}
	l := leases.Of(m.group.View()).Lease(nameOf(testModel, "app"))
	if l.Token != 1 {
		t.Errorf("granted under token %v: not the first claim", l.Token)
	}
	var params []string
	for i := range 100 {
		params = append(params, fmt.Sprintf(`{"application-tag":"application-a%d","unit-tag":"unit-a%d-0","duration":60}`, i, i))
	}
	got := c.ask(`{"request-id":3,"type":"LeadershipService","version":2,"request":"ClaimLeadership","params":{"params":[` + strings.Join(params, ",") + `]}}`)
	if want := `{"request-id":3,"response":{"results":[{}` + strings.Repeat(",{}", 99) + `]}}`; got != want {
		t.Error(got)
	}
	doubt.mu.Lock()
	defer doubt.mu.Unlock()
	if n := len(doubt.calls); n != 5 || len(doubt.calls[4]) != 100 {
		t.Errorf("%d calls, the last with %d operations", n, len(doubt.calls[n-1]))
	}
}

// A connection that ends takes its waits with it, at once; one that is silent is
// cut off after three minutes, by ticks really handled.
func TestG47_SilenceAndClosing(t *testing.T) {
	ticks := make(chan time.Time)
	m := newMember(t, ticks)
	a, b := m.login("unit-app-0"), m.login("unit-app-1")
	if got := a.ask(claimText(2, "app", "app-0", "300")); got != granted(2) {
		t.Fatal(got)
	}
	for i := range 10 {
		b.send(blockText(2+i, "app"))
	}
	eventually(t, "ten calls wait", func() bool { return m.group.Hub().Stats().Waiters == 10 })
	b.conn.Close()
	eventually(t, "none waits", func() bool {
		st := m.door.Stats()
		return m.group.Hub().Stats().Waiters == 0 && st.Blocked == 0 && st.Agents == 1
	})

	const silence = int(DefaultSilence / park.TickInterval)
	for range silence - 4 {
		ticks <- time.Time{}
	}
	if got := a.ask(`{"request-id":3,"type":"Pinger","version":1,"request":"Ping","params":null}`); got != empty(3) {
		t.Fatal(got)
	}
	for range silence - 4 {
		ticks <- time.Time{}
	}
	if got := a.ask(`{"request-id":4,"type":"Pinger","version":1,"request":"Ping","params":null}`); got != empty(4) {
		t.Fatal(got)
	}
	for range silence + 4 {
		ticks <- time.Time{}
	}
	eventually(t, "it is cut off", func() bool {
		select {
		case ticks <- time.Time{}: // a worker that was busy looks again at the next one
		default:
		}
		st := m.door.Stats()
		return st.Silent == 1 && st.Connections == 0
	})
	if l := leases.Of(m.group.View()).Lease(nameOf(testModel, "app")); l.Free() {
		t.Error("its lease went with it")
	}
}

// A storm of one chosen password costs one verification, and no more than MaxPending are
// on their way at once.
func TestLoginStorm(t *testing.T) {
	const storm, pending = 64, 8
	m := newMember(t, nil, func(c *Config) { c.MaxPending, c.LoginTimeout = pending, patience })
	line, err := auth.PasswordLine("*", "unit-app-0", "unit-app-0", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := auth.ParsePasswords(strings.NewReader(line), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.checks.SetPasswords(chosen)
	over := make(chan int, 1)
	ended := make(chan struct{})
	go func() {
		most := 0
		for {
			select {
			case <-ended:
				over <- most
				return
			default:
				most = max(most, m.door.Stats().Pending)
				runtime.Gosched()
			}
		}
	}()
	var all sync.WaitGroup
	for range storm {
		all.Go(func() { m.login("unit-app-0") })
	}
	all.Wait()
	close(ended)
	if most := <-over; most > pending {
		t.Errorf("%d were on their way at once, limit is %d", most, pending)
	}
	eventually(t, "all are in", func() bool { return m.door.Stats().Agents == storm })
	if n := m.checks.Counts(auth.Verified); n != 1 {
		t.Errorf("%d verifications for %d logins with one password", n, storm)
	}
	if n := m.checks.Counts(auth.Remembered); n != storm-1 {
		t.Errorf("%d remembered", n)
	}
}

// busyPasswords verifies nothing.
type busyPasswords struct{ Passwords }

func (busyPasswords) Busy(netip.Addr) bool { return true }

// Who cannot be served is sent away before it costs anything.
func TestG41_SentAwayEarly(t *testing.T) {
	status := func(m *member) int {
		_, err := m.connect("/model/" + testModel + "/api")
		var s ws.StatusError
		if errors.As(err, &s) {
			return int(s)
		}
		return 0
	}
	t.Run("not ready", func(t *testing.T) {
		var asked atomic.Int64
		m := newMember(t, nil, func(c *Config) {
			c.Ready = func() error {
				if asked.Add(1)%2 == 1 {
					return nil // when it is accepted
				}
				return errNoLeader
			}
		})
		if got := status(m); got != 503 {
			t.Errorf("HTTP %d", got)
		}
	})
	t.Run("too many log in", func(t *testing.T) {
		m := newMember(t, nil, func(c *Config) { c.Passwords = busyPasswords{c.Passwords} })
		if got := status(m); got != 503 {
			t.Errorf("HTTP %d", got)
		}
		for spread, want := range map[float64]string{0: "1", 0.5: "2", 0.999: "3"} {
			m.door.jitter = func() float64 { return spread }
			var after string
			dialer := ws.Dialer{TLSConfig: &tls.Config{InsecureSkipVerify: true}, Timeout: patience, OnStatusError: func(_ int, _ []byte, r io.Reader) {
				if resp, err := http.ReadResponse(bufio.NewReader(r), nil); err == nil {
					after = resp.Header.Get("Retry-After")
					resp.Body.Close()
				}
			}}
			if _, _, _, err := dialer.Dial(t.Context(), "wss://"+m.addr+"/model/"+testModel+"/api"); err == nil || after != want {
				t.Errorf("Retry-After %q, want %q; %v", after, want, err)
			}
		}
	})
	t.Run("too many connections", func(t *testing.T) {
		m := newMember(t, nil, func(c *Config) { c.MaxConnections = 1 })
		m.login("unit-app-0")
		conn, err := net.Dial("tcp", m.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read %d, %v: it was not closed before TLS", n, err)
		}
		if got := m.door.Stats().Refused[refusedFull].N; got != 1 {
			t.Errorf("%d counted", got)
		}
	})
}

// Limits of one connection.
func TestG45_RequestsAreBounded(t *testing.T) {
	m := newMember(t, nil, func(c *Config) { c.MaxOutstanding, c.MaxMessageBytes = 3, 200<<10 })
	c := m.login("unit-app-0")
	many := strings.Repeat(`{},`, MaxParams) + `{}`
	for _, text := range []string{
		`{"request-id":2,"type":"LeadershipService","request":"ClaimLeadership","params":{"params":[` + many + `]}}`,
		`{"request-id":2,"type":"LeadershipPinner","request":"PinApplicationLeaders","params":{"entities":[` + many + `]}}`,
	} {
		if got := c.ask(text); got != `{"request-id":2,"error":"too many params","error-code":"bad request"}` {
			t.Error(got)
		}
	}
	if a := m.login("unit-app-1"); a.ask(claimText(2, "app", "app-1", "60")) != granted(2) {
		t.Fatal("not granted")
	}
	for i := range 4 {
		c.send(blockText(3+i, "app"))
	}
	if got := c.read(); got != `{"request-id":6,"error":"too many requests are unanswered","error-code":"try again"}` {
		t.Error(got)
	}
	m.free(nameOf(testModel, "app"))
	for range 3 {
		c.read()
	}
	if got := c.ask(blockText(7, "app")); got != empty(7) {
		t.Errorf("the places were not given back: %s", got)
	}
	c.send(`{"request-id":8,"type":"` + strings.Repeat("x", 200<<10) + `"}`)
	if got := c.read(); got != fmt.Sprint("closed ", ws.StatusMessageTooBig) {
		t.Error(got)
	}
}

// Half a handshake, half a header, half a login: cut off.
func TestG47_Dribble(t *testing.T) {
	m := newMember(t, nil, func(c *Config) { c.LoginTimeout = 2 * time.Second })
	raw := func() net.Conn {
		conn, err := net.Dial("tcp", m.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	secure := func() net.Conn { return tls.Client(raw(), &tls.Config{InsecureSkipVerify: true}) }
	loggingIn := func() net.Conn {
		for end := time.Now().Add(patience); ; {
			c, err := m.connect("/api")
			if err == nil {
				return c.conn
			}
			if time.Now().After(end) { // before, the machine was slower than the login may be
				t.Fatal(err)
			}
		}
	}
	t.Run("each", func(t *testing.T) {
		for name, tt := range map[string]struct {
			open func() net.Conn
			text string
		}{
			"nothing": {raw, ""}, "half a record": {raw, "\x16\x03\x01"}, "half a header": {secure, "GET /api HTTP/1.1\r\nX: "},
			"half a frame": {loggingIn, "\x81"}, "no login": {loggingIn, ""},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				conn := tt.open()
				_, _ = io.WriteString(conn, tt.text) // fails if it is cut off by now
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("not cut off")
				}
			})
		}
	})
	eventually(t, "all have gone", func() bool { st := m.door.Stats(); return st.Connections == 0 && st.Pending == 0 })
	long := secure()
	// It may be cut off before all is written.
	_, _ = io.WriteString(long, "GET /api HTTP/1.1\r\nX: "+strings.Repeat("x", 2*maxHeaderBytes))
	_ = long.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(long); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a header without end is read")
	}
}

// Blocked connections have no goroutine.
func TestBlockedCallsCostNoGoroutine(t *testing.T) {
	m := newMember(t, nil)
	if a := m.login("unit-app-0"); a.ask(claimText(2, "app", "app-0", "300")) != granted(2) {
		t.Fatal("not granted")
	}
	before := runtime.NumGoroutine()
	const n = 50
	for range n {
		c := m.login("unit-app-1")
		c.send(blockText(2, "app"))
	}
	eventually(t, "all wait, and the greeters have gone", func() bool {
		return m.group.Hub().Stats().Waiters == n && m.door.Stats().Pending == 0 && runtime.NumGoroutine() < before+n/2
	})
}

// Blocked callers are answered in order at the pace that is set, one alone at once.
func TestWakeUpsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, calls = 1000, 3000 + wakeBurst
		p := pacer{}
		began := time.Now()
		done := 0
		for done < calls {
			n := min(wakeBurst, calls-done)
			done += n
			time.Sleep(p.take(n, int64(time.Since(began)), perSecond))
			if most := wakeBurst + int(time.Since(began).Seconds()*perSecond) + 1; done > most {
				t.Fatalf("%d after %v", done, time.Since(began))
			}
		}
		if took := time.Since(began); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("%d took %v", calls, took)
		}
		time.Sleep(time.Second)
		if d := p.take(1, int64(time.Since(began)), perSecond); d != 0 {
			t.Errorf("one alone rests for %v", d)
		}
	})
}

// A password that was taken back ends the connections of its agent, and so does a
// grant: who had it would go on with it.
func TestRecheck(t *testing.T) {
	m := newMember(t, nil)
	c, load := m.login("unit-app-0"), m.login("unit-load-0")
	m.door.Recheck()
	for _, x := range []*client{c, load} {
		if got := x.ask(pingText); got != empty(2) {
			t.Fatal(got)
		}
	}
	m.checks.SetPasswords(passwordsOf(t, account{"*", "unit-app-0", 0}, account{"*", "unit-load-0", 0}))
	m.door.Recheck()
	if got := load.read(); got != "closed 1001" {
		t.Errorf("whose grant was taken back: %s", got)
	}
	if got := c.ask(`{"request-id":3,"type":"Pinger","version":1,"request":"Ping"}`); got != empty(3) {
		t.Error(got)
	}
	again, err := auth.PasswordLine("*", "unit-app-0", "a new one", auth.RandomIterations, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := auth.ParsePasswords(strings.NewReader(again), ValidateAccount)
	if err != nil {
		t.Fatal(err)
	}
	m.checks.SetPasswords(other)
	m.door.Recheck()
	if got := c.read(); got != "closed 1001" {
		t.Errorf("whose tag has another password: %s", got)
	}
}

// Shutdown closes connections and leaves no goroutine.
func TestG48_Shutdown(t *testing.T) {
	before := runtime.NumGoroutine()
	m := newMember(t, nil)
	c := m.login("unit-app-0")
	if got := c.ask(claimText(2, "app", "app-0", "300")); got != granted(2) {
		t.Fatal(got)
	}
	c.send(blockText(3, "app"))
	half, err := net.Dial("tcp", m.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	eventually(t, "one waits, and one is on its way", func() bool { st := m.door.Stats(); return st.Blocked == 1 && st.Pending == 1 })
	m.stop()
	if got := c.read(); got != "closed 1001" {
		t.Error(got)
	}
	if st := m.door.Stats(); st.Connections != 0 || st.Blocked != 0 || st.Claims != 0 || st.Pending != 0 {
		t.Errorf("left behind: %+v", st)
	}
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// All labels are there from the start.
func TestStatsAreWhole(t *testing.T) {
	st := newMember(t, nil).door.Stats()
	if len(st.Methods) != int(numMethods) || len(st.Errors) != numFacades*int(numCodes) || len(st.Logins) != int(numLogins) || len(st.Refused) != int(numRefusals) {
		t.Errorf("%+v", st)
	}
	seen := map[string]bool{}
	for _, e := range st.Errors {
		if label := e.Facade + " " + e.Code; e.Facade == "" || e.Code == "" || seen[label] {
			t.Errorf("label %q is not whole, or twice", label)
		} else {
			seen[label] = true
		}
	}
	for _, list := range [][]Count{st.Logins, st.Refused} {
		for _, c := range list {
			if c.Label == "" || seen[c.Label] && c.Label != "overload" {
				t.Errorf("label %q is empty or twice", c.Label)
			}
			seen[c.Label] = true
		}
	}
}

// Errors are counted where they are told: by facade and code.
func TestErrorsAreCounted(t *testing.T) {
	m := newMember(t, nil)
	c := m.dial()
	for _, text := range []string{
		`{"request-id":1,"type":"Pinger","version":1,"request":"Ping"}`,
		`{"request-id":2,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":"unit-app-0","credentials":"wrong"}}`,
		`{"request-id":3,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":"machine-0","credentials":"machine-0"}}`,
		`{"request-id":4,"type":"Admin","version":3,"request":"Login"}`,
		`{"request-id":5,"type":"Uniter","version":1,"request":"Life"}`,
		`{"request-id":6,"type":"Pinger","version":7,"request":"Ping"}`,
		claimText(7, "app", "app-0", "1"),
		blockText(8, "app"),
		`{"request-id":9,"type":"LeadershipPinner","version":1,"request":"PinApplicationLeaders"}`,
		`{"request-id":10,"type":"Singular","version":2,"request":"Wait","params":{"entities":[{"tag":""},{"tag":""}]}}`,
		`{"request-id":11,"type":"Singular","version":2,"request":"Claim","params":[]}`,
	} {
		c.ask(text)
	}
	got := map[string]uint64{}
	for _, e := range m.door.Stats().Errors {
		if e.N > 0 {
			got[e.Facade+": "+e.Code] = e.N
		}
	}
	want := map[string]uint64{
		"Admin: not implemented": 2, "Admin: unauthorized access": 1, "other: not implemented": 1, "Pinger: not implemented": 1,
		"LeadershipService: none": 1, "LeadershipService: unauthorized access": 1, "LeadershipPinner: unauthorized access": 1,
		"Singular: unauthorized access": 2, "Singular: bad request": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

var (
	_ Leases    = (*lease.Service)(nil)
	_ Passwords = (*auth.Verifier)(nil)
)

// Every method has its row in the table of calls, by its own name, and the table has
// no other.
func TestG12_EveryMethodHasARow(t *testing.T) {
	ways := map[string]bool{"juju." + adminFacade + "." + loginMethod: true}
	for _, m := range methods {
		way := "juju." + m.facade.name + "." + m.name
		ways[way] = true
		if c, ok := calls.Of(way); !ok || c != m.row {
			t.Errorf("%s has the row of %v", way, m.row.Row().Ways)
		}
	}
	for c := range calls.NumCalls {
		for _, w := range c.Row().Ways {
			if strings.HasPrefix(w, "juju.") && !ways[w] {
				t.Errorf("the table has %s, which nobody serves", w)
			}
		}
	}
}
