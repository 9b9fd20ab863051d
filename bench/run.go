package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// Options say how to run a scenario.
type Options struct {
	Scenario string            // built-in name or file
	Set      map[string]string // see Load
	Targets  []string          // URLs; empty: Launch starts servers
	PIDs     []int             // of the targets, where known
	Members  int               // servers to start; 1
	TLS      bool              // servers that are started speak TLS
	Dir      string            // results; empty: none are written
	Client   client.Config     // certificates and credential
	// Launch starts servers on this machine with extra flags.
	Launch func(ctx context.Context, members int, tls bool, args []string) (Cluster, error)
	// LaunchEcho starts the bare echo over parked connections that the scenario
	// echo compares with; EchoURL names one that runs.
	LaunchEcho func(ctx context.Context, tls bool) (Cluster, error)
	EchoURL    string
	Out        io.Writer // progress
	Terminal   bool      // Out is a terminal: one updating view instead of lines
	LogFormat  string    // "juju": Juju's own lines
	Version    string
	Command    string // as typed, for the report
}

// Cluster is a set of servers on this machine.
type Cluster interface {
	URLs() []string
	PIDs() []int
	Signal(i int, sig syscall.Signal) error
	Client() client.Config // how to speak to it: CA, credential
	Stop()
}

// run is one run under way.
type run struct {
	sc      *Scenario
	opts    Options
	rec     *Recorder
	check   *Checker
	cluster Cluster // nil with targets
	clients []*client.Client
	pids    []int
	begun   time.Time
	baseCPU []time.Duration
	// versions of what is measured, by name.
	versions map[string]string

	mu      sync.Mutex // protects the rest: notes for the report, held for appends
	phase   string
	series  []Sample
	steps   []Step
	facts   map[string]float64
	refused uint64
	agents  func() (holding, waiting, connections int)
}

// Step is what one stage of a ladder measured.
type Step struct {
	Leases int                  `json:"leases"`
	Ops    map[string]OpSummary `json:"ops"`
}

// Sample is one second.
type Sample struct {
	At          float64             `json:"at_s"`
	Phase       string              `json:"phase"`
	Ops         map[string]OpSample `json:"ops"`
	Holding     int                 `json:"holding"`
	Waiting     int                 `json:"waiting"`
	Connections int                 `json:"connections"`
	RSS         []uint64            `json:"rss_bytes"`
	CPU         []float64           `json:"cpu_cores"`
	Lost        uint64              `json:"lost"`
	Violations  uint64              `json:"violations"`
}

// plays are the kinds of run.
var plays = map[string]func(context.Context, *run) error{
	"ladder":    playLadder,
	"stall":     playLadder, // a ladder with a fault, judged more strictly
	"avalanche": playAvalanche,
	"idle":      playIdle,
	"closed":    playClosed,
}

// Run plays a scenario and returns what it measured. An error says that the run
// itself failed; violations and thresholds are in the summary.
func Run(ctx context.Context, opts Options) (*Summary, error) {
	sc, err := Load(opts.Scenario, opts.Set)
	if err != nil {
		return nil, err
	}
	r := newRun(sc, opts)
	r.pids, r.versions = opts.PIDs, map[string]string{"incumbent": opts.Version}
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	defer r.disconnect()
	return r.play(ctx, plays[sc.Play])
}

func newRun(sc *Scenario, opts Options) *run {
	if opts.Out == nil {
		opts.Out = io.Discard
	}
	r := &run{sc: sc, opts: opts, rec: NewRecorder(), check: NewChecker(), facts: map[string]float64{}}
	r.agents = func() (int, int, int) { return 0, 0, 0 }
	return r
}

// play runs a play under observation and writes what it measured.
func (r *run) play(ctx context.Context, play func(context.Context, *run) error) (*Summary, error) {
	r.begun = time.Now()
	r.baseCPU = r.cpu()
	watching, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { r.observe(watching) })
	err := play(ctx, r)
	stop()
	done.Wait()
	if err != nil {
		return nil, err
	}
	s := r.summary()
	if r.opts.Dir == "" {
		return s, nil
	}
	return s, r.write(s)
}

func (r *run) connect(ctx context.Context) error {
	urls, cfg := r.opts.Targets, r.opts.Client
	if r.sc.Closed != nil && r.sc.Closed.Op == "echo" && r.opts.EchoURL != "" {
		urls = []string{r.opts.EchoURL}
	}
	if len(urls) == 0 {
		cl, err := r.launch(ctx)
		if err != nil {
			return err
		}
		r.cluster, r.pids, urls, cfg = cl, cl.PIDs(), cl.URLs(), cl.Client()
	}
	for _, u := range urls {
		one := cfg
		one.Servers = []string{u}
		c, err := client.New(one)
		if err != nil {
			r.disconnect()
			return err
		}
		r.clients = append(r.clients, c)
	}
	return nil
}

func (r *run) launch(ctx context.Context) (Cluster, error) {
	if r.sc.Closed != nil && r.sc.Closed.Op == "echo" && r.opts.LaunchEcho != nil {
		return r.opts.LaunchEcho(ctx, r.opts.TLS)
	}
	if r.opts.Launch == nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "no target").WithHint("give --target URL or --members local:1")
	}
	return r.opts.Launch(ctx, max(1, r.opts.Members), r.opts.TLS, r.sc.Server)
}

func (r *run) disconnect() {
	for _, c := range r.clients {
		c.Close()
	}
	if r.cluster != nil {
		r.cluster.Stop()
	}
}

// now is the time since the run began.
func (r *run) now() time.Duration { return time.Since(r.begun) }

func (r *run) setPhase(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = fmt.Sprintf(format, args...)
}

func (r *run) fact(name string, v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts[name] = v
}

func (r *run) cpu() []time.Duration {
	out := make([]time.Duration, len(r.pids))
	for i, pid := range r.pids {
		out[i] = readProcess(pid).CPU
	}
	return out
}

func (r *run) rss() uint64 {
	var sum uint64
	for _, pid := range r.pids {
		sum += readProcess(pid).RSS
	}
	return sum
}

// sleep waits in the play; an error says that the run was interrupted.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(0, d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// source returns the i-th source address, nil for the system's choice: one
// address pair has 28,000 ports.
func (r *run) source(i int) net.Addr {
	if r.sc.Sources == 0 {
		return nil
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%r.sc.Sources))}
}

// observe samples every second and shows progress.
func (r *run) observe(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, lastAt := r.baseCPU, time.Duration(0)
	view := newView(r.opts)
	defer view.end()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		at := r.now()
		s := Sample{At: at.Seconds(), Ops: r.rec.sample()}
		r.mu.Lock()
		agents := r.agents
		s.Phase = r.phase
		r.mu.Unlock()
		s.Holding, s.Waiting, s.Connections = agents()
		s.Lost, _, s.Violations = r.check.Counts()
		cpu := make([]time.Duration, len(r.pids))
		for i, pid := range r.pids {
			p := readProcess(pid)
			cpu[i] = p.CPU
			s.RSS = append(s.RSS, p.RSS)
			s.CPU = append(s.CPU, (p.CPU-last[i]).Seconds()/(at-lastAt).Seconds())
		}
		last, lastAt = cpu, at
		r.mu.Lock()
		r.series = append(r.series, s)
		r.mu.Unlock()
		view.show(s)
	}
}

// write puts the results into their folder.
func (r *run) write(s *Summary) error {
	dir := r.opts.Dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "summary.json"), s); err != nil {
		return err
	}
	if err := r.writeSamples(filepath.Join(dir, "samples.jsonl")); err != nil {
		return err
	}
	if err := r.writeHistograms(dir); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "report.html"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := Report(f, s, r.series); err != nil {
		return err
	}
	return f.Close()
}

func goVersion() string { return runtime.Version() }
