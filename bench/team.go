package bench

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// One process may not open as many connections as some runs need: their agents live in
// several, which are told what to do by calls over their standard input and output
// (net/rpc, as JSON). What a process does is in work.go.

// process is one that lives beside this one, as this one has it.
type process struct {
	number int
	cmd    *exec.Cmd // nil in tests
	calls  *rpc.Client
}

// startProcesses starts n.
func (r *run) startProcesses(n int) (all processes, err error) {
	if len(r.opts.Worker) == 0 {
		return nil, incumbent.Errorf(incumbent.Invalid, "%d processes are needed for so many connections, and none can be started", n)
	}
	for i := range n {
		p, err := startProcess(r.opts.Worker, i+1)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func startProcess(argv []string, number int) (*process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	// It ends with its input, and so with this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{number, cmd, jsonrpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{out, in})}, nil
}

// call has the process do something, and waits until it has.
func (p *process) call(ctx context.Context, method string, args, reply any) error {
	call := p.calls.Go(workerService+"."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if call.Error == nil {
		return nil
	}
	if _, said := errors.AsType[rpc.ServerError](call.Error); !said {
		return incumbent.Errorf(incumbent.Unavailable, "process %d of agents has ended: %w", p.number, call.Error)
	}
	return incumbent.Errorf(incumbent.Unavailable, "process %d of agents: %w", p.number, call.Error)
}

// close ends the process, in order if it will.
func (p *process) close() {
	_ = p.calls.Close() // one that has ended is closed already
	if p.cmd == nil {
		return
	}
	kill := time.AfterFunc(localStop, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait() // how it ended it has said on standard error
}

// processes are those of a run.
type processes []*process

// all has each do something at the same time, and waits until all have.
func (all processes) all(ctx context.Context, method string, args func(i int) any) error {
	return inParallelOf(ctx, len(all), len(all), func(i int) error { return all[i].call(ctx, method, args(i), nil) })
}

func (all processes) close() {
	for _, p := range all {
		p.close()
	}
}

// team is a crew in several processes. Each has the leases whose number leaves its
// remainder, with all their candidates, so that what agents believe is compared in one place.
type team struct {
	*run
	processes
	asking sync.WaitGroup // who asks every second
	stop   context.CancelFunc

	reporting sync.Mutex // held while the processes are asked: one report is taken after the other

	mu      sync.Mutex // held for field accesses
	tallies []tally
	leases  int // in all
	failure error
}

// newTeam starts n processes, each with its part of what is assigned.
func newTeam(ctx context.Context, r *run, what *assignment, n int) (*team, error) {
	all, err := r.startProcesses(n)
	if err != nil {
		return nil, err
	}
	t := &team{run: r, processes: all, tallies: make([]tally, n)}
	ctx, t.stop = context.WithCancel(ctx)
	err = t.all(ctx, "Begin", func(i int) any {
		one := *what
		one.Part = part{i, n}
		return &one
	})
	if err != nil {
		t.close()
		return nil, err
	}
	t.asking.Go(func() {
		for sleep(ctx, time.Second) == nil {
			_ = t.report(ctx) // a failure is kept for the next count
		}
	})
	return t, nil
}

// do has each process do something, and takes their reports of it.
func (t *team) do(ctx context.Context, method string, args func(i int) any) error {
	err := t.all(ctx, method, args)
	return cmp.Or(err, t.report(ctx))
}

// report takes what the processes have to say since the last time.
func (t *team) report(ctx context.Context) (err error) {
	t.reporting.Lock()
	defer t.reporting.Unlock()
	for i, p := range t.processes {
		var r report
		failed := p.call(ctx, "Report", &struct{}{}, &r)
		if failed == nil {
			t.check.add(r.Found)
			t.print(r.Lines)
			failed = t.rec.add(r.Ops)
		}
		if failed == nil && r.Error != "" {
			failed = incumbent.Errorf(incumbent.Unavailable, "process %d of agents: %s", i+1, r.Error)
		}
		t.mu.Lock()
		if failed == nil {
			t.tallies[i] = r.Tally
		}
		t.failure = cmp.Or(t.failure, failed)
		t.mu.Unlock()
		err = cmp.Or(err, failed)
	}
	return err
}

// grow implements crew.
func (t *team) grow(ctx context.Context, leases int, rate float64) error {
	t.mu.Lock()
	t.leases = leases
	t.mu.Unlock()
	return t.do(ctx, "Grow", func(int) any { return &Stage{Leases: leases, Ramp: rate} })
}

// hold implements crew.
func (t *team) hold(ctx context.Context, d time.Duration) error {
	return t.do(ctx, "Hold", func(int) any { return d })
}

// size implements victims.
func (t *team) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leases
}

// strike implements victims. That a process cannot be told shows in the next count.
func (t *team) strike() {
	_ = t.do(context.Background(), "Strike", func(int) any { return &struct{}{} })
}

// disconnect implements victims, and tells of failures as strike does.
func (t *team) disconnect(who []int) {
	_ = t.do(context.Background(), "Disconnect", func(int) any { return &who })
}

// flush implements victims, and tells of failures as strike does.
func (t *team) flush() { _ = t.report(context.Background()) }

// judge implements victims.
func (t *team) judge() error { return t.judgeTally(t.count()) }

// count implements crew: the newest reports, a second old at most.
func (t *team) count() (sum tally, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.tallies {
		sum.add(one)
	}
	return sum, t.failure
}

// close ends the processes.
func (t *team) close() {
	t.stop()
	t.asking.Wait()
	t.processes.close()
}
