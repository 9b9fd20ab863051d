package native

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/overload"
)

// narrowMember returns a member with lanes of hardly any room, and a function that fills one: its
// result makes room again. Lanes that come before that one are shut for a second then.
func narrowMember(t *testing.T, change ...func(*Config)) (m *member, fill func(admit.Lane) func()) {
	t.Helper()
	lanes, err := admit.New(admit.Limits{Min: 1, Max: 1, Interval: time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m = newMember(t, append(change, func(c *Config) { c.Admission = lanes })...)
	return m, func(l admit.Lane) func() {
		var places []admit.Place
		for {
			p, err := m.door.lanes.Enter(admit.Who{}, l, 1)
			if err != nil {
				break
			}
			places = append(places, p)
		}
		for { // what is kept for who waits
			p, why := m.door.lanes.EnterNext(admit.Who{}, l, 1)
			if why != admit.NumReasons {
				break
			}
			places = append(places, p)
		}
		return func() {
			for i := range places {
				places[i].Leave()
			}
		}
	}
}

// within gives a frame time to wait.
func within(ms uint32, f *pb.ClientFrame) *pb.ClientFrame {
	f.TimeoutMs = ms
	return f
}

const longEnough = 50_000 // ms

// A watch that is given up while it begins is ended if it has begun. Where it was refused
// instead, its client has given the id to another watch by then: that one stays.
func TestAWatchGivenUpWhileItBegins(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.ok(watchFrameOf(5, "a", 0))
	s := m.door.streams.All()[0]
	old := &waitingFrame{s: s, id: 5}
	if !old.keep() {
		t.Fatal("not kept")
	}
	old.givenUp.Store(true)
	if old.begun(overload.Errorf("the id is in use")) {
		t.Error("told under the id of another watch")
	}
	if again := (&waitingFrame{s: s, id: 5}); !again.begun(overload.Errorf("no room")) {
		t.Error("who waits is not told")
	}
	w.ok(&pb.ClientFrame{Id: 6, Request: &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: 5}}}) // it is open
	w.ok(watchFrameOf(7, "a", 0))
	old = &waitingFrame{s: s, id: 7}
	if !old.keep() {
		t.Fatal("not kept")
	}
	old.givenUp.Store(true)
	if old.begun(nil) {
		t.Error("told of no error")
	}
	if f := w.ask(&pb.ClientFrame{Id: 8, Request: &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: 7}}}); f.Error.GetKind() != "not_found" {
		t.Errorf("a watch that was given up is open: %v", f)
	}
}

// TestG43_WhoBeginsWaitsForItsTurn: who has the time waits where there is no room, is told
// so once, and is served in the order of coming; who has none is refused at once.
func TestG43_WhoBeginsWaitsForItsTurn(t *testing.T) {
	m, fill := narrowMember(t)
	m.store("app/mysql", "1")
	sessions := []string{sessionA, sessionB, incumbent.NewSessionID().String()}
	streams := make([]*wire, len(sessions))
	for i, id := range sessions {
		streams[i] = m.dial()
		streams[i].ok(startFrame(1, id, 20000, 1))
	}
	small := fill(admit.Small)
	if f := m.dial().ask(startFrame(1, sessionA, 20000, 2)); f.Error.GetKind() != "overloaded" || f.Error.RetryAfterMs == 0 {
		t.Errorf("without a timeout: %v", f)
	}
	for i, id := range sessions {
		w := m.dial()
		streams[i] = w
		f := w.ask(within(longEnough, startFrame(1, id, 20000, 3, lockFrame(2, "presence/"+id, id))))
		if f.Error != nil || f.GetWaiting() == nil || f.GetWaiting().Ahead != uint32(i) {
			t.Fatalf("start %d: %v", i, f)
		}
		w.send(within(longEnough, catchUp(3, "app/", true, 0)))
		w.settle()
	}
	if n := m.door.WaitingBytes(); n < 2*3*waitingBytes {
		t.Errorf("%d bytes wait", n)
	}
	if n := m.door.lines[admit.Watches].Len(); n != len(sessions) {
		t.Errorf("%d watches wait: lanes that come before are full", n)
	}
	small()
	for i, w := range streams {
		got := w.answers(3)
		if s := got[1].GetStarted(); s.GetAttached().GetSession().GetId() != sessions[i] || s.Opened {
			t.Errorf("started %v", got[1])
		}
		if e := got[2].GetLock().GetEntry(); e.GetSession() != sessions[i] {
			t.Errorf("locked %v", got[2])
		}
		if k := got[3].GetWatchKeys(); len(k.GetEvents()) != 1 {
			t.Errorf("watched %v", got[3])
		}
	}
	eventually(t, "nothing waits", func() bool { return m.door.WaitingBytes() == 0 }) // a frame is forgotten behind its answer
}

// What has waited for as long as it may is refused, with what waits for it; what its client
// has left is forgotten.
func TestG43_NobodyWaitsForEver(t *testing.T) {
	m, fill := narrowMember(t)
	w, gone := m.dial(), m.dial()
	w.ok(startFrame(1, sessionA, 20000, 1))
	free := fill(admit.Small)
	if f := gone.ask(within(longEnough, startFrame(1, sessionA, 0, 7))); f.GetWaiting() == nil {
		t.Fatal(f)
	}
	w.send(within(50, startFrame(2, sessionA, 0, 2, lockFrame(3, "k", sessionA), claimFrame(4, "l", "h", sessionA, false))))
	if f := w.next(); f.Id != 2 || f.GetWaiting().GetAhead() != 1 {
		t.Fatal(f)
	}
	for id, f := range w.answers(3) {
		if f.Error.GetKind() != "overloaded" || f.Error.RetryAfterMs == 0 {
			t.Errorf("%d, after its time: %v", id, f)
		}
	}
	// What can be seen to be wrong is refused at once, and so is more than one stream may have.
	if f := w.ask(within(longEnough, startFrame(5, sessionA, 0, 2, watchKeysFrame(6, below("", 0))))); f.Error.GetKind() != "invalid" {
		t.Errorf("what cannot wait for a session: %v", f)
	}
	if f := w.next(); f.Id != 6 || f.Error.GetKind() != "invalid" {
		t.Errorf("the same: %v", f)
	}
	for id := range uint64(MaxWaitingPerStream) {
		w.send(within(longEnough, catchUp(100+id, "app/", true, 0)))
	}
	if f := w.ask(within(longEnough, catchUp(7, "app/", true, 0))); f.Error.GetKind() != "overloaded" {
		t.Errorf("one more of a stream: %v", f)
	}
	// Who does not want it any more need not wait for it.
	for id := range uint64(MaxWaitingPerStream) {
		if f := w.ask(&pb.ClientFrame{Id: 8, Request: &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: 100 + id}}}); f.GetDone() == nil {
			t.Fatalf("a watch that waits is not given up: %v", f)
		}
	}
	eventually(t, "nothing of it waits", func() bool { return m.door.lines[admit.Watches].Len() == 0 })
	gone.conn.Close()
	eventually(t, "the frame of the stream that has ended waits no longer", func() bool { return m.door.WaitingBytes() == 0 && m.door.lines[admit.Small].Len() == 0 })
	free()
	// Nobody has attached meanwhile: a counter as low as the second is fine.
	if f := w.ask(within(longEnough, startFrame(5, sessionA, 0, 2))); f.GetStarted() == nil {
		t.Errorf("afterwards: %v", f)
	}
}

// TestG43_NothingBeginsOnAStreamThatEnds: who is sent away, or has lost the right to be here,
// begins nothing, although the connection stays until the peer has closed it.
func TestG43_NothingBeginsOnAStreamThatEnds(t *testing.T) {
	m, fill := narrowMember(t)
	w := m.dial()
	w.ok(startFrame(1, sessionA, 20000, 1))
	free := fill(admit.Small)
	if f := w.ask(within(longEnough, startFrame(2, sessionA, 0, 2, lockFrame(3, "k", sessionA)))); f.GetWaiting() == nil {
		t.Fatal(f)
	}
	m.door.Recheck(func(auth.Principal) bool { return false })
	free()
	if code := w.closed(); code != ws.StatusPolicyViolation {
		t.Errorf("closed with %d", code)
	}
	eventually(t, "nothing waits", func() bool { return m.door.WaitingBytes() == 0 })
	if e := kv.Of(m.group.View()).Entry(kv.Key{Namespace: incumbent.DefaultNamespace, Name: "k"}); e != nil {
		t.Errorf("locked: %v", e)
	}
}

// A session that is to be opened waits among those who claim, and one that has been opened
// meanwhile, or has ended, goes on in the other line.
func TestG43_AStartChangesItsLine(t *testing.T) {
	m, fill := narrowMember(t)
	claims := fill(admit.Claims)
	w := m.dial()
	if f := w.ask(within(longEnough, startFrame(1, sessionB, 20000, 1))); f.GetWaiting() == nil {
		t.Fatal(f)
	}
	eventually(t, "it waits among claims", func() bool { return m.door.lines[admit.Claims].Len() == 1 }) // it is told before
	claims()
	if f := w.next(); !f.GetStarted().GetOpened() {
		t.Fatal(f)
	}

	claims = fill(admit.Claims)
	defer claims()
	if f := w.ask(within(longEnough, startFrame(2, sessionA, 20000, 1))); f.GetWaiting() == nil {
		t.Fatal(f)
	}
	id, err := incumbent.ParseSessionID(sessionA)
	if err != nil {
		t.Fatal(err)
	}
	m.group.Do(core.OpenSessionCommand{ID: id, TTL: time.Minute})
	if f := w.next(); f.Id != 2 || f.GetStarted() == nil || f.GetStarted().Opened {
		t.Errorf("opened by another meanwhile: %v", f)
	}
}

// Nothing waits while memory is short, nor more than there is room for.
func TestG43_WaitingHasABound(t *testing.T) {
	lanes := shutLanes(t)
	lanes.SetMemory(0, 1)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	w := m.dial()
	w.ok(startFrame(1, sessionA, 20000, 1))
	lanes.SetMemory(2, 1)
	if f := w.ask(within(longEnough, startFrame(2, sessionA, 0, 2))); f.Error.GetKind() != "overloaded" {
		t.Errorf("while memory is short: %v", f)
	}
	lanes.SetMemory(0, 1)
	lanes.Press(uint8(admit.Releases.Rank()), 1<<62) // for long
	most := lanes.Bound(MaxWaitingBytes)             // of little memory
	if most == MaxWaitingBytes || !m.door.waiting.Take(admit.Who{}, most-waitingBytes, most) {
		t.Fatal("something waits")
	}
	if f := w.ask(within(longEnough, startFrame(3, sessionA, 0, 3))); f.Error.GetKind() != "overloaded" {
		t.Errorf("without room: %v", f)
	}
}

// TestG39_LinesGiveWay: what waits is refused once memory has become short for its lane, in the
// order of the lanes and as who comes then is, and its bytes are given back.
func TestG39_LinesGiveWay(t *testing.T) {
	m, fill := narrowMember(t)
	m.store("app/mysql", "1")
	w := m.dial()
	w.ok(startFrame(1, sessionA, 20000, 1))
	free := fill(admit.Small)
	w.send(within(longEnough, catchUp(2, "app/", true, 0)))
	if f := w.ask(within(longEnough, startFrame(3, sessionA, 0, 2, lockFrame(4, "k", sessionA)))); f.GetWaiting() == nil {
		t.Fatal(f)
	}
	eventually(t, "the watch waits", func() bool { return m.door.lines[admit.Watches].Len() == 1 })
	m.door.lanes.SetMemory(80, 100) // short for watches, and not for what is small
	if f := w.next(); f.Id != 2 || f.Error.GetKind() != "overloaded" || f.Error.RetryAfterMs == 0 {
		t.Errorf("a watch: %v", f)
	}
	if n := m.door.lines[admit.Small].Len(); n != 1 {
		t.Errorf("%d starts wait, one does", n)
	}
	m.door.lanes.SetMemory(2, 1)
	for id, f := range w.answers(2) {
		if f.Error.GetKind() != "overloaded" || f.Error.RetryAfterMs == 0 {
			t.Errorf("%d: %v", id, f)
		}
	}
	if n := m.door.WaitingBytes(); n != 0 {
		t.Errorf("%d bytes wait when nothing does", n)
	}
	m.door.lanes.SetMemory(0, 1)
	free()
	f := w.ask(within(longEnough, startFrame(5, sessionA, 0, 2)))
	if f.GetWaiting() != nil { // its lane is shut a little longer
		f = w.next()
	}
	if f.GetStarted() == nil {
		t.Errorf("afterwards: %v", f)
	}
}

// TestG43_WhoWaitsIsToldThatTheMemberLives: a start in line is told every few seconds that it
// waits, and is sent elsewhere once nothing moves here.
func TestG43_WhoWaitsIsToldThatTheMemberLives(t *testing.T) {
	var later atomic.Int64
	began := time.Now()
	m, fill := narrowMember(t, func(c *Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
		c.Monotonic = func() int64 { return int64(time.Since(began)) }
	})
	w := m.dial()
	w.ok(startFrame(1, sessionA, 20000, 1))
	free := fill(admit.Small)
	defer free()
	if f := w.ask(within(longEnough, startFrame(2, sessionA, 0, 2, lockFrame(3, "k", sessionA)))); f.GetWaiting() == nil {
		t.Fatal(f)
	}
	for range 2 {
		later.Add(int64(waitingAgain))
		if f := w.next(); f.Id != 2 || f.GetWaiting() == nil {
			t.Fatalf("after %v: %v", waitingAgain, f)
		}
	}
	m.door.still.begin(m.door.monotonic() - int64(2*standstillAfter))
	for id, f := range w.answers(2) {
		if f.Error.GetKind() != incumbent.Unavailable.String() {
			t.Errorf("%d, where nothing moves: %v", id, f)
		}
	}
	if f := w.ask(within(longEnough, startFrame(4, sessionA, 0, 3))); f.Error.GetKind() != "overloaded" {
		t.Errorf("who comes then waits: %v", f)
	}
}

// TestG43_AWatchIsTheDoorsBeforeItCanEnd: a watch that has waited in line begins beside its
// stream's worker, which may end it as soon as it finds it. Were it not in the door's list by
// then, it would be taken out of a place in which another is.
func TestG43_AWatchIsTheDoorsBeforeItCanEnd(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.ok(&pb.ClientFrame{Id: 1, Request: &pb.ClientFrame_WatchKeys{WatchKeys: &pb.WatchKeysRequest{Key: "a"}}})
	s := m.door.streams.All()[0]
	m.door.watches.mu.Lock()
	w.send(&pb.ClientFrame{Id: 2, Request: &pb.ClientFrame_WatchKeys{WatchKeys: &pb.WatchKeysRequest{Key: "b"}}})
	for range 50 {
		time.Sleep(time.Millisecond)
		if !s.mu.TryLock() {
			break // it begins
		}
		found := s.open.watches[2] != nil
		s.mu.Unlock()
		if found {
			t.Error("the stream can end a watch that the door does not have yet")
			break
		}
	}
	m.door.watches.mu.Unlock()
}

// TestG43_AnIDThatIsUsedMeanwhile: a watch that waits in line keeps no id for itself, and does not
// take the place of one that has begun under it meanwhile.
func TestG43_AnIDThatIsUsedMeanwhile(t *testing.T) {
	m, fill := narrowMember(t)
	w := m.dial()
	free := fill(admit.Watches)
	w.send(within(longEnough, &pb.ClientFrame{Id: 2, Request: &pb.ClientFrame_WatchKeys{WatchKeys: &pb.WatchKeysRequest{Key: "a"}}}))
	eventually(t, "it waits in line", func() bool { return m.door.lines[admit.Watches].Len() == 1 })
	s := m.door.streams.All()[0]
	sel, refusal := m.door.selectKeys(s.who, &pb.WatchKeysRequest{Key: "b"})
	if err := s.watch(admit.Place{}, 2, sel, refusal); err != nil {
		t.Fatal(err)
	}
	free()
	for {
		if f := w.next(); f.Error != nil {
			if f.Id != 2 || f.Error.Kind != "invalid" {
				t.Errorf("%v", f)
			}
			break
		}
	}
	if n := m.door.watches.len(); n != 1 {
		t.Errorf("%d watches are open, want 1", n)
	}
}

// TestG43_WhoWaitsForItsTurnStaysAlive: the wait may be longer than the session lives that is to
// be attached, which nobody else keeps meanwhile.
func TestG43_WhoWaitsForItsTurnStaysAlive(t *testing.T) {
	m, fill := narrowMember(t)
	w := m.dial()
	for i, id := range []string{sessionA, sessionB} {
		w.ok(startFrame(uint64(i+1), id, uint32(incumbent.MinTTL.Milliseconds()), 1))
	}
	w.conn.Close()
	free := fill(admit.Small)
	w = m.dial()
	if f := w.ask(within(longEnough, startFrame(1, sessionA, 0, 2))); f.GetWaiting() == nil {
		t.Fatal(f)
	}
	open := func(id string) bool {
		parsed, err := incumbent.ParseSessionID(id)
		return err == nil && m.group.View().Session(parsed) != nil
	}
	eventually(t, "the session of who does not wait ends", func() bool { return !open(sessionB) })
	time.Sleep(2 * incumbent.MinTTL)
	if !open(sessionA) {
		t.Error("the session of who waits has ended")
	}
	free()
	if f := w.next(); f.GetStarted().GetAttached() == nil {
		t.Errorf("started %v", f)
	}
}
