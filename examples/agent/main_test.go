package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

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
