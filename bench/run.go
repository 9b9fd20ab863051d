package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
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
	Learners int               // besides, that do not vote
	TLS      bool              // servers that are started speak TLS
	Dir      string            // results; empty: none are written
	Client   client.Config     // certificates and credential
	// Launch starts servers on this machine.
	Launch func(ctx context.Context, what Launch) (Cluster, error)
	// LaunchEcho starts the bare echo over parked connections that the scenario echo and
	// bare handshakes compare with; EchoURL names one that runs, for the former.
	LaunchEcho func(ctx context.Context, tls bool) (Cluster, error)
	EchoURL    string
	// LaunchBare starts a server that answers each request over HTTP with the same
	// bytes, for what Consul's protocol is compared with.
	LaunchBare func(ctx context.Context, answer []byte) (Cluster, error)
	// Restore makes a new cluster of one server of a backup, and returns once it serves.
	// nil: servers of others are not restored.
	Restore func(ctx context.Context, file string) (Cluster, error)
	// Import brings in a database file of ovsdb-server's. nil: none is brought in.
	Import func(ctx context.Context, c *client.Client, file string) error
	// Peer is the system that is driven instead: consul or ovsdb, which speaks the
	// protocol of our door of that name. LaunchPeer starts its servers; without, Targets are its. The
	// scenario's thresholds are goals of Incumbent's and judge no peer.
	Peer       string
	LaunchPeer func(ctx context.Context, what Launch) (Cluster, error)
	Out        io.Writer // progress
	Terminal   bool      // Out is a terminal: one updating view instead of lines
	LogFormat  string    // "juju": Juju's own lines
	// JujuPassword is what Juju's agents log in with; JujuAgent the tag that all of
	// them log in as, which must be granted to claim for any unit; "": each as itself.
	JujuPassword string
	JujuAgent    string
	// Worker is the command that serves as a process of agents: see [Work].
	Worker  []string
	Version string
	Command string // as typed, for the report
}

// Launch says which servers a run needs.
type Launch struct {
	Members, Learners int
	TLS               bool
	Args              []string // further flags of each server
	CPUs              string   // processors of all servers, as taskset lists them; "": all there are
	// Juju is the password at a door for Juju's agents; "": none is opened.
	Juju string
	// Consul: a door that speaks Consul's protocol is opened.
	Consul bool
	// DNS: names of services are answered, too.
	DNS bool
	// OVSDB are the schemas of the databases that a door for clients of Open vSwitch's
	// databases has; none: none is opened.
	OVSDB [][]byte
	// Cuts: members must be able to be cut off from one another.
	Cuts bool
}

// Cluster is a set of servers on this machine.
//
// Concurrency: Servers may be called from any goroutine.
type Cluster interface {
	Servers() []Server // in the order in which they were started; a process id changes when one is started again
	Signal(i int, sig syscall.Signal) error
	Client() client.Config // how to speak to it: CA, credential
	Stop()
}

// Server is one process of a cluster.
type Server struct {
	Name   string
	URL    string
	PID    int
	Others []string // addresses of its other listeners, where they are known
}

// Members is a Cluster whose members can be ended and started again, each for
// itself, and cut off from one another.
type Members interface {
	Cluster
	// Kill sends the signal and returns once the process has ended.
	Kill(i int, sig syscall.Signal) error
	// Start starts a member that has ended, and does not wait until it serves.
	Start(ctx context.Context, i int, how Start) error
	// Cut loses what the member sends the others, what they send it, or, with
	// neither, nothing any more.
	Cut(i int, out, in bool) error
	// Lead makes the member the leader.
	Lead(ctx context.Context, i int) error
}

// Start says how a member is started again.
type Start struct {
	Wiped     bool          // with an empty disk: it joins anew
	SyncDelay time.Duration // added to each sync of a file
}

// run is one run under way.
type run struct {
	sc      *Scenario
	opts    Options
	rec     *Recorder
	check   *Checker
	cluster Cluster // nil with targets
	clients []*client.Client
	urls    []string
	// credential is sent with calls as a bearer token; empty: none.
	credential string
	meter      *meter
	begun      time.Time
	least      uint64 // operations that a closed loop waits for, where the machine stands still; see bareLoop
	// versions of what is measured, by name.
	versions map[string]string

	printing sync.Mutex // held for one write of lines to opts.Out

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
	Phase  string               `json:"phase,omitempty"` // of a fault
	Ops    map[string]OpSummary `json:"ops"`
}

// label is what a person calls the step.
func (s Step) label() string {
	if s.Phase == "" {
		return strconv.Itoa(s.Leases)
	}
	return strconv.Itoa(s.Leases) + " " + s.Phase
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
	Late        float64             `json:"machine_late_ms"`      // see witness
	Stolen      float64             `json:"machine_stolen_share"` // 0 to 1
	Lost        uint64              `json:"lost"`
	Violations  uint64              `json:"violations"`
}

// plays are the kinds of run.
var plays = map[string]func(context.Context, *run) error{
	"ladder":    playLadder,
	"avalanche": playAvalanche,
	"idle":      playIdle,
	"resync":    playOVNResync,
	"sizes":     playOVNSizes,
	"network":   playOVNNetwork,
	"closed":    playClosed,
	"watch":     playWatch,
	"agents":    playAgents,
}

// Run plays a scenario and returns what it measured. An error says that the run
// itself failed; violations and thresholds are in the summary. A run whose ctx ends
// is interrupted: what it measured up to then is the summary.
func Run(ctx context.Context, opts Options) (*Summary, error) {
	sc, err := Load(opts.Scenario, opts.Set)
	if err != nil {
		return nil, err
	}
	r := newRun(sc, opts)
	r.versions = map[string]string{"incumbent": opts.Version}
	if opts.Peer != "" {
		if (opts.Peer != doorConsul || !sc.consul()) && (opts.Peer != doorOVSDB || !sc.ovsdb()) {
			return nil, incumbent.Errorf(incumbent.Invalid, "%s does not play scenario %s", opts.Peer, sc.Name)
		}
		sc.Thresholds = nil
	}
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
	if sc.Late > 0 {
		r.check.late = time.Duration(sc.Late)
	}
	r.connected(0)
	r.meter = &meter{pids: func() []int { return opts.PIDs }}
	return r
}

// setAgents says how many hold, wait and are connected, from now on.
func (r *run) setAgents(agents func() (holding, waiting, connections int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agents = agents
}

// connected is setAgents where nobody holds or waits.
func (r *run) connected(n int) { r.setAgents(func() (int, int, int) { return 0, 0, n }) }

// play runs a play under observation and writes what it measured.
func (r *run) play(ctx context.Context, play func(context.Context, *run) error) (*Summary, error) {
	r.begun = time.Now()
	r.meter.start()
	watching, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	w := newWitness()
	done.Go(func() { w.watch(watching, r.now) })
	done.Go(func() { r.observe(watching, w) })
	err := play(ctx, r)
	interrupted := ctx.Err() != nil
	stop()
	done.Wait()
	if err != nil && !interrupted {
		return nil, err
	}
	w.testify(r)
	s := r.summary(interrupted)
	if r.opts.Dir == "" {
		return s, nil
	}
	return s, r.write(s)
}

func (r *run) connect(ctx context.Context) error {
	urls, cfg := r.opts.Targets, r.opts.Client
	if r.sc.echoes() && r.opts.EchoURL != "" {
		urls = []string{r.opts.EchoURL}
	}
	if len(urls) == 0 {
		cl, err := r.launch(ctx)
		if err != nil {
			return err
		}
		r.cluster, cfg = cl, cl.Client()
		for _, s := range cl.Servers() {
			urls = append(urls, s.URL)
		}
		r.meter = &meter{pids: func() []int { return pidsOf(cl) }}
	}
	r.urls, r.credential = urls, cfg.Credential
	if r.opts.Peer != "" {
		version := ""
		if r.opts.Peer == doorOVSDB {
			version = ovsdbVersion(ctx, r.cluster)
		} else {
			version = consulVersion(ctx, urls[0])
		}
		r.versions = map[string]string{r.opts.Peer: version}
		return nil
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
	if r.sc.echoes() && r.opts.LaunchEcho != nil {
		return r.opts.LaunchEcho(ctx, r.opts.TLS)
	}
	schemas, err := r.sc.ovnSchemas()
	if err != nil {
		return nil, err
	}
	if r.opts.Peer != "" && r.opts.LaunchPeer != nil {
		return r.opts.LaunchPeer(ctx, Launch{Members: max(1, r.opts.Members), OVSDB: schemas})
	}
	if r.opts.Launch == nil || r.opts.Peer != "" {
		return nil, incumbent.Errorf(incumbent.Invalid, "no target").WithHint("give --target URL or --members local:1")
	}
	what := Launch{Members: max(1, r.opts.Members), Learners: r.opts.Learners, TLS: r.opts.TLS, Args: r.sc.Server, CPUs: r.sc.ServerCPUs, Consul: r.sc.consul(), OVSDB: schemas, Cuts: r.sc.cuts()}
	if r.sc.flooded(doorConsul) {
		what.Consul = true
	}
	if r.sc.flooded(doorOVSDB) {
		what.OVSDB = [][]byte{ovnSchema}
	}
	if r.sc.Door == doorJuju || r.sc.flooded(doorJuju) {
		if r.opts.JujuPassword == "" {
			r.opts.JujuPassword = rand.Text()
		}
		what.Juju = r.opts.JujuPassword
	}
	if r.sc.besieged() && what.Members > 1 { // one alone does not say where its other doors are
		what.Juju, what.Consul, what.DNS, what.OVSDB = rand.Text(), true, true, [][]byte{ovnSchema}
	}
	return r.opts.Launch(ctx, what)
}

func pidsOf(cl Cluster) []int {
	var pids []int
	for _, s := range cl.Servers() {
		pids = append(pids, s.PID)
	}
	return pids
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

// turnedAway counts a request that was refused for the load.
func (r *run) turnedAway() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused++
}

// noted is a fact, 0 if it was not noted.
func (r *run) noted(name string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts[name]
}

// notePeak notes the most memory that the servers had together in any sample, and one of
// them at any moment.
func (r *run) notePeak() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pid := range r.meter.pids() {
		r.facts["server_rss_peak_bytes"] = max(r.facts["server_rss_peak_bytes"], float64(peakRSS(pid)))
	}
	for _, s := range r.series {
		sum := uint64(0)
		for _, rss := range s.RSS {
			sum += rss
			r.facts["server_rss_peak_bytes"] = max(r.facts["server_rss_peak_bytes"], float64(rss))
		}
		r.facts["servers_rss_peak_bytes"] = max(r.facts["servers_rss_peak_bytes"], float64(sum))
	}
}

func (r *run) rss() uint64 {
	var sum uint64
	for _, p := range r.meter.read() {
		sum += p.RSS
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
// address pair has 28,000 ports. 127.0.0.1 is the servers': a connection from there
// could take the port of one that is down.
func (r *run) source(i int) net.Addr { return sourceOf(i, r.sc.Sources) }

func sourceOf(i, sources int) net.Addr {
	if sources == 0 {
		return nil
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%sources))}
}

// observe samples every second and shows progress.
func (r *run) observe(ctx context.Context, w *witness) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, lastAt := r.meter.read(), time.Duration(0)
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
		s.Late, s.Stolen = w.sample()
		read := r.meter.read()
		for i, p := range read {
			s.RSS = append(s.RSS, p.RSS)
			s.CPU = append(s.CPU, (p.CPU-last[i].CPU).Seconds()/(at-lastAt).Seconds())
		}
		last, lastAt = read, at
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
