package bench

import (
	"context"
	"fmt"
)

// playConsulIdle opens many connections with a blocking query each, of which nothing
// comes: what does one cost the servers beyond what the kernel holds?
func playConsulIdle(ctx context.Context, r *run) error {
	servers, err := r.consulDoors(ctx)
	if err != nil {
		return err
	}
	g := &registry{run: r, how: &Catalog{Change: changeRegister}, service: "idle-" + newTag(), servers: servers, home: -1}
	if err := g.grow(ctx, 1); err != nil {
		return err
	}
	base, goroutines := r.rss(), r.goroutines(ctx)
	stage := r.sc.Stages[len(r.sc.Stages)-1]
	conns := make([]*httpConn, stage.Leases)
	defer func() { closeAll(conns) }()
	r.setPhase("opening %d polls", len(conns))
	began := r.now()
	err = r.ramp(ctx, len(conns), stage.Ramp, func(i int) (err error) {
		conns[i], err = g.block(ctx, i)
		return err
	})
	if err != nil {
		return err
	}
	r.connected(len(conns))
	r.fact("connect_seconds", (r.now() - began).Seconds())
	if err := r.idle(ctx, base, len(conns)); err != nil {
		return err
	}
	r.fact("goroutines_per_poll", (r.goroutines(ctx)-goroutines)/float64(len(conns)))
	return g.wakeAll(ctx, conns)
}

// block asks for what there is and then for the next change, and leaves it at that.
func (g *registry) block(ctx context.Context, i int) (*httpConn, error) {
	c, err := g.servers[i%len(g.servers)].dial(ctx, g.source(i), false)
	if err != nil {
		return nil, err
	}
	opened := g.rec.op("poll")
	err = g.timed(ctx, opened, func() error {
		a, _, err := c.ask("GET", g.path(i)+"index=0", nil)
		if err != nil {
			return err
		}
		return c.send("GET", fmt.Sprintf("%sindex=%d&wait=600s", g.path(i), a.index), nil)
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// wakeAll changes what all wait for: who is not told was not blocked but forgotten.
func (g *registry) wakeAll(ctx context.Context, conns []*httpConn) error {
	g.setPhase("one change for all")
	c, err := g.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	woken := g.rec.op("wake-up")
	began := g.now()
	if err := g.change(c, 0); err != nil {
		return err
	}
	return inParallelOf(ctx, 64, len(conns), func(i int) error {
		defer context.AfterFunc(ctx, conns[i].close)()
		a, err := conns[i].answer()
		if err == nil && a.status != 200 {
			g.check.Violate("poll %d was answered with status %d", i, a.status)
		}
		g.outcome(ctx, woken, began, err)
		return err
	})
}
