package bench

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func aSummary() *Summary {
	return &Summary{
		SchemaVersion: SchemaVersion, Scenario: "juju-leases", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 12,
		Command: "incumbent bench run <juju>", Versions: map[string]string{"go": "go1"},
		Ops: map[string]OpSummary{"claim": {Count: 100, Rate: 50, P50: 1, P99: 4, Max: 8}, "extend": {Count: 10, Errors: 2, P99: 3}},
		Steps: []Step{
			{Leases: 1000, Ops: map[string]OpSummary{"claim": {Count: 1, P50: 1, P99: 2, Max: 3}}},
			{Leases: 2000, Ops: map[string]OpSummary{"claim": {Count: 1, P50: 1, P99: 2, Max: 4}}},
		},
		Facts: map[string]float64{"agents": 3000}, Refused: 5, RSSPerConn: 2000, Servers: []ServerSummary{{RSS: 1 << 20}},
	}
}

func TestValuesOfThresholds(t *testing.T) {
	s := aSummary()
	for name, want := range map[string]float64{
		"claim.p99_ms": 4, "claim.max_ms": 8, "extend.errors": 2, "agents": 3000, "refused": 5, "lost": 0, "rss_per_connection_bytes": 2000,
	} {
		if got, ok := s.value(name); !ok || got != want {
			t.Errorf("%s is %v, %v; want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"claim", "claim.p98_ms", "release.p99_ms", ""} {
		if got, ok := s.value(name); ok {
			t.Errorf("%q is %v", name, got)
		}
	}
}

func TestThresholdsJudge(t *testing.T) {
	r := newRun(&Scenario{Play: "ladder", Thresholds: map[string]float64{"claim.p99_ms": 5, "claim.max_ms": 5, "nothing.max_ms": 5}}, Options{})
	r.begun = time.Now()
	r.rec.op("claim").done(time.Second, 4*time.Millisecond, 99)
	s := r.summary(false)
	if len(s.Thresholds) != 3 || !s.Thresholds[0].OK || !s.Thresholds[1].OK || s.Thresholds[2].OK || s.Passed() {
		t.Errorf("a threshold on what was not measured holds: %+v", s.Thresholds)
	}
	var printed strings.Builder
	if err := s.Print(&printed); err != nil || !strings.Contains(printed.String(), "threshold nothing.max_ms: not measured, at most 5: FAILED") {
		t.Errorf("printed, %v:\n%s", err, &printed)
	}
	delete(r.sc.Thresholds, "nothing.max_ms")
	if !r.summary(false).Passed() {
		t.Error("failed although every threshold holds")
	}
	r.rec.op("claim").done(2*time.Second, 6*time.Millisecond, 1)
	if s := r.summary(false); s.Thresholds[0].OK || !s.Thresholds[1].OK || s.Passed() {
		t.Errorf("max is 6 ms: %+v", s.Thresholds)
	}
	delete(r.sc.Thresholds, "claim.max_ms")
	r.check.Violate("one")
	if r.summary(false).Passed() {
		t.Error("passed with a violation")
	}
}

func TestMemoryPerConnectionIsNoFigureOfClosedLoops(t *testing.T) {
	for play, want := range map[string]bool{"ladder": true, "closed": false} {
		r := newRun(&Scenario{Play: play}, Options{})
		r.begun, r.meter = time.Now(), &meter{pids: func() []int { return []int{os.Getpid()} }}
		r.meter.start()
		r.agents = func() (int, int, int) { return 0, 0, 4 }
		if got := r.summary(false).RSSPerConn; (got > 0) != want {
			t.Errorf("%s: %v bytes", play, got)
		}
	}
}

func TestCompare(t *testing.T) {
	a, b := aSummary(), aSummary()
	b.Versions = map[string]string{"etcd": "3.7"}
	b.Ops = map[string]OpSummary{"claim": {Count: 100, Rate: 25, P50: 2, P99: 4, Max: 8}, "lease": {Rate: 7, Max: 9}}
	b.RSSPerConn = 0
	var out bytes.Buffer
	if err := Compare(&out, a, b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"figure juju-leases 03:04:05 etcd 3.7 b/a",
		"claim per second 50.0 25.0 0.50", "claim p50 ms 1.00 2.00 2.00", "claim p99 ms 4.00 4.00 1.00", "claim max ms 8.00 8.00 1.00",
		"extend per second 0.0 - -", "extend p50 ms 0.0 - -", "extend p99 ms 3.00 - -", "extend max ms 0.0 - -",
		"lease per second - 7.00 -", "lease p50 ms - 0.0 -", "lease p99 ms - 0.0 -", "lease max ms - 9.00 -",
		"lost 0.0 0.0 -", "violations 0.0 0.0 -",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	b.RSSPerConn = 4000
	out.Reset()
	if err := Compare(&out, a, b); err != nil || !strings.Contains(out.String(), "rss per connection") {
		t.Errorf("%v: memory that both have is not compared:\n%s", err, &out)
	}
}

func TestReadSummary(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "summary.json")
	want := aSummary()
	if err := writeJSON(path, want); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, path} {
		got, err := ReadSummary(p)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%v: %s", err, d)
		}
	}
	want.SchemaVersion++
	if err := writeJSON(path, want); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSummary(dir); err == nil || !strings.Contains(err.Error(), "schema version 2") {
		t.Errorf("another schema: %v", err)
	}
}

func TestReportIsOnePage(t *testing.T) {
	series := []Sample{
		{At: 1, Phase: "ramp", Ops: map[string]OpSample{"claim": {Count: 10, P50: 1, P99: 2, Max: 3}}, RSS: []uint64{1 << 20}, CPU: []float64{0.5}},
		{At: 2, Phase: "hold", Ops: map[string]OpSample{"extend": {Count: 10, P50: 1, P99: 2, Max: 3}}, RSS: []uint64{2 << 20}, CPU: []float64{0.2}},
	}
	s := aSummary()
	s.Violations, s.Texts = 1, []string{"<script>alert(1)</script>"}
	var out bytes.Buffer
	if err := Report(&out, s, series); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if m := regexp.MustCompile(`(?i)(src|href)\s*=|url\(|@import|<script|NaN|Inf\b`).FindString(page); m != "" {
		t.Errorf("the page has %q", m)
	}
	// One for the steps, one for each of two operations, rate, memory, CPU.
	if got := strings.Count(page, "<svg "); got != 6 || got != strings.Count(page, "</svg>") {
		t.Errorf("%d pictures", got)
	}
	for _, part := range []string{"default-src 'none'", "juju-leases", "failed", "&lt;script&gt;", "incumbent bench run &lt;juju&gt;", "3000"} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	out.Reset()
	if err := Report(&out, &Summary{}, nil); err != nil || strings.Contains(out.String(), "<svg ") {
		t.Errorf("a run that measured nothing: %v, %s", err, &out)
	}
}

// The names of the lines stand below the title, each clear of the others, and the
// plot below them.
func TestLegendIsClearOfEverything(t *testing.T) {
	c := chart{title: strings.Repeat("long title ", 8)}
	for i := range 20 {
		c.lines = append(c.lines, chartLine{name: strings.Repeat("x", 1+i)})
	}
	keys, rows := c.legend()
	if rows < 2 || len(keys) != len(c.lines) {
		t.Fatalf("%d names in %d rows", len(keys), rows)
	}
	for i, k := range keys {
		end := k.x + keyChar*len(c.lines[i].name)
		if k.y <= titleY || k.y >= padTop+rows*keyRow || end > chartW-padRight {
			t.Errorf("name %d from %d,%d to %d: title at %d, plot from %d", i, k.x, k.y, end, titleY, padTop+rows*keyRow)
		}
		if i+1 < len(keys) && keys[i+1].y == k.y && keys[i+1].x <= end {
			t.Errorf("name %d begins at %d, the one before ends at %d", i+1, keys[i+1].x, end)
		}
	}
}

// Columns that say nothing of any operation are left out.
func TestReportHasNoEmptyColumns(t *testing.T) {
	s := aSummary()
	for _, cpu := range []float64{0, 5} {
		o := s.Ops["claim"]
		o.CPUMicros = cpu
		s.Ops["claim"] = o
		for i := range s.Steps {
			delete(s.Steps[i].Ops, "extend")
		}
		var page bytes.Buffer
		if err := Report(&page, s, nil); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(page.String(), "server CPU µs each"); got != (cpu > 0) {
			t.Errorf("a column of CPU with %v µs: %v", cpu, got)
		}
		if strings.Contains(page.String(), "<th>extend</th>") || !strings.Contains(page.String(), "<th>claim</th>") {
			t.Error("the steps have another operation than claim")
		}
	}
}

func TestBytesText(t *testing.T) {
	for f, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 43356160: "41.3 MiB", 1 << 30: "1 GiB", 1 << 42: "4096 GiB", -2048: "-2 KiB"} {
		if got := bytesText(f); got != want {
			t.Errorf("%v: %q, want %q", f, got, want)
		}
	}
}

// Counts have no digits behind the point, and each step of a ladder its line, on the
// terminal and on the page.
func TestPrintIsForPeople(t *testing.T) {
	s := aSummary()
	s.Facts = map[string]float64{"agents": 180, "connect_seconds": 0.82, "members": 1, "rss_after_bytes": 43356160}
	s.Thresholds = []Threshold{{Name: "lost", OK: true}, {Name: "rss_per_connection_bytes", Value: 2000, Limit: 4096, OK: true}}
	s.Servers = []ServerSummary{{Name: "n1", RSS: 5 << 20}}
	s.Steps[1].Phase = "fault"
	var plain, page bytes.Buffer
	if err := s.Print(&plain); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nagents: 180\n", "\nmembers: 1\n", "\nconnect_seconds: 0.82\n", "\nthreshold lost: 0, at most 0: ok\n", " 2000 fault ",
		"\nrss_after_bytes: 41.3 MiB\n", "\nthreshold rss_per_connection_bytes: 1.95 KiB, at most 4 KiB: ok\n", "\nserver 1: 5 MiB resident",
	} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &plain)
		}
	}
	if err := Report(&page, s, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<h2>Steps</h2>", "<tr><td>1000 ", "<tr><td>2000 fault</td><td>1</td><td>1.00</td><td>2.00</td><td>4.00</td>", "<td>agents</td><td>180</td>",
		"<td>rss_after_bytes</td><td>41.3 MiB</td>", "<td>1.95 KiB</td><td>4 KiB</td>", "<td>n1</td><td>5 MiB</td>",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing on the page", want)
		}
	}
}

func TestViewLine(t *testing.T) {
	s := Sample{
		At: 3, Phase: "10 leases", Holding: 10, Waiting: 20, Ops: map[string]OpSample{"extend": {Count: 7, P99: 1.5, Errors: 2}},
		RSS: []uint64{3 << 20}, CPU: []float64{0.25}, Lost: 1, Violations: 2,
	}
	want := "3.0s 10 leases holding 10 waiting 20 extend 7/s p99 1.50ms errors 2 server 25% 3MiB LOST 1 VIOLATIONS 2"
	if got := strings.Join(strings.Fields(line(s)), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var plain, juju, terminal bytes.Buffer
	newView(Options{Out: &plain}).show(s)
	newView(Options{Out: &juju, LogFormat: "juju"}).show(s)
	v := newView(Options{Out: &terminal, Terminal: true})
	v.show(s)
	v.show(s)
	v.end()
	if plain.String() != line(s)+"\n" || juju.Len() != 0 || strings.Count(terminal.String(), "\x1b[6A") != 1 {
		t.Errorf("plain %q, juju %q, terminal %q", &plain, &juju, &terminal)
	}
}

func TestStatFields(t *testing.T) {
	rest := "S " + strings.Repeat("1 ", 20) + "99"
	if f := statFields("42 (a) b) (c) " + rest); len(f) != 22 || f[0] != "S" || f[21] != "99" {
		t.Errorf("%q", f)
	}
	if f := statFields("42 (a) S 1 2"); f != nil {
		t.Errorf("%q", f)
	}
	if p := readProcess(os.Getpid()); p.RSS == 0 {
		t.Errorf("this process: %+v", p)
	}
}

func TestSocketsOfThisProcess(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if inode := socketInode(conn.LocalAddr().String()); !sockets(os.Getpid())[inode] {
		t.Errorf("socket %q of %v is not among %v", inode, conn.LocalAddr(), sockets(os.Getpid()))
	}
	for _, none := range []string{"127.0.0.1:0", "nowhere", "[::1]:80"} {
		if inode := socketInode(none); inode != "" {
			t.Errorf("%s has socket %q", none, inode)
		}
	}
}

// TestInodeIsOfAnOpenSocket: the port may have been another connection's a moment
// ago.
func TestInodeIsOfAnOpenSocket(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:B93C 0100007F:8A11 06 00000000:00000000 03:000003E8 00000000     0        0 0 3 0000000000000000
   1: 0100007F:B93D 0100007F:B93C 01 00000000:00000000 00:00000000 00000000     0        0 41 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:B93C 0100007F:B93D 01 00000000:00000000 00:00000000 00000000     0        0 42 1 0000000000000000 20 4 30 10 -1
`
	for local, want := range map[string]string{"0100007F:B93C": "42", "0100007F:B93D": "41", "0100007F:8A11": ""} {
		if got := inodeIn(table, local); got != want {
			t.Errorf("%s has inode %q, want %q", local, got, want)
		}
	}
}

// TestMeterGoesOnWithAProcessInAnothersPlace: what the one before has used stays
// in the account, and nothing from before the start is in it.
func TestMeterGoesOnWithAProcessInAnothersPlace(t *testing.T) {
	pid := os.Getpid()
	m := &meter{pids: func() []int { return []int{pid} }}
	m.start()
	before := readProcess(pid).CPU
	for readProcess(pid).CPU < before+50*time.Millisecond {
	}
	used := m.cpu()
	if used < 40*time.Millisecond || used > before+10*time.Second {
		t.Errorf("used %v", used)
	}
	pid = 1 << 30 // no such process
	if got := m.cpu(); got != used {
		t.Errorf("%v after the process has ended, %v before", got, used)
	}
}

// TestTermsCountMoves: another leader is one of a later term, whatever members
// call it.
func TestTermsCountMoves(t *testing.T) {
	var x terms
	for i, h := range []struct {
		term   uint64
		leader string
		moves  int
	}{
		{term: 2, leader: "n1"},
		{term: 2, leader: "18cb9e10"}, // said by one that does not know names yet
		{term: 2, leader: "n1"},
		{term: 3},
		{term: 3, leader: "n2", moves: 1},
		{term: 2, leader: "n1", moves: 1}, // late
		{term: 4, leader: "n2", moves: 1}, // again
		{term: 5, leader: "n1", moves: 2},
	} {
		x.heard(h.term, h.leader)
		if _, moves := x.counts(); moves != h.moves {
			t.Errorf("step %d: %d moves, want %d", i, moves, h.moves)
		}
	}
}
