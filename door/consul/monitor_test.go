package consul

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
)

// shownLog is a log that tests write to.
type shownLog struct {
	mu    sync.Mutex
	lines map[int]func([]byte)
	next  int
	level slog.Level
}

func (l *shownLog) add(level slog.Level, _ bool, line func([]byte)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	l.next++
	l.lines[id], l.level = line, level
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.lines, id)
	}
}

func (l *shownLog) write(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		line([]byte(text))
	}
}

func (l *shownLog) readers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// A client is shown the log as it is written, until it or the door leaves.
func TestMonitor(t *testing.T) {
	log := &shownLog{lines: map[int]func([]byte){}}
	m := startMember(t, func(c *Config) { c.Operator.Monitor = log.add })
	if a := m.do("GET", "/v1/agent/monitor?loglevel=odd", ""); a.StatusCode != http.StatusBadRequest || a.body != "Unknown log level: odd" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	open := func() (*client, io.Reader) {
		c := m.dial()
		c.get("/v1/agent/monitor?loglevel=debug")
		res, err := http.ReadResponse(c.in, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		return c, res.Body
	}
	first, body := open()
	eventually(t, func() bool { return log.readers() == 1 })
	if log.level != slog.LevelDebug {
		t.Errorf("from level %v", log.level)
	}
	for _, text := range []string{"one\n", "two\n"} {
		log.write(text)
		got := make([]byte, len(text))
		if _, err := io.ReadFull(body, got); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	first.conn.Close()
	eventually(t, func() bool { return log.readers() == 0 })
	var bodies []io.Reader
	for range maxMonitors {
		_, body := open()
		bodies = append(bodies, body)
	}
	if a := m.do("GET", "/v1/agent/monitor", ""); a.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one more: %d", a.StatusCode)
	}
	log.write("last\n")
	m.door.Drain()
	for _, body := range bodies {
		if b, err := io.ReadAll(body); err != nil || string(b) != "last\n" && string(b) != "" {
			t.Errorf("%q, %v", b, err)
		}
	}
}

// What is not read is left out, and that is told.
func TestMonitorsThatDoNotRead(t *testing.T) {
	l := &logLines{more: make(chan struct{}, 1)}
	line := strings.Repeat("x", 1023) + "\n"
	for range maxMonitorBytes/len(line) + 3 {
		l.put([]byte(line))
	}
	b := l.take(t.Context())
	if !strings.HasPrefix(string(b[maxMonitorBytes:]), "[WARN] 3 lines were left out") {
		t.Errorf("%d bytes, then %s", maxMonitorBytes, b[min(len(b), maxMonitorBytes):])
	}
}

// Whose token is taken back reads the log no more, nor a snapshot, though neither waits
// for anything.
func TestG12_WhatTakesLongEndsWithItsToken(t *testing.T) {
	token := auth.NewToken()
	line, err := auth.CredentialLine("root", auth.Operator, token)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := auth.ParseCredentials(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	log, guard := &shownLog{lines: map[int]func([]byte){}}, auth.NewAuthenticator(false, creds)
	held := make(chan struct{})
	m := startMember(t, func(c *Config) {
		c.Guard, c.Operator.Monitor = guard, log.add
		c.Snapshot = func(ctx context.Context, w io.Writer, _ *core.View) error {
			_, err := io.WriteString(w, strings.Repeat("x", 2*sendBytes))
			close(held)
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		}
	})
	open := func(path string) io.Reader {
		c := m.dial()
		c.get(path + "?token=" + token)
		res, err := http.ReadResponse(c.in, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		return res.Body
	}
	lines, snapshot := open("/v1/agent/monitor"), open("/v1/snapshot")
	<-held
	m.door.Recheck()
	log.write("one\n")
	if _, err := io.ReadFull(lines, make([]byte, 4)); err != nil {
		t.Errorf("of who is known: %v", err)
	}
	guard.SetCredentials(nil)
	m.door.Recheck()
	eventually(t, func() bool { return log.readers() == 0 })
	if b, err := io.ReadAll(lines); err != nil || len(b) > 0 {
		t.Errorf("the log: %q, %v", b, err)
	}
	if _, err := io.ReadAll(snapshot); err == nil {
		t.Error("a snapshot that was cut off looks whole")
	}
}
