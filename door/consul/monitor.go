package consul

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent/overload"
)

// Limits of who reads a member's log.
const (
	maxMonitors     = 8         // at once
	maxMonitorBytes = 256 << 10 // of lines that one has not taken; what comes beyond is left out, and counted
)

// levelTrace is below everything that is logged.
const levelTrace = slog.LevelDebug - 4

// monitorLevels are the levels as clients name them.
var monitorLevels = map[string]slog.Level{
	"TRACE": levelTrace, "DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "ERR": slog.LevelError, "ERROR": slog.LevelError,
}

// agentMonitor sends the member's log from now on, until the client leaves.
func agentMonitor(d *Door, r *request) {
	level, known := monitorLevels[strings.ToUpper(cmp.Or(r.query.Get("loglevel"), "INFO"))]
	switch {
	case !known:
		r.fail(http.StatusBadRequest, "Unknown log level: %s", r.query.Get("loglevel"))
		return
	case d.cfg.Operator.Monitor == nil:
		r.fail(http.StatusInternalServerError, "this member cannot do that")
		return
	case d.monitors.Add(1) > maxMonitors:
		d.monitors.Add(-1)
		r.failFor(overload.Errorf("this member shows its log to %d already", maxMonitors))
		return
	}
	d.goroutines.Go(func() {
		defer d.monitors.Add(-1)
		r.monitor(level, r.query.Has("logjson"))
	})
}

func (r *request) monitor(level slog.Level, asJSON bool) {
	ctx, cancel := context.WithCancel(r.door.life)
	defer cancel()
	r.whenGone(cancel)
	r.whenLeaving(cancel)
	waiting := &logLines{more: make(chan struct{}, 1)}
	stop := r.door.cfg.Operator.Monitor(level, asJSON, waiting.put)
	defer stop()
	s := &stream{ctx: ctx, r: r}
	if s.begin() != nil {
		return
	}
	for {
		b := waiting.take(ctx)
		if b == nil {
			break
		}
		if _, err := s.Write(b); err != nil {
			break // the client is gone, or told to go
		}
	}
	s.end()
}

// logLines are lines of the log that a client has not been sent.
type logLines struct {
	more chan struct{} // has room for one

	mu      sync.Mutex // guards the rest; held for a copy of one line
	waiting []byte
	dropped int
}

// put adds a line. It does not wait.
func (l *logLines) put(line []byte) {
	l.mu.Lock()
	if len(l.waiting)+len(line) > maxMonitorBytes {
		l.dropped++
	} else {
		l.waiting = append(l.waiting, line...)
	}
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default: // it is to look already
	}
}

// take waits for lines; nil: ctx has ended.
func (l *logLines) take(ctx context.Context) []byte {
	for {
		select {
		case <-l.more:
		case <-ctx.Done():
			return nil
		}
		l.mu.Lock()
		b := l.waiting
		if l.dropped > 0 {
			b = append(b, "[WARN] "+strconv.Itoa(l.dropped)+" lines were left out: they came faster than they were read\n"...)
		}
		l.waiting, l.dropped = nil, 0
		l.mu.Unlock()
		if len(b) > 0 {
			return b
		}
	}
}
