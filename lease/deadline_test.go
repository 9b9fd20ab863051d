package lease

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	corewire "github.com/incumbent-dev/incumbent/core/wire"
)

// timers is a family that is nothing but deadlines.
type timers struct{}

// timerTables are its tables and its view: a command puts another map in the place
// of the old one.
type timerTables struct{ all map[string]*core.Deadline }

// setTimer begins a deadline, in the place of one that there may be.
type setTimer struct {
	id    string
	after time.Duration // 0: drops it
	kept  bool          // it may be extended without the log
}

// endTimer ends the one with that generation.
type endTimer struct {
	id         string
	generation incumbent.Index
}

func (timers) Number() corewire.Number { return 63 }
func (timers) Schema() uint32          { return 3 }
func (timers) Name() string            { return "timers" }
func (timers) New() core.Tables        { return &timerTables{} }

func (c setTimer) Encode(meta core.Meta) []byte {
	verb := "set"
	if c.kept {
		verb = "keep"
	}
	return timerCommand(meta, verb, c.id, int64(c.after))
}

func (c endTimer) Encode(meta core.Meta) []byte {
	return timerCommand(meta, "end", c.id, int64(c.generation))
}

func timerCommand(meta core.Meta, verb, id string, n int64) []byte {
	return core.EncodeFamily(meta, timers{}, []byte(verb+" "+id+" "+strconv.FormatInt(n, 10)))
}

func (t *timerTables) Apply(x *core.Exec, command []byte) core.Result {
	f := strings.Fields(string(command))
	n, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return core.Result{Err: &incumbent.Error{Kind: incumbent.Invalid}}
	}
	d := &core.Deadline{Family: timers{}.Number(), ID: f[1], Generation: x.Index(), After: time.Duration(n), Extended: f[0] == "keep"}
	if f[0] == "end" {
		if old := t.all[d.ID]; old == nil || old.Generation != incumbent.Index(n) {
			return core.Result{Err: &incumbent.Error{Kind: incumbent.Conflict}}
		}
		d.After = 0
	}
	all := map[string]*core.Deadline{}
	for id, o := range t.all {
		all[id] = o
	}
	if all[d.ID] = d; d.After == 0 {
		delete(all, d.ID)
	}
	t.all = all
	x.Tell(timers{}, core.FamilyChange{Topic: core.Topic{Name: d.ID}, Deadline: d})
	return core.Result{}
}

func (t *timerTables) EndSession(*core.Exec, *core.Ending)                         {}
func (t *timerTables) View() core.FamilyView                                       { return &timerTables{t.all} }
func (t *timerTables) ReadRecord([]byte) bool                                      { return false }
func (t *timerTables) Check(func(incumbent.SessionID) bool, incumbent.Index) error { return nil }
func (t *timerTables) Records() int                                                { return 0 }
func (t *timerTables) Write(func([]byte) bool)                                     {}
func (t *timerTables) EndDeadline(d *core.Deadline) core.Command                   { return endTimer{d.ID, d.Generation} }

func (t *timerTables) Deadlines(fn func(*core.Deadline) bool) {
	for _, d := range t.all {
		if !fn(d) {
			return
		}
	}
}

// timed is a world that has the family, and remembers when its deadlines ended.
type timed struct {
	*world
	over map[string]int64
}

func newTimed(t *testing.T, cfg Config) *timed {
	w := &timed{newWorld(t, cfg), map[string]int64{}}
	w.state = core.New(leases.Family{}, timers{})
	w.e = NewEngine(cfg, w.state.View())
	w.watch = func(c core.Change) {
		if c.Family != nil && c.Family.Deadline.After == 0 {
			w.over[c.Family.Deadline.ID] = w.now
		}
	}
	return w
}

// do applies a command of another member.
func (w *timed) do(cmd core.Command) {
	w.t.Helper()
	w.step(func() { w.applyNow([]Proposal{{Command: cmd.Encode(core.Meta{})}}) })
	w.turn(nil)
}

// none fails if a deadline has ended.
func (w *timed) none(why string) {
	w.t.Helper()
	if len(w.over) > 0 {
		w.t.Fatalf("%s: ended: %v", why, w.over)
	}
}

// between fails unless a deadline ended longer than d after since, and no more
// than slack.
func (w *timed) between(id string, since int64, d time.Duration) {
	w.t.Helper()
	at, ok := w.over[id]
	if got := time.Duration(at - since); !ok || got <= d || got > d+slack {
		w.t.Fatalf("%s: ended %v (%v), want a little more than %v", id, got, ok, d)
	}
}

// The deadline of a family's ends after its whole time, with the drift of clocks
// and the grace, as a lease does; once.
func TestG07_AFamilysDeadlineLastsItsTime(t *testing.T) {
	w := newTimed(t, Config{})
	w.lead()
	w.advance(time.Second)
	began := w.now
	w.do(setTimer{id: "a", after: 10 * time.Second})
	w.do(setTimer{id: "b", after: time.Second})
	w.do(setTimer{id: "dropped", after: time.Second})
	w.do(setTimer{id: "dropped"})
	if got := w.over["dropped"]; got != w.now {
		t.Fatalf("dropped at %v", got)
	}
	proposed := w.state.View().Index()
	w.advance(time.Minute)
	w.between("b", began, hold(time.Second))
	w.between("a", began, hold(10*time.Second))
	if n := w.state.View().Index() - proposed; n != 2 {
		t.Errorf("%d commands for two deadlines", n)
	}
	if s := w.e.Stats(); s.Deadlines != 0 || s.Due != 0 || s.Expiring != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// One that begins again is another: what was on its way to ending it is void.
func TestG07_ADeadlineThatBeginsAgainIsAnother(t *testing.T) {
	w := newTimed(t, Config{})
	w.lead()
	for _, stage := range []string{"due", "confirmed", "proposed", "refused"} {
		w.over = map[string]int64{}
		w.auto = true
		w.do(setTimer{id: "a", after: 10 * time.Second})
		w.advance(hold(10*time.Second) - time.Second)
		w.auto = false
		w.advance(time.Second + slack)
		if stage != "due" {
			w.confirm(nil)
		}
		if stage == "proposed" || stage == "refused" {
			w.pass()
			if len(w.log) != 1 {
				t.Fatalf("%s: %d are proposed", stage, len(w.log))
			}
		}
		var held []Proposal
		if stage == "refused" {
			held, w.log = w.log, nil
		}
		again := w.now
		w.step(func() {
			w.applyNow([]Proposal{{Command: setTimer{id: "a", after: 10 * time.Second}.Encode(core.Meta{})}})
		})
		for _, p := range held {
			w.step(func() { w.e.Proposed(p.Ticket, core.Result{}, incumbent.Errorf(incumbent.Overloaded, "full")) })
		}
		w.auto = true
		w.turn(nil)
		w.advance(10 * time.Second)
		w.none(stage)
		w.advance(time.Minute)
		w.between("a", again, hold(10*time.Second))
	}
}

// A new leader cannot know how long a deadline has lasted: it starts at its full
// time, and lasts no longer: no client has to return to keep it.
func TestG06_ANewLeaderStartsDeadlinesAnew(t *testing.T) {
	for _, returns := range []time.Duration{0, time.Minute} {
		w := newTimed(t, Config{Return: returns})
		w.lead()
		w.advance(2 * time.Minute)
		w.do(setTimer{id: "a", after: 10 * time.Second})
		w.advance(9 * time.Second)
		w.follow(0)
		w.advance(time.Hour)
		w.none("nobody leads")
		w.lead()
		since := w.now
		w.advance(2 * time.Minute)
		w.between("a", since, hold(10*time.Second))
	}
}

// A deposed leader ends nothing: neither what it has proposed, which is bound to
// its term, nor without a confirmation begun after the deadline. Nor does the next
// leader take over what was under way.
func TestG07_ADeposedLeaderEndsNoDeadline(t *testing.T) {
	w := newTimed(t, Config{})
	w.lead()
	w.do(setTimer{id: "a", after: 10 * time.Second})
	w.auto = false
	w.advance(hold(10*time.Second) + slack)
	if len(w.log) != 0 || len(w.confirms) != 1 || len(w.barriers) != 1 {
		t.Fatalf("%d proposed, %d confirmations, %d barriers", len(w.log), len(w.confirms), len(w.barriers))
	}
	w.pass()
	if len(w.log) != 0 {
		t.Fatalf("without a confirmation: %d proposed", len(w.log))
	}
	w.confirm(nil)
	if len(w.log) != 1 || w.log[0].Term != w.term || !w.log[0].Reserve {
		t.Fatalf("proposed: %+v", w.log)
	}
	w.step(func() { w.e.Follow(2, w.term+1) })
	w.term++
	w.apply()
	w.advance(time.Minute)
	w.none("deposed")
	if len(w.log) != 0 || w.e.Stats().Deadlines != 0 {
		t.Fatalf("a follower proposes %d", len(w.log))
	}
	w.auto = true
	w.lead()
	since := w.now
	w.advance(time.Minute)
	w.between("a", since, hold(10*time.Second))
}

// While the loop stands still, or the quorum is silent, no deadline passes.
func TestG07_AStandstillMovesDeadlines(t *testing.T) {
	w := newTimed(t, Config{})
	w.lead()
	w.do(setTimer{id: "a", after: 10 * time.Second})
	began := w.now
	w.advance(5 * time.Second)
	w.now += int64(time.Hour)
	w.advance(5 * time.Second)
	w.none("the loop stood still")
	w.advance(time.Minute)
	w.between("a", began, hold(10*time.Second)+time.Hour-DefaultGrace)
}

// However many are due, those proposed and not yet applied are bounded; what the
// node refuses is tried again, and leases go on beside.
func TestManyDeadlinesAtOnce(t *testing.T) {
	w := newTimed(t, Config{})
	w.lead()
	const n = MaxExpiriesInFlight + 500
	all := make(map[string]*core.Deadline, n)
	for i := range n {
		id := strconv.Itoa(i)
		all[id] = &core.Deadline{Family: timers{}.Number(), ID: id, Generation: 1, After: time.Second}
	}
	b := w.e.book
	for _, d := range all {
		b.deadlineChanged(d)
	}
	w.auto = false
	for range 40 {
		w.now += int64(tickEvery)
		w.step(nil)
		for len(w.confirms) > 0 {
			w.confirm(nil)
		}
		for len(w.barriers) > 0 {
			w.pass()
		}
	}
	if len(w.log) != MaxExpiriesInFlight || w.e.Stats().Due != n-MaxExpiriesInFlight {
		t.Fatalf("%d proposed, %d wait", len(w.log), w.e.Stats().Due)
	}
}

// keep begins a deadline that may be extended, and returns how it is named.
func (w *timed) keep(id string, after time.Duration) Lasting {
	w.t.Helper()
	w.do(setTimer{id: id, after: after, kept: true})
	return Lasting{timers{}.Number(), id, w.state.View().Index()}
}

// extendTimer extends a deadline, and returns the answer, which must be there.
func (w *timed) extendTimer(l Lasting) Extension {
	w.t.Helper()
	b, done := w.extend(Extension{Lasting: &l})
	if !*done {
		w.t.Fatalf("the extension of %+v is not answered", l)
	}
	return b.Items[0]
}

// A deadline that is extended in time never ends, and no command tells of that; one
// that is extended no more ends its whole time after the last extension.
func TestG04_AnExtendedDeadlineLasts(t *testing.T) {
	w := newTimed(t, Config{})
	w.lead()
	l := w.keep("a", 10*time.Second)
	for range 20 {
		w.advance(9 * time.Second)
		if x := w.extendTimer(l); x.Kind != incumbent.OK || x.Held != 10*time.Second {
			t.Fatalf("extended: %v, %v", x.Kind, x.Held)
		}
	}
	w.none("extended in time")
	if got := w.state.View().Index(); got != l.Generation {
		t.Errorf("%d commands for extensions", got-l.Generation)
	}
	last := w.now
	w.advance(time.Minute)
	w.between("a", last, hold(10*time.Second))
}

// Only what may be extended is, under the generation that it has.
func TestG04_AnExtensionNamesItsDeadline(t *testing.T) {
	w := newTimed(t, Config{})
	w.lead()
	w.do(setTimer{id: "first", after: time.Hour})
	l := w.keep("a", 10*time.Second)
	w.do(setTimer{id: "fixed", after: 10 * time.Second})
	fixed := Lasting{timers{}.Number(), "fixed", w.state.View().Index()}
	old, other, ahead := l, l, l
	old.Generation--
	other.ID = "b"
	ahead.Generation += 100
	for want, list := range map[incumbent.Kind][]Lasting{
		incumbent.NotFound:    {fixed, old, other},
		incumbent.Unavailable: {ahead},
		incumbent.Invalid:     {{}, {Family: 63, ID: strings.Repeat("x", MaxDeadlineIDBytes+1), Generation: 1}},
	} {
		for _, l := range list {
			if x := w.extendTimer(l); x.Kind != want {
				t.Errorf("%.40v: %v, want %v", l, x.Kind, want)
			}
		}
	}
	w.advance(9 * time.Second)
	again := w.keep("a", 10*time.Second)
	if x := w.extendTimer(l); x.Kind != incumbent.NotFound {
		t.Errorf("one that began again is extended under its old generation: %v", x.Kind)
	}
	if x := w.extendTimer(again); x.Kind != incumbent.OK {
		t.Errorf("extended: %v", x.Kind)
	}
}

// What is acknowledged is confirmed by a round that began after it was stored, and
// nothing is acknowledged from proposing the end until that was decided.
func TestG07_AnExtendedDeadlineIsConfirmed(t *testing.T) {
	for _, applied := range []bool{false, true} {
		w := newTimed(t, Config{})
		w.lead()
		l := w.keep("a", 10*time.Second)
		w.auto = false
		b, done := w.extend(Extension{Lasting: &l})
		if *done || len(w.confirms) != 1 {
			t.Fatalf("answered %v with %d confirmations begun", *done, len(w.confirms))
		}
		w.confirm(nil)
		if !*done || b.Items[0].Kind != incumbent.OK {
			t.Fatalf("confirmed, and %v: %v", *done, b.Items[0].Kind)
		}
		w.advance(hold(10*time.Second) + slack)
		w.confirm(nil)
		w.pass()
		if len(w.log) != 1 {
			t.Fatalf("%d are proposed", len(w.log))
		}
		b, done = w.extend(Extension{Lasting: &l})
		w.confirm(nil)
		if *done {
			t.Fatalf("answered while its end is under way: %v", b.Items[0].Kind)
		}
		want := incumbent.OK
		if applied {
			want = incumbent.NotFound
			w.apply()
		} else {
			p := w.log[0]
			w.log = nil
			w.step(func() { w.e.Proposed(p.Ticket, core.Result{}, incumbent.Errorf(incumbent.Overloaded, "full")) })
		}
		if !*done || b.Items[0].Kind != want {
			t.Fatalf("applied %v: answered %v, %v, want %v", applied, *done, b.Items[0].Kind, want)
		}
		w.auto = true
		last := w.now
		w.advance(9 * time.Second)
		if !applied {
			w.none("extended, and its end was not appended")
			w.advance(time.Minute)
			w.between("a", last, hold(10*time.Second))
		}
	}
}

// A new leader gives a deadline that is extended the time in which clients return; who
// waits to be answered while leadership ends is answered.
func TestG06_ANewLeaderGivesClientsTimeToReturn(t *testing.T) {
	w := newTimed(t, Config{Return: time.Minute})
	w.lead()
	w.advance(2 * time.Minute)
	l := w.keep("a", 10*time.Second)
	w.auto = false
	w.advance(hold(10*time.Second) + slack)
	w.confirm(nil)
	w.pass()
	b, done := w.extend(Extension{Lasting: &l})
	w.confirm(nil)
	w.follow(2)
	if !*done || b.Items[0].Kind == incumbent.OK {
		t.Fatalf("answered %v: %v", *done, b.Items[0].Kind)
	}
	w.log, w.confirms, w.barriers = nil, nil, nil
	w.auto = true
	w.lead()
	since := w.now
	w.advance(59 * time.Second)
	w.none("clients return")
	w.advance(time.Minute)
	w.between("a", since, time.Minute)
}
