package consul

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// serveAt has a door serve an endpoint at a path of a test's own. Nobody has connected
// before: routes do not change while a door serves.
func (m *member) serveAt(path string, f endpoint) {
	m.door.routes.exact[path] = &served{path: path, methods: map[string]action{
		"GET": {serve: f}, "HEAD": {serve: f}, "PUT": {serve: f},
	}, allowed: []string{"GET", "HEAD", "PUT"}}
}

func echo(_ *Door, r *request) {
	r.bytes(http.StatusOK, "text/plain", append([]byte(r.method+" "), r.body...))
}

func TestRequestsOfOneConnection(t *testing.T) {
	m := startMember(t, nil)
	m.serveAt("/echo", echo)
	c := m.dial()
	put := func(body string) string {
		return fmt.Sprintf("PUT /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	c.write(put("one") + put("two") + "GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n" + put("three")[:60])
	for _, want := range []string{"PUT one", "PUT two", "GET "} {
		if a := c.read("PUT"); a.StatusCode != http.StatusOK || a.body != want || a.Close {
			t.Errorf("%d %q, want %q", a.StatusCode, a.body, want)
		}
	}
	c.write(put("three")[60:])
	if a := c.read("PUT"); a.body != "PUT three" {
		t.Errorf("%q", a.body)
	}
	c.write("\r\nPUT /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nchu\r\n3\r\nnks\r\n0\r\nA: b\r\n\r\n")
	if a := c.read("PUT"); a.body != "PUT chunks" {
		t.Errorf("%q", a.body)
	}
	c.write("HEAD /echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if a := c.read("HEAD"); a.body != "" || a.ContentLength != 5 {
		t.Errorf("HEAD: %q, %d bytes", a.body, a.ContentLength)
	}
	c.write("GET /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nGET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if a := c.read("GET"); !a.Close {
		t.Error("the answer does not say that the connection ends")
	}
	c.ended()
}

func TestHTTP10(t *testing.T) {
	m := startMember(t, nil)
	m.serveAt("/echo", echo)
	c := m.dial()
	c.write("GET /echo HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
	if a := c.read("GET"); a.Proto != "HTTP/1.0" || a.Header.Get("Connection") != "keep-alive" {
		t.Errorf("%s, %v", a.Proto, a.Header)
	}
	c.write("GET /echo HTTP/1.0\r\nHost: localhost\r\n\r\n")
	if a := c.read("GET"); a.StatusCode != http.StatusOK {
		t.Error(a.Status)
	}
	c.ended()
}

func TestContinue(t *testing.T) {
	m := startMember(t, nil)
	m.serveAt("/echo", echo)
	c := m.dial()
	c.write("PUT /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	if a := c.read("PUT"); a.StatusCode != http.StatusContinue {
		t.Fatal(a.Status)
	}
	c.write("body")
	if a := c.read("PUT"); a.StatusCode != http.StatusOK || a.body != "PUT body" {
		t.Errorf("%s %q", a.Status, a.body)
	}
}

// Terraform stores its state in parts once it is told that it is too large.
func TestTooLargeABodySaysSo(t *testing.T) {
	m := startMember(t, func(c *Config) { c.MaxBodyBytes = 50 })
	for text, want := range map[string]string{
		"Content-Length: 51\r\n\r\n": "Request body(51 bytes) too large, max size: 50 bytes",
		"Transfer-Encoding: chunked\r\n\r\n60\r\n" + strings.Repeat("x", 0x60): "Request body too large, max size: 50 bytes",
	} {
		c := m.dial()
		c.write("PUT /v1/txn HTTP/1.1\r\nHost: localhost\r\n" + text)
		if a := c.read("PUT"); a.StatusCode != http.StatusRequestEntityTooLarge || a.body != want {
			t.Errorf("%.80q: %s %q", text, a.Status, a.body)
		}
	}
}

func TestBadRequestsEndTheirConnection(t *testing.T) {
	m := startMember(t, func(c *Config) { c.MaxHeadBytes, c.MaxBodyBytes, c.MaxBodies = 1000, 50, 60 })
	m.serveAt("/echo", echo)
	for _, tt := range []struct {
		status int
		text   string
	}{
		{400, "what is this\r\n\r\n"},
		{400, "GET /echo HTTP/1.1\r\n\r\n"},
		{400, "GET /echo HTTP/1.1\r\nHost: localhost\r\nHost : b\r\n\r\n"},
		{400, "GET /echo HTTP/1.1\r\nHost: localhost\r\nX: \x01\r\n\r\n"},
		{400, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n"},
		{400, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"},
		{400, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"},
		{400, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"},
		{501, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n"},
		{505, "GET /echo HTTP/2.0\r\nHost: localhost\r\n\r\n"},
		{417, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n"},
		{431, "GET /echo HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 1000)},
		{431, "GET /echo HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 1000) + "\r\n\r\n"},
		{413, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 51\r\n\r\n"},
		{413, "PUT /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n60\r\n" + strings.Repeat("x", 0x60)},
	} {
		c := m.dial()
		c.write(tt.text)
		if a := c.read("GET"); a.StatusCode != tt.status || !a.Close {
			t.Errorf("%.80q: %s %q", tt.text, a.Status, a.body)
		}
		c.ended()
	}
	if n := m.door.Stats().Malformed; n != 15 {
		t.Errorf("%d malformed", n)
	}
}

// Bodies that come slowly are counted together, but for the beginning of each, and what is
// counted is given back.
func TestG47_UnfinishedBodiesAreBounded(t *testing.T) {
	const whole, most = 4*smallBody + 100, 4 * smallBody
	guard, as := agentsNamed(t, false, "one", "other")
	m := startMember(t, func(c *Config) { c.Guard, c.MaxBodyBytes, c.MaxBodies = guard, whole, most })
	m.serveAt("/echo", echo)
	head := func(who string, n int) string {
		return fmt.Sprintf("PUT /echo HTTP/1.1\r\nHost: localhost\r\n%s: %s\r\nContent-Length: %d\r\n\r\n", as[who][0], as[who][1], n)
	}
	counts := func(n int64) {
		t.Helper()
		eventually(t, func() bool { return m.door.BodyBytes() == n })
	}
	first, second, small := m.dial(), m.dial(), m.dial()
	first.write(head("one", whole) + strings.Repeat("x", 4*smallBody))
	counts(3 * smallBody)
	second.write(head("other", whole) + strings.Repeat("x", 3*smallBody))
	if a := second.read("PUT"); a.StatusCode != http.StatusServiceUnavailable {
		t.Error(a.Status)
	}
	counts(3 * smallBody)
	small.write(head("other", 20) + strings.Repeat("x", 10)) // it is not refused for what others send
	small.write(strings.Repeat("x", 10))
	if a := small.read("PUT"); a.StatusCode != http.StatusOK || len(a.body) != 24 {
		t.Errorf("%s %q", a.Status, a.body)
	}
	first.write(strings.Repeat("x", whole-4*smallBody))
	if a := first.read("PUT"); a.StatusCode != http.StatusOK || len(a.body) != whole+4 {
		t.Errorf("%s %d bytes", a.Status, len(a.body))
	}
	counts(0)
}

// On a machine with little memory bodies have less of it.
func TestG39_BodiesHaveAPartOfTheMemory(t *testing.T) {
	lanes, err := admit.New(hardlyHeldBack, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	m.serveAt("/echo", echo)
	const whole = 3 * smallBody // is not read at once
	send := func() *http.Response {
		c := m.dial()
		c.write(fmt.Sprintf("PUT /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", whole))
		c.write(strings.Repeat("x", whole))
		return c.read("PUT").Response
	}
	const most = 32 << 20
	if !m.door.bodies.Take(admit.Who{}, most, most) {
		t.Fatal("there is no room")
	}
	if a := send(); a.StatusCode != http.StatusOK {
		t.Errorf("with much memory: %s", a.Status)
	}
	lanes.SetMemory(0, 8*most)
	if a := send(); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("with little: %s", a.Status)
	}
}

// Who has many bodies under way that stop before their end leaves room for others, whichever
// connections they come on.
func TestG47_UnfinishedBodiesLeaveRoomForOthers(t *testing.T) {
	const most = 100 * smallBody
	for name, anonymous := range map[string]auth.Principal{"who shows who it is": {}, "where all are somebody": {Kind: auth.Agent, Name: "guest"}} {
		t.Run(name, func(t *testing.T) {
			guard, as := agentsNamed(t, false, "one", "other")
			m := startMember(t, func(c *Config) { c.Guard, c.Anonymous, c.MaxBodies = guard, anonymous, most })
			m.serveAt("/echo", echo)
			send := func(who string) *client {
				c := m.dial()
				c.write(fmt.Sprintf("PUT /echo HTTP/1.1\r\nHost: localhost\r\n%s: %s\r\nContent-Length: %d\r\n\r\n", as[who][0], as[who][1], 12*smallBody))
				c.write(strings.Repeat("x", 11*smallBody))
				return c
			}
			taken, refused := int64(0), 0
			for range 12 {
				c := send("one")
				eventually(t, func() bool {
					return m.door.BodyBytes() == taken+10*smallBody || int(m.door.Stats().NoRoom) > refused
				})
				if int(m.door.Stats().NoRoom) == refused {
					taken += 10 * smallBody
					continue
				}
				refused++
				a := c.read("PUT")
				if after, err := strconv.Atoi(a.Header.Get("Retry-After")); a.StatusCode != http.StatusServiceUnavailable || err != nil || after < 1 || after > 3 {
					t.Errorf("%s, Retry-After %q", a.Status, a.Header.Get("Retry-After"))
				}
			}
			if refused == 0 || taken < most/2 {
				t.Errorf("%d are refused, %d bytes are taken", refused, taken)
			}
			c := send("other")
			c.write(strings.Repeat("x", smallBody))
			if a := c.read("PUT"); a.StatusCode != http.StatusOK {
				t.Errorf("another: %s %.100q", a.Status, a.body)
			}
		})
	}
}

// Strangers send no large bodies, so that they do not keep others from it. Two bytes of a
// list took hundreds of memory: 8 MiB of them two gigabytes, and half a minute.
func TestG47_LargeBodiesAreBoundedBeforeTheyAreRead(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Guard = auth.NewAuthenticator(false, nil) })
	c := m.dial()
	c.write(fmt.Sprintf("PUT /v1/catalog/register HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 8<<20) + strings.Repeat("x", smallBody+1))
	if a := c.read("PUT"); a.StatusCode != http.StatusForbidden {
		t.Error(a.Status)
	}
	eventually(t, func() bool { return m.door.BodyBytes() == 0 })

	m = startMember(t, nil)
	many := `[` + strings.Repeat(`{},`, maxJSONValues) + `{}]`
	for path, body := range map[string]string{
		"/v1/catalog/register":       `{"Node":"a","Address":"b","Checks":` + many + `}`,
		"/v1/agent/service/register": `{"Name":"a","Checks":` + many + `}`,
		"/v1/session/create":         `{"NodeChecks":` + many + `}`,
	} {
		if a := m.do("PUT", path, body); a.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %s %.100s", path, a.Status, a.body)
		}
	}
	few := `[` + strings.Repeat(`{},`, catalog.MaxChecksInCommand) + `{}]`
	if a := m.do("PUT", "/v1/catalog/register", `{"Node":"a","Address":"b","Checks":`+few+`}`); a.StatusCode != http.StatusInternalServerError || !strings.Contains(a.body, "are too many") {
		t.Errorf("%s %.100s", a.Status, a.body)
	}
	quoted := strings.Repeat(`,[{\",`, maxJSONValues)
	if incumbent.HasMoreValues([]byte(`{"Output":"`+quoted+`"}`), maxJSONValues) {
		t.Error("what a text has counts as values")
	}
}

func TestG47_ADribbledBodyIsCutOff(t *testing.T) {
	m := startMember(t, func(c *Config) { c.BodyTimeout = time.Millisecond })
	m.serveAt("/echo", echo)
	c := m.dial()
	c.write("PUT /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nx")
	c.ended()
	eventually(t, func() bool { return m.door.Connections() == 0 && m.door.BodyBytes() == 0 })
	if n := m.door.Stats().Malformed; n != 1 {
		t.Errorf("%d counted", n)
	}
}

// Who has not shown who he is makes room for who comes later; who has does not.
func TestG47_StrangersAreBounded(t *testing.T) {
	m := startMember(t, func(c *Config) { c.MaxStrangers = 2 })
	known := m.dial()
	known.write("GET /v1/status/leader HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	known.read("GET")
	first := m.dial()
	first.write("GET /v1/")
	eventually(t, func() bool { return m.door.Connections() == 2 })
	for range 2 {
		m.dial().write("G")
	}
	first.ended()
	known.write("GET /v1/status/leader HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	if a := known.read("GET"); a.StatusCode != http.StatusOK {
		t.Error(a.Status)
	}
}

// An answer larger than what a connection may have unsent goes out in pieces.
func TestLargeAnswers(t *testing.T) {
	m := startMember(t, nil)
	text := []byte(strings.Repeat("0123456789abcdef", 1<<20))
	m.serveAt("/large", func(_ *Door, r *request) { r.bytes(http.StatusOK, "text/plain", text) })
	c := m.dial()
	c.write("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/status/leader HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	if a := c.read("GET"); a.body != string(text) {
		t.Errorf("%d bytes", len(a.body))
	}
	if a := c.read("GET"); a.StatusCode != http.StatusOK {
		t.Error(a.Status)
	}
}

func TestGzip(t *testing.T) {
	m := startMember(t, nil)
	m.serveAt("/long", func(_ *Door, r *request) { r.bytes(http.StatusOK, "text/plain", []byte(strings.Repeat("long ", 1000))) })
	m.serveAt("/short", echo)
	for _, tt := range []struct{ path, accept, want string }{
		{"/long", "gzip", "gzip"}, {"/long", "br, gzip;q=0.5", "gzip"}, {"/long", "*", "gzip"}, {"/long", "gzip;q=0", ""}, {"/long", "br", ""}, {"/short", "gzip", ""},
	} {
		a := m.do("GET", tt.path, "", "Accept-Encoding", tt.accept)
		if got := a.Header.Get("Content-Encoding"); got != tt.want || a.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s, %s: %q, %v", tt.path, tt.accept, got, a.Header)
		}
	}
}

// eventually waits until something is so.
func eventually(t testing.TB, so func() bool) {
	t.Helper()
	for ends := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(ends) {
			t.Fatal("it never came about")
		}
	}
}

// A head of very many lines is refused before it is parsed.
func TestG47_HeadsHaveNotTooManyLines(t *testing.T) {
	m := startMember(t, nil)
	m.serveAt("/echo", echo)
	for lines, want := range map[int]int{maxHeadLines / 2: http.StatusOK, maxHeadLines: http.StatusRequestHeaderFieldsTooLarge} {
		c := m.dial()
		c.write("GET /echo HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("A: b\r\n", lines) + "\r\n")
		if a := c.read("GET"); a.StatusCode != want {
			t.Errorf("%d lines: %s", lines, a.Status)
		}
	}
}

// A large answer that is read very slowly ends with its connection: it stays in memory for as
// long, whatever has become of what it says. Whoever reads it in time has it.
func TestG47_ALargeAnswerIsReadInTime(t *testing.T) {
	const size = 4 << 20
	for name, tt := range map[string]struct {
		perSecond int
		whole     bool
	}{"slowly": {slowestBytes / 4, false}, "in time": {2 * slowestBytes, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startPiped(t, nil)
				m.serveAt("/large", func(_ *Door, r *request) { r.bytes(http.StatusOK, "text/plain", make([]byte, size)) })
				c := m.dial()
				c.write("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
				_ = c.conn.SetDeadline(time.Time{}) // longer than anything else may take
				read, b := 0, make([]byte, tt.perSecond)
				for err := error(nil); err == nil && read < size; {
					var n int
					n, err = io.ReadFull(c.in, b)
					read += n
					time.Sleep(time.Second)
				}
				if got := read >= size; got != tt.whole {
					t.Errorf("%d bytes are read", read)
				}
			})
		})
	}
}
