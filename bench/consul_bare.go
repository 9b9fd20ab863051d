package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// besideBareLoop asks a server that always has the same answer at hand for it, over as
// many connections as before, each with one request under way, and notes what share of
// its rate the run came to: what is left is writing the bytes, which nobody is spared.
func (r *run) besideBareLoop(ctx context.Context, conns int, body []byte, perSecond, cpuMicros float64) error {
	if r.opts.LaunchBare == nil {
		return incumbent.Errorf(incumbent.Invalid, "no server can be started to compare with").WithHint("leave out the scenario's bare")
	}
	r.setPhase("bare loop")
	cl, err := r.opts.LaunchBare(ctx, body)
	if err != nil {
		return err
	}
	defer cl.Stop()
	servers, err := httpServers([]string{cl.Servers()[0].URL}, cl.Client())
	if err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	op := NewRecorder().op("bare")
	var loops []func(context.Context) error
	defer stop()
	all := make([]*httpConn, conns)
	defer func() { closeAll(all) }()
	err = inParallel(ctx, conns, func(i int) (err error) {
		all[i], err = servers[0].dial(ctx, r.source(i), false)
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range all {
		loops = append(loops, func(ctx context.Context) error { return r.askBare(ctx, c, op) })
	}
	ended := make(chan error, len(loops))
	for _, loop := range loops {
		go func() { ended <- loop(asking) }()
	}
	err = sleep(ctx, time.Duration(r.sc.Bare.Warmup))
	before, began, count := readProcess(cl.Servers()[0].PID).CPU, r.now(), op.answered()
	if err == nil {
		err = sleep(ctx, time.Duration(r.sc.Bare.Duration))
	}
	// Where the machine stands still, one answer is waited for.
	for patience := r.now() + httpDial; err == nil && op.answered() == count && r.now() < patience; {
		err = sleep(ctx, time.Millisecond)
	}
	took, used, n := (r.now() - began).Seconds(), readProcess(cl.Servers()[0].PID).CPU-before, float64(op.answered()-count)
	stop()
	for range loops {
		err = errors.Join(err, <-ended)
	}
	if err == nil && n == 0 {
		err = incumbent.Errorf(incumbent.Unavailable, "the bare loop was not answered")
	}
	if err != nil {
		return err
	}
	r.fact("bare_per_second", n/took)
	r.fact("bare_cpu_us", float64(used.Microseconds())/n)
	r.fact("share_of_bare", perSecond/(n/took))
	if used > 0 {
		r.fact("cpu_of_bare", cpuMicros/(float64(used.Microseconds())/n))
	}
	return nil
}

// askBare asks until its context ends.
func (r *run) askBare(ctx context.Context, c *httpConn, op *opRecord) error {
	defer context.AfterFunc(ctx, c.close)()
	for ctx.Err() == nil {
		began := r.now()
		var a httpAnswer
		err := c.send("GET", "/", nil)
		if err == nil {
			a, err = c.answer()
		}
		if err == nil {
			_, err = c.skip(a)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		now := r.now()
		op.done(now, now-began, 1)
	}
	return nil
}

// ServeBare answers every request over HTTP/1.1, which has no body, with the same one,
// and does nothing else, until the listener is closed.
func ServeBare(ln net.Listener, body []byte) error {
	answer := append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nX-Consul-Index: 1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body)), body...)
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go serveBare(conn, answer)
	}
}

// bareRequest is the most bytes that a request has.
const bareRequest = 2048

func serveBare(conn net.Conn, answer []byte) {
	defer conn.Close()
	buf, have := make([]byte, bareRequest), 0
	for have < len(buf) {
		n, err := conn.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		end := bytes.Index(buf[:have], []byte("\r\n\r\n"))
		if end < 0 {
			continue
		}
		have = copy(buf, buf[end+len("\r\n\r\n"):have])
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
