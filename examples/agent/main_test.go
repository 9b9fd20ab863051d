package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
	r := &running{t: t, lines: bufio.NewScanner(in)}
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
	cfg := server.Config{
		DataDir: t.TempDir(), Name: "n1", Listen: "127.0.0.1:0",
		SegmentBytes: node.MinSegmentBytes, DiskReserve: 1 << 20, ReturnTime: time.Millisecond,
	}
	s := open(t, cfg)
	cfg.Listen = s.URL()[len("http://"):]
	c, err := client.New(client.Config{Servers: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
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
