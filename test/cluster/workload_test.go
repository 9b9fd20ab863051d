package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

const (
	loadTTL   = 2 * time.Second
	loadDrift = 0.01 // what a holder takes off what it was told
	callLimit = 3 * time.Second
)

// load is clients that fight over a few leases, each at a member of its own and
// without going elsewhere, so that what it sees is what that member says.
type load struct {
	c       *trio
	history *history
	cancel  context.CancelFunc
	all     sync.WaitGroup
}

// startLoad sets clients going, one for each pair of member and lease.
func (c *trio) startLoad(leases int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{c: c, history: newHistory(), cancel: cancel}
	id := 0
	for _, m := range c.Members {
		for lease := range leases {
			w := &worker{
				load: l, id: id, lease: fmt.Sprintf("fought-%d", lease), holder: "w" + strconv.Itoa(id),
				client: c.clientOf(m), rng: rand.New(rand.NewPCG(uint64(id), 1)),
			}
			l.all.Go(func() { w.run(ctx) })
			id++
		}
	}
	return l
}

// finish ends the load, once leases have changed hands, and checks what it saw: a
// history without grants proves nothing.
func (l *load) finish(t *testing.T) {
	t.Helper()
	defer l.all.Wait()
	defer l.cancel()
	eventually(t, patience, "two claims are granted", func() bool { return l.history.grants() >= 2 })
	l.cancel()
	l.all.Wait()
	l.history.check(t)
	t.Logf("%d operations, %d grants", len(l.history.ops), l.history.grants())
}

// worker is one client. An outcome it does not know ends that identity: what it
// sent may take effect later.
type worker struct {
	load   *load
	id     int
	life   int
	lease  string
	holder string
	client *client.Client
	rng    *rand.Rand
	token  uint64 // it believes it holds
}

func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		switch n := w.rng.IntN(10); {
		case w.token == 0 && n < 7:
			w.claim(ctx)
		case w.token != 0 && n < 5:
			w.extend(ctx)
		case w.token != 0 && n < 7:
			w.release(ctx)
		case w.token != 0 && n < 8:
			w.token = 0 // it dies without a word
			w.renamed()
		default:
			w.get(ctx)
		}
		select {
		case <-time.After(time.Duration(5+w.rng.IntN(30)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// renamed begins a new life: the old one may still be about.
func (w *worker) renamed() {
	w.life++
	w.holder = fmt.Sprintf("w%d.%d", w.id, w.life)
}

func (w *worker) name() *apiv1.LeaseName { return &apiv1.LeaseName{Name: w.lease} }

// call does one call and records it. look returns what the answer says and for
// how long it was acknowledged; it is not called for an error that says nothing
// was done.
func (w *worker) call(ctx context.Context, v verb, look func(context.Context) (output, time.Duration, error)) output {
	in := input{verb: v, lease: w.lease, holder: w.holder, token: w.token}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	called := w.load.history.now()
	out, held, err := look(limit)
	switch incumbent.KindOf(client.AsError(err)) {
	case incumbent.OK:
	case incumbent.Held, incumbent.NotHolder:
		out, held = output{}, 0
	case incumbent.NotFound:
		out, held = output{}, 0 // nobody ever held it
	case incumbent.Unavailable, incumbent.Overloaded, incumbent.NotLeader, incumbent.DeadlineExceeded:
		return output{unknown: v != getOp} // certainly nothing: not part of the history
	default:
		out, held = output{unknown: true}, 0
		if v == getOp {
			return out
		}
	}
	w.load.history.add(w.id*1000+w.life, in, called, out, time.Duration(float64(held)*(1-loadDrift)))
	return out
}

func (w *worker) claim(ctx context.Context) {
	out := w.call(ctx, claimOp, func(ctx context.Context) (output, time.Duration, error) {
		res, err := w.client.Leases().Claim(ctx, connect.NewRequest(&apiv1.ClaimRequest{Name: w.name(), Holder: w.holder, TtlMs: uint32(loadTTL.Milliseconds())}))
		if err != nil {
			return output{}, 0, err
		}
		return output{ok: true, token: res.Msg.Lease.Token}, ms(res.Msg.HeldMs), nil
	})
	if out.ok {
		w.token = out.token
	}
	if out.unknown {
		w.renamed()
	}
}

func (w *worker) extend(ctx context.Context) {
	out := w.call(ctx, extendOp, func(ctx context.Context) (output, time.Duration, error) {
		res, err := w.client.Leases().Extend(ctx, connect.NewRequest(&apiv1.ExtendRequest{Extensions: []*apiv1.Extension{{Token: w.token}}}))
		if err != nil {
			return output{}, 0, err
		}
		one := res.Msg.Results[0]
		if err := client.DetailError(one.Error); err != nil {
			return output{}, 0, err
		}
		return output{ok: true}, ms(one.HeldMs), nil
	})
	if !out.ok && !out.unknown {
		w.token = 0
		w.renamed()
	}
}

func (w *worker) release(ctx context.Context) {
	out := w.call(ctx, releaseOp, func(ctx context.Context) (output, time.Duration, error) {
		_, err := w.client.Leases().Release(ctx, connect.NewRequest(&apiv1.ReleaseRequest{Name: w.name(), Token: w.token}))
		return output{ok: err == nil}, 0, err
	})
	if out.ok || out.unknown {
		w.token = 0
		w.renamed()
	}
}

func (w *worker) get(ctx context.Context) {
	w.call(ctx, getOp, func(ctx context.Context) (output, time.Duration, error) {
		l, err := get(ctx, w.client, w.lease)
		return output{ok: l.GetToken() != 0, holder: l.GetHolder(), token: l.GetToken()}, 0, err
	})
}

func ms(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
