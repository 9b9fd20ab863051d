package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// tokensPerFrame is the most that one extension frame names.
const tokensPerFrame = 10_000

// playAvalanche claims very many leases, extends all of them at once, and then
// lets their holders vanish. A watcher, who has no part in it, tells when each
// is free.
func playAvalanche(ctx context.Context, r *run) error {
	a := &avalanche{run: r, ttl: time.Duration(r.sc.TTL), n: r.sc.Stages[0].Leases, tag: incumbent.NewSessionID().String()[:8]}
	r.setPhase("claiming %d leases", a.n)
	if err := a.claim(ctx); err != nil {
		return err
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	freed := make(chan freedLease, 1024)
	broken := make(chan error, 1)
	go a.watch(watched, freed, broken)
	if err := sleep(ctx, time.Second); err != nil { // the watch is there before anything falls due
		return err
	}
	r.setPhase("extending all at once")
	if err := a.extendAll(ctx); err != nil {
		return err
	}
	r.setPhase("holders are gone")
	return a.await(ctx, freed, broken)
}

type avalanche struct {
	*run
	ttl      time.Duration
	n        int
	tag      string
	tokens   []uint64
	lastSent time.Duration // of the extension that was answered
	answered time.Duration
}

type freedLease struct {
	name string
	at   time.Duration
}

func (a *avalanche) claim(ctx context.Context) error {
	a.tokens = make([]uint64, a.n)
	op := a.rec.op("claim")
	const part, callers = claimBatch, 4 // a few are enough to keep a server busy, and do not drive it into refusals
	return inParallelOf(ctx, callers, (a.n+part-1)/part, func(i int) error {
		from := i * part
		began := a.now()
		tokens, err := claimMany(ctx, a.clients[i%len(a.clients)], min(part, a.n-from), func(k int) *apiv1.ClaimRequest {
			return &apiv1.ClaimRequest{
				Name: &apiv1.LeaseName{Name: fmt.Sprintf("%s/%d", a.tag, from+k)}, Holder: "vanishing", TtlMs: uint32(a.ttl.Milliseconds()),
			}
		})
		copy(a.tokens[from:], tokens)
		if err == nil {
			op.done(a.now(), a.now()-began, len(tokens))
		}
		return err
	})
}

// extendAll extends every lease within a moment, so that all fall due together,
// over one stream that is then closed.
func (a *avalanche) extendAll(ctx context.Context) error {
	s, br, err := a.clients[0].DialStream(ctx, client.StreamOptions{ReadBuffer: readBuffer})
	if err != nil {
		return err
	}
	defer s.Close()
	frames := (a.n + tokensPerFrame - 1) / tokensPerFrame
	var wg sync.WaitGroup
	answered, failed := 0, error(nil)
	wg.Go(func() {
		_ = s.ServeRaw(br, func(msg []byte) error {
			return eachAnswer(msg, func(ans *answer) error {
				if ans.failed || ans.notHeld > 0 || ans.unavailable > 0 {
					failed = incumbent.Errorf(incumbent.Unavailable, "not all leases could be extended: %d not held, %d not confirmed", ans.notHeld, ans.unavailable)
				}
				if answered++; answered == frames {
					s.Close()
				}
				return nil
			})
		})
	})
	a.lastSent = a.now()
	for i := range frames {
		part := a.tokens[i*tokensPerFrame : min(a.n, (i+1)*tokensPerFrame)]
		if err := s.SendEncoded(appendExtend(nil, uint64(i+1), part)); err != nil {
			return err
		}
	}
	wg.Wait()
	a.answered = a.now()
	if answered < frames {
		return incumbent.Errorf(incumbent.Unavailable, "the stream ended after %d of %d answers", answered, frames)
	}
	a.rec.op("extend").done(a.answered, a.answered-a.lastSent, a.n)
	return failed
}

func (a *avalanche) watch(ctx context.Context, freed chan<- freedLease, broken chan<- error) {
	opts := client.WatchOptions{Prefix: true, Name: incumbent.Name{
		Namespace: incumbent.DefaultNamespace, Model: incumbent.DefaultModel, Lease: a.tag + "/",
	}}
	for m, err := range a.clients[0].Watch(ctx, opts) {
		if err != nil {
			broken <- err
			return
		}
		at := a.now()
		for _, e := range m.Events {
			if e.What == "expired" {
				freed <- freedLease{e.Lease.GetName().GetName(), at}
			}
		}
	}
}

// await collects what is freed until all are, or far too late.
func (a *avalanche) await(ctx context.Context, freed <-chan freedLease, broken <-chan error) error {
	op := a.rec.op("freed late")
	seen := make(map[string]bool, a.n)
	due := a.answered + dueAfter(a.ttl)
	most := time.NewTimer(due - a.now() + time.Minute)
	defer most.Stop()
	var first, last time.Duration
	for len(seen) < a.n {
		select {
		case f := <-freed:
			if seen[f.name] {
				a.check.Violate("%s: its expiry was told twice", f.name)
				continue
			}
			seen[f.name] = true
			late := a.check.Freed(f.name, f.at, a.lastSent, a.answered, a.ttl)
			op.done(f.at, late, 1)
			if first == 0 {
				first = f.at
			}
			last = f.at
		case err := <-broken:
			return err
		case <-most.C:
			a.check.Violate("%d of %d leases were not freed a minute after they were due", a.n-len(seen), a.n)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a.fact("first_freed_after_due_ms", float64((first-due).Microseconds())/1000)
	a.fact("last_freed_after_due_ms", float64((last-due).Microseconds())/1000)
	a.fact("freed", float64(len(seen)))
	return nil
}
