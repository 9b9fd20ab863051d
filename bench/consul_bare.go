package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

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
	all := make([]*httpConn, conns)
	defer func() { closeAll(all) }()
	err = inParallel(ctx, conns, func(i int) (err error) {
		all[i], err = servers[0].dial(ctx, r.source(i), false)
		return err
	})
	if err != nil {
		return err
	}
	bare, err := r.bareLoop(ctx, r.sc.Bare, pidsOf(cl), 1, conns, func(ctx context.Context, b *run, i int) error {
		defer context.AfterFunc(ctx, all[i].close)()
		return b.callOn(ctx, bareCaller{all[i]}, []*opRecord{b.rec.op("bare")}, false)
	})
	if err != nil {
		return err
	}
	r.fact("bare_per_second", bare.noted("ops_per_second"))
	r.fact("bare_cpu_us", bare.noted("cpu_us_per_op"))
	r.fact("share_of_bare", perSecond/bare.noted("ops_per_second"))
	if used := bare.noted("cpu_us_per_op"); used > 0 {
		r.fact("cpu_of_bare", cpuMicros/used)
	}
	return nil
}

// bareLoop is a closed loop of workers with servers that do nothing besides, which are
// processes of this machine. Its figures are its own: they are noted at what is returned.
// It goes on until so many operations are done: where the machine stands still, they are
// waited for.
func (r *run) bareLoop(ctx context.Context, how *Closed, pids []int, least uint64, workers int, work func(ctx context.Context, b *run, i int) error) (*run, error) {
	b := newRun(&Scenario{Closed: how, Sources: r.sc.Sources}, Options{PIDs: pids})
	b.begun, b.least = r.begun, least
	b.meter.start()
	var loops []func(context.Context) error
	for i := range workers {
		loops = append(loops, func(ctx context.Context) error { return work(ctx, b, i) })
	}
	err := b.closed(ctx, loops)
	if err == nil && b.rec.answered() < least {
		err = incumbent.Errorf(incumbent.Unavailable, "the bare loop had fewer than %d answers", least)
	}
	return b, err
}

// bareCaller asks for what the server has at hand.
type bareCaller struct{ *httpConn }

func (c bareCaller) call(context.Context, int) error {
	err := c.send("GET", "/", nil)
	if err != nil {
		return err
	}
	a, err := c.answer()
	if err == nil {
		_, err = c.skip(a)
	}
	return err
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
