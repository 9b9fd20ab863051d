package lease

import (
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// failer is a test, of rapid's or of the library's.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world drives an engine on a real state with virtual time. What goes through
// the log, confirmations and barriers wait until they are let through, or (auto)
// pass at once.
type world struct {
	t     failer
	now   int64
	e     *Engine
	state *core.State
	term  uint64
	auto  bool

	log      []Proposal
	confirms []uint64
	barriers []uint64
	said     []string // what a transcript shows
	saidAt   int64
	freed    map[incumbent.Name]int64
	watch    func(core.Change)

	via *peer // of a cluster, whose engine it is
}

func newWorld(t failer, cfg Config) *world {
	w := &world{t: t, state: core.New(leases.Family{}), auto: true, freed: make(map[incumbent.Name]int64)}
	w.e = NewEngine(cfg, w.state.View())
	return w
}

// turn is one turn of the loop, with what happened in fn.
func (w *world) turn(fn func()) {
	w.t.Helper()
	if w.via != nil {
		w.via.turn(fn)
		return
	}
	w.step(fn)
	for w.auto && w.passOne() {
	}
}

func (w *world) step(fn func()) {
	w.e.Begin(w.now)
	if fn != nil {
		fn()
	}
	eff := w.e.End()
	w.log = append(w.log, eff.Proposals...)
	if eff.Confirm != 0 {
		w.confirms = append(w.confirms, eff.Confirm)
	}
	if eff.Barrier != 0 {
		w.barriers = append(w.barriers, eff.Barrier)
	}
	extended, answered := slices.Clone(eff.Extended), slices.Clone(eff.Answered)
	lost, inspected := slices.Clone(eff.Lost), slices.Clone(eff.Inspected)
	w.e.Performed()
	for _, b := range extended {
		b.Done(b)
	}
	for _, a := range answered {
		a.Done(a.Result)
	}
	for _, l := range lost {
		l.Tell(l.Reason)
	}
	for _, q := range inspected {
		q.Done(q)
	}
}

// passOne lets one thing through: the log first, as a node would answer a
// confirmation only once its index is applied.
func (w *world) passOne() bool {
	switch {
	case len(w.log) > 0:
		w.apply()
	case len(w.confirms) > 0:
		w.confirm(nil)
	case len(w.barriers) > 0:
		w.pass()
	default:
		return false
	}
	return true
}

func (w *world) confirm(err error) {
	id := w.confirms[0]
	w.confirms = w.confirms[1:]
	w.step(func() { w.e.Confirmed(id, w.term, err) })
}

func (w *world) pass() {
	id := w.barriers[0]
	w.barriers = w.barriers[1:]
	w.step(func() { w.e.BarrierPassed(id) })
}

// apply applies all that waits, one entry.
func (w *world) apply() {
	ps := w.log
	w.log = nil
	w.step(func() { w.applyNow(ps) })
}

func (w *world) applyNow(ps []Proposal) {
	var cmds [][]byte
	var tickets []Ticket
	for _, p := range ps {
		if p.Term != 0 && p.Term != w.term {
			w.e.Proposed(p.Ticket, core.Result{}, incumbent.Errorf(incumbent.NotLeader, "another term"))
			continue
		}
		cmds = append(cmds, p.Command)
		tickets = append(tickets, p.Ticket)
	}
	results := make([]core.Result, len(cmds))
	changes := w.state.Apply(cmds, results)
	for _, c := range changes {
		w.note(c)
		if w.watch != nil {
			w.watch(c)
		}
	}
	w.e.Applied(w.state.View(), changes)
	for i, t := range tickets {
		w.e.Proposed(t, results[i], nil)
	}
}

// note remembers and shows how holdings and sessions end.
func (w *world) note(c core.Change) {
	if l, ok := leases.ChangeOf(&c); ok {
		w.noteLease(&l)
	}
	switch c.What {
	case core.SessionEnd, core.SessionClose:
		w.sayf("%v %s late %v", c.What, short(c.SessionBefore.ID), c.Late)
	}
}

func (w *world) noteLease(c *leases.Change) {
	switch c.What {
	case leases.Expired, leases.Declined, leases.Released, leases.Revoked, leases.SessionGone:
		w.freed[c.LeaseBefore.Name] = w.now
		w.sayf("%v %s of %s token %d late %v", c.What, c.LeaseBefore.Name.Lease, c.LeaseBefore.Holder, c.LeaseBefore.Token, c.Late())
	case leases.Offered:
		w.sayf("offered %s to %s token %d", c.Lease.Name.Lease, c.Lease.Holder, c.Lease.Token)
	}
}

// advance lets time pass in ticks of the loop.
func (w *world) advance(d time.Duration) {
	w.t.Helper()
	for end := w.now + int64(d); w.now < end; {
		w.now = min(w.now+int64(tickEvery), end)
		w.turn(nil)
	}
}

func (w *world) lead() {
	w.term++
	w.turn(func() { w.e.Lead(w.term, w.state.View()) })
}

func (w *world) follow(leader uint64) { w.turn(func() { w.e.Follow(leader, w.term) }) }

// call hands in a command; the pointer is filled in when it is answered.
func (w *world) call(cmd core.Command) **core.Result { return w.callBy(Call{}, 0, cmd) }

func (w *world) callBy(c Call, deadline int64, cmd core.Command) **core.Result {
	w.t.Helper()
	q, got := w.request(c, deadline, cmd)
	w.turn(func() { w.e.Submit(q) })
	return got
}

func (w *world) request(c Call, deadline int64, cmd core.Command) (*call, **core.Result) {
	w.t.Helper()
	got := new(*core.Result)
	q, err := newCall(c, cmd, func(r core.Result) {
		if *got != nil {
			w.t.Fatal("a call is answered twice")
		}
		*got = &r
	})
	if err != nil {
		w.t.Fatal(err)
	}
	q.deadline = deadline
	return q, got
}

// extend hands in extensions; the batch's items are the answer once done is.
func (w *world) extend(items ...Extension) (b *Batch, done *bool) {
	w.t.Helper()
	b, done = w.batch(items...)
	w.turn(func() { w.e.Extend(b) })
	return b, done
}

func (w *world) batch(items ...Extension) (*Batch, *bool) {
	done := new(bool)
	return &Batch{Items: items, Done: func(*Batch) {
		if *done {
			w.t.Fatal("a batch is answered twice")
		}
		*done = true
	}}, done
}

func (w *world) claim(name, holder string, ttl time.Duration) incumbent.Token {
	w.t.Helper()
	r := *w.call(leases.ClaimCommand{Name: leaseName(name), Holder: holder, TTL: ttl})
	if r == nil || r.Err != nil || !leases.AnswerOf(*r).Granted {
		w.t.Fatalf("claim of %s: %+v", name, r)
	}
	return leases.AnswerOf(*r).Lease.Token
}

func (w *world) open(id incumbent.SessionID, ttl time.Duration) {
	w.t.Helper()
	if r := *w.call(core.OpenSessionCommand{ID: id, TTL: ttl}); r == nil || r.Err != nil {
		w.t.Fatalf("open session: %+v", r)
	}
}

func (w *world) own(name, holder string, id incumbent.SessionID) incumbent.Token {
	w.t.Helper()
	r := *w.call(leases.ClaimCommand{Name: leaseName(name), Holder: holder, Session: id})
	if r == nil || r.Err != nil || !leases.AnswerOf(*r).Granted {
		w.t.Fatalf("claim of %s: %+v", name, r)
	}
	return leases.AnswerOf(*r).Lease.Token
}

func (w *world) lease(name string) *leases.Lease { return leases.Of(w.e.view).Lease(leaseName(name)) }

func leaseName(name string) incumbent.Name {
	return incumbent.Name{Namespace: "default", Model: "default", Lease: name}
}

func sessionID(n int) incumbent.SessionID {
	return incumbent.SessionID{0: 1, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
}

func short(id incumbent.SessionID) string {
	return "s" + strings.TrimLeft(id.String()[24:], "0")
}

// hold is how long the leader keeps a lease with the default settings.
func hold(ttl time.Duration) time.Duration { return ttl + ttl/100 + DefaultGrace }
