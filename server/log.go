package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// maxLogBytes bounds the log lines that wait for whoever reads the log: some
// thousands of lines, seconds of the worst that a member has to say.
const maxLogBytes = 1 << 20

// Log formats of [NewLog].
const (
	LogText = "text"
	LogJSON = "json"
)

// Log is a member's log, which never holds anybody up: lines wait in memory, at
// most 1 MiB of them, and a goroutine writes them. Lines that find no room, or
// that cannot be written, are dropped and counted; once writing works again a line
// says how many. The log of a process that ends must be closed, or its last lines
// may be lost.
type Log struct {
	out   io.Writer
	form  string
	level slog.Leveler

	mu      sync.Mutex // protects what follows; held for a copy of one line, never while writing
	waiting []byte     // whole lines
	untold  uint64     // lines dropped that no line tells of yet
	dropped uint64     // lines dropped so far
	closed  bool

	wake  chan struct{} // has room for one
	ended chan struct{} // closed when the writer has ended
}

// NewLog returns a log that is written to out as LogText or LogJSON, from level on.
func NewLog(out io.Writer, form string, level slog.Leveler) *Log {
	l := &Log{out: out, form: form, level: level, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go l.run()
	return l
}

// Logger returns what to log with. It may be used from any goroutine, and after
// Close, when its lines are dropped.
func (l *Log) Logger() *slog.Logger { return slog.New(l.handler((*lineQueue)(l))) }

func (l *Log) handler(to io.Writer) slog.Handler {
	opts := &slog.HandlerOptions{Level: l.level}
	if l.form == LogJSON {
		return slog.NewJSONHandler(plainJSON{to}, opts)
	}
	return slog.NewTextHandler(to, opts)
}

// plainJSON writes out what a terminal would obey: the text handler quotes such
// values, that of JSON does not.
type plainJSON struct{ to io.Writer }

func (p plainJSON) Write(line []byte) (int, error) {
	if _, err := p.to.Write(incumbent.EscapeJSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// Dropped is how many lines have been dropped so far. nil has dropped none.
func (l *Log) Dropped() uint64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// Close writes what waits, for as long as within at most.
func (l *Log) Close(within time.Duration) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.nudge()
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-l.ended:
	case <-t.C:
	}
}

// lineQueue is the log as its handler sees it, which calls Write once for each
// line.
type lineQueue Log

func (q *lineQueue) Write(line []byte) (int, error) {
	l := (*Log)(q)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.waiting)+len(line) > maxLogBytes {
		l.dropped++
		l.untold++
		return len(line), nil
	}
	l.waiting = append(l.waiting, line...)
	l.nudge()
	return len(line), nil
}

func (l *Log) nudge() {
	select {
	case l.wake <- struct{}{}:
	default: // the writer is to look already
	}
}

// run writes until the log is closed and nothing waits.
func (l *Log) run() {
	defer close(l.ended)
	var spare []byte
	for range l.wake {
		for {
			lines, lost, closed := l.take(spare)
			if len(lines) == 0 && (lost == 0 || !closed) {
				if closed {
					return
				}
				break // of a loss alone the next line tells
			}
			l.write(lines, lost)
			spare = lines[:0]
			if closed && len(lines) == 0 {
				return
			}
		}
	}
}

// take returns the lines that wait, and how many were dropped behind them; spare
// takes the next.
func (l *Log) take(spare []byte) (lines []byte, lost uint64, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, lost = l.waiting, l.untold
	l.waiting = spare
	if len(lines) > 0 || l.closed {
		l.untold = 0
	}
	return lines, lost, l.closed
}

// write writes lines and what to tell of lost ones. Those that cannot be written
// are lost as well.
func (l *Log) write(lines []byte, lost uint64) {
	if lost > 0 {
		lines = append(lines, l.notice(lost)...)
	}
	if _, err := l.out.Write(lines); err == nil {
		return
	}
	now := uint64(bytes.Count(lines, []byte{'\n'}))
	l.mu.Lock()
	defer l.mu.Unlock()
	if lost > 0 {
		now-- // the notice
	}
	l.dropped += now
	l.untold += now + lost
}

// notice is the line that tells of lost ones.
func (l *Log) notice(lost uint64) []byte {
	var b bytes.Buffer
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines were dropped", 0)
	r.AddAttrs(slog.Uint64("lines", lost))
	_ = l.handler(&b).Handle(context.Background(), r) // a buffer takes all
	return b.Bytes()
}
