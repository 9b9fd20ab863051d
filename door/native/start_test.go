package native

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

func startFrame(id uint64, session string, ttl uint32, counter uint64, then ...*pb.ClientFrame) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_Start{Start: &pb.Start{Session: session, TtlMs: ttl, Counter: counter, Then: then}}}
}

func lockFrame(id uint64, key, session string) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_Lock{Lock: &pb.LockRequest{Key: key, Session: session, Lazy: true}}}
}

func watchServiceFrame(id uint64, service string, after uint64) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_WatchService{WatchService: &pb.WatchServiceRequest{Service: service, AfterIndex: after, CatchUp: true}}}
}

func catchUp(id uint64, key string, prefix bool, after uint64, fields ...string) *pb.ClientFrame {
	return watchKeysFrame(id, &pb.WatchKeysRequest{Key: key, Prefix: prefix, AfterIndex: after, CatchUp: true, Fields: fields})
}

// answers are the next n frames by their ids, each of which answers once.
func (w *wire) answers(n int) map[uint64]*pb.ServerFrame {
	w.tb.Helper()
	got := map[uint64]*pb.ServerFrame{}
	for range n {
		f := w.next()
		if got[f.Id] != nil {
			w.tb.Fatalf("a second answer to %d: %v after %v", f.Id, f, got[f.Id])
		}
		got[f.Id] = f
	}
	return got
}

func (m *member) store(key, value string) uint64 {
	m.tb.Helper()
	r, err := m.keys().Put(m.tb.Context(), connect.NewRequest(&pb.PutRequest{Key: key, Value: []byte(value)}))
	if err != nil {
		m.tb.Fatal(err)
	}
	return r.Msg.Index
}

func (m *member) index() uint64 { return uint64(m.group.View().Index()) }

// forgetHistory is what a restart of the member does to watches.
// The hub is one goroutine's at a time: that which applies must be through with it.
func (m *member) forgetHistory() {
	m.tb.Helper()
	hub, index := m.group.Hub(), m.group.View().Index()
	eventually(m.tb, "the hub is told of all that was applied", func() bool { return hub.Index() == index })
	hub.Reset(index)
}

// One message starts an agent, and one starts it again: without an entry of the log, and
// without anything that has not changed. What fails is said alone.
func TestStartIsOneMessage(t *testing.T) {
	m := newMember(t)
	m.store("app/mysql", `{"url":"ch:mysql-1"}`)
	first := m.dial()
	first.send(
		startFrame(1, sessionA, 20000, 1, lockFrame(2, "presence/unit", sessionA), claimFrame(3, "leader", "unit", sessionA, false)),
		catchUp(4, "app/", true, 0), watchServiceFrame(5, "db", 0),
		&pb.ClientFrame{Id: 6, Request: &pb.ClientFrame_GetKey{GetKey: &pb.GetKeyRequest{Key: "nothing"}}},
	)
	got := first.answers(6)
	if s := got[1].GetStarted(); !s.GetOpened() || s.GetAttached().GetHeldMs() != 20000 || s.Attached.Session.Id != sessionA {
		t.Errorf("started %v", got[1])
	}
	if e := got[2].GetLock().GetEntry(); e.GetSession() != sessionA {
		t.Errorf("locked %v", got[2])
	}
	token := got[3].GetOperation().GetClaim().GetLease().GetToken()
	if token == 0 {
		t.Errorf("claimed %v", got[3])
	}
	keys, service := got[4].GetWatchKeys(), got[5].GetWatchService()
	if !keys.GetFirst() || len(keys.Events) != 1 || service == nil || !service.Snapshot || len(service.Events) != 0 {
		t.Errorf("watches %v, %v", got[4], got[5])
	}
	if got[6].Error.GetKind() != incumbent.NotFound.String() {
		t.Errorf("a read of nothing: %v", got[6])
	}

	m.forgetHistory()
	before := m.index()
	again := m.dial()
	again.send(
		startFrame(1, sessionA, 20000, 2, lockFrame(2, "presence/unit", sessionA)),
		catchUp(3, "app/", true, keys.ProgressIndex), watchServiceFrame(4, "db", service.ProgressIndex),
	)
	got = again.answers(4)
	if s := got[1].GetStarted(); s == nil || s.Opened || len(s.Attached.Leases) != 1 || s.Attached.Leases[0].Token != token {
		t.Errorf("started again %v", got[1])
	}
	if got[2].Error != nil {
		t.Errorf("locked again %v", got[2])
	}
	for id, w := range map[uint64]interface {
		GetSnapshot() bool
		GetProgressIndex() uint64
	}{3: got[3].GetWatchKeys(), 4: got[4].GetWatchService()} {
		if got[id].Error != nil || w.GetSnapshot() || w.GetProgressIndex() < before {
			t.Errorf("watch %d resumed with %v", id, got[id])
		}
	}
	if n := len(got[3].GetWatchKeys().GetEvents()) + len(got[4].GetWatchService().GetEvents()); n != 0 {
		t.Errorf("%d records that have not changed were sent again", n)
	}
	if m.index() != before {
		t.Errorf("starting again cost the log entries %d to %d", before+1, m.index())
	}
	if at := m.store("app/mysql", `{"url":"ch:mysql-2"}`); again.next().GetWatchKeys().GetProgressIndex() != at {
		t.Error("the watch does not go on")
	}
}

// What waits for a session that cannot be had is refused with it; the rest stands.
func TestAStartThatFails(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.send(startFrame(1, sessionA, 0, 1, lockFrame(2, "k", sessionA)), catchUp(3, "", true, 0))
	got := w.answers(3)
	if got[1].Error.GetKind() != incumbent.Expired.String() || got[2].Error.GetKind() != incumbent.Expired.String() || !got[3].GetWatchKeys().GetSnapshot() {
		t.Errorf("answers %v", got)
	}
	w.send(startFrame(4, sessionA, 20000, 1, watchKeysFrame(5, below("", 0))))
	got = w.answers(2)
	if got[4].GetError().GetKind() != incumbent.Invalid.String() || got[5].GetError().GetKind() != incumbent.Invalid.String() {
		t.Errorf("a watch that waits for a session: %v", got)
	}
	// A counter that is not higher: it is attached elsewhere, and stays so.
	w.ok(startFrame(6, sessionA, 20000, 7))
	other := m.dial()
	if e := other.ask(startFrame(1, sessionA, 20000, 7)).Error; e.GetKind() != incumbent.Conflict.String() {
		t.Errorf("a second start with the same counter: %v", e)
	}
	if b := w.ok(beatMessage(8)).GetBeaten(); b.HeldMs != 20000 {
		t.Errorf("the first one's beat: %v", b)
	}
	// Too many are not begun.
	many := make([]*pb.ClientFrame, MaxThen+1)
	for i := range many {
		many[i] = lockFrame(0, "k", sessionA)
	}
	if e := w.ask(startFrame(9, sessionA, 20000, 8, many...)).Error; e.GetKind() != incumbent.Invalid.String() {
		t.Errorf("%d frames that wait: %v", len(many), e)
	}
	if w.ok(beatMessage(10)); w.door(m).underWay.Load() != 0 {
		t.Errorf("%d requests are counted as under way", w.door(m).underWay.Load())
	}
}

// door is the member's end of the newest stream that has a session.
func (w *wire) door(m *member) *stream {
	w.tb.Helper()
	var found *stream
	for _, s := range m.door.streams.All() {
		s.mu.Lock()
		if s.sessions.len() > 0 {
			found = s
		}
		s.mu.Unlock()
	}
	if found == nil {
		w.tb.Fatal("no stream has a session")
	}
	return found
}

// A session that has ended is opened anew under its id.
func TestAStartOpensWhatIsOver(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	opened := w.ok(startFrame(1, sessionA, 20000, 1)).GetStarted()
	w.send(closeSessionFrame(2, sessionA))
	w.answers(2) // and what it says of itself
	again := w.ok(startFrame(3, sessionA, 20000, 2)).GetStarted()
	if !opened.Opened || !again.Opened || again.Attached.Session.OpenedIndex <= opened.Attached.Session.OpenedIndex {
		t.Errorf("opened %v, then %v", opened, again)
	}
}

// A member that does not know yet that a session is open attaches it as it is, as one does
// that knows: also one with another ttl.
func TestAStartOfASessionThatIsOpenMeanwhile(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	opened := w.ok(startFrame(1, sessionA, 20000, 1)).GetStarted().GetAttached().GetSession().GetOpenedIndex()
	s := w.door(m)
	for i, ttl := range []uint32{20000, 60000} {
		id := uint64(i + 2)
		place, err := s.door.lanes.Enter(admit.Who{}, calls.OpenSession.Lane(), 1)
		if err != nil {
			t.Fatal(err)
		}
		f := startFrame(id, sessionA, ttl, id)
		s.underWay.Add(1)
		if err := s.start(calls.OpenSession.Lane(), place, f, f.GetStart(), time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		a := w.next()
		if g := a.GetStarted(); a.Id != id || g == nil || g.Opened || g.Attached.HeldMs != 20000 || g.Attached.Session.OpenedIndex != opened {
			t.Errorf("with a ttl of %d ms: %v", ttl, a)
		}
	}
}

// What waits for a session is begun before its client hears that it is attached: what it
// asks for then, as that it leaves, comes behind.
func TestWhatWaitsForAStartIsBegunBeforeItIsAnswered(t *testing.T) {
	var begins atomic.Pointer[func()] // called once where the time is asked for, as it is for what waits
	came := time.Now()
	m := newMember(t, func(c *Config) {
		c.Monotonic = func() int64 { return int64(time.Since(came)) }
		c.Now = func() time.Time {
			if f := begins.Swap(nil); f != nil {
				(*f)()
			}
			return time.Now()
		}
	})
	w := m.dial()
	w.ok(startFrame(1, sessionA, 20000, 1))
	s := w.door(m)
	place, err := s.door.lanes.Enter(admit.Who{}, calls.Attach.Lane(), 1)
	if err != nil {
		t.Fatal(err)
	}
	lock := lockFrame(3, "k", sessionA)
	lock.TimeoutMs = 60000
	f := startFrame(2, sessionA, 20000, 2, lock)
	told := -1
	look := func() {
		w.settle()
		told = len(w.frames)
	}
	begins.Store(&look)
	(&starting{s: s, place: place, frame: f, asked: f.GetStart()}).attached(&pb.Attached{})
	if got := w.answers(2); told != 0 || got[2].GetStarted() == nil || got[3].GetLock() == nil {
		t.Errorf("told %d answers before it was begun, then %v", told, got)
	}
}

// Whose session it is is asked by a start as by an attachment.
func TestG12_AStartNeedsTheSession(t *testing.T) {
	m := newMember(t)
	m.dial().ok(startFrame(1, sessionA, 20000, 1))
	m.guard.principal = auth.Principal{Name: "other", Kind: auth.Agent}
	w := m.dial()
	w.send(startFrame(1, sessionA, 20000, 2, lockFrame(2, "k", sessionA)))
	for id, f := range w.answers(2) {
		if f.Error.GetKind() != incumbent.Denied.String() {
			t.Errorf("answer %d: %v", id, f)
		}
	}
}

// Where the history is gone, a watch that catches up is told what the state knows to have
// changed since, and of what was deleted by a snapshot.
func TestG16_CatchingUpWithoutHistory(t *testing.T) {
	for way, open := range overKeys {
		t.Run(way, func(t *testing.T) {
			m := newMember(t)
			m.store("k/a", "1")
			gone := m.store("k/b", "1")
			since := m.store("k/c", "1")
			last := m.store("k/c", "2")
			m.forgetHistory()
			if _, err := open(m, below("k/", since))(); incumbent.KindOf(err) != incumbent.Compacted {
				t.Fatalf("without catching up: %v", err)
			}
			resumed := below("k/", since)
			resumed.CatchUp = true
			next := open(m, resumed)
			expect := func(what string, snapshot bool, keys ...string) {
				t.Helper()
				got, err := next()
				for err == nil && !got.Snapshot && len(got.Events) == 0 { // how far is certain
					got, err = next()
				}
				if err != nil {
					t.Fatal(err)
				}
				shown := map[string]bool{}
				for _, e := range got.Events {
					shown[e.GetEntry().GetKey()] = true
				}
				if got.Snapshot != snapshot || got.First != snapshot || !slices.Equal(slices.Sorted(maps.Keys(shown)), keys) || got.ProgressIndex < last {
					t.Fatalf("%s: %v", what, got)
				}
			}
			expect("what has changed", false, "k/c")
			last = m.store("k/a", "3")
			expect("what changes then", false, "k/a")
			last = m.store("elsewhere", "1") // whoever is behind it has to look at the state
			m.forgetHistory()
			last = m.store("k/d", "1")
			expect("what changes later", false, "k/d")

			if _, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "k/b"})); err != nil {
				t.Fatal(err)
			}
			m.forgetHistory()
			resumed = below("k/", gone)
			resumed.CatchUp = true
			next = open(m, resumed)
			expect("after a deletion", true, "k/a", "k/c", "k/d")

			resumed = &pb.WatchKeysRequest{Key: "k/b", AfterIndex: gone, CatchUp: true}
			next = open(m, resumed)
			expect("of what was deleted", true)
			resumed = below("k/", m.index()+1000)
			resumed.CatchUp = true
			next = open(m, resumed)
			expect("of another history", true, "k/a", "k/c", "k/d")
		})
	}
}

// Who was told of what a recovery has lost is shown all there is, wherever the index lies
// that it resumes from, and not that nothing has changed.
func TestG16_WhatWasLostIsNotTakenForUnchanged(t *testing.T) {
	m := newPets(t)
	m.store("k/a", "1")
	register(t, m, web("a", "w1", passing))
	m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"cat","age":3}}]`)
	m.group.Do(leases.ClaimCommand{Name: incumbent.Name{Namespace: "default", Model: "default", Lease: "l"}, Holder: "h", TTL: time.Hour})
	lost := m.index() + 5 // something that only others had
	m.group.Do(core.EpochCommand{})
	hub, index := m.group.Hub(), m.group.View().Index()
	eventually(t, "the hub is told of all that was applied", func() bool { return hub.Index() == index })

	w := m.dial()
	w.send(
		catchUp(1, "k/", true, lost), catchUp(2, "k/a", false, lost),
		&pb.ClientFrame{Id: 3, Request: &pb.ClientFrame_Watch{Watch: &pb.StreamWatch{Watch: &pb.WatchRequest{Name: nameOf("l"), AfterIndex: lost, CatchUp: true}}}},
		watchServiceFrame(4, "web", lost),
		&pb.ClientFrame{Id: 5, Request: &pb.ClientFrame_WatchTables{WatchTables: &pb.WatchTablesRequest{Database: "Pets", AfterIndex: lost, CatchUp: true}}},
		watchFrameOf(6, "l", lost),
	)
	got := w.answers(6)
	for id, first := range map[uint64]bool{
		1: got[1].GetWatchKeys().GetFirst(), 2: got[2].GetWatchKeys().GetFirst(), 3: got[3].GetWatch().GetFirst(),
		4: got[4].GetWatchService().GetFirst(), 5: got[5].GetWatchTables().GetFirst(),
		6: got[6].GetError().GetKind() == incumbent.Compacted.String(),
	} {
		if !first {
			t.Errorf("watch %d: %v", id, got[id])
		}
	}
}

// Who named a field, or a part of one, is told of its changes and of no others: that
// somebody comes is told to those who asked who there is.
func TestG19_WatchersAreToldOfTheirPartsAlone(t *testing.T) {
	m := newMember(t)
	m.store("app/mysql", `{"charm":{"url":"ch:mysql-1","rev":9007199254740993},"units":["a"]}`)
	from := m.store("units/a", `{"status":"idle"}`)
	w := m.dial()
	told := map[uint64]string{
		1: "url", 2: "rev", 3: "units", 4: "membership", 5: "status", 6: "all",
	}
	w.send(
		catchUp(1, "app/mysql", false, from, "value/charm/url"), catchUp(2, "app/mysql", false, from, "value/charm/rev"),
		catchUp(3, "app/mysql", false, from, "value/units"), catchUp(4, "units/", true, from, "membership"),
		catchUp(5, "units/", true, from, "value/status"), catchUp(6, "", true, from),
	)
	w.answers(len(told)) // each has begun
	step := func(what string, change func() uint64, want ...string) {
		t.Helper()
		index := change()
		got := map[string]bool{}
		for !got["all"] || len(got) < len(want) { // who is told is told before a later change
			f := w.next()
			for _, e := range f.GetWatchKeys().GetEvents() {
				if e.Index != index {
					t.Fatalf("%s: %s is told of index %d, not %d", what, told[f.Id], e.Index, index)
				}
				got[told[f.Id]] = true
			}
		}
		if shown := slices.Sorted(maps.Keys(got)); !slices.Equal(shown, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: told %v, want %v", what, shown, want)
		}
	}
	put := func(key, value string) func() uint64 { return func() uint64 { return m.store(key, value) } }
	step("a unit", put("units/b", `{}`), "all", "membership")
	step("a unit with a status", put("units/c", `{"status":"idle"}`), "all", "membership", "status")
	step("its status", put("units/c", `{"status":"busy"}`), "all", "status")
	step("something else of it", put("units/c", `{"status":"busy","x":1}`), "all")
	step("the list of units", put("app/mysql", `{"charm":{"url":"ch:mysql-1","rev":9007199254740993},"units":["a","b"]}`), "all", "units")
	step("the order of members", put("app/mysql", `{"units":["a","b"],"charm":{"rev":9007199254740993,"url":"ch:mysql-1"}}`), "all")
	step("a number by one", put("app/mysql", `{"units":["a","b"],"charm":{"rev":9007199254740992,"url":"ch:mysql-1"}}`), "all", "rev")
	step("the url", put("app/mysql", `{"units":["a","b"],"charm":{"rev":9007199254740992,"url":"ch:mysql-2"}}`), "all", "url")
	step("what is no JSON", put("app/mysql", `?`), "all", "rev", "units", "url")
	step("and is another one", put("app/mysql", `??`), "all")
	step("one that goes", func() uint64 {
		r, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "units/c"}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg.Index
	}, "all", "membership", "status")

	for _, field := range []string{"flags/x", "membership/x", "nothing", "nothing/x"} {
		if e := w.ask(catchUp(99, "k", false, 0, field)).Error; e.GetKind() != incumbent.Invalid.String() {
			t.Errorf("field %q: %v", field, e)
		}
	}
}
