package audit

import (
	"log/slog"
	"sync"
	"time"
)

// Limits of a log.
const (
	maxWaiting = 16_384      // records that wait to be written; what comes while so many do is lost
	maxPiece   = 64 << 10    // bytes that are written at once
	syncEvery  = time.Second // a record is on the disk so long after it was written, if the machine loses its power
)

// Sink takes lines. Only the log's goroutine uses it.
type Sink interface {
	// Write takes whole lines. What it did not take counts as lost.
	Write(lines []byte) error
	// Sync makes what was written outlive the machine's power.
	Sync() error
	// Reopen goes on in another file of the same name: whoever rotates files has
	// moved the old one away.
	Reopen() error
	Close() error
}

// Log writes records. See the package comment for what it promises.
type Log struct {
	member string
	sink   Sink
	now    func() time.Time
	log    *slog.Logger

	mu      sync.Mutex // protects what follows; held for a copy of one record, never while writing
	waiting []Record
	untold  uint64 // lost ones that no line tells of yet
	lost    uint64
	reopen  bool
	closed  bool

	wake  chan struct{} // has room for one
	ended chan struct{} // closed when the writer has ended

	// Of the writer.
	broken bool // the sink failed last
	dirty  bool // what was written is not synced
	synced time.Time
}

// New returns a log of a member into a sink, which it closes. log is told when
// writing begins and ends to fail.
func New(member string, sink Sink, now func() time.Time, log *slog.Logger) *Log {
	l := &Log{member: member, sink: sink, now: now, log: log, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.synced = now()
	go l.run()
	return l
}

// Write hands in a record. It never waits.
func (l *Log) Write(r Record) {
	l.mu.Lock()
	if l.closed || len(l.waiting) >= maxWaiting {
		l.lost++
		l.untold++
	} else {
		l.waiting = append(l.waiting, r)
	}
	l.mu.Unlock()
	l.nudge()
}

// Lost is how many records were lost so far.
func (l *Log) Lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Reopen has the log go on in another file of the same name, once what waits was
// written. It does not wait for that.
func (l *Log) Reopen() {
	l.mu.Lock()
	l.reopen = true
	l.mu.Unlock()
	l.nudge()
}

// Close writes what waits, for as long as within at most, and takes no more.
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

func (l *Log) nudge() {
	select {
	case l.wake <- struct{}{}:
	default: // the writer is to look already
	}
}

// run writes until the log is closed and nothing waits.
func (l *Log) run() {
	defer close(l.ended)
	t := time.NewTimer(syncEvery)
	defer t.Stop()
	var spare []Record
	for {
		select {
		case <-l.wake:
		case <-t.C:
		}
		got := l.take(spare)
		l.writeAll(&got)
		if got.reopen {
			l.note(l.sink.Reopen())
		}
		clear(got.records)
		spare = got.records[:0]
		if got.closed {
			l.flush()
			_ = l.sink.Close() // what was written is synced
			return
		}
		if l.now().Sub(l.synced) >= syncEvery {
			l.flush()
		}
		if l.dirty || l.broken {
			t.Reset(syncEvery)
		}
	}
}

// taken is what the writer has to do.
type taken struct {
	records        []Record
	lost           uint64
	reopen, closed bool
}

func (l *Log) take(spare []Record) taken {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := taken{l.waiting, l.untold, l.reopen, l.closed}
	l.waiting, l.untold, l.reopen = spare, 0, false
	return t
}

// writeAll writes records in pieces, and behind them how many were lost.
func (l *Log) writeAll(t *taken) {
	var b []byte
	n := uint64(0)
	for i := range t.records {
		r := &t.records[i]
		if r.At.IsZero() {
			r.At = l.now()
		}
		b, n = appendRecord(b, l.member, r), n+1
		if len(b) >= maxPiece {
			l.write(b, n, 0)
			b, n = b[:0], 0
		}
	}
	if t.lost > 0 {
		b = appendLost(b, l.member, l.now(), t.lost)
	}
	if len(b) > 0 {
		l.write(b, n, t.lost)
	}
}

// write writes lines of n records, and the line that tells of lost ones. If it
// cannot they are lost, and the lost ones are still to be told of.
func (l *Log) write(b []byte, n, told uint64) {
	err := l.sink.Write(b)
	l.note(err)
	if err == nil {
		l.dirty = true
		return
	}
	l.mu.Lock()
	l.lost += n
	l.untold += n + told
	l.mu.Unlock()
}

func (l *Log) flush() {
	if l.synced = l.now(); l.dirty {
		l.dirty = false
		l.note(l.sink.Sync())
	}
}

// note logs when the sink begins to fail, and when it works again.
func (l *Log) note(err error) {
	switch was := l.broken; {
	case err != nil && !was:
		l.log.Error("the audit log cannot be written: records are lost", "cause", err)
	case err == nil && was:
		l.log.Info("the audit log is written again")
	}
	l.broken = err != nil
}
