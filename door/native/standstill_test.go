package native

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/lease"
)

func TestStandstill(t *testing.T) {
	const after = int64(standstillAfter)
	var s standstill
	at := func(what string, now int64, want bool) {
		t.Helper()
		if got := s.lasts(now); got != want {
			t.Errorf("%s, after %v: %v", what, time.Duration(now), got)
		}
	}
	at("nothing waits", 10*after, false)
	s.begin(10 * after)
	at("one waits", 11*after-1, false)
	at("one waits", 11*after, true)
	s.begin(11 * after)
	at("a second one, later", 11*after, true)
	s.end(11*after, false)
	at("one was refused", 11*after, true)
	s.begin(11 * after)
	s.end(12*after, true)
	at("one was judged", 13*after-1, false)
	at("none since", 13*after, true)
	s.end(13*after, false)
	at("all are answered", 20*after, false)
	s.begin(20 * after)
	at("another, much later", 20*after, false)
}

func TestJudged(t *testing.T) {
	for kind, want := range map[incumbent.Kind]bool{
		incumbent.OK: true, incumbent.NotHolder: true, incumbent.Expired: true,
		incumbent.Unavailable: false, incumbent.NotLeader: false, incumbent.Overloaded: false, incumbent.Invalid: false,
	} {
		if got := judged(&lease.Batch{Items: []lease.Extension{{Kind: incumbent.Unavailable}, {Kind: kind}}}); got != want {
			t.Errorf("%v: %v", kind, got)
		}
	}
}

// A lane of extensions that is full is overload as long as some are judged, and
// sends clients to another member once none has been for too long.
func TestAFullLaneWhereNothingMovesSendsClientsAway(t *testing.T) {
	control, err := admit.New(admit.Limits{Min: 1, Max: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var clock atomic.Int64
	m := newMember(t, func(c *Config) { c.Admission, c.Monotonic = control, clock.Load })
	w, session := m.dial(), incumbent.NewSessionID().String()
	w.ok(openFrame(1, session, 15000))
	w.ok(attachFrame(2, session, 1))
	var places []admit.Place
	refused := func(id uint64, want incumbent.Kind) {
		t.Helper()
		for {
			p, err := m.door.lanes.Enter(admit.Who{}, admit.Extensions, 1)
			if err != nil {
				break // the lane is full
			}
			places = append(places, p)
		}
		w.send(beatMessage(id))
		if f := w.next(); f.Id != id || f.Error.GetKind() != want.String() || f.Error.GetRetryAfterMs() == 0 {
			t.Errorf("after %v: %v, want %v", time.Duration(clock.Load()), f, want)
		}
	}
	for round := range uint64(2) {
		m.group.Hold()
		w.send(beatMessage(10 + round)) // waits for a confirmation
		m.awaitHandedOn(1)
		refused(20+round, incumbent.Overloaded)
		clock.Add(int64(standstillAfter) - 1)
		refused(30+round, incumbent.Overloaded)
		clock.Add(1)
		refused(40+round, incumbent.Unavailable)
		m.group.Release()
		if f := w.next(); f.Id != 10+round || f.GetBeaten() == nil {
			t.Errorf("the one that waited: %v", f)
		}
		m.awaitHandedOn(0)
		for _, p := range places {
			p.Leave()
		}
		places = nil
		clock.Add(int64(time.Hour))
	}
}

// awaitHandedOn waits until so many gathers are handed on and not answered.
func (m *member) awaitHandedOn(want int64) {
	m.tb.Helper()
	for end := time.Now().Add(patience); m.door.still.waiting.Load() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			m.tb.Fatalf("%d gathers wait, want %d", m.door.still.waiting.Load(), want)
		}
	}
}
