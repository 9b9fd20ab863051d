package server

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
)

// monitors are those who are shown the member's log while it is written.
type monitors struct {
	mu   sync.Mutex // held to change the list
	list atomic.Pointer[[]*monitor]
}

// monitor is one of them.
type monitor struct {
	level  slog.Level
	asJSON bool
	line   func([]byte) // takes a line, which it must not keep; it does not wait, and does not log
}

// Write implements [io.Writer].
func (m *monitor) Write(line []byte) (int, error) {
	m.line(line)
	return len(line), nil
}

func (m *monitor) handler() slog.Handler {
	opts := &slog.HandlerOptions{Level: m.level}
	if m.asJSON {
		return slog.NewJSONHandler(plainJSON{m}, opts)
	}
	return slog.NewTextHandler(io.Writer(m), opts)
}

// add has line called with what is logged from level on, whatever the level of the log
// is, until stop.
func (ms *monitors) add(level slog.Level, asJSON bool, line func([]byte)) (stop func()) {
	m := &monitor{level, asJSON, line}
	ms.change(func(list []*monitor) []*monitor { return append(list, m) })
	return func() {
		ms.change(func(list []*monitor) []*monitor {
			return slices.DeleteFunc(list, func(o *monitor) bool { return o == m })
		})
	}
}

func (ms *monitors) change(do func([]*monitor) []*monitor) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	next := do(slices.Clone(ms.all()))
	ms.list.Store(&next)
}

func (ms *monitors) all() []*monitor {
	if list := ms.list.Load(); list != nil {
		return *list
	}
	return nil
}

// logger is one that monitors are shown, too.
func (ms *monitors) logger(of *slog.Logger) *slog.Logger {
	return slog.New(&monitored{Handler: of.Handler(), by: ms})
}

// monitored is a log's handler with its monitors.
type monitored struct {
	slog.Handler
	by   *monitors
	with []func(slog.Handler) slog.Handler // what was given with attributes and groups
}

// Enabled implements [slog.Handler].
func (h *monitored) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, l) || slices.ContainsFunc(h.by.all(), func(m *monitor) bool { return l >= m.level })
}

// Handle implements [slog.Handler].
func (h *monitored) Handle(ctx context.Context, r slog.Record) error {
	for _, m := range h.by.all() {
		if r.Level < m.level {
			continue
		}
		to := m.handler()
		for _, with := range h.with {
			to = with(to)
		}
		_ = to.Handle(ctx, r.Clone()) // it takes all
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *monitored) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.derived(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

// WithGroup implements [slog.Handler].
func (h *monitored) WithGroup(name string) slog.Handler {
	return h.derived(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (h *monitored) derived(with func(slog.Handler) slog.Handler) slog.Handler {
	return &monitored{Handler: with(h.Handler), by: h.by, with: append(slices.Clone(h.with), with)}
}
