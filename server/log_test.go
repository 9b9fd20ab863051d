package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sink is a log file whose writes wait while it is blocked, and fail while it is
// broken.
type sink struct {
	mu      sync.Mutex
	free    sync.Cond
	text    bytes.Buffer
	blocked bool
	broken  bool
}

func newSink() *sink {
	s := &sink{}
	s.free.L = &s.mu
	return s
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.blocked {
		s.free.Wait()
	}
	if s.broken {
		return 0, errors.New("no room")
	}
	return s.text.Write(b)
}

func (s *sink) set(blocked, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked, s.broken = blocked, broken
	s.free.Broadcast()
}

func (s *sink) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Split(strings.TrimSuffix(s.text.String(), "\n"), "\n")
}

// Lines come out in order while the log can be written. While it cannot, nobody
// waits, what is kept is bounded, and afterwards a line says how many are missing.
func TestALogThatCannotBeWrittenHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSink()
		l := NewLog(out, LogText, slog.LevelInfo)
		log := l.Logger()
		log.Info("first")
		log.Debug("of no interest")
		synctest.Wait()
		if got := out.lines(); len(got) != 1 || !strings.Contains(got[0], "msg=first") || l.Dropped() != 0 {
			t.Fatalf("written %q, dropped %d", got, l.Dropped())
		}

		out.set(true, false)
		log.Info("taken by the writer")
		synctest.Wait()
		const lines = 5000
		filler := strings.Repeat("x", 1000)
		for i := range lines {
			log.Info("more", "n", i, "filler", filler)
		}
		dropped := l.Dropped()
		if held := (lines - int(dropped)) * (len(filler) + 60); held > maxLogBytes || held < maxLogBytes-maxLogBytes/8 {
			t.Errorf("about %d bytes wait", held)
		}
		if dropped == 0 {
			t.Fatal("nothing was dropped")
		}

		out.set(false, false)
		synctest.Wait()
		log.Info("last")
		l.Close(time.Second)
		got := out.lines()
		if len(got) != 1+1+lines-int(dropped)+1+1 {
			t.Errorf("%d lines, %d of %d were dropped", len(got), dropped, lines)
		}
		if notice := got[len(got)-2]; !strings.Contains(notice, fmt.Sprintf(`level=WARN msg="log lines were dropped" lines=%d`, dropped)) {
			t.Errorf("told %q of %d", notice, dropped)
		}
		if !strings.Contains(got[len(got)-1], "msg=last") {
			t.Errorf("the last line is %q", got[len(got)-1])
		}
		log.Info("after the end")
		if l.Dropped() != dropped+1 {
			t.Errorf("%d dropped after the end", l.Dropped())
		}
	})
}

// What could not be written is counted too, and told of once writing works.
func TestALogThatFailsIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSink()
		l := NewLog(out, LogJSON, slog.LevelInfo)
		out.set(false, true)
		for range 3 {
			l.Logger().Info("lost")
			synctest.Wait()
		}
		if l.Dropped() != 3 {
			t.Errorf("%d dropped", l.Dropped())
		}
		out.set(false, false)
		l.Logger().Info("again")
		l.Close(time.Second)
		var said struct {
			Msg   string
			Lines int
		}
		got := out.lines()
		if err := json.Unmarshal([]byte(got[len(got)-1]), &said); err != nil || len(got) != 2 || said.Lines != 3 {
			t.Errorf("%v, %q", err, got)
		}
	})
}

// Closing writes what waits, and gives up where nothing can be written.
func TestALogIsClosedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSink()
		out.set(true, false)
		l := NewLog(out, LogText, slog.LevelInfo)
		l.Logger().Info("why it stops")
		began := time.Now()
		l.Close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("gave up after %v", took)
		}
		out.set(false, false)
		synctest.Wait()
		if got := out.lines(); len(got) != 1 || !strings.Contains(got[0], "why it stops") {
			t.Errorf("written %q", got)
		}
	})
}
