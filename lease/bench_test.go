package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// atOnce is a raft of one member without a disk: whatever is asked for has
// happened when the call returns. Its user is the lease loop.
type atOnce struct {
	svc   *Service
	state *core.State
	term  uint64
}

func (r *atOnce) Propose(ps ...node.Proposal) {
	cmds := make([][]byte, len(ps))
	for i := range ps {
		cmds[i] = ps[i].Command
	}
	results := make([]core.Result, len(ps))
	changes := r.state.Apply(cmds, results)
	r.svc.Applied(r.state.View(), changes)
	for i := range ps {
		if ps[i].Done != nil {
			ps[i].Done(&results[i], nil)
		}
	}
}

func (r *atOnce) Confirm(done func(uint64, error)) { done(r.term, nil) }

func (r *atOnce) ConfirmAhead(_ func(node.Ahead), done func(uint64, error)) { r.Confirm(done) }

// Alone it has no other member's questions to answer.
func (r *atOnce) ConfirmFor(_, _ uint64, _ func(node.Ahead), done func(uint64, error)) {
	r.Confirm(done)
}

func (*atOnce) Leader() (leader, term uint64) { return 0, 0 }

// filled returns a state in which n leases are held, and their tokens in random
// order. Every fourth is owned by a session, four leases to a session.
func filled(tb testing.TB, n int, sessions bool) (*core.State, []incumbent.Token) {
	tb.Helper()
	st := core.New(leases.Family{})
	tokens := make([]incumbent.Token, 0, n)
	var cmds [][]byte
	flush := func() {
		results := make([]core.Result, len(cmds))
		st.Apply(cmds, results)
		for _, r := range results {
			if r.Err != nil {
				tb.Fatal(r.Err)
			}
			if leases.AnswerOf(r).Granted {
				tokens = append(tokens, leases.AnswerOf(r).Lease.Token)
			}
		}
		cmds = cmds[:0]
	}
	for i := range n {
		c := leases.ClaimCommand{Name: leaseName(fmt.Sprint("lease-", i)), Holder: "h", TTL: time.Minute}
		if sessions {
			id := sessionID(i/4 + 1)
			if i%4 == 0 {
				cmds = append(cmds, core.OpenSessionCommand{ID: id, TTL: time.Minute}.Encode(core.Meta{}))
			}
			c.Session, c.TTL = id, 0
		}
		if cmds = append(cmds, c.Encode(core.Meta{})); len(cmds) >= 500 {
			flush()
		}
	}
	flush()
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
	return st, tokens
}

func BenchmarkBookExtend(b *testing.B) {
	for _, n := range []int{1_000, 16_000, 1_000_000} {
		b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) {
			st, tokens := filled(b, n, false)
			book := NewBook(Config{})
			book.Advance(1)
			book.Lead(st.View())
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				slot, _ := book.byToken.get(tokens[i%n])
				book.extend(leaseRef(slot), 0)
			}
		})
	}
}

// BenchmarkExtendBatch goes through the whole service. An operation is one
// extension.
func BenchmarkExtendBatch(b *testing.B) {
	for _, n := range []int{1_000, 16_000, 1_000_000} {
		st, tokens := filled(b, n, false)
		for _, size := range []int{1, 16, 1000} {
			b.Run(fmt.Sprintf("leases=%d/batch=%d", n, size), func(b *testing.B) {
				benchExtend(b, st, tokens, size, 1)
			})
		}
		b.Run(fmt.Sprintf("leases=%d/batch=1/waiting=64", n), func(b *testing.B) {
			benchExtend(b, st, tokens, 1, 64)
		})
	}
}

func benchExtend(b *testing.B, st *core.State, tokens []incumbent.Token, size, waiting int) {
	svc, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	raft := &atOnce{svc: svc, state: st, term: 1}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { svc.Run(ctx, raft); close(ended) }()
	defer func() { stop(); <-ended }()
	svc.Applied(st.View(), nil)
	svc.Lead(1)
	free := make(chan *Batch, waiting)
	for range waiting {
		free <- &Batch{Items: make([]Extension, size), Done: func(x *Batch) { free <- x }}
	}
	ready := make(chan *Batch)
	svc.Extend(&Batch{Done: func(x *Batch) { ready <- x }}) // the book is filled
	<-ready
	next := 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += size {
		x := <-free
		for j := range x.Items {
			if x.Items[j].Kind != incumbent.OK {
				b.Fatal(x.Items[j].Kind)
			}
			x.Items[j] = Extension{Token: tokens[next]}
			if next++; next == len(tokens) {
				next = 0
			}
		}
		svc.Extend(x)
	}
	for range waiting {
		<-free
	}
}

// BenchmarkExpiry is the loop's part of an expiry: found due, confirmed, looked
// at again, proposed, and taken out of the book.
func BenchmarkExpiry(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		b.StopTimer()
		st, _ := filled(b, n, false)
		w := newWorld(b, Config{})
		w.state, w.auto = st, false
		w.lead()
		w.now += int64(time.Hour)
		w.e.book.last = w.now
		b.StartTimer()
		w.step(nil)
		w.confirm(nil)
		w.pass()
		proposed := 0
		for len(w.log) > 0 {
			ps := w.log
			w.log = nil
			proposed += len(ps)
			w.step(func() {
				for _, p := range ps {
					w.e.Proposed(p.Ticket, core.Result{}, nil)
				}
				for _, p := range ps { // as Applied would
					w.e.book.dropLease(p.Ticket.expiry.due.Token)
				}
			})
		}
		if proposed < n {
			b.Fatalf("%d proposed", proposed)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/expiry")
}
