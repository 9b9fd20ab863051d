package bench

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Hostile clients of whom too few came, or one was suffered for too long, show that something
// is wrong.
func TestVisitsAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		opened   int
		suffered time.Duration
		text     string
	}{
		"all as it is to be": {opened: 2, suffered: time.Second},
		"some did not come":  {opened: 1, suffered: time.Second, text: "only 1 of 2"},
		"one is suffered":    {opened: 2, suffered: slowMost + 1, text: "was suffered for 2m30s"},
	} {
		s := &strangers{run: newRun(&Scenario{}, Options{})}
		s.slow.opened.Store(int64(c.opened))
		s.slow.ended(c.suffered, true)
		s.slow.ended(time.Millisecond, false)
		s.slow.judge(s, 2)
		if got := violationsOf(s.run); (got == "") != (c.text == "") || !strings.Contains(got, c.text) {
			t.Errorf("%s: %q, want %q", name, got, c.text)
		}
		if n := s.slow.closed.Load(); n != 1 {
			t.Errorf("%s: %d were closed by a server", name, n)
		}
	}
}

// Whoever dribbles says its beginning and more of it until it is closed, and comes again no
// sooner than others.
func TestWhoDribbles(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, stop := context.WithCancel(t.Context())
	s := &strangers{run: newRun(&Scenario{}, Options{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.dribble(ctx, ln.Addr().String(), "begin")
	}()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("beginx"))
	if _, err := io.ReadFull(c, said); err != nil || string(said) != "beginx" {
		t.Errorf("%q, %v", said, err)
	}
	c.Close()
	for s.slow.closed.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	<-ended
	if n := s.slow.opened.Load(); n != 1 {
		t.Errorf("%d came", n)
	}
}
