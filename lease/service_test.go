package lease

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// delayed is a raft of one member that takes a while for everything, and does
// it in order on a goroutine of its own, as a node's apply goroutine does.
type delayed struct {
	svc   *Service
	delay time.Duration

	mu   sync.Mutex
	work []func()
	wake chan struct{}
	fail error // of confirmations and proposals from now on

	state *core.State
	term  uint64
}

func (r *delayed) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		time.Sleep(r.pause())
		r.mu.Lock()
		work := r.work
		r.work = nil
		r.mu.Unlock()
		for _, f := range work {
			f()
		}
	}
}

func (r *delayed) add(f func()) {
	r.mu.Lock()
	r.work = append(r.work, f)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *delayed) setDelay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

func (r *delayed) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.delay
}

func (r *delayed) setFail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *delayed) failing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fail
}

func (r *delayed) Propose(ps ...node.Proposal) {
	ps = append([]node.Proposal(nil), ps...)
	r.add(func() { r.apply(ps) })
}

func (r *delayed) apply(ps []node.Proposal) {
	if err := r.failing(); err != nil {
		for _, p := range ps {
			if p.Done != nil {
				p.Done(nil, err)
			}
		}
		return
	}
	cmds := make([][]byte, len(ps))
	for i := range ps {
		cmds[i] = ps[i].Command
	}
	results := make([]core.Result, len(ps))
	changes := r.state.Apply(cmds, results)
	r.svc.Applied(r.state.View(), changes)
	for i, p := range ps {
		if p.Done != nil {
			p.Done(results[i], nil)
		}
	}
}

func (r *delayed) ConfirmAhead(_ func(node.Ahead), done func(uint64, error)) { r.Confirm(done) }

func (r *delayed) Confirm(done func(uint64, error)) {
	r.add(func() { done(r.term, r.failing()) })
}

// Alone it has no other member's questions to answer.
func (r *delayed) ConfirmFor(_, _ uint64, _ func(node.Ahead), done func(uint64, error)) {
	r.Confirm(done)
}

func (*delayed) Leader() (leader, term uint64) { return 0, 0 }

// member is a running service on a delayed raft.
type member struct {
	*Service
	raft *delayed
	stop func()
}

func startMember(t *testing.T, o Options) *member {
	t.Helper()
	svc, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &delayed{svc: svc, delay: time.Millisecond, wake: make(chan struct{}, 1), state: core.New(leases.Family{}), term: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	both.Go(func() { r.run(ctx) })
	both.Go(func() { svc.Run(ctx, r) })
	svc.Lead(1)
	return &member{svc, r, func() { cancel(); both.Wait() }}
}

func (m *member) claim(t *testing.T, name string, ttl time.Duration) incumbent.Token {
	t.Helper()
	r, err := m.Await(t.Context(), Call{}, leases.ClaimCommand{Name: leaseName(name), Holder: "h", TTL: ttl})
	if err != nil || !leases.AnswerOf(r).Granted {
		t.Fatalf("claim of %s: %+v, %v", name, r, err)
	}
	return leases.AnswerOf(r).Lease.Token
}

func (m *member) extendAll(items ...Extension) *Batch {
	done := make(chan *Batch, 1)
	m.Extend(&Batch{Items: items, Done: func(b *Batch) { done <- b }})
	return <-done
}

// A holder that keeps extending keeps its lease for as long as it does, and
// loses it in time when it stops; on real timers, in virtual time.
func TestG08_KeptAndFreedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, Options{})
		defer m.stop()
		token := m.claim(t, "a", ttl)
		for range 20 {
			time.Sleep(9 * time.Second)
			if b := m.extendAll(Extension{Token: token}); b.Items[0].Kind != incumbent.OK {
				t.Fatalf("extension: %+v", b.Items[0])
			}
		}
		sent := time.Now()
		for {
			time.Sleep(50 * time.Millisecond)
			r, err := m.Await(t.Context(), Call{}, leases.ClaimCommand{Name: leaseName("a"), Holder: "x", TTL: ttl})
			if err == nil && leases.AnswerOf(r).Granted {
				break
			}
			if incumbent.KindOf(err) != incumbent.Held {
				t.Fatalf("claim: %+v, %v", r, err)
			}
		}
		if d := time.Since(sent); d < hold(ttl) || d > hold(ttl)+slack+100*time.Millisecond {
			t.Errorf("free %v after the last extension, want %v", d, hold(ttl))
		}
		time.Sleep(tickEvery)
		if s := m.Stats(); !s.Leading || s.Expired != 1 || s.ClaimsDenied == 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// What waits in the sockets is heard before anything expires: the barrier hands
// it in. Here the barrier is all that stands between the holders and the loss.
func TestG07_TheBarrierComesBeforeTheExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sockets := make(chan func(), 1) // frames that nobody has read
		m := startMember(t, Options{Barrier: func(done func()) {
			for len(sockets) > 0 {
				(<-sockets)()
			}
			done()
		}})
		defer m.stop()
		token := m.claim(t, "a", ttl)
		answered := make(chan incumbent.Kind, 1)
		sockets <- func() {
			m.Extend(&Batch{Items: []Extension{{Token: token}}, Done: func(b *Batch) { answered <- b.Items[0].Kind }})
		}
		time.Sleep(hold(ttl) + time.Second)
		if k := <-answered; k != incumbent.OK {
			t.Fatalf("the extension that waited: %v", k)
		}
		r, err := m.Await(t.Context(), Call{}, leases.ClaimCommand{Name: leaseName("a"), Holder: "x", TTL: ttl})
		if incumbent.KindOf(err) != incumbent.Held || leases.AnswerOf(r).Lease.Token != token {
			t.Fatalf("lost: %+v, %v", r, err)
		}
	})
}

func TestServiceWithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, Options{})
		defer m.stop()
		token := m.claim(t, "a", ttl)
		m.raft.setFail(incumbent.Errorf(incumbent.Unavailable, "no quorum"))
		b := m.extendAll(Extension{Token: token})
		if b.Items[0].Kind != incumbent.Unavailable || b.RetryAfter == 0 || b.Err() == nil {
			t.Errorf("extension: %+v, %v", b.Items[0], b.Err())
		}
		_, err := m.Await(t.Context(), Call{}, leases.ClaimCommand{Name: leaseName("b"), Holder: "h", TTL: ttl})
		if incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("claim: %v", err)
		}
		_, err = m.Await(t.Context(), Call{}, leases.ClaimCommand{Name: leaseName("a"), Holder: "x", TTL: ttl})
		if incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("a denial needs a confirmed read: %v", err)
		}
		time.Sleep(3 * ttl)
		m.raft.setFail(nil)
		if b := m.extendAll(Extension{Token: token}); b.Items[0].Kind != incumbent.OK {
			t.Errorf("after the quorum is back: %+v", b.Items[0])
		}
	})
}

func TestServiceCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, Options{})
		defer m.stop()
		id := sessionID(7)
		ops := []Op{
			{Command: core.OpenSessionCommand{ID: id, TTL: ttl}},
			{Command: leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: id}},
			{Command: leases.ClaimCommand{Name: leaseName("b"), Holder: "", TTL: ttl}},
			{Extend: Extension{Session: id}},
			{Command: leases.ReleaseCommand{Name: leaseName("a"), Holder: "h", Session: id}},
			{Command: leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: id}},
		}
		done := make(chan struct{})
		m.Do(Call{}, ops, func() { close(done) })
		<-done
		if ops[0].Result.Session == nil || !leases.AnswerOf(ops[1].Result).Granted || ops[3].Extend.Held != ttl || !leases.AnswerOf(ops[5].Result).Granted {
			t.Errorf("operations: %+v", ops)
		}
		if ops[2].Result.Err.Kind != incumbent.Invalid || leases.AnswerOf(ops[5].Result).Lease.Token <= leases.AnswerOf(ops[1].Result).Lease.Token {
			t.Errorf("operations: %+v", ops)
		}
		attached := make(chan core.Result, 1)
		lost := make(chan string, 1)
		m.Attach(Attachment{id, 1, func(reason string) { lost <- reason }}, func(r core.Result) { attached <- r })
		if r := <-attached; r.Err != nil || r.Session.ID != id {
			t.Errorf("attach: %+v", r)
		}
		seen := make(chan *Inspection, 1)
		m.Inspect(&Inspection{Items: []Inspected{{Session: id}}, Done: func(q *Inspection) { seen <- q }})
		if it := (<-seen).Items[0]; !it.Attached || it.ExpiresIn <= ttl {
			t.Errorf("inspected: %+v", it)
		}
		if _, err := m.Await(t.Context(), Call{}, core.CloseSessionCommand{ID: id}); err != nil {
			t.Errorf("close: %v", err)
		}
		if reason := <-lost; reason != LostClosed {
			t.Errorf("lost: %q", reason)
		}
		m.Detach(id, 1)
	})
}

// A call whose deadline has passed is not executed, and one that is given up
// says that its outcome is unknown.
func TestServiceDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, Options{})
		defer m.stop()
		_, err := m.Await(t.Context(), Call{Deadline: time.Now().Add(-time.Second)}, leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl})
		if incumbent.KindOf(err) != incumbent.DeadlineExceeded {
			t.Errorf("past deadline: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		_, err = m.Await(ctx, Call{}, leases.ClaimCommand{Name: leaseName("b"), Holder: "h", TTL: ttl})
		if incumbent.KindOf(err) != incumbent.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up: %v", err)
		}
	})
}

// Everybody who waits is answered when the loop ends, and later callers too.
func TestServiceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, Options{})
		token := m.claim(t, "a", ttl)
		kinds := make(chan incumbent.Kind, 8)
		extend := func() {
			m.Extend(&Batch{Items: []Extension{{Token: token}}, Done: func(b *Batch) { kinds <- b.Items[0].Kind }})
		}
		claim := func(name string) {
			m.Claim(Call{}, leases.ClaimCommand{Name: leaseName(name), Holder: "x", TTL: ttl}, func(r core.Result) { kinds <- r.Err.Kind })
		}
		svc := m.Service
		m.raft.setDelay(time.Hour) // nothing goes through any more
		extend()
		claim("a")
		claim("b")
		synctest.Wait()
		m.stop()
		extend()
		claim("c")
		want := []incumbent.Kind{incumbent.Unavailable, incumbent.Unavailable, incumbent.Unknown, incumbent.Unavailable, incumbent.Unavailable}
		for i, w := range want {
			if got := <-kinds; got != w {
				t.Errorf("answer %d: %v, want %v", i, got, w)
			}
		}
		attached := make(chan core.Result, 1)
		svc.Attach(Attachment{Session: sessionID(1)}, func(r core.Result) { attached <- r })
		if r := <-attached; r.Err == nil {
			t.Error("attached to a stopped service")
		}
	})
}

// Extensions wait for company for as long as the gap says, but never when the
// last confirmation is longer ago.
func TestRoundGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, Options{Config: Config{RoundGap: time.Millisecond}})
		defer m.stop()
		m.raft.setDelay(0)
		token := m.claim(t, "a", time.Hour)
		for i := range 3 {
			time.Sleep(time.Second)
			began := time.Now()
			m.extendAll(Extension{Token: token})
			if d := time.Since(began); d != 0 {
				t.Errorf("round %d: an idle system waits %v", i, d)
			}
			m.extendAll(Extension{Token: token})
			if d := time.Since(began); d != time.Millisecond {
				t.Errorf("round %d: the second extension takes %v", i, d)
			}
		}
	})
}

// No extension is refused while a claim is admitted, nor a release.
func TestG40_ClaimsAreRefusedBeforeReleasesBeforeExtensions(t *testing.T) {
	svc, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var refused [3]int // claims, releases, extensions
	count := func(i int) func(core.Result) {
		return func(r core.Result) {
			if r.Err.Kind != incumbent.Overloaded || r.Err.RetryAfter <= 0 {
				t.Fatalf("refused with %v", r.Err)
			}
			refused[i]++
		}
	}
	release := func() {
		svc.Release(Call{}, leases.ReleaseCommand{Name: leaseName("a"), Holder: "h"}, count(1))
	}
	claim := func() {
		svc.Claim(Call{}, leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl}, count(0))
	}
	extend := func() {
		svc.Extend(&Batch{Items: []Extension{{Token: 1}}, Done: func(b *Batch) {
			if b.Items[0].Kind != incumbent.Overloaded || b.RetryAfter <= 0 {
				t.Fatalf("refused with %v", b.Items[0].Kind)
			}
			refused[2]++
		}})
	}
	for range MaxQueuedCalls + 10 {
		claim()
	}
	if refused != [3]int{10, 0, 0} {
		t.Fatalf("refused %v", refused)
	}
	for range MaxQueuedReleases - MaxQueuedCalls + 10 {
		release()
	}
	if refused != [3]int{10, 10, 0} {
		t.Fatalf("refused %v", refused)
	}
	for range MaxQueuedBatches + 10 {
		extend()
	}
	if refused != [3]int{10, 10, 10} {
		t.Fatalf("refused %v", refused)
	}

	full, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	svc, refused = full, [3]int{}
	for range MaxQueuedBatches {
		extend()
	}
	claim()
	release()
	if refused != [3]int{1, 1, 0} {
		t.Fatalf("with a full inbox of extensions refused %v", refused)
	}
}

// An operation that is wrong is told so, also where the loop takes none of them.
func TestDoKeepsEarlierRefusals(t *testing.T) {
	svc, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range MaxQueuedCalls {
		svc.Claim(Call{}, leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl}, func(core.Result) {})
	}
	ops := []Op{
		{Command: leases.ClaimCommand{Name: leaseName("a"), TTL: ttl}},
		{Command: leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl}},
	}
	done := 0
	svc.Do(Call{}, ops, func() { done++ })
	if done != 1 || ops[0].Result.Err.Kind != incumbent.Invalid || ops[1].Result.Err.Kind != incumbent.Overloaded {
		t.Fatalf("answered %d times: %v, %v", done, ops[0].Result.Err, ops[1].Result.Err)
	}
}

func TestConfig(t *testing.T) {
	bad := []Config{
		{Drift: 0.2},
		{Grace: 2 * MaxGrace},
		{OfferWindow: 3 * time.Second},
		{OfferWindow: -1},
		{Return: time.Hour},
		{Return: -1},
		{RoundGap: time.Second},
		{RoundGap: -1},
	}
	for _, c := range bad {
		if _, err := New(Options{Config: c}); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if b := NewBook(Config{Drift: -1, Grace: -1}); b.hold(int64(ttl)) != int64(ttl) {
		t.Errorf("without margins a ttl of %v is held %v", ttl, time.Duration(b.hold(int64(ttl))))
	}
}

// Everything that a door can get wrong is refused before it is queued.
func TestInvalidCalls(t *testing.T) {
	id := sessionID(1)
	bad := map[string]core.Command{
		"no name":            leases.ClaimCommand{Holder: "h", TTL: ttl},
		"no holder":          leases.ClaimCommand{Name: leaseName("a"), TTL: ttl},
		"negative ttl":       leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: -1},
		"long ttl":           leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: 25 * time.Hour},
		"wait, no session":   leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl, Wait: true},
		"ttl and session":    leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl, Session: id},
		"whose release":      leases.ReleaseCommand{Name: leaseName("a")},
		"release what":       leases.ReleaseCommand{Holder: "h"},
		"pin by nobody":      leases.PinCommand{Name: leaseName("a")},
		"unpin of a space":   leases.UnpinCommand{Name: leaseName(" "), Entity: "e"},
		"session without id": core.OpenSessionCommand{TTL: ttl},
		"short session":      core.OpenSessionCommand{ID: id, TTL: time.Millisecond},
		"close what":         core.CloseSessionCommand{},
		"internal command":   leases.ExpireCommand{Token: 1},
	}
	svc, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for what, cmd := range bad {
		answers := 0
		svc.Submit(Call{}, cmd, func(r core.Result) {
			answers++
			if r.Err == nil || r.Err.Kind != incumbent.Invalid {
				t.Errorf("%s: %v", what, r.Err)
			}
		})
		if answers != 1 {
			t.Errorf("%s: %d answers", what, answers)
		}
	}
	svc.Extend(&Batch{Items: make([]Extension, MaxBatchItems+1), Done: func(b *Batch) {
		if b.Items[0].Kind != incumbent.TooLarge {
			t.Errorf("a huge batch: %v", b.Items[0].Kind)
		}
	}})
	if len(svc.in.list) != 0 {
		t.Errorf("%d are queued", len(svc.in.list))
	}
}
