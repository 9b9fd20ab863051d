package bench

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Report writes one self-contained page: figures, charts as inline SVG, the
// machine, and the command. It loads nothing.
func Report(w io.Writer, s *Summary, series []Sample) error {
	data := reportData{Summary: s}
	for _, o := range s.Ops {
		data.CPUEach = data.CPUEach || o.CPUMicros > 0
	}
	for _, op := range stepOps {
		if slices.ContainsFunc(s.Steps, func(st Step) bool { return st.Ops[op].Count > 0 }) {
			data.StepOps = append(data.StepOps, op)
		}
	}
	ops := sortedKeys(s.Ops)
	charts := stepChart(s)
	for _, op := range ops {
		charts = append(charts, latencyChart(op, series))
	}
	charts = append(charts, rateChart(ops, series))
	for _, c := range append(charts, serverChart(s, series)...) {
		if !c.empty() {
			data.Charts = append(data.Charts, c.draw())
		}
	}
	return reportPage.Execute(w, data)
}

// stepOps are the operations that a ladder is about.
var stepOps = []string{"claim", "extend", "hand-over"}

// reportData is what the page shows: no column, and no chart, in which there would be
// nothing.
type reportData struct {
	*Summary
	CPUEach bool     // some operation has the server's CPU of its own
	StepOps []string // of stepOps, which the steps have
	Charts  []template.HTML
}

// Chart geometry, in SVG units.
const (
	chartW, chartH            = 720, 240
	padLeft, padRight         = 56, 12
	padTop, padBottom         = 28, 34 // above: the title, and below it the legend's rows
	titleY, keyRow            = 16, 16
	keyChar, keyGap           = 7, 16 // width of a character of the legend, at most; and between two names
	colours                   = 6     // behind them they come again, dashed
	plotW, plotH      float64 = chartW - padLeft - padRight, chartH - padTop - padBottom
)

// chart draws lines over one pair of axes.
type chart struct {
	title, xLabel string
	logX, logY    bool
	lines         []chartLine
	marks         []chartMark
}

// chartMark is a moment with a name.
type chartMark struct {
	name string
	x    float64
}

type chartLine struct {
	name string
	x, y []float64
}

// empty reports whether there is nothing to draw.
func (c chart) empty() bool {
	return !slices.ContainsFunc(c.lines, func(l chartLine) bool { return len(l.x) > 0 })
}

func stepChart(s *Summary) []chart {
	if len(s.Steps) < 2 {
		return nil
	}
	var out []chart
	for _, op := range stepOps {
		var p50, p99, most chartLine
		p50.name, p99.name, most.name = "p50", "p99", "max"
		for _, st := range s.Steps {
			if strings.HasPrefix(st.Phase, "fault") {
				continue // latency against time shows it
			}
			if o, ok := st.Ops[op]; ok {
				x := float64(st.Leases)
				p50.add(x, o.P50)
				p99.add(x, o.P99)
				most.add(x, o.Max)
			}
		}
		if len(p50.x) > 1 {
			out = append(out, chart{title: op + " latency (ms) by leases", xLabel: "leases", logX: true, logY: true, lines: []chartLine{p50, p99, most}})
		}
	}
	return out
}

func (l *chartLine) add(x, y float64) {
	l.x = append(l.x, x)
	l.y = append(l.y, y)
}

func latencyChart(op string, series []Sample) chart {
	p50, p99, most := chartLine{name: "p50"}, chartLine{name: "p99"}, chartLine{name: "max"}
	for _, s := range series {
		if o, ok := s.Ops[op]; ok && o.Count > 0 {
			p50.add(s.At, o.P50)
			p99.add(s.At, o.P99)
			most.add(s.At, o.Max)
		}
	}
	return chart{title: op + " latency (ms)", xLabel: "seconds", logY: true, lines: []chartLine{p50, p99, most}}
}

func rateChart(ops []string, series []Sample) chart {
	var lines []chartLine
	for _, op := range ops {
		l := chartLine{name: op}
		for _, s := range series {
			l.add(s.At, float64(s.Ops[op].Count))
		}
		lines = append(lines, l)
	}
	return chart{title: "operations a second", xLabel: "seconds", lines: lines, marks: floodMarks(series)}
}

// floodMarks are the moments of an overload: A, from which on some of a flood is refused, and B,
// from which on no longer more is refused than executed, or, where that never was, nothing.
func floodMarks(series []Sample) (marks []chartMark) {
	some, over := -1, -1 // the last second in which any is refused, and more than is executed
	for i, s := range series {
		if refused := s.Ops[floodRefused].Count; refused > 0 {
			some = i
			if refused > s.Ops[floodDone].Count {
				over = i
			}
		}
	}
	if over < 0 {
		over = some
	}
	for i, s := range series {
		if len(marks) == 0 && s.Ops[floodRefused].Count > 0 {
			marks = append(marks, chartMark{"A: shedding starts", s.At})
		}
		if over >= 0 && i > over && s.Ops[floodDone].Count > 0 {
			return append(marks, chartMark{"B: load is carried again", s.At})
		}
	}
	return marks
}

func serverChart(sum *Summary, series []Sample) []chart {
	if len(series) == 0 || len(series[0].RSS) == 0 {
		return nil
	}
	var rss, cpu []chartLine
	for i := range series[0].RSS {
		name := fmt.Sprintf("server %d", i+1)
		if i < len(sum.Servers) && sum.Servers[i].Name != "" {
			name = sum.Servers[i].Name
		}
		m, c := chartLine{name: name}, chartLine{name: name}
		for _, s := range series {
			m.add(s.At, float64(s.RSS[i])/(1<<20))
			c.add(s.At, s.CPU[i])
		}
		rss, cpu = append(rss, m), append(cpu, c)
	}
	return []chart{
		{title: "resident memory (MiB)", xLabel: "seconds", lines: rss},
		{title: "CPU (cores)", xLabel: "seconds", lines: cpu},
	}
}

// axis maps values to a span of the picture.
type axis struct {
	lo, hi float64
	log    bool
}

func newAxis(values [][]float64, log bool) axis {
	a := axis{lo: math.Inf(1), hi: math.Inf(-1), log: log}
	for _, vs := range values {
		for _, v := range vs {
			if log && v <= 0 {
				continue
			}
			a.lo, a.hi = math.Min(a.lo, v), math.Max(a.hi, v)
		}
	}
	switch {
	case a.lo > a.hi:
		return axis{lo: 1, hi: 10, log: log}
	case log:
		a.lo, a.hi = math.Pow(10, math.Floor(math.Log10(a.lo))), math.Pow(10, math.Ceil(math.Log10(a.hi)))
		if a.lo == a.hi {
			a.hi *= 10
		}
	default:
		a.lo = math.Min(0, a.lo)
		if a.hi <= a.lo {
			a.hi = a.lo + 1
		}
	}
	return a
}

// at returns where v lies, 0 to 1.
func (a axis) at(v float64) float64 {
	if a.log {
		v = math.Max(v, a.lo)
		return (math.Log10(v) - math.Log10(a.lo)) / (math.Log10(a.hi) - math.Log10(a.lo))
	}
	return (v - a.lo) / (a.hi - a.lo)
}

func (a axis) ticks() []float64 {
	var out []float64
	if a.log {
		for v := a.lo; v <= a.hi*1.001; v *= 10 {
			out = append(out, v)
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10(a.hi-a.lo)))
	for (a.hi-a.lo)/step < 4 {
		step /= 2
	}
	for v := math.Ceil(a.lo/step) * step; v <= a.hi*1.0001; v += step {
		out = append(out, v)
	}
	return out
}

func (c chart) draw() template.HTML {
	var xs, ys [][]float64
	for _, l := range c.lines {
		xs, ys = append(xs, l.x), append(ys, l.y)
	}
	ax, ay := newAxis(xs, c.logX), newAxis(ys, c.logY)
	keys, rows := c.legend()
	above := rows * keyRow
	height := chartH + above
	px := func(v float64) float64 { return padLeft + plotW*ax.at(v) }
	py := func(v float64) float64 { return float64(padTop+above) + plotH*(1-ay.at(v)) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><text class="title" x="%d" y="%d">%s</text>`,
		chartW, height, template.HTMLEscapeString(c.title), padLeft, titleY, template.HTMLEscapeString(c.title))
	for _, v := range ay.ticks() {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="tick" text-anchor="end" x="%d" y="%.1f">%s</text>`,
			padLeft, chartW-padRight, py(v), py(v), padLeft-6, py(v)+4, short(v))
	}
	for _, v := range ax.ticks() {
		fmt.Fprintf(&b, `<text class="tick" text-anchor="middle" x="%.1f" y="%d">%s</text>`, px(v), height-padBottom+16, short(v))
	}
	fmt.Fprintf(&b, `<text class="tick" text-anchor="end" x="%d" y="%d">%s</text>`, chartW-padRight, height-4, template.HTMLEscapeString(c.xLabel))
	for i, m := range c.marks {
		anchor := "start" // of its name, which is to stay within the picture
		if px(m.x) > padLeft+plotW/2 {
			anchor = "end"
		}
		fmt.Fprintf(&b, `<line class="mark" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/><text class="tick" text-anchor="%s" x="%.1f" y="%d">%s</text>`,
			px(m.x), px(m.x), padTop+above, py(ay.lo), anchor, px(m.x), padTop+above+10+i*keyRow, template.HTMLEscapeString(m.name))
	}
	for i, l := range c.lines {
		c.drawLine(&b, i, l, px, py)
		fmt.Fprintf(&b, `<text class="key %s" x="%d" y="%d">%s</text>`, lineClass(i), keys[i].x, keys[i].y, template.HTMLEscapeString(l.name))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// place is where a text begins.
type place struct{ x, y int }

// legend places the names of the lines in rows below the title, as many as they need.
func (c chart) legend() (keys []place, rows int) {
	x := chartW // so that the first name begins a row
	for _, l := range c.lines {
		w := keyChar * utf8.RuneCountInString(l.name)
		if x+w > chartW-padRight {
			x = padLeft
			rows++
		}
		keys = append(keys, place{x, titleY + rows*keyRow})
		x += w + keyGap
	}
	return keys, rows
}

func (c chart) drawLine(b *strings.Builder, i int, l chartLine, px, py func(float64) float64) {
	var points strings.Builder
	for k := range l.x {
		fmt.Fprintf(&points, "%.1f,%.1f ", px(l.x[k]), py(l.y[k]))
	}
	class := lineClass(i)
	fmt.Fprintf(b, `<polyline class="line %s" points="%s"/>`, class, strings.TrimSpace(points.String()))
	if c.logX {
		for k := range l.x {
			fmt.Fprintf(b, `<circle class="dot %s" cx="%.1f" cy="%.1f" r="3"><title>%s: %s</title></circle>`, class, px(l.x[k]), py(l.y[k]), short(l.x[k]), num(l.y[k]))
		}
	}
}

// lineClass is how the i-th line and its name are drawn.
func lineClass(i int) string {
	class := fmt.Sprintf("c%d", i%colours)
	if i >= colours {
		class += " again"
	}
	return class
}

// short prints a tick: 0.1, 5, 1k, 16k, 1M.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return trimZero(v/1e6) + "M"
	case v >= 1e3:
		return trimZero(v/1e3) + "k"
	}
	return trimZero(v)
}

func trimZero(v float64) string {
	s := fmt.Sprintf("%.3f", v)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}
