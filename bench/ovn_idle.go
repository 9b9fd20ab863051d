package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// playOVNIdle opens many connections that monitor a port each, of which nothing comes:
// what does one cost the servers? At the end one transaction changes every port.
func playOVNIdle(ctx context.Context, r *run) error {
	stage := r.sc.Stages[len(r.sc.Stages)-1]
	w, err := newOVNWorld(ctx, r, stage.Leases, r.sc.Ports.Count, true)
	if err != nil {
		return err
	}
	base := r.rss()
	conns := make([]*ovnConn, stage.Leases)
	defer func() { closeAll(conns) }()
	r.setPhase("opening %d monitors", len(conns))
	began, opened := r.now(), r.rec.op("monitor")
	err = r.ramp(ctx, len(conns), stage.Ramp, func(i int) error {
		return r.timed(ctx, opened, func() (err error) {
			conns[i], _, err = w.dial(ctx, i, "")
			return err
		})
	})
	if err != nil {
		return err
	}
	r.fact("open_seconds", (r.now() - began).Seconds())
	r.connected(len(conns))
	woken := r.rec.op("update")
	var changed atomic.Int64 // when the last transaction was sent, in ns since the run began; 0: not yet
	var reading sync.WaitGroup
	defer reading.Wait()
	defer closeAll(conns)
	all := make(chan error, len(conns))
	for i, c := range conns {
		reading.Go(func() { all <- w.await(c, i, woken, &changed) })
	}
	if err := w.idle(ctx, base, len(conns)); err != nil {
		return err
	}
	r.setPhase("one change for all")
	c, err := dialOVN(ctx, w.addresses[0], nil)
	if err != nil {
		return err
	}
	defer c.close()
	changed.Store(int64(r.now()))
	if _, err := c.transact(`{"op":"update","table":"Port_Binding","where":[],"row":{"mac":"changed"}}`); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { closeAll(conns) })()
	for range conns {
		if err := <-all; err != nil {
			return err
		}
	}
	return nil
}

// await answers the server's echoes until an update comes.
func (w *ovnWorld) await(c *ovnConn, i int, woken *opRecord, changed *atomic.Int64) error {
	for {
		_ = c.conn.SetReadDeadline(time.Now().Add(ovnPatience))
		m, err := c.message()
		if err != nil {
			return err
		}
		c.updates = 0
		if mine, err := c.handle(m); err != nil || mine {
			return incumbent.Errorf(incumbent.Corrupt, "monitor %d was told %.80q: %w", i, m, err)
		}
		if c.updates == 0 {
			continue
		}
		sent := time.Duration(changed.Load())
		if sent == 0 {
			w.check.Violate("monitor %d was told of a change that nobody made", i)
			return nil
		}
		now := w.now()
		woken.done(now, now-sent, 1)
		return nil
	}
}

// learn finds out how large the answer is to who is sent everything.
func (w *ovnWorld) learn(ctx context.Context) error {
	c, seen, err := w.dial(ctx, 0, "")
	if err != nil {
		return err
	}
	w.size = seen.bytes
	c.close()
	return nil
}

// Clients of a resync.
const (
	resyncParsed = 100 // one client of so many reads what it is told; the others count bytes
	resyncAtOnce = 256 // monitors that are opened at once the first time
)

// playOVNResync has many clients that hold all rows lose their connections and return at
// once, with what they saw last or without.
func playOVNResync(ctx context.Context, r *run) error {
	n := r.sc.Stages[len(r.sc.Stages)-1].Leases
	w, err := newOVNWorld(ctx, r, n, r.sc.Ports.Count, true)
	if err != nil {
		return err
	}
	conns, last := make([]*ovnConn, n), make([]string, n)
	defer func() { closeAll(conns) }()
	base := r.rss()
	term := w.term(ctx)
	open := func(op string, atOnce int, bring bool) error {
		record := r.rec.op(op)
		var bytes, found atomic.Int64
		began := r.now()
		err := inParallelOf(ctx, atOnce, n, func(i int) error {
			brought := ""
			if bring {
				brought = last[i]
			}
			at := r.now()
			c, seen, err := w.dial(ctx, i, brought)
			r.outcome(ctx, record, at, err)
			if err != nil {
				return err
			}
			conns[i], last[i] = c, seen.last
			bytes.Add(seen.bytes)
			if seen.found {
				found.Add(1)
			}
			if i%resyncParsed == 0 && !seen.found {
				if rows, err := seen.rows(); err != nil || rows != r.sc.Ports.Count {
					r.check.Violate("client %d was told %d rows of %d: %v", i, rows, r.sc.Ports.Count, err)
				}
			}
			return nil
		})
		r.fact(op+" seconds", (r.now() - began).Seconds())
		r.fact(op+" megabytes", float64(bytes.Load())/1e6)
		r.fact(op+" found", float64(found.Load()))
		return err
	}
	if err := w.learn(ctx); err != nil {
		return err
	}
	r.setPhase("%d clients download", n)
	if err := open("download", resyncAtOnce, false); err != nil {
		return err
	}
	held := r.rss()
	r.fact("rss_before_bytes", float64(base))
	r.fact("rss_held_bytes", float64(held))
	r.setPhase("all return at once")
	used := r.meter.cpu()
	closeAll(conns)
	if err := open("return", n, r.sc.Ports.Resume); err != nil {
		return err
	}
	r.fact("return cpu_seconds", (r.meter.cpu() - used).Seconds())
	r.fact("rss_grown_bytes", max(0, float64(r.rss())-float64(held)))
	r.fact("elections", max(0, w.term(ctx)-term))
	if r.sc.Ports.Resume && r.noted("return found") != float64(n) {
		r.check.Violate("%v of %d clients were told only what changed", r.noted("return found"), n)
	}
	return nil
}
