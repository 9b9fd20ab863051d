package audit

import (
	"log/slog"
	"time"

	"github.com/incumbent-dev/incumbent/linequeue"
)

// maxWaiting is how many records may wait to be written; what comes while so many do
// is lost.
const maxWaiting = 16_384

// Sink takes lines. Only the log's goroutine uses it.
type Sink interface {
	// Write takes whole lines. What it did not take counts as lost.
	Write(lines []byte) error
	// Sync makes what was written outlive the machine's power. It is called within
	// [linequeue.Every] of a write.
	Sync() error
	// Reopen goes on in another file of the same name: whoever rotates files has
	// moved the old one away.
	Reopen() error
	Close() error
}

// Log writes records. See the package comment for what it promises.
type Log struct {
	queue *linequeue.Queue[Record]
	log   *slog.Logger

	broken bool // the sink failed last; of the queue's writer
}

// New returns a log of a member into a sink, which it closes. log is told when
// writing begins and ends to fail.
func New(member string, sink Sink, now func() time.Time, log *slog.Logger) *Log {
	l := &Log{log: log}
	l.queue = linequeue.New(linequeue.Config[Record]{
		Max: maxWaiting, Size: func(Record) int { return 1 },
		Append: func(b []byte, r Record) []byte {
			if r.At.IsZero() {
				r.At = now()
			}
			return appendRecord(b, member, &r)
		},
		Lost:   func(b []byte, n uint64) []byte { return appendLost(b, member, now(), n) },
		Write:  func(lines []byte) error { return l.note(sink.Write(lines)) },
		Settle: func() { _ = l.note(sink.Sync()) },
		Reopen: func() { _ = l.note(sink.Reopen()) },
		End:    func() { _ = sink.Close() }, // what was written is synced
	})
	return l
}

// Write hands in a record. It never waits.
func (l *Log) Write(r Record) {
	for _, text := range [...]*string{&r.Door, &r.Address, &r.Principal, &r.Action, &r.Subject, &r.Detail} {
		*text = Bounded(*text)
	}
	l.queue.Put(r)
}

// Lost is how many records were lost so far.
func (l *Log) Lost() uint64 { return l.queue.Lost() }

// Reopen has the log go on in another file of the same name, once what waits was
// written. It does not wait for that.
func (l *Log) Reopen() { l.queue.Reopen() }

// Close writes what waits, for as long as within at most, and takes no more.
func (l *Log) Close(within time.Duration) { l.queue.Close(within) }

// note logs when the sink begins to fail, and when it works again. It returns what it
// is given.
func (l *Log) note(err error) error {
	switch was := l.broken; {
	case err != nil && !was:
		l.log.Error("the audit log cannot be written: records are lost", "cause", err)
	case err == nil && was:
		l.log.Info("the audit log is written again")
	}
	l.broken = err != nil
	return err
}
