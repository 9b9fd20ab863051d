package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// SchemaVersion is that of summary.json.
const SchemaVersion = 1

// Summary is what a run measured: summary.json.
type Summary struct {
	SchemaVersion int                  `json:"schema_version"`
	Scenario      string               `json:"scenario"`
	Settings      map[string]string    `json:"settings"`
	Started       time.Time            `json:"started"`
	Seconds       float64              `json:"seconds"`
	Interrupted   bool                 `json:"interrupted,omitempty"` // before its end: no threshold is judged
	Machine       Machine              `json:"machine"`
	Versions      map[string]string    `json:"versions"`
	Command       string               `json:"command"`
	Ops           map[string]OpSummary `json:"ops"`
	Steps         []Step               `json:"steps,omitempty"`
	Facts         map[string]float64   `json:"facts,omitempty"`
	Lost          uint64               `json:"lost"`
	Lapsed        uint64               `json:"lapsed"`
	Violations    uint64               `json:"violations"`
	Texts         []string             `json:"violation_texts,omitempty"`
	Refused       uint64               `json:"refused"`
	Servers       []ServerSummary      `json:"servers"`
	Placement     string               `json:"placement,omitempty"` // of agents on several members
	RSSPerConn    float64              `json:"rss_per_connection_bytes"`
	Thresholds    []Threshold          `json:"thresholds"`
}

// ServerSummary is one server process at the end of the run.
type ServerSummary struct {
	Name        string  `json:"name,omitempty"`
	URL         string  `json:"url,omitempty"`
	PID         int     `json:"pid"`
	RSS         uint64  `json:"rss_bytes"`
	CPU         float64 `json:"cpu_seconds"`
	Connections int     `json:"connections"` // open sockets: clients', other members', and those it listens on
}

// Threshold is a limit of the scenario and what the run has.
type Threshold struct {
	Name  string  `json:"name"`
	Limit float64 `json:"limit"`
	Value float64 `json:"value"`
	OK    bool    `json:"ok"`
}

// Passed reports whether the run came to its end, nothing was violated and every
// threshold held.
func (s *Summary) Passed() bool {
	if s.Interrupted {
		return false
	}
	for _, t := range s.Thresholds {
		if !t.OK {
			return false
		}
	}
	return s.Violations == 0 && s.Lost == 0
}

func (r *run) summary(interrupted bool) *Summary {
	_, _, connections := r.agents()
	s := &Summary{
		SchemaVersion: SchemaVersion, Scenario: r.sc.Name, Settings: r.opts.Set, Started: r.begun.UTC(), Seconds: r.now().Seconds(), Interrupted: interrupted,
		Machine: thisMachine(), Versions: r.allVersions(), Command: r.opts.Command,
		Ops: map[string]OpSummary{}, Steps: r.steps, Facts: r.facts, Refused: r.refused, Texts: r.check.Texts(), RSSPerConn: r.facts["rss_per_connection_bytes"],
	}
	s.Lost, s.Lapsed, s.Violations = r.check.Counts()
	for name, o := range r.rec.all() {
		if sum := o.summary(); sum.Count > 0 || sum.Errors > 0 {
			sum.CPUMicros, sum.LoadMicros = 0, 0
			if r.sc.Play == "closed" || r.sc.Play == "watch" {
				sum.CPUMicros, sum.LoadMicros = r.facts["cpu_us_per_op"], r.facts["client_cpu_us_per_op"]
			}
			s.Ops[name] = sum
		}
	}
	pids := r.meter.pids()
	for i, p := range r.meter.read() {
		one := ServerSummary{PID: pids[i], RSS: p.RSS, CPU: p.CPU.Seconds(), Connections: len(sockets(pids[i]))}
		if r.cluster != nil {
			one.Name = r.cluster.Servers()[i].Name
		}
		if i < len(r.urls) {
			one.URL = r.urls[i]
		}
		s.Servers = append(s.Servers, one)
	}
	if len(r.clients) > 1 {
		s.Placement = "round robin"
	}
	// A closed loop's memory is that of its work, not of its connections.
	if len(s.Servers) > 0 && connections > 0 && s.RSSPerConn == 0 && r.sc.Play != "closed" {
		s.RSSPerConn = float64(r.rss()) / float64(connections)
	}
	if s.Interrupted {
		return s
	}
	for _, name := range sortedKeys(r.sc.Thresholds) {
		limit := r.sc.Thresholds[name]
		v, known := s.value(name)
		s.Thresholds = append(s.Thresholds, Threshold{Name: name, Limit: limit, Value: v, OK: known && v <= limit})
	}
	return s
}

func (r *run) allVersions() map[string]string {
	all := map[string]string{"go": goVersion()}
	maps.Copy(all, r.versions)
	return all
}

// value finds what a threshold names: "OP.FIELD" of ops, or a key of facts, or
// lost, lapsed, violations, refused.
func (s *Summary) value(name string) (float64, bool) {
	switch name {
	case "lost":
		return float64(s.Lost), true
	case "lapsed":
		return float64(s.Lapsed), true
	case "violations":
		return float64(s.Violations), true
	case "refused":
		return float64(s.Refused), true
	case "rss_per_connection_bytes":
		return s.RSSPerConn, s.RSSPerConn > 0
	}
	if v, ok := s.Facts[name]; ok {
		return v, true
	}
	op, field, ok := cutLast(name, ".")
	sum, known := s.Ops[op]
	if !ok || !known || sum.Count == 0 && sum.Errors > 0 && field != "errors" {
		return 0, false // all of them failed: nothing is known of how long they take
	}
	v, ok := map[string]float64{
		"p50_ms": sum.P50, "p90_ms": sum.P90, "p99_ms": sum.P99, "p999_ms": sum.P999, "max_ms": sum.Max, "errors": float64(sum.Errors),
	}[field]
	return v, ok
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Print writes the summary as a table for people.
func (s *Summary) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "operation\tcount\terrors\tper second\tp50 ms\tp90 ms\tp99 ms\tmax ms\t\n")
	for _, name := range sortedKeys(s.Ops) {
		o := s.Ops[name]
		fmt.Fprintf(tw, "%s\t%d\t%d\t%.0f\t%s\t%s\t%s\t%s\t\n", name, o.Count, o.Errors, o.Rate, num(o.P50), num(o.P90), num(o.P99), num(o.Max))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(s.Steps) > 1 {
		fmt.Fprintln(w)
		fmt.Fprintf(tw, "leases\tclaims\tp50 ms\tp99 ms\tmax ms\textensions\tp50 ms\tp99 ms\tmax ms\t\n")
		for _, st := range s.Steps {
			c, e := st.Ops["claim"], st.Ops["extend"]
			fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t\n", st.label(), c.Count, num(c.P50), num(c.P99), num(c.Max), e.Count, num(e.P50), num(e.P99), num(e.Max))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, k := range sortedKeys(s.Facts) {
		fmt.Fprintf(w, "%s: %s\n", k, amount(k, s.Facts[k]))
	}
	for i, srv := range s.Servers {
		fmt.Fprintf(w, "server %d: %s resident, %.1f s CPU\n", i+1, bytesText(float64(srv.RSS)), srv.CPU)
	}
	fmt.Fprintf(w, "lost %d, lapsed %d, violations %d, refused %d\n", s.Lost, s.Lapsed, s.Violations, s.Refused)
	for _, t := range s.Texts {
		fmt.Fprintf(w, "violation: %s\n", t)
	}
	for _, t := range s.Thresholds {
		word, value := "ok", amount(t.Name, t.Value)
		if !t.OK {
			word = "FAILED"
			if t.Value <= t.Limit {
				value = "not measured"
			}
		}
		fmt.Fprintf(w, "threshold %s: %s, at most %s: %s\n", t.Name, value, amount(t.Name, t.Limit), word)
	}
	if s.Interrupted {
		fmt.Fprintln(w, "interrupted: this is what was measured up to then, and no threshold is judged")
	}
	return nil
}

// amount prints a figure by its name, which says whether it counts bytes.
func amount(name string, f float64) string {
	if strings.HasSuffix(name, "_bytes") {
		return bytesText(f)
	}
	return figure(f)
}

// bytesText prints a size for people: 512 B, 41.3 MiB.
func bytesText(f float64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if math.Abs(f) < 1024 {
			return figure(f) + " " + unit
		}
		f /= 1024
	}
	return figure(f) + " GiB"
}

// figure prints what may be a count, which has no digits behind the point.
func figure(f float64) string {
	if f == math.Trunc(f) {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return num(f)
}

// num prints a measure with as many digits as it is worth.
func num(f float64) string {
	switch {
	case f != 0 && f < 10 && f > -10:
		return strconv.FormatFloat(f, 'f', 2, 64)
	case f < 1000 && f > -1000:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}

// ReadSummary reads a summary.json, or the one in a folder of results.
func ReadSummary(path string) (*Summary, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "summary.json")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := new(Summary)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "%s: %w", path, err)
	}
	if s.SchemaVersion != SchemaVersion {
		return nil, incumbent.Errorf(incumbent.Invalid, "%s has schema version %d; this program reads %d", path, s.SchemaVersion, SchemaVersion)
	}
	return s, nil
}

// Compare prints two runs side by side with the ratio of b to a. What only one
// of them has stands beside a dash.
func Compare(w io.Writer, a, b *Summary) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "figure\t%s\t%s\tb/a\t\n", a.label(), b.label())
	row := func(name string, x, y float64) {
		ratio := "-"
		if x != 0 {
			ratio = num(y / x)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t\n", name, num(x), num(y), ratio)
	}
	both := maps.Clone(a.Ops)
	maps.Copy(both, b.Ops)
	for _, op := range sortedKeys(both) {
		x, inA := a.Ops[op]
		y, inB := b.Ops[op]
		if !inA || !inB {
			compareAlone(tw, op, both[op], inA)
			continue
		}
		row(op+" per second", x.Rate, y.Rate)
		row(op+" p50 ms", x.P50, y.P50)
		row(op+" p99 ms", x.P99, y.P99)
		row(op+" max ms", x.Max, y.Max)
		if x.Errors+y.Errors > 0 {
			row(op+" errors", float64(x.Errors), float64(y.Errors))
		}
		if x.CPUMicros > 0 && y.CPUMicros > 0 {
			row(op+" server CPU µs", x.CPUMicros, y.CPUMicros)
		}
	}
	if a.RSSPerConn > 0 && b.RSSPerConn > 0 {
		row("rss per connection", a.RSSPerConn, b.RSSPerConn)
	}
	for _, fact := range []string{"delivered_share", "server_cores", "servers_rss_bytes"} {
		x, inA := a.Facts[fact]
		if y, inB := b.Facts[fact]; inA && inB {
			row(fact, x, y)
		}
	}
	row("lost", float64(a.Lost), float64(b.Lost))
	row("violations", float64(a.Violations), float64(b.Violations))
	return tw.Flush()
}

// compareAlone prints an operation that only one run has: the first or the second.
func compareAlone(w io.Writer, op string, o OpSummary, first bool) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"per second", o.Rate}, {"p50 ms", o.P50}, {"p99 ms", o.P99}, {"max ms", o.Max}} {
		x, y := num(f.value), "-"
		if !first {
			x, y = y, x
		}
		fmt.Fprintf(w, "%s %s\t%s\t%s\t-\t\n", op, f.name, x, y)
	}
}

func (s *Summary) label() string {
	for _, who := range []string{"etcd", "consul", "ovsdb"} {
		if v, ok := s.Versions[who]; ok {
			return who + " " + v
		}
	}
	return s.Scenario + " " + s.Started.Format("15:04:05")
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func (r *run) writeSamples(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	enc := json.NewEncoder(f)
	for _, s := range r.series {
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	return f.Close()
}

// writeHistograms writes one percentile listing an operation, in the format
// that HdrHistogram's plotters read.
func (r *run) writeHistograms(dir string) error {
	for name, o := range r.rec.all() {
		if o.total.TotalCount() == 0 {
			continue
		}
		f, err := os.Create(filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".hgrm"))
		if err != nil {
			return err
		}
		if _, err := o.total.PercentilesPrint(f, 5, 1000); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
