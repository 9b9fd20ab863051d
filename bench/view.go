package bench

import (
	"fmt"
	"io"
	"strings"
)

// view shows how a run goes: an updating picture in a terminal, one line a
// second elsewhere, nothing while Juju's own lines are printed.
type view struct {
	out      io.Writer
	terminal bool
	silent   bool
	lines    int // printed last time, to be painted over
}

func newView(o Options) *view {
	return &view{out: o.Out, terminal: o.Terminal, silent: o.LogFormat == "juju"}
}

func (v *view) show(s Sample) {
	switch {
	case v.silent:
	case v.terminal:
		v.paint(s)
	default:
		fmt.Fprintln(v.out, line(s))
	}
}

// line is one second in one line.
func line(s Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%6.1fs  %-24s", s.At, s.Phase)
	if s.Holding+s.Waiting > 0 {
		fmt.Fprintf(&b, "  holding %d waiting %d", s.Holding, s.Waiting)
	}
	for _, op := range sortedKeys(s.Ops) {
		o := s.Ops[op]
		fmt.Fprintf(&b, "  %s %d/s p99 %sms", op, o.Count, num(o.P99))
		if o.Errors > 0 {
			fmt.Fprintf(&b, " errors %d", o.Errors)
		}
	}
	for i, cpu := range s.CPU {
		fmt.Fprintf(&b, "  server %.0f%% %.0fMiB", cpu*100, float64(s.RSS[i])/(1<<20))
	}
	if s.Lost+s.Violations > 0 {
		fmt.Fprintf(&b, "  LOST %d VIOLATIONS %d", s.Lost, s.Violations)
	}
	return b.String()
}

// paint draws the second over the one before.
func (v *view) paint(s Sample) {
	var b strings.Builder
	if v.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.lines)
	}
	n := 0
	put := func(format string, args ...any) {
		b.WriteString("\r\x1b[K" + fmt.Sprintf(format, args...) + "\n")
		n++
	}
	put("%s  %.0f s", s.Phase, s.At)
	put("  holding %d   waiting %d   connections %d", s.Holding, s.Waiting, s.Connections)
	put("  %-12s %10s %10s %10s %10s %8s", "", "per second", "p50 ms", "p99 ms", "max ms", "errors")
	for _, op := range sortedKeys(s.Ops) {
		o := s.Ops[op]
		put("  %-12s %10d %10s %10s %10s %8d", op, o.Count, num(o.P50), num(o.P99), num(o.Max), o.Errors)
	}
	for i, cpu := range s.CPU {
		put("  server %d: %.0f %% of a core, %.1f MiB", i+1, cpu*100, float64(s.RSS[i])/(1<<20))
	}
	put("  lost %d   violations %d", s.Lost, s.Violations)
	for extra := n; extra < v.lines; extra++ {
		put("")
	}
	v.lines = n
	fmt.Fprint(v.out, b.String())
}

func (v *view) end() {
	if v.terminal && v.lines > 0 {
		fmt.Fprintln(v.out)
	}
}

// say prints one of Juju's own lines, where they are asked for.
func (r *run) say(format string, args ...any) {
	if r.opts.LogFormat == "juju" {
		r.print(fmt.Sprintf("%9.3fs "+format+"\n", append([]any{r.now().Seconds()}, args...)...))
	}
}

// print writes whole lines, from several goroutines.
func (r *run) print(lines string) {
	r.printing.Lock()
	defer r.printing.Unlock()
	_, _ = io.WriteString(r.opts.Out, lines) // what cannot be shown is in the results
}
