package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/server"
)

func open(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, s) })
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func config(t *testing.T) server.Config {
	return server.Config{
		DataDir: t.TempDir(), Name: "n1", Listen: "127.0.0.1:0",
		SegmentBytes: node.MinSegmentBytes, DiskReserve: 1 << 20, ReturnTime: time.Millisecond,
	}
}

func clientOf(t *testing.T, s *server.Server) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Servers: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func shut(t *testing.T, s *server.Server) {
	t.Helper()
	if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// running is one run of an agent.
type running struct {
	t     *testing.T
	lines *bufio.Scanner
	ended chan error
	stop  func()
}

func start(t *testing.T, c *client.Client, state string) *running {
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- newAgent(c, "mysql", 1, state, out).run(ctx)
		out.Close()
	}()
	r := &running{t: t, lines: bufio.NewScanner(in), ended: ended}
	r.stop = func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the agent ended with %v", err)
		}
	}
	return r
}

// says waits for lines, in any order.
func (r *running) says(want ...string) {
	r.t.Helper()
	var got []string
	for range want {
		if !r.lines.Scan() {
			r.t.Fatalf("it said %q and no more", got)
		}
		got = append(got, r.lines.Text())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Fatalf("it said %q, want %q", got, want)
	}
}

// An agent hears of what concerns it, outlives its member and its own process, and is
// alive all the time.
func TestAnAgentsLife(t *testing.T) {
	cfg := config(t)
	s := open(t, cfg)
	cfg.Listen = s.URL()[len("http://"):]
	c := clientOf(t, s)
	put := func(key, value string) {
		t.Helper()
		if _, err := c.KV("").Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := addUnits(t.Context(), c, "mysql", 3); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "session")
	a := start(t, c, state)
	// The caches fill in any order, so that the first look may be at a part of them.
	a.says("mysql/1: runs ch:mysql-1", "mysql/1: 3 units")
	if err := addUnits(t.Context(), c, "mysql", 400); err != nil {
		t.Fatal(err)
	}
	a.says("mysql/1: 403 units")
	put("app/mysql", `{"charm":{"url":"ch:mysql-1"},"constraints":"mem=4G"}`) // wakes nobody
	put("relations/mysql/000001/wordpress", "{}")
	a.says("mysql/1: related to wordpress")
	put("app/mysql", "x")
	a.says("mysql/1: app/mysql is no JSON, still runs ch:mysql-1: invalid character 'x' looking for beginning of value")

	shut(t, s)
	open(t, cfg)
	put("app/mysql", `{"charm":{"url":"ch:mysql-2"}}`)
	a.says("mysql/1: runs ch:mysql-2")
	a.stop()

	b := start(t, c, state) // the next run: the same session
	b.says("mysql/1: runs ch:mysql-2", "mysql/1: 403 units", "mysql/1: related to wordpress")
	b.stop()
	entry, err := c.KV("").Get(t.Context(), "presence/mysql/000001")
	if err != nil || entry.LockIndex != 1 || entry.Session == "" {
		t.Errorf("its presence is %v, %v: not one session's, all the time", entry, err)
	}
	unit, err := c.KV("").Get(t.Context(), "units/mysql/000001")
	if err != nil || string(unit.Value) != `{"status":"active","charm":"ch:mysql-2"}` {
		t.Errorf("its unit is %v, %v", unit, err)
	}
}

// hook is an agent's output that has something done before a line of it is written.
type hook struct {
	io.Writer
	line string
	do   func()
}

func (h *hook) Write(p []byte) (int, error) {
	if string(p) == h.line && h.do != nil {
		do := h.do
		h.do = nil
		do()
	}
	return h.Writer.Write(p)
}

// An agent whose session is lost while it says what it does begins another, and says it
// over that one.
func TestAnAgentsSessionIsLost(t *testing.T) {
	c := clientOf(t, open(t, config(t)))
	if err := addUnits(t.Context(), c, "mysql", 1); err != nil {
		t.Fatal(err)
	}
	in, out := io.Pipe()
	a := newAgent(c, "mysql", 0, filepath.Join(t.TempDir(), "session"), nil)
	a.out = &hook{Writer: out, line: "mysql/0: runs ch:mysql-1\n", do: func() {
		id, err := a.sessionID()
		if err == nil {
			_, err = c.Sessions().CloseSession(t.Context(), connect.NewRequest(&apiv1.CloseSessionRequest{Id: id.String()}))
		}
		if err != nil {
			t.Error(err)
		}
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- a.run(ctx)
		out.Close()
	}()
	go func() { _, _ = io.Copy(io.Discard, in) }()
	for {
		unit, err := c.KV("").Get(ctx, unitKey("mysql", 0))
		if err != nil {
			t.Fatal(err)
		}
		who, err := c.KV("").Get(ctx, "presence/mysql/000000")
		if err != nil {
			t.Fatal(err)
		}
		if string(unit.Value) == `{"status":"active","charm":"ch:mysql-1"}` && who.Session != "" {
			break // alive, by the session after the one that was lost
		}
		select {
		case err := <-ended:
			t.Fatalf("the agent ended with %v", err)
		default:
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the agent ended with %v", err)
	}
}

// refuser passes streams on to a server, save for puts as long as it has answers for them.
type refuser struct {
	c       *client.Client
	refusal []*apiv1.Error
}

func (f *refuser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	defer conn.Close()
	to, in, err := f.c.DialStream(r.Context(), client.StreamOptions{})
	if err != nil {
		return
	}
	defer to.Close()
	var mu sync.Mutex // one message at a time
	answer := func(frame *apiv1.ServerFrame) {
		mu.Lock()
		defer mu.Unlock()
		if data, err := proto.Marshal(&apiv1.ServerMessage{Frames: []*apiv1.ServerFrame{frame}}); err == nil {
			_ = wsutil.WriteServerBinary(conn, data)
		}
	}
	go func() { _ = to.Serve(in, answer) }()
	for {
		data, err := wsutil.ReadClientBinary(conn)
		var m apiv1.ClientMessage
		if err != nil || proto.Unmarshal(data, &m) != nil {
			return
		}
		for _, frame := range m.Frames {
			if frame.GetPut() != nil && len(f.refusal) > 0 {
				answer(&apiv1.ServerFrame{Id: frame.Id, Error: f.refusal[0]})
				f.refusal = f.refusal[1:]
				continue
			}
			if to.Send(frame) != nil {
				return
			}
		}
	}
}

// What an agent stores, and nobody knows whether it is stored, it stores again.
func TestAnAgentIsRefused(t *testing.T) {
	s := open(t, config(t))
	c := clientOf(t, s)
	if err := addUnits(t.Context(), c, "mysql", 2); err != nil {
		t.Fatal(err)
	}
	unknown := incumbent.Unknown.String()
	// After the second one a client does not repeat it by itself.
	web := httptest.NewServer(&refuser{c: c, refusal: []*apiv1.Error{{Kind: unknown}, {Kind: unknown, BaseIndex: 1}}})
	t.Cleanup(web.Close)
	through, err := client.New(client.Config{Servers: []string{web.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	a := start(t, through, filepath.Join(t.TempDir(), "session"))
	a.says("mysql/1: runs ch:mysql-1", "mysql/1: 2 units", "mysql/1: runs ch:mysql-1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for m, err := range c.KV("").Watch(ctx, client.WatchKeysOptions{Key: unitKey("mysql", 1)}) {
		if err != nil {
			t.Fatal(err)
		}
		if n := len(m.Events); n > 0 && string(m.Events[n-1].Entry.Value) == `{"status":"active","charm":"ch:mysql-1"}` {
			a.stop()
			return
		}
	}
	t.Fatal("it was never stored")
}

// An agent ends whose session another run of it has, which goes on.
func TestAnAgentsLaterRun(t *testing.T) {
	c := clientOf(t, open(t, config(t)))
	if err := addUnits(t.Context(), c, "mysql", 2); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "session")
	a := start(t, c, state)
	a.says("mysql/1: runs ch:mysql-1", "mysql/1: 2 units")
	b := start(t, c, state)
	b.says("mysql/1: runs ch:mysql-1", "mysql/1: 2 units")
	if a.lines.Scan() {
		t.Errorf("the first run goes on with %q", a.lines.Text())
	}
	if err := <-a.ended; !client.Taken(err) {
		t.Errorf("the first run ended with %v", err)
	}
	if err := addUnits(t.Context(), c, "mysql", 1); err != nil {
		t.Fatal(err)
	}
	b.says("mysql/1: 3 units")
	b.stop()
}

// Units are numbered behind all that are listed, also where a list has more than one page.
func TestUnitsBeyondAPage(t *testing.T) {
	c := clientOf(t, open(t, config(t)))
	info := make([]byte, 400<<10)
	for i := range 5 { // a page has a MiB
		if _, err := c.KV("").Put(t.Context(), fmt.Sprintf("presence/mysql/%06d", i), info); err != nil {
			t.Fatal(err)
		}
	}
	if _, next, err := c.KV("").ListPresent(t.Context(), "mysql/", "", 10_000); err != nil || next == "" {
		t.Fatalf("all are one page: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := addUnits(ctx, c, "mysql", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.KV("").Get(t.Context(), unitKey("mysql", 5)); err != nil {
		t.Error(err)
	}
}

// A unit that is listed no more, and one that has no key, keep their numbers.
func TestUnitsThatAreHalfThere(t *testing.T) {
	c := clientOf(t, open(t, config(t)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next := 0
	for _, key := range []string{"units/mysql/000000", "units/mysql/000004", "presence/mysql/000007"} {
		if _, err := c.KV("").Put(ctx, key, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(key[len(key)-6:], "%d", &next); err != nil {
			t.Fatal(err)
		}
		if err := addUnits(ctx, c, "mysql", 1); err != nil {
			t.Fatalf("behind %s: %v", key, err)
		}
		if _, err := c.KV("").Get(ctx, unitKey("mysql", next+1)); err != nil {
			t.Errorf("behind %s: %v", key, err)
		}
	}
}
