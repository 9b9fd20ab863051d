package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/linequeue"
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
	form  string
	level slog.Leveler
	queue *linequeue.Queue[[]byte]
}

// NewLog returns a log that is written to out as LogText or LogJSON, from level on.
func NewLog(out io.Writer, form string, level slog.Leveler) *Log {
	l := &Log{form: form, level: level}
	l.queue = linequeue.New(linequeue.Config[[]byte]{
		Max: maxLogBytes, Size: func(line []byte) int { return len(line) },
		Append: func(b, line []byte) []byte { return append(b, line...) },
		Lost:   l.notice,
		Write:  func(lines []byte) error { _, err := out.Write(lines); return err },
	})
	return l
}

// Logger returns what to log with. It may be used from any goroutine, and after
// Close, when its lines are dropped.
func (l *Log) Logger() *slog.Logger { return slog.New(l.handler(lineWriter{l.queue})) }

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
	return l.queue.Lost()
}

// Close writes what waits, for as long as within at most.
func (l *Log) Close(within time.Duration) { l.queue.Close(within) }

// lineWriter is the log as its handler sees it, which calls Write once for each
// line, of a buffer that it uses again.
type lineWriter struct{ to *linequeue.Queue[[]byte] }

func (w lineWriter) Write(line []byte) (int, error) {
	w.to.Put(bytes.Clone(line))
	return len(line), nil
}

// notice appends the line that tells of lost ones.
func (l *Log) notice(b []byte, lost uint64) []byte {
	out := bytes.NewBuffer(b)
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "log lines were dropped", 0)
	r.AddAttrs(slog.Uint64("lines", lost))
	_ = l.handler(out).Handle(context.Background(), r) // a buffer takes all
	return out.Bytes()
}
