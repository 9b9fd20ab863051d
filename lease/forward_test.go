package lease

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// wire carries frames between services in one process.
type wire struct {
	self uint64
	to   map[uint64]*Service
	cut  atomic.Bool
}

func (w *wire) SendApps(to uint64, frames [][]byte) int {
	s := w.to[to]
	if s == nil || w.cut.Load() {
		return 0
	}
	for _, b := range frames {
		s.Receive(w.self, b)
	}
	return len(frames)
}

// shared is a log of which every service applies everything at once, on a
// goroutine of its own as a node does.
type shared struct {
	all  []*Service
	work chan func()
	st   *core.State
	term atomic.Uint64
	lead atomic.Uint64 // of whom proposals with a term are taken
}

func (r *shared) run(ctx context.Context) {
	for {
		select {
		case f := <-r.work:
			f()
		case <-ctx.Done():
			return
		}
	}
}

func (r *shared) of(id uint64) Raft { return sharedBy{r, id} }

type sharedBy struct {
	*shared
	id uint64
}

func (r sharedBy) Propose(ps ...node.Proposal) {
	ps = append([]node.Proposal(nil), ps...)
	r.work <- func() {
		for _, p := range ps {
			r.apply(p, r.id)
		}
	}
}

func (r *shared) apply(p node.Proposal, by uint64) {
	if p.Term != 0 && (p.Term != r.term.Load() || by != r.lead.Load()) {
		p.Done(nil, incumbent.Errorf(incumbent.NotLeader, "another term"))
		return
	}
	results := make([]core.Result, 1)
	changes := r.st.Apply([][]byte{p.Command}, results)
	for _, s := range r.all {
		s.Applied(r.st.View(), append([]core.Change(nil), changes...))
	}
	if p.Done != nil {
		p.Done(results[0], nil)
	}
}

func (r sharedBy) ConfirmAhead(_ func(node.Ahead), done func(uint64, error)) { r.Confirm(done) }

func (r sharedBy) Confirm(done func(uint64, error)) {
	r.work <- func() {
		if r.lead.Load() == 0 {
			done(0, incumbent.Errorf(incumbent.Unavailable, "no leader"))
			return
		}
		done(r.term.Load(), nil)
	}
}

func (r sharedBy) ConfirmFor(_, term uint64, _ func(node.Ahead), done func(uint64, error)) {
	r.work <- func() {
		if r.lead.Load() != r.id || r.term.Load() != term {
			done(0, incumbent.Errorf(incumbent.Unavailable, "not the leader of term %d", term))
			return
		}
		done(term, nil)
	}
}

func (r sharedBy) Leader() (leader, term uint64) { return r.lead.Load(), r.term.Load() }

// trio is three running services.
type trio struct {
	raft  *shared
	svc   []*Service
	wires []*wire
	stop  func()
}

func startTrio(tb testing.TB, cfg Config) *trio {
	tb.Helper()
	r := &shared{work: make(chan func(), 1<<16), st: core.New(leases.Family{})}
	x := &trio{raft: r}
	all := make(map[uint64]*Service)
	for id := uint64(1); id <= 3; id++ {
		w := &wire{self: id, to: all}
		s, err := New(Options{Config: cfg, Peers: w, Self: id})
		if err != nil {
			tb.Fatal(err)
		}
		all[id] = s
		x.svc, x.wires = append(x.svc, s), append(x.wires, w)
	}
	r.all = x.svc
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	for i, s := range x.svc {
		running.Go(func() { s.Run(ctx, r.of(uint64(i+1))) })
	}
	x.stop = func() { cancel(); running.Wait() }
	return x
}

// lead makes a member lead; 0: nobody.
func (x *trio) lead(id uint64) {
	done := make(chan struct{})
	x.raft.work <- func() {
		term := x.raft.term.Add(1)
		x.raft.lead.Store(id)
		for i, s := range x.svc {
			if uint64(i+1) == id {
				s.Lead(term)
			} else {
				s.Follow(id, term)
			}
		}
		close(done)
	}
	<-done
}

func extendBy(s *Service, items ...Extension) *Batch {
	done := make(chan *Batch, 1)
	s.Extend(&Batch{Items: items, Done: func(b *Batch) { done <- b }})
	return <-done
}

// Every member serves everything, on real timers in virtual time; a change of
// leader and a cut connection are waited out.
func TestG40_EveryMemberServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := startTrio(t, Config{})
		defer x.stop()
		x.lead(1)
		var token incumbent.Token
		for i, s := range x.svc {
			name := fmt.Sprint("a", i)
			r, err := s.Await(t.Context(), Call{}, leases.ClaimCommand{Name: leaseName(name), Holder: "h", TTL: ttl})
			if err != nil || !leases.AnswerOf(r).Granted {
				t.Fatalf("member %d: %+v, %v", i+1, r, err)
			}
			token = leases.AnswerOf(r).Lease.Token
			if b := extendBy(s, Extension{Token: token}, Extension{Token: token + 1000}); b.Items[0].Held != ttl || b.Items[1].Kind != incumbent.Unavailable {
				t.Errorf("member %d: %+v", i+1, b.Items)
			}
			if r, err := s.Await(t.Context(), Call{}, leases.ClaimCommand{Name: leaseName(name), Holder: "h", TTL: ttl}); err != nil || leases.AnswerOf(r).Lease.Token != token {
				t.Errorf("member %d extends by claim: %+v, %v", i+1, r, err)
			}
			seen := make(chan *Inspection, 1)
			s.Inspect(&Inspection{Items: []Inspected{{Token: token}}, Done: func(q *Inspection) { seen <- q }})
			if q := <-seen; !q.Items[0].Known || q.Items[0].Extends < 2 {
				t.Errorf("member %d: %+v", i+1, q.Items[0])
			}
		}
		x.wires[1].cut.Store(true)
		began := time.Now()
		time.AfterFunc(time.Second, func() { x.wires[1].cut.Store(false) })
		if b := extendBy(x.svc[1], Extension{Token: token}); b.Items[0].Kind != incumbent.OK || time.Since(began) < time.Second {
			t.Errorf("after a cut: %v after %v", b.Items[0].Kind, time.Since(began))
		}
		x.lead(0)
		began = time.Now()
		time.AfterFunc(time.Second, func() { x.lead(2) })
		for i, s := range x.svc {
			if b := extendBy(s, Extension{Token: token}); b.Items[0].Kind != incumbent.OK {
				t.Errorf("member %d after an election: %v", i+1, b.Items[0].Kind)
			}
		}
		if d := time.Since(began); d < time.Second || d > 1100*time.Millisecond {
			t.Errorf("served after %v", d)
		}
		x.lead(0)
		if b := extendBy(x.svc[1], Extension{Token: token}); b.Items[0].Kind != incumbent.Unavailable {
			t.Errorf("without a leader: %v", b.Items[0].Kind)
		}
		x.svc[0].Receive(2, []byte("nonsense"))
		x.svc[0].Receive(1, samples()["refuse"])
		time.Sleep(tickEvery)
		synctest.Wait()
		if s := x.svc[0].Stats(); s.FramesDropped != 2 || s.FramesServed == 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// What is patient waits for company on its way to the leader, and leaves with what is
// not; neither its patience nor a part of its ttl is exceeded by more than a tick.
func TestPatientBatchesShareFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 200 * time.Millisecond
		x := startTrio(t, Config{})
		defer x.stop()
		x.lead(1)
		follower := x.svc[1]
		session := func(ttl time.Duration) Extension {
			id := incumbent.NewSessionID()
			if r, err := follower.Await(t.Context(), Call{}, core.OpenSessionCommand{ID: id, TTL: ttl}); err != nil || r.Err != nil {
				t.Fatalf("open: %+v, %v", r, err)
			}
			return Extension{Session: id}
		}
		long, short := session(time.Minute), session(2*time.Second)
		sent := func() uint64 {
			time.Sleep(tickEvery) // stats are published by then
			synctest.Wait()
			return follower.Stats().FramesSent
		}
		answered := make(chan time.Duration, 100)
		extend := func(it Extension, patience time.Duration) {
			began := time.Now()
			follower.Extend(&Batch{Items: []Extension{it}, Patience: patience, Done: func(b *Batch) {
				if k := b.Items[0].Kind; k != incumbent.OK {
					t.Errorf("extended: %v", k)
				}
				answered <- time.Since(began)
			}})
		}
		for name, c := range map[string]struct {
			patient Extension
			n       int // of these, a millisecond apart
			urgent  bool
			least   time.Duration // until the first of them is answered
			most    time.Duration
			frames  uint64
		}{
			"company":     {patient: long, n: 40, least: patience, most: patience + 2*tickEvery, frames: 1},
			"a short ttl": {patient: short, n: 1, least: 2 * time.Second / patientPart, most: 2*time.Second/patientPart + 2*tickEvery, frames: 1},
			"no patience": {patient: long, n: 10, urgent: true, most: 20 * time.Millisecond, frames: 1},
		} {
			before := sent()
			for range c.n {
				extend(c.patient, patience)
				time.Sleep(time.Millisecond)
			}
			if c.urgent {
				extend(long, 0)
				c.n++
			}
			for i := range c.n {
				if took := <-answered; i == 0 && (took < c.least || took > c.most) {
					t.Errorf("%s: answered after %v, want %v to %v", name, took, c.least, c.most)
				}
			}
			if n := sent() - before; n != c.frames {
				t.Errorf("%s: %d frames, want %d", name, n, c.frames)
			}
		}
	})
}

// BenchmarkForwarded is an extension by way of another member, both members'
// loops and the codec included.
func BenchmarkForwarded(b *testing.B) {
	for _, size := range []int{1, 16, 1000} {
		for _, waiting := range []int{1, 64} {
			b.Run(fmt.Sprintf("batch=%d/waiting=%d", size, waiting), func(b *testing.B) { benchForwarded(b, size, waiting) })
		}
	}
}

func benchForwarded(b *testing.B, size, waiting int) {
	x := startTrio(b, Config{})
	defer x.stop()
	st, tokens := filled(b, 16_000, false)
	x.raft.st = st
	for _, s := range x.svc {
		s.Restored(st.View())
	}
	x.lead(1)
	free := make(chan *Batch, waiting)
	for range waiting {
		free <- &Batch{Items: make([]Extension, size), Done: func(x *Batch) { free <- x }}
	}
	next := 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += size {
		q := <-free
		for j := range q.Items {
			if q.Items[j].Kind != incumbent.OK {
				b.Fatal(q.Items[j].Kind)
			}
			q.Items[j] = Extension{Token: tokens[next]}
			if next++; next == len(tokens) {
				next = 0
			}
		}
		x.svc[1].Extend(q)
	}
	for range waiting {
		<-free
	}
}

// BenchmarkSubmitClaim is the loop's part of a claim that is denied.
func BenchmarkSubmitClaim(b *testing.B) {
	w := newWorld(b, Config{})
	w.lead()
	w.claim("a", "h", time.Hour)
	w.auto = false
	const n = 1000
	calls := make([]*call, n)
	for i := range calls {
		calls[i], _ = w.request(Call{}, 0, leases.ClaimCommand{Name: leaseName("a"), Holder: fmt.Sprint("x", i), TTL: ttl})
		calls[i].done = func(core.Result) {}
	}
	b.ReportAllocs()
	for b.Loop() {
		w.step(func() {
			for _, c := range calls {
				w.e.Submit(c)
			}
		})
		w.confirm(nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/claim")
}
