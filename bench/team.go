package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// A team is a fleet of Juju's units in several processes: one may not open as many
// connections as a run needs. Each has the leases whose number leaves its remainder,
// with all their candidates, so that what units believe is compared in one place.
// Parent and child speak JSON, a value a line: orders to the child's standard input,
// reports from its standard output.

// mostReport bounds one report, in bytes.
const mostReport = 4 << 20

// order is what a parent has a child do. The first says what it is for: Juju's units,
// or agents (agents_team.go), which are started one by one.
type order struct {
	Begin  *assignment   `json:"begin,omitempty"`
	Agents *agentsTask   `json:"agents,omitempty"`
	Agent  *agentOrder   `json:"agent,omitempty"`
	Leases int           `json:"leases,omitempty"` // grow to so many
	Ramp   float64       `json:"ramp,omitempty"`
	Hold   time.Duration `json:"hold,omitempty"`
	Strike bool          `json:"strike,omitempty"`
	// With none of these, a report is all that is wanted.
}

// assignment is a child's task.
type assignment struct {
	Scenario *Scenario `json:"scenario"`
	Login    jujuLogin `json:"login"`
	Hosts    []string  `json:"hosts"`
	Part     part      `json:"part"`
	Began    int64     `json:"began"`           // of the run; Unix nanoseconds
	Lines    bool      `json:"lines,omitempty"` // Juju's own are wanted
}

// report is what a child says: every second, and when it has done an order.
type report struct {
	Ops   map[string]interval `json:"ops,omitempty"`
	Found findings            `json:"found"`
	Tally tally               `json:"tally"`
	Lines string              `json:"lines,omitempty"`
	Done  bool                `json:"done,omitempty"` // with the order
	Error string              `json:"error,omitempty"`
}

// team is the parent's end.
type team struct {
	*run
	mates []*mate

	mu      sync.Mutex // held for field accesses
	tallies []tally
	failure error
}

// mate is one process of a team.
type mate struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan error // of the order under way, and at the end: never more than two
	over chan struct{}
}

// newTeam starts n processes.
func newTeam(ctx context.Context, r *run, login jujuLogin, hosts []string, n int) (*team, error) {
	if err := r.needWorkers(n); err != nil {
		return nil, err
	}
	t := &team{run: r, tallies: make([]tally, n)}
	for i := range n {
		w, err := t.startMate(i, func(w *mate, out io.Reader) error { return t.listen(i, w, out) })
		if err != nil {
			t.close()
			return nil, err
		}
		t.mates = append(t.mates, w)
	}
	err := t.all(ctx, func(i int) order {
		return order{Begin: &assignment{
			Scenario: r.sc, Login: login, Hosts: hosts, Part: part{i, n}, Began: r.begun.UnixNano(), Lines: r.opts.LogFormat == "juju",
		}}
	})
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// needWorkers refuses a run that needs n processes and can start none.
func (r *run) needWorkers(n int) error {
	if len(r.opts.Worker) == 0 {
		return incumbent.Errorf(incumbent.Invalid, "%d processes are needed for so many connections, and none can be started", n)
	}
	return nil
}

// startMate starts a process, of which listen takes what it says until it ends.
func (r *run) startMate(i int, listen func(w *mate, out io.Reader) error) (*mate, error) {
	w := &mate{cmd: exec.Command(r.opts.Worker[0], r.opts.Worker[1:]...), done: make(chan error, 2), over: make(chan struct{})}
	// It ends with its input, and so with this process.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.cmd.Stderr = os.Stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.over)
		err := listen(w, out)
		_, _ = io.Copy(io.Discard, out)
		w.done <- errors.Join(err, incumbent.Errorf(incumbent.Unavailable, "process %d of agents has ended: %w", i+1, errors.Join(w.cmd.Wait())))
	}()
	return w, nil
}

// listen takes a child's reports until it ends.
func (t *team) listen(i int, w *mate, out io.Reader) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, mostReport)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		if err := t.rec.add(r.Ops); err != nil {
			return err
		}
		t.check.add(r.Found)
		if r.Lines != "" {
			t.print(r.Lines)
		}
		var err error
		if r.Error != "" {
			err = incumbent.Errorf(incumbent.Unavailable, "process %d of agents: %s", i+1, r.Error)
		}
		t.mu.Lock()
		t.tallies[i] = r.Tally
		if t.failure == nil {
			t.failure = err
		}
		t.mu.Unlock()
		if r.Done {
			w.done <- err
		}
	}
	return lines.Err()
}

// all gives each process its order and waits until all have done theirs.
func (t *team) all(ctx context.Context, of func(i int) order) error {
	for i, w := range t.mates {
		text, err := json.Marshal(of(i))
		if err != nil {
			return err
		}
		if _, err := w.in.Write(append(text, '\n')); err != nil {
			return incumbent.Errorf(incumbent.Unavailable, "process %d of agents: %w", i+1, err)
		}
	}
	for _, w := range t.mates {
		select {
		case err := <-w.done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// grow implements crew.
func (t *team) grow(ctx context.Context, leases int, rate float64) error {
	return t.all(ctx, func(int) order { return order{Leases: leases, Ramp: rate} })
}

// hold implements crew.
func (t *team) hold(ctx context.Context, d time.Duration) error {
	return t.all(ctx, func(int) order { return order{Hold: d} })
}

// strike implements crew. That a process cannot be told shows in its next order.
func (t *team) strike() {
	_ = t.all(context.Background(), func(int) order { return order{Strike: true} })
}

// flush implements crew. That a process cannot be asked shows in its next order.
func (t *team) flush() {
	_ = t.all(context.Background(), func(int) order { return order{} })
}

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
	for _, w := range t.mates {
		w.close()
	}
}

// close ends the process, in order if it will.
func (w *mate) close() {
	w.in.Close()
	kill := time.AfterFunc(localStop, func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	<-w.over
}
