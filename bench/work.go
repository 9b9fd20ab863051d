package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"
)

// mostOrder bounds one order, in bytes.
const mostOrder = 1 << 20

// workerGC is a worker's GOGC, in percent. Servers and load share the processors
// and what a worker collects is taken from them; its memory nobody counts.
const workerGC = 400

// laborer is a child's end of a team.
type laborer struct {
	fleet   *jujuFleet
	run     *run
	telling sync.WaitGroup

	reporting sync.Mutex // one report at a time

	out *json.Encoder

	mu    sync.Mutex // protects lines, which come from under the fleet's own mutex
	lines bytes.Buffer
}

// Work serves as one process of a team: it takes orders from in, until that ends,
// and writes reports to out. The load tool starts it by [Options.Worker].
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	defer debug.SetGCPercent(debug.SetGCPercent(workerGC))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	orders := make(chan *order)
	ended := make(chan error, 1)
	go func() {
		defer close(orders)
		defer stop() // whatever is under way ends with the parent
		ended <- readOrders(ctx, in, orders)
	}()
	l := &laborer{out: json.NewEncoder(out)}
	defer l.end()
	defer stop() // before that
	for o := range orders {
		if o.Agents != nil {
			return errors.Join(workAgents(ctx, o.Agents, orders, out), <-ended)
		}
		if err := l.report(true, l.obey(ctx, o)); err != nil {
			return err // nobody reads
		}
	}
	return <-ended
}

func readOrders(ctx context.Context, in io.Reader, orders chan<- *order) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, mostOrder)
	for lines.Scan() {
		o := new(order)
		if err := json.Unmarshal(lines.Bytes(), o); err != nil {
			return err
		}
		select {
		case orders <- o:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return lines.Err()
}

func (l *laborer) end() {
	if l.fleet != nil {
		l.telling.Wait()
		l.fleet.close()
	}
}

// Write takes Juju's own lines.
func (l *laborer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *laborer) obey(ctx context.Context, o *order) error {
	switch {
	case o.Begin != nil:
		return l.begin(ctx, o.Begin)
	case l.fleet == nil:
		return errors.New("an order before the first")
	case o.Leases > 0:
		return l.fleet.grow(ctx, o.Leases, o.Ramp)
	case o.Strike:
		l.fleet.strike()
	case o.Hold > 0:
		return l.fleet.hold(ctx, o.Hold)
	}
	return nil
}

func (l *laborer) begin(ctx context.Context, a *assignment) (err error) {
	opts := Options{Out: l}
	if a.Lines {
		opts.LogFormat = "juju"
	}
	l.run = newRun(a.Scenario, opts)
	l.run.begun = time.Unix(0, a.Began)
	l.fleet, err = newJujuFleet(ctx, l.run, a.Login, a.Hosts, a.Part)
	if err == nil {
		l.telling.Go(func() { l.tell(ctx) })
	}
	return err
}

// tell reports every second, until the fleet ends.
func (l *laborer) tell(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = l.report(false, nil) // if nobody reads, the orders end too
		case <-ctx.Done():
			return
		}
	}
}

// report says what has happened since the last one.
func (l *laborer) report(done bool, err error) error {
	l.reporting.Lock()
	defer l.reporting.Unlock()
	r := report{Done: done}
	if l.fleet != nil {
		var failure error
		r.Tally, failure = l.fleet.count()
		r.Found = l.run.check.drain()
		ops, broken := l.run.rec.take()
		r.Ops = ops
		err = errors.Join(err, failure, broken)
	}
	if err != nil {
		r.Error = err.Error()
	}
	l.mu.Lock()
	r.Lines = l.lines.String()
	l.lines.Reset()
	l.mu.Unlock()
	return l.out.Encode(&r)
}
