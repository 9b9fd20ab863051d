package client

import (
	"bufio"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// until waits for a cache to be as a test wants it.
func until(t testing.TB, c interface{ Changed() <-chan struct{} }, holds func() bool) {
	t.Helper()
	ctx := testContext(t)
	for {
		changed := c.Changed()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("the cache never came to be as awaited")
		}
	}
}

func keysOf(c *KeyCache) (keys []string) {
	for _, e := range c.Entries() {
		keys = append(keys, e.Key+"="+string(e.Value))
	}
	return keys
}

func mustPut(t testing.TB, k *KV, key, value string) {
	t.Helper()
	if _, err := k.Put(testContext(t), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func presentNow(t testing.TB, k *KV, prefix string) map[string]PresenceState {
	t.Helper()
	list, next, err := k.ListPresent(testContext(t), prefix, "", 0)
	if err != nil || next != "" {
		t.Fatal(next, err)
	}
	states := map[string]PresenceState{}
	for _, p := range list {
		states[p.Name] = p.State
	}
	return states
}

// awaitPresent follows who is there until somebody is as awaited, and returns all
// states that it was told of.
func awaitPresent(t testing.TB, k *KV, name string, state PresenceState) (seen []PresenceState) {
	t.Helper()
	for c, err := range k.WatchPresent(testContext(t), name, 0) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, c.State)
		if c.State == state {
			return seen
		}
	}
	t.Fatalf("%s was never %s, but %v", name, state, seen)
	return nil
}

// What a session follows outlives the restart of its member and its own process: of
// what has not changed nothing comes again, and nobody takes it for dead.
func TestASessionGoesOnAfterARestart(t *testing.T) {
	cfg := serverConfig(t)
	s := startServer(t, cfg)
	cfg.Listen = s.URL()[len("http://"):]
	c := clientOf(t, s.URL())
	keys := c.KV("")
	mustPut(t, keys, "app/url", "1")
	if _, err := c.Txn("").Expect("unit/0").Expect("unit/1").Commit(testContext(t)); err != nil {
		t.Fatal(err)
	}
	app := NewKeyCache("", WatchKeysOptions{Key: "app/", Prefix: true})
	db := NewServiceCache(WatchServiceOptions{Service: "db"})
	wrong := NewKeyCache("", WatchKeysOptions{Key: "app/", Prefix: true, Fields: []string{"nothing"}})
	a := openSession(t, c, SessionConfig{TTL: time.Minute, Presence: Presence{Name: "unit/0", Info: []byte("here")}, Follow: []Following{app, db, wrong}})
	until(t, app, func() bool { return slices.Equal(keysOf(app), []string{"app/url=1"}) })
	until(t, db, func() bool { return db.Index() > 0 })
	until(t, wrong, func() bool { return incumbent.KindOf(wrong.Err()) == incumbent.Invalid }) // alone
	awaitPresent(t, keys, "unit/0", Alive)
	if got := presentNow(t, keys, "unit/"); got["unit/0"] != Alive || got["unit/1"] != Expected {
		t.Errorf("present %v", got)
	}
	entry := app.Get("app/url")

	stopServer(t, s)
	startServer(t, cfg)
	mustPut(t, keys, "app/rev", "7")
	until(t, app, func() bool { return slices.Equal(keysOf(app), []string{"app/rev=7", "app/url=1"}) })
	if app.Get("app/url") != entry {
		t.Error("what had not changed was sent again")
	}
	if got := presentNow(t, keys, "unit/"); got["unit/0"] != Alive {
		t.Errorf("present %v after a restart", got)
	}

	// Another run of the same agent, which has kept its session's id.
	a.Detach()
	b := openSession(t, c, SessionConfig{TTL: time.Minute, ID: a.ID(), Presence: Presence{Name: "unit/0", Info: []byte("here")}, Follow: []Following{app}})
	late := NewKeyCache("", WatchKeysOptions{Key: "app/rev"})
	b.Follow(late)
	until(t, late, func() bool { return slices.Equal(keysOf(late), []string{"app/rev=7"}) })
	mustPut(t, keys, "app/url", "2")
	until(t, app, func() bool { return slices.Equal(keysOf(app), []string{"app/rev=7", "app/url=2"}) })
	res, err := keys.Get(testContext(t), "presence/unit/0")
	if err != nil || res.Session != a.ID().String() || res.LockIndex != 1 {
		t.Errorf("present by %v, %v: not once, by one session", res, err)
	}
	if err := b.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := presentNow(t, keys, "unit/"); got["unit/0"] != Left {
		t.Errorf("present %v after a good-bye", got)
	}
	if _, err := c.Txn("").Forget("unit/0").Forget("unit/1").Commit(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := presentNow(t, keys, ""); len(got) != 0 {
		t.Errorf("present %v, and nobody is", got)
	}
}

// A session is resumed though the run before it had a clock that was ahead, and nobody knows
// yet that this run is over: whoever opens it has it.
func TestASessionIsResumedThoughTheClockWasSetBack(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	id := incumbent.NewSessionID()
	for _, counter := range []uint64{1 << 60, 1<<63 + 1<<62} {
		stream, r, err := c.DialStream(testContext(t), StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before := newLink(stream, r, func(*link, *apiv1.ServerFrame) {})
		defer before.close()
		start := &apiv1.Start{Session: id.String(), Counter: counter, TtlMs: uint32(time.Minute.Milliseconds())}
		if _, err := before.call(testContext(t), &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Start{Start: start}}); err != nil {
			t.Fatal(err)
		}
		session := openSession(t, c, SessionConfig{TTL: time.Minute, ID: id, Alone: true})
		if l := mustClaim(t, session, "db"); !l.Held() {
			t.Error("what it claimed is not held")
		}
		session.Detach()
	}
}

// A run that comes back while a later one has its session ends, and says why; that run goes
// on, and holds what it claimed. The first one has not heard of it: its stream broke.
func TestARunWhoseSessionWasTakenEnds(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r, direct := newRelay(t, s.URL()), clientOf(t, s.URL())
	a := openSession(t, clientOf(t, r.url()), SessionConfig{TTL: longTTL})
	held := mustClaim(t, a, "db")
	r.stall()
	b := openSession(t, direct, SessionConfig{TTL: longTTL, ID: a.ID()})
	taken := mustClaim(t, b, "other")
	r.cut()
	r.resume()
	if err := await(a.Context(), t); !Taken(err) || incumbent.KindOf(err) != incumbent.Expired || held.Held() {
		t.Errorf("held %v, it ended with %v", held.Held(), err)
	}
	<-a.ended // it asks for nothing any more
	if _, err := a.Claim(testContext(t), named("x"), ClaimOptions{}); !Taken(err) {
		t.Errorf("a claim: %v", err)
	}
	if err := a.Close(testContext(t)); err != nil {
		t.Errorf("closing what is over here: %v", err)
	}
	if mustClaim(t, b, "third"); !taken.Held() || b.Context().Err() != nil {
		t.Errorf("the later run holds %v, and ended with %v", taken.Held(), context.Cause(b.Context()))
	}

	// Whose stream has not broken is told over it.
	c := openSession(t, direct, SessionConfig{TTL: longTTL, ID: a.ID()})
	if err := await(b.Context(), t); !Taken(err) {
		t.Errorf("the second run ended with %v", err)
	}
	mustClaim(t, c, "fourth")
}

// One conflict may say as well that the session ended while it was being attached: what comes
// next says which of both it was. Whoever opens takes the session, and does not ask this.
func TestAConflictIsAskedAboutOnceMore(t *testing.T) {
	conflict := &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Conflict.String()}}
	expired := &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Expired.String()}}
	unavailable := &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Unavailable.String()}}
	for name, c := range map[string]struct {
		create  bool
		answers []*apiv1.ServerFrame
		kind    incumbent.Kind
		taken   bool
	}{
		"taken":                     {false, []*apiv1.ServerFrame{conflict, conflict}, incumbent.Expired, true},
		"taken, and no room":        {false, []*apiv1.ServerFrame{conflict, refused(0), conflict}, incumbent.Expired, true},
		"over":                      {false, []*apiv1.ServerFrame{conflict, expired}, incumbent.Expired, false},
		"given back meanwhile":      {false, []*apiv1.ServerFrame{conflict, startedFrame(0)}, incumbent.OK, false},
		"a member that cannot tell": {false, []*apiv1.ServerFrame{conflict, unavailable}, incumbent.Unavailable, false},
		"opened":                    {true, []*apiv1.ServerFrame{conflict}, incumbent.Conflict, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l, m := unbegunSession(t)
				defer l.close()
				done := make(chan error, 1)
				go func() { done <- s.attach(t.Context(), l, c.create, time.Second) }()
				counter := uint64(0)
				for _, a := range c.answers {
					start := m.next()
					if next := start.GetStart().GetCounter(); next <= counter {
						t.Errorf("it asks with counter %d after %d", next, counter)
					} else {
						counter = next
					}
					m.answer(start, proto.CloneOf(a))
				}
				if err := <-done; incumbent.KindOf(err) != c.kind || Taken(err) != c.taken {
					t.Errorf("it ended with %v, taken: %v", err, Taken(err))
				}
				m.nothing()
			})
		})
	}
}

// Who says nothing any more is down once its ttl is over, and alive again as who comes in
// its place.
func TestPresenceEndsWithTheTTL(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	who := Presence{Name: "unit/0"}
	a := openSession(t, c, SessionConfig{TTL: incumbent.MinTTL, Presence: who})
	awaitPresent(t, c.KV(""), "unit/0", Alive)
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	changes := make(chan PresenceChange, 10)
	go func() {
		for ch, err := range c.KV("").WatchPresent(ctx, "unit/", 0) {
			if err == nil {
				changes <- ch
			}
		}
	}()
	if ch := <-changes; ch.State != Alive {
		t.Fatalf("the watch begins with %+v", ch)
	}
	// Another of that name waits until the first is over.
	b := openSession(t, c, SessionConfig{TTL: incumbent.MinTTL, Presence: who})
	a.Detach() // no beat follows
	for _, want := range []struct{ was, is PresenceState }{{Alive, Down}, {Down, Alive}} {
		if ch := <-changes; ch.Was != want.was || ch.State != want.is || ch.Name != "unit/0" {
			t.Fatalf("%+v, want %v to %v", ch, want.was, want.is)
		}
	}
	if list, _, err := c.KV("").ListPresent(testContext(t), "", "", 0); err != nil || len(list) != 1 || list[0].Session != b.ID().String() {
		t.Errorf("present %v, %v", list, err)
	}
	if _, err := c.Open(testContext(t), SessionConfig{Presence: Presence{Info: []byte("of nobody")}}); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a presence without a name: %v", err)
	}
}

// TestG43_WhoIsToldToWaitDoesNotLeave: a member that says that others come first lives, and
// is not left after the time in which it would have to answer; nor is it waited for forever.
func TestG43_WhoIsToldToWaitDoesNotLeave(t *testing.T) {
	const patience = time.Second
	waiting := func() *apiv1.ServerFrame {
		return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Waiting{Waiting: &apiv1.Waiting{Ahead: 7}}}
	}
	begin := func(s *Session, l *link) chan error {
		done := make(chan error, 1)
		go func() { done <- s.attach(s.ctx, l, false, patience) }()
		return done
	}
	synctest.Test(t, func(t *testing.T) {
		s, _ := scriptedSession(t)
		s.drop()
		l, m := s.scriptedMember(t)
		done := begin(s, l)
		start := m.next()
		if start.GetStart() == nil || start.TimeoutMs != uint32(maxWait.Milliseconds()) {
			t.Fatalf("it began with %v", start)
		}
		for range 3 { // it may be said more than once, and once the answer is on its way
			m.answer(start, waiting())
		}
		for range 5 {
			time.Sleep(maxWait/5 - time.Millisecond)
			m.answer(start, waiting())
		}
		m.answer(start, &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: &apiv1.Attached{Index: 9}}}})
		if err := <-done; err != nil || s.current() != l {
			t.Errorf("it has not begun: %v", err)
		}
		m.nothing()
	})
	synctest.Test(t, func(t *testing.T) {
		s, _ := scriptedSession(t)
		l, m := s.scriptedMember(t)
		defer func() { l.close() }()
		began, done := time.Now(), begin(s, l)
		m.answer(m.next(), waiting())
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != waitSilence+patience {
			t.Errorf("a member that says nothing more is left after %v with %v", time.Since(began), err)
		}
		l.close()
		l, m = s.scriptedMember(t)
		began, done = time.Now(), begin(s, l)
		m.next()
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != patience {
			t.Errorf("one that says nothing at all is left after %v with %v", time.Since(began), err)
		}
	})
}

// A session that another run has taken while it was being opened is not opened again: that
// would end the other run, too.
func TestASessionThatIsTakenWhileItOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, _ := unbegunSession(t)
		l.close()
		s.c.streams = func(context.Context, StreamOptions) (*Stream, *bufio.Reader, error) {
			s.finish(errTaken())
			return nil, nil, incumbent.Errorf(incumbent.Unavailable, "no answer yet")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.open(ctx); !Taken(err) {
			t.Errorf("opened: %v", err)
		}
	})
}
