package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// mute is a member alone with a log and a quorum that answer only when they are
// told to, and other members that say nothing.
type mute struct {
	*Manual
	t        *testing.T
	now      int64
	state    *core.State
	proposed []node.Proposal
	confirms []func(uint64, error)
	refused  int
	answers  int
}

const muteTerm = 7

func newMute(t *testing.T) *mute {
	t.Helper()
	m := &mute{t: t, now: int64(time.Hour), state: core.New(leases.Family{})}
	var err error
	if m.Manual, err = NewManual(Options{Clock: m, Peers: m, Self: 1}, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *mute) Propose(ps ...node.Proposal) { m.proposed = append(m.proposed, ps...) }

func (m *mute) Confirm(done func(uint64, error)) { m.confirms = append(m.confirms, done) }

func (m *mute) ConfirmAhead(_ func(node.Ahead), done func(uint64, error)) { m.Confirm(done) }

func (m *mute) ConfirmFor(_, _ uint64, _ func(node.Ahead), done func(uint64, error)) { m.Confirm(done) }
func (*mute) Leader() (leader, term uint64)                                          { return 0, 0 }
func (*mute) SendApps(_ uint64, frames [][]byte) (taken int)                         { return len(frames) }

func (m *mute) Now() int64 { return m.now }

func (*mute) Until(time.Time) time.Duration { return time.Hour }

func (*mute) Ticker(time.Duration) (c <-chan time.Time, stop func()) { return nil, func() {} }
func (*mute) AfterFunc(time.Duration, func())                        {}

func (m *mute) lead() {
	m.Applied(m.state.View(), nil)
	m.Lead(muteTerm)
	m.Turn()
}

// heard confirms what waits for it.
func (m *mute) heard() {
	for len(m.confirms) > 0 {
		list := m.confirms
		m.confirms = nil
		for _, done := range list {
			done(muteTerm, nil)
		}
		m.Turn()
	}
}

// apply applies what is proposed.
func (m *mute) apply() {
	ps := m.proposed
	m.proposed = nil
	cmds, results := make([][]byte, len(ps)), make([]core.Result, len(ps))
	for i := range ps {
		cmds[i] = ps[i].Command
	}
	changes := m.state.Apply(cmds, results)
	m.Applied(m.state.View(), changes)
	for i, p := range ps {
		if p.Done != nil {
			p.Done(results[i], nil)
		}
	}
	m.Turn()
}

// refuse has the node refuse what is proposed.
func (m *mute) refuse() {
	ps := m.proposed
	m.proposed = nil
	for _, p := range ps {
		if p.Done != nil {
			p.Done(nil, incumbent.Errorf(incumbent.Unavailable, "no quorum"))
		}
	}
	m.Turn()
}

// told counts an answer.
func (m *mute) told(kind incumbent.Kind, retry time.Duration) {
	m.answers++
	if kind != incumbent.Overloaded {
		return
	}
	m.refused++
	if retry <= 0 {
		m.t.Fatal("refused without a time to come back")
	}
}

func (m *mute) result(r core.Result) {
	if r.Err == nil {
		m.told(incumbent.OK, 0)
		return
	}
	m.told(r.Err.Kind, r.Err.RetryAfter)
}

func (m *mute) extend(items ...Extension) {
	m.Extend(&Batch{Items: items, Done: func(b *Batch) { m.told(b.Items[0].Kind, b.RetryAfter) }})
}

// fill hands in up to most and some more of the same, with turns of the loop in
// between: what it has taken counts until it is answered.
func (m *mute) fill(most int, one func(i int)) {
	m.t.Helper()
	m.refused, m.answers = 0, 0
	before := m.Stats().Refused
	for i := range most {
		one(i)
		if i%1000 == 999 || i == most-1 {
			m.Turn()
			m.now += int64(time.Microsecond)
		}
	}
	if m.answers != 0 {
		m.t.Fatalf("%d of %d are answered, %d refused", m.answers, most, m.refused)
	}
	for i := range 10 {
		one(most + i)
	}
	m.Turn()
	if m.refused != 10 || m.Stats().Refused-before != 10 {
		m.t.Fatalf("10 more: %d are refused, %d counted", m.refused, m.Stats().Refused-before)
	}
}

// empty checks that all have been answered and made room.
func (m *mute) empty(answers int) {
	m.t.Helper()
	if m.answers != answers || m.in.load != (load{}) {
		m.t.Fatalf("%d are answered of %d, left: %+v", m.answers, answers, m.in.load)
	}
}

// What the loop has taken is bounded as what it has not: an answer that does not
// come must not cost memory without end.
func TestG39_WhatWaitsForAnAnswerIsBounded(t *testing.T) {
	id := sessionID(1)
	claim := func(m *mute, i int) {
		m.Claim(Call{}, leases.ClaimCommand{Name: leaseName(fmt.Sprint("l", i)), Holder: "h", TTL: ttl}, m.result)
	}
	release := func(m *mute, i int) {
		m.Release(Call{}, leases.ReleaseCommand{Name: leaseName(fmt.Sprint("l", i)), Holder: "h"}, m.result)
	}
	t.Run("extensions that nobody confirms", func(t *testing.T) {
		m := newMute(t)
		m.lead()
		m.fill(MaxQueuedBatches, func(int) { m.extend(Extension{Token: 1}) })
		claim(m, 1) // no extension is refused while a claim is admitted
		release(m, 1)
		m.Do(Call{}, []Op{{Extend: Extension{Token: 1}}}, func() { m.told(incumbent.OK, 0) })
		if m.refused != 12 || m.answers != 13 {
			t.Fatalf("%d are refused, %d answered", m.refused, m.answers)
		}
		m.heard()
		m.empty(MaxQueuedBatches + 13)
		m.refused = 0
		m.extend(Extension{Token: 1})
		m.Turn()
		m.heard()
		if m.refused != 0 {
			t.Fatal("refused when all have been answered")
		}
	})
	t.Run("large batches", func(t *testing.T) {
		m := newMute(t)
		m.lead()
		items := make([]Extension, MaxBatchItems) // shared: what they say does not matter
		for i := range items {
			items[i].Token = 1
		}
		batches := (MaxQueuedExtensions + MaxBatchItems - 1) / MaxBatchItems
		m.fill(batches, func(int) { m.extend(items...) })
		m.heard()
		m.empty(batches + 10)
	})
	t.Run("extensions behind a release in the log", func(t *testing.T) {
		m := newMute(t)
		m.lead()
		claim(m, 1)
		m.Turn()
		m.apply()
		token := leases.Of(m.state.View()).Lease(leaseName("l1")).Token
		release(m, 1)
		m.Turn()
		m.fill(MaxQueuedBatches, func(i int) {
			m.extend(Extension{Token: token})
			if i%1000 == 0 {
				m.heard()
			}
		})
		if held := m.Stats().Held; held == 0 {
			t.Fatal("none is held")
		}
		m.heard()
		m.apply()
		m.empty(MaxQueuedBatches + 11)
	})
	t.Run("calls in the log", func(t *testing.T) {
		m := newMute(t)
		m.lead()
		m.fill(MaxQueuedCalls, func(i int) { claim(m, i) })
		m.fill(MaxQueuedReleases-MaxQueuedCalls, func(i int) { release(m, MaxQueuedCalls+i) })
		m.answers = 0
		m.refuse()
		m.empty(MaxQueuedReleases)
	})
	t.Run("attachments", func(t *testing.T) {
		m := newMute(t)
		m.lead()
		m.fill(MaxQueuedAttaches, func(i int) { m.Attach(Attachment{Session: id, Counter: uint64(i + 1)}, m.result) })
		m.heard()
		m.empty(MaxQueuedAttaches + 10)
	})
	t.Run("inspections that the leader does not answer", func(t *testing.T) {
		const items = 1000
		m := newMute(t)
		m.Follow(2, muteTerm)
		m.Turn()
		asked := (MaxQueuedLooks + items - 1) / items
		m.fill(asked, func(int) {
			m.Inspect(&Inspection{Items: make([]Inspected, items), Done: func(q *Inspection) {
				if q.Items[0].LastExtend != -1 {
					t.Fatal("something is known")
				}
				m.result(core.Result{Err: q.Err})
			}})
		})
		m.now += int64(forwardFor) + 1
		m.Turn()
		m.now += int64(forwardFor)
		m.Turn()
		m.empty(asked + 10)
	})
	t.Run("extensions that the leader does not answer", func(t *testing.T) {
		m := newMute(t)
		m.Follow(2, muteTerm)
		m.Turn()
		m.fill(MaxQueuedBatches, func(int) { m.extend(Extension{Token: 1}) })
		for range 2 {
			m.now += int64(forwardFor) + 1
			m.Turn()
		}
		m.empty(MaxQueuedBatches + 10)
	})
}

// ask is a frame of another member with so many extensions.
func (m *mute) ask(seq, replaces uint64, items int) {
	m.t.Helper()
	var w writer
	w.start(header{askFrame, 1, muteTerm, seq, replaces})
	for range items {
		w.item(&Extension{Token: 1}, false, 0)
	}
	if len(w.b) > MaxFrameBytes {
		m.t.Fatalf("a frame of %d bytes", len(w.b))
	}
	m.Receive(2, w.b)
}

// Frames of other members count until all in them is answered, as do extensions
// of this member.
func TestG39_FramesThatWaitForAnAnswerAreBounded(t *testing.T) {
	const large = 20_000 // extensions in a frame
	fill := func(m *mute, frames, items int) {
		m.t.Helper()
		before := m.dropped.Load()
		for i := range frames + 5 {
			m.ask(uint64(1000+i), 0, items)
			m.Turn()
		}
		if n := m.dropped.Load() - before; n != 5 {
			m.t.Fatalf("%d frames are dropped of %d and 5", n, frames)
		}
	}
	for what, c := range map[string]struct{ frames, items int }{
		"many":  {MaxQueuedFrames, 1},
		"large": {(MaxQueuedExtensions + large - 1) / large, large},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMute(t)
			m.lead()
			fill(m, c.frames, c.items)
			m.heard()
			m.empty(0)
			fill(m, c.frames, c.items)
			m.Follow(3, muteTerm+1) // who asked asks another
			m.Turn()
			m.empty(0)
			m.heard()
			m.empty(0)
		})
	}
	t.Run("early", func(t *testing.T) {
		m := newMute(t)
		for i := range MaxEarlyFrames + 5 {
			m.ask(uint64(i+1), 0, 1)
			m.Turn()
		}
		if n := m.in.load.frames; n != MaxEarlyFrames {
			t.Fatalf("%d wait", n)
		}
		m.lead()
		m.heard()
		m.empty(0)
	})
	t.Run("copies and frames sent again", func(t *testing.T) {
		m := newMute(t)
		m.lead()
		claim := func() {
			m.Claim(Call{}, leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl}, func(core.Result) {})
			m.Turn()
		}
		claim()
		m.apply()
		token := leases.Of(m.state.View()).Lease(leaseName("a")).Token
		m.Release(Call{}, leases.ReleaseCommand{Name: leaseName("a"), Holder: "h"}, func(core.Result) {})
		m.Turn()
		half := func(seq, replaces uint64) { // one extension that is held, one that is not
			var w writer
			w.start(header{askFrame, 1, muteTerm, seq, replaces})
			w.item(&Extension{Token: token}, false, 0)
			w.item(&Extension{Token: 1 << 40}, false, 0)
			m.Receive(2, w.b)
			m.Turn()
		}
		half(1, 0)
		half(1, 0) // a copy
		half(2, 1) // goes on
		m.heard()  // a part is answered
		half(3, 2) // of its own
		half(4, 3)
		m.heard()
		if n := m.in.load.frames; n != 2 {
			t.Fatalf("%d frames wait: %+v", n, m.in.load)
		}
		m.apply()
		m.empty(0)
	})
}

// Connections that come and go while nobody leads leave nothing behind: who leads next is
// told of those that are left.
func TestG39_WhatDetachesWithoutALeaderIsNotKept(t *testing.T) {
	w := newWorld(t, Config{})
	w.e.Join(1)
	w.term = 1
	w.follow(0)
	refused := 0
	for i := range 100 {
		a := &attach{Attachment: Attachment{Session: sessionID(i), Counter: 1}, done: func(r core.Result) {
			if r.Err != nil {
				refused++
			}
		}}
		w.turn(func() { w.e.Attach(a) })
		w.advance(2100 * time.Millisecond)
	}
	if n := len(w.e.courier.detached); n != 0 || refused != 100 || len(w.e.attachments) != 0 {
		t.Errorf("%d detached are kept, %d were refused, %d are attached", n, refused, len(w.e.attachments))
	}
}

// A queue whose clients have all died costs the loop no more looks than a command
// passes places over.
func TestG40_WhoIsNextIsLookedForInBounds(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	w.open(sessionID(1), time.Hour)
	w.own("x", "a", sessionID(1))
	wait := func(name string, n int) {
		w.call(leases.ClaimCommand{Name: leaseName(name), Holder: "b", Session: sessionID(n), Wait: true})
	}
	const dead, most = core.MaxAbsent, 10
	for i := range dead {
		w.open(sessionID(100+i), time.Hour)
		wait("x", 100+i)
	}
	for i := range most {
		name := fmt.Sprint("y", i)
		w.own(name, "a", sessionID(1))
		for k := range dead - 4 {
			wait(name, 100+k)
		}
	}
	w.advance(time.Hour / 2) // they are not heard
	w.open(sessionID(2), time.Hour)
	wait("x", 2)
	if id := w.e.next(w.lease("x")); !id.IsZero() {
		t.Errorf("%v is next, behind %d places", id, dead)
	}
	wait("y1", 2)
	if id := w.e.next(w.lease("y1")); id != sessionID(2) {
		t.Errorf("%v is next, behind %d places", id, dead-4)
	}
	a := newAbsentees()
	looks := 0
	leases.Of(w.e.view).OfSession(sessionID(1), func(l *leases.Lease) bool {
		looks++
		if l.Name.Lease != "x" {
			w.e.absentIn(&a, l)
		}
		return !a.full()
	})
	if len(a.list) != dead-4 || a.left != 0 || looks > most {
		t.Errorf("%d are absent, %d looks are left, %d queues looked at", len(a.list), a.left, looks)
	}
}
