package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"runtime/debug"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent/client"
)

// workerService is what the methods of a process of agents are called under.
const workerService = "Worker"

// workerGC is a worker's GOGC, in percent. Servers and load share the processors
// and what a worker collects is taken from them; its memory nobody counts.
const workerGC = 400

// What is said in calls has no names of its own: net/rpc takes none that is not exported.
type (
	// assignment says which agents a process has: Juju's units, or sessions.
	assignment = struct {
		Scenario *Scenario   `json:"scenario"`
		Login    jujuLogin   `json:"login"`            // of units
		Hosts    []string    `json:"hosts,omitempty"`  // they speak to
		Native   *agentsTask `json:"native,omitempty"` // of sessions; nil: units are
		Part     part        `json:"part"`
		Began    int64       `json:"began"`           // of the run; Unix nanoseconds
		Lines    bool        `json:"lines,omitempty"` // Juju's own are wanted
	}
	// report is what has happened since the last one.
	report = struct {
		Ops   map[string]interval `json:"ops,omitempty"`
		Found findings            `json:"found"`
		Tally tally               `json:"tally"`
		Lines string              `json:"lines,omitempty"`
		Error string              `json:"error,omitempty"`
	}
)

// workerProcess is a process of agents: of a crew, or of those that are started one by one.
// Its exported methods are what it is called for.
type workerProcess struct {
	ctx    context.Context // ends with the calls
	run    *run
	crew   crew
	agents *agentsNative
	dirty  chan struct{} // there is news

	mu    sync.Mutex // protects the rest; held for field accesses: lines come from under the fleet's own mutex
	lines bytes.Buffer
	news  agentNews
	stops []func()
}

// Work serves as one process of a run's agents: it does what it is called for on in,
// until that ends. The load tool starts it by [Options.Worker].
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	defer debug.SetGCPercent(debug.SetGCPercent(workerGC))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := &workerProcess{ctx: ctx, dirty: make(chan struct{}, 1)}
	calls := rpc.NewServer()
	if err := calls.RegisterName(workerService, w); err != nil {
		return err
	}
	calls.ServeCodec(jsonrpc.NewServerCodec(&parent{in, out, stop}))
	w.end()
	return nil
}

// parent is who calls. Whatever is under way ends with it.
type parent struct {
	io.Reader
	io.Writer
	gone func()
}

func (p *parent) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err != nil {
		p.gone()
	}
	return n, err
}

func (p *parent) Close() error { return nil }

func (w *workerProcess) end() {
	if w.crew != nil {
		w.crew.close()
		for _, c := range w.run.clients {
			c.Close()
		}
	}
	for _, stop := range w.stops {
		stop()
	}
}

// addLines takes Juju's own lines.
type addLines struct{ *workerProcess }

func (l addLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

// Begin makes the crew.
func (w *workerProcess) Begin(a *assignment, _ *struct{}) error {
	opts := Options{Out: addLines{w}}
	if a.Lines {
		opts.LogFormat = "juju"
	}
	w.run = newRun(a.Scenario, opts)
	w.run.begun = sinceWhen(a.Began)
	a.Scenario.HandOvers /= float64(a.Part.Of)
	if a.Native == nil {
		fleet, err := newJujuFleet(w.ctx, w.run, a.Login, a.Hosts, a.Part)
		if err == nil {
			w.crew = fleet
		}
		return err
	}
	for _, server := range a.Native.Servers {
		c, err := client.New(clientOf(a.Native, server))
		if err != nil {
			return err
		}
		w.run.clients = append(w.run.clients, c)
	}
	w.crew = newPartOfFleet(w.ctx, w.run, a.Part)
	return nil
}

// sinceWhen is a moment of another process's clock, in Unix nanoseconds, on this one's: with
// its monotonic reading, so that a wall clock that is set moves no time of the run.
func sinceWhen(unix int64) time.Time {
	now := time.Now()
	return now.Add(time.Unix(0, unix).Sub(now))
}

// Grow has the crew grow to the leases of a stage.
func (w *workerProcess) Grow(to *Stage, _ *struct{}) error {
	return w.crew.grow(w.ctx, to.Leases, to.Ramp)
}

// Hold keeps the crew going.
func (w *workerProcess) Hold(d time.Duration, _ *struct{}) error { return w.crew.hold(w.ctx, d) }

// Strike has the crew note who leads.
func (w *workerProcess) Strike(*struct{}, *struct{}) error {
	w.crew.strike()
	return nil
}

// Disconnect ends connections of the crew.
func (w *workerProcess) Disconnect(members []int, _ *struct{}) error {
	w.crew.disconnect(members)
	return nil
}

// Report says what has happened since the last one.
func (w *workerProcess) Report(_ *struct{}, r *report) error {
	var err, failure error
	r.Tally, failure = w.crew.count()
	r.Found = w.run.check.drain()
	r.Ops, err = w.run.rec.take()
	if err := errors.Join(failure, err); err != nil {
		r.Error = err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Lines = w.lines.String()
	w.lines.Reset()
	return nil
}
