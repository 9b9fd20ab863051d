//go:build linux

package main

import (
	"context"
	"sync"
	"time"
)

// settings say how hard and how long one kind of operation is driven.
type settings struct {
	warmup   time.Duration // driven, not counted
	duration time.Duration // counted
	rate     float64       // operations per second of all workers together; 0 is closed loop
}

// runner is one goroutine's worth of load. It returns when the context ends or
// when it cannot go on; it reports each operation to the recorder.
type runner interface {
	run(ctx context.Context, p pacer, r *recorder)
}

// pacer gives the moments at which one worker is to start its operations. In
// closed loop that is always now. In open loop the workers take turns, and a
// worker that is late starts at once while its latency counts from the moment
// that was intended: a server that stalls is not asked less.
type pacer struct {
	next  time.Time
	every time.Duration // 0 in closed loop
}

func newPacer(begin time.Time, worker, workers int, rate float64) pacer {
	if rate <= 0 {
		return pacer{}
	}
	each := float64(time.Second) / rate
	return pacer{
		next:  begin.Add(time.Duration(each * float64(worker))),
		every: time.Duration(each * float64(workers)),
	}
}

// wait returns the moment the next operation was meant to start, once that
// moment has come, or false when the context has ended.
func (p *pacer) wait(ctx context.Context) (time.Time, bool) {
	if p.every == 0 {
		return time.Now(), ctx.Err() == nil
	}
	intended := p.next
	p.next = intended.Add(p.every)
	early := time.Until(intended)
	if early <= 0 {
		return intended, ctx.Err() == nil
	}
	timer := time.NewTimer(early)
	defer timer.Stop()
	select {
	case <-timer.C:
		return intended, true
	case <-ctx.Done():
		return time.Time{}, false
	}
}

// drive runs all runners through warm-up and measurement and returns what they
// did between the two. cpu returns the servers' CPU time so far. cancel ends ctx,
// and with it the streams that were opened under it, on which runners may wait.
func drive(ctx context.Context, s settings, runners []runner, cancel func(), cpu func() (time.Duration, error)) (result, error) {
	rec := newRecorder()
	var running sync.WaitGroup
	begin := time.Now()
	for i, r := range runners {
		running.Go(func() { r.run(ctx, newPacer(begin, i, len(runners), s.rate), rec) })
	}
	res, err := measure(ctx, s, rec, cpu)
	cancel()
	running.Wait()
	return res, err
}

func measure(ctx context.Context, s settings, rec *recorder, cpu func() (time.Duration, error)) (result, error) {
	if err := pause(ctx, s.warmup); err != nil {
		return result{}, err
	}
	before, err := cpu()
	if err != nil {
		return result{}, err
	}
	opened := time.Now()
	rec.open.Store(true)
	if err := pause(ctx, s.duration); err != nil {
		return result{}, err
	}
	rec.open.Store(false)
	elapsed := time.Since(opened)
	after, err := cpu()
	if err != nil {
		return result{}, err
	}
	return rec.result(elapsed, after-before), nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// caller is a runner with one operation in flight.
type caller struct {
	worker int
	call   func(ctx context.Context) error
	// last says that an error ends the runner: its stream is gone.
	last bool
}

func (c caller) run(ctx context.Context, p pacer, r *recorder) {
	for {
		began, ok := p.wait(ctx)
		if !ok {
			return
		}
		err := c.call(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.failed(err)
		default:
			err = r.done(c.worker, time.Since(began))
		}
		if err != nil && c.last {
			return
		}
	}
}
