package client

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func TestG03_HandOverThroughTheQueue(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	a := openSession(t, c, SessionConfig{Holder: "a"})
	b := openSession(t, c, SessionConfig{Holder: "b"})
	last := incumbent.Token(0)
	held := mustClaim(t, a, "db")
	if _, err := b.Claim(testContext(t), named("db"), ClaimOptions{}); incumbent.KindOf(err) != incumbent.Held {
		t.Fatalf("a claim without wait of what another holds: %v, want Held", err)
	}
	if again := mustClaim(t, a, "db"); again != held {
		t.Errorf("a second claim by the holder made another lease")
	}
	for turn := range 6 {
		from, to := a, b
		if turn%2 == 1 {
			from, to = b, a
		}
		next := make(chan *Lease, 1)
		go func() {
			l, err := to.Claim(testContext(t), named("db"), ClaimOptions{Wait: true})
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		from.awaitQueued(t, c, "db", 1)
		if held.Token() <= last || !held.Held() || held.Remaining() <= 0 {
			t.Fatalf("turn %d: token %d after %d, held %v", turn, held.Token(), last, held.Held())
		}
		last = held.Token()
		if err := held.Release(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if held.Held() || held.Remaining() != 0 || incumbent.KindOf(context.Cause(held.Context())) != incumbent.NotHolder {
			t.Fatalf("held after its release: %v", context.Cause(held.Context()))
		}
		if held = <-next; held == nil {
			return
		}
	}
}

// A session that is closed hands on what it holds, and closing it again is no
// error.
func TestCloseHandsOn(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	a, b := openSession(t, c, SessionConfig{Holder: "a"}), openSession(t, c, SessionConfig{Holder: "b"})
	held := mustClaim(t, a, "db")
	next := make(chan error, 1)
	go func() {
		_, err := b.Claim(testContext(t), named("db"), ClaimOptions{Wait: true})
		next <- err
	}()
	a.awaitQueued(t, c, "db", 1)
	for range 2 {
		if err := a.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	if held.Held() {
		t.Error("held by a closed session")
	}
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	if _, err := a.Claim(testContext(t), named("x"), ClaimOptions{}); incumbent.KindOf(err) != incumbent.Expired {
		t.Errorf("a claim of a closed session: %v, want Expired", err)
	}
}

// A session that an operator closes is over here at once, with its leases.
func TestSessionLost(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	a := openSession(t, c, SessionConfig{})
	held := mustClaim(t, a, "db")
	req := &apiv1.CloseSessionRequest{Id: a.ID().String(), Reason: "maintenance"}
	if _, err := c.Sessions().CloseSession(testContext(t), connect.NewRequest(req)); err != nil {
		t.Fatal(err)
	}
	if err := await(a.Context(), t); incumbent.KindOf(err) != incumbent.Expired {
		t.Errorf("the session ended with %v", err)
	}
	if err := await(held.Context(), t); incumbent.KindOf(err) == incumbent.OK || held.Held() {
		t.Errorf("the lease ended with %v", err)
	}
	if err := a.Close(testContext(t)); err != nil {
		t.Errorf("closing what is over: %v", err)
	}
}

// pausable is a clock that can jump, as one does that counts a pause in which
// no code ran.
type pausable struct{ ahead atomic.Int64 }

func (p *pausable) now() time.Duration { return boottime() + time.Duration(p.ahead.Load()) }

func TestG38_HeldIsFalseAfterAPause(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	clock := &pausable{}
	c.clock = clock.now
	const ttl = 10 * time.Second
	session := openSession(t, c, SessionConfig{TTL: ttl})
	l := mustClaim(t, session, "db")
	if got, most := l.Remaining(), time.Duration(float64(ttl)*(1-DefaultDrift)); got <= 0 || got > most {
		t.Errorf("remaining %v, want at most %v: the ttl less the drift", got, most)
	}
	if !l.Held() {
		t.Fatal("not held")
	}
	// No timer has run and no extension was answered: the clock alone decides.
	clock.ahead.Store(int64(ttl))
	if l.Held() {
		t.Error("held after a pause of a whole ttl")
	}
	if err := context.Cause(l.Context()); incumbent.KindOf(err) != incumbent.Expired {
		t.Errorf("its context ended with %v", err)
	}
	// It stays so, even if the clock were to go back and an extension arrived.
	clock.ahead.Store(0)
	if l.extend(clock.now() + time.Hour); l.Held() || l.Remaining() != 0 {
		t.Error("a lapsed lease came back")
	}
	// The server knew it for longer. A new claim makes a new holding, with a
	// greater token, since the old one was given back.
	again := mustClaim(t, session, "db")
	if again == l || again.Token() <= l.Token() || !again.Held() {
		t.Errorf("the next holding has token %d after %d", again.Token(), l.Token())
	}
}

// A timer stands still while the machine is suspended, and the deadline passes: who is told by
// the context is told soon after that, and at once where an answer comes first. Else the
// context ends at the deadline, and no sooner for being looked at.
func TestG38_AContextEndsSoonAfterSuspend(t *testing.T) {
	const ttl = time.Hour
	for name, c := range map[string]struct {
		asleep   time.Duration
		answered bool
		most     time.Duration // from when it has resumed
	}{
		"awake":     {0, false, ttl},
		"suspended": {2 * ttl, false, time.Second},
		"answered":  {2 * ttl, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := scriptedSession(t)
				var asleep atomic.Int64
				awake := s.clock
				s.clock = func() time.Duration { return awake() + time.Duration(asleep.Load()) }
				l := s.take(named("db"), 7, s.clock()+ttl/2)
				l.extend(s.clock() + ttl)
				resumed := time.Now()
				asleep.Store(int64(c.asleep))
				if c.answered {
					s.extended(s.clock(), []*Lease{l}, &apiv1.TokensExtended{HeldMs: uint32(ttl.Milliseconds())})
				}
				if c.most > 0 {
					<-l.Context().Done()
				}
				if took, err := time.Since(resumed), context.Cause(l.Context()); incumbent.KindOf(err) != incumbent.Expired || took > c.most || c.asleep == 0 && took != ttl {
					t.Errorf("it ended with %v after %v, want %v at most", err, took, c.most)
				}
				if !s.givenBack(l.Token()) {
					t.Error("it is not given back")
				}
			})
		})
	}
}

// An answer that comes after the deadline does not revive a lease.
func TestLateExtensionRevivesNothing(t *testing.T) {
	var now atomic.Int64
	s := &Session{
		c: &Client{}, clock: func() time.Duration { return time.Duration(now.Load()) },
		leases: map[incumbent.Token]*Lease{}, back: map[incumbent.Token]incumbent.Name{},
	}
	l := s.take(named("db"), 7, time.Hour)
	s.extended(time.Minute, []*Lease{l}, &apiv1.TokensExtended{HeldMs: uint32((90 * time.Minute).Milliseconds())})
	if got := l.Remaining(); got != 91*time.Minute {
		t.Errorf("remaining %v, want 91m", got)
	}
	s.extended(0, []*Lease{l}, &apiv1.TokensExtended{HeldMs: 1000})
	if got := l.Remaining(); got != 91*time.Minute {
		t.Errorf("an older answer shortened it to %v", got)
	}
	now.Store(int64(91 * time.Minute))
	s.extended(90*time.Minute, []*Lease{l}, &apiv1.TokensExtended{HeldMs: 3_600_000})
	if l.Held() {
		t.Error("revived")
	}
	if s.take(named("db"), 7, 3*time.Hour) != nil {
		t.Error("a holding that was given back was taken again")
	}
	m := s.take(named("m"), 8, 92*time.Minute)
	n := s.take(named("n"), 9, 92*time.Minute)
	s.extended(0, []*Lease{m, n}, &apiv1.TokensExtended{NotHeld: []uint64{8}, Unavailable: []uint64{9}})
	if m.Held() || incumbent.KindOf(context.Cause(m.Context())) != incumbent.NotHolder || !n.Held() {
		t.Errorf("not held: %v, unavailable: %v", m.Held(), n.Held())
	}
	n.end(errors.New("the test is over"))
}

// What is being revoked keeps its deadline, whatever else is answered about it: a
// holder that was given the time to stop in has it. It is over when the deadline
// passes, when it is released and with its session.
func TestARevokedLeaseHasItsTimeLeft(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	clock := &pausable{}
	c.clock = clock.now
	session := openSession(t, c, SessionConfig{TTL: longTTL})
	l, released, closed := mustClaim(t, session, "db"), mustClaim(t, session, "released"), mustClaim(t, session, "closed")
	for _, l := range []*Lease{l, released, closed} {
		req := &apiv1.RevokeRequest{Name: apiName(l.Name()), By: "ops"}
		if _, err := c.Leases().Revoke(testContext(t), connect.NewRequest(req)); err != nil {
			t.Fatal(err)
		}
	}
	session.drop() // the next beat, over the next link, tells of it
	for _, l := range []*Lease{l, released, closed} {
		if err := await(l.Context(), t); incumbent.KindOf(err) != incumbent.NotHolder || l.Held() {
			t.Fatalf("held %v: %v", l.Held(), err)
		}
	}
	before := l.Remaining()
	if before <= 0 {
		t.Fatal("no time is left")
	}
	session.extended(c.clock(), []*Lease{l}, &apiv1.TokensExtended{NotHeld: []uint64{uint64(l.Token())}})
	session.extended(c.clock(), []*Lease{l}, &apiv1.TokensExtended{HeldMs: math.MaxUint32})
	if session.take(l.Name(), l.Token(), c.clock()+time.Hour) != nil {
		t.Error("what is being revoked was taken again")
	}
	if _, err := session.Claim(testContext(t), l.Name(), ClaimOptions{}); incumbent.KindOf(err) != incumbent.Held {
		t.Errorf("claimed again: %v, want Held", err)
	}
	if after := l.Remaining(); after <= 0 || after > before || session.givenBack(l.Token()) {
		t.Errorf("%v left after %v, given back: %v", after, before, session.givenBack(l.Token()))
	}
	if err := released.Release(testContext(t)); err != nil || released.Remaining() != 0 {
		t.Errorf("released: %v, %v left", err, released.Remaining())
	}
	clock.ahead.Store(int64(longTTL))
	if l.Remaining() != 0 || l.Held() {
		t.Errorf("%v left behind its deadline", l.Remaining())
	}
	clock.ahead.Store(0)
	if err := session.Close(testContext(t)); err != nil || closed.Remaining() != 0 {
		t.Errorf("closed: %v, %v left", err, closed.Remaining())
	}
}

func TestClaimNamesDefaults(t *testing.T) {
	s := startServer(t, serverConfig(t))
	session := openSession(t, clientOf(t, s.URL()), SessionConfig{})
	l, err := session.Claim(testContext(t), incumbent.Name{Lease: "db"}, ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if l.Name() != named("db") {
		t.Errorf("claimed %v, want %v", l.Name(), named("db"))
	}
	if again := mustClaim(t, session, "db"); again != l {
		t.Error("the full name is another lease")
	}
}

// The beat's answer is one of two ways to hear of a session's end.
func TestBeatenTellsOfTheEnd(t *testing.T) {
	s := startServer(t, serverConfig(t))
	session := openSession(t, clientOf(t, s.URL()), SessionConfig{})
	session.beaten(session.clock(), &apiv1.Beaten{HeldMs: 1, Lost: []string{incumbent.NewSessionID().String()}})
	if err := session.Context().Err(); err != nil {
		t.Fatalf("another's end ended it: %v", err)
	}
	kept, revoked := mustClaim(t, session, "kept"), mustClaim(t, session, "revoked")
	session.beaten(session.clock(), &apiv1.Beaten{Revoking: []uint64{uint64(revoked.Token()), 1 << 60}})
	if revoked.Held() || incumbent.KindOf(context.Cause(revoked.Context())) != incumbent.NotHolder || !kept.Held() {
		t.Errorf("being revoked: held %v; the other: %v", revoked.Held(), kept.Held())
	}
	if revoked.Remaining() <= 0 {
		t.Error("what is being revoked is its holder's until the deadline")
	}
	session.beaten(session.clock(), &apiv1.Beaten{Lost: []string{session.ID().String()}})
	if err := await(session.Context(), t); incumbent.KindOf(err) != incumbent.Expired {
		t.Errorf("it ended with %v", err)
	}
}

// A member that answers, but can confirm nothing, is left for another.
func TestAMemberThatIsCutOffIsLeft(t *testing.T) {
	for _, c := range []struct {
		e    *apiv1.Error
		want bool
	}{
		{nil, false},
		{&apiv1.Error{Kind: incumbent.Unavailable.String()}, true},
		{&apiv1.Error{Kind: incumbent.NotLeader.String()}, true},
		{&apiv1.Error{Kind: incumbent.Overloaded.String()}, false}, // it would be no better elsewhere
		{&apiv1.Error{Kind: "nonsense"}, false},
	} {
		if got := cutOff(c.e); got != c.want {
			t.Errorf("%v: cut off %v, want %v", c.e, got, c.want)
		}
	}
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	c := failoverClient(t, r.url(), s.URL())
	session := openSession(t, c, SessionConfig{TTL: time.Hour}) // no beat is due
	session.leaveMember()
	session.leaveMember() // once left, it stays left
	if _, member := c.members.current(); member.String() != s.URL() {
		t.Errorf("%v is preferred, want %s", member, s.URL())
	}
}

func TestReconnectAfterARestartKeepsTheToken(t *testing.T) {
	cfg := serverConfig(t)
	s := startServer(t, cfg)
	c := clientOf(t, s.URL())
	session := openSession(t, c, SessionConfig{TTL: longTTL})
	l := mustClaim(t, session, "db")
	first := session.current()
	cfg.Listen = s.URL()[len("http://"):]
	stopServer(t, s)
	startServer(t, cfg)
	// Any operation waits for the next link.
	other := mustClaim(t, session, "other")
	if session.current() == first {
		t.Error("the same link")
	}
	if other.Token() <= l.Token() {
		t.Errorf("token %d after %d", other.Token(), l.Token())
	}
	got := lookUp(t, c, "db")
	if !l.Held() || got.Token != uint64(l.Token()) || got.Session != session.ID().String() {
		t.Errorf("after the restart: held %v under %d, at the server %v", l.Held(), l.Token(), got)
	}
	if err := l.Release(testContext(t)); err != nil {
		t.Error(err)
	}
}

// The grant of a claim whose caller has gone does not stay with the session.
func TestAbandonedClaimIsGivenBack(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	direct := clientOf(t, s.URL())
	session := openSession(t, clientOf(t, r.url()), SessionConfig{TTL: 9 * time.Second})
	mustClaim(t, session, "warm") // so that a key can be chosen at once
	for lookUp(t, direct, "db").GetLastToken() == 0 {
		r.stall()
		ctx, cancel := context.WithCancel(testContext(t))
		failed := make(chan error, 1)
		go func() {
			_, err := session.Claim(ctx, named("db"), ClaimOptions{})
			failed <- err
		}()
		// The request is in the relay; it gets through once the caller has gone.
		// Now and then it is a beat that is there, and the claim was never sent.
		session.awaitPending(t)
		cancel()
		r.resume()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("the claim: %v", err)
		}
	}
	follow(t, direct, "db", func(l *apiv1.Lease) bool { return l.GetHolder() == "" && l.GetLastToken() != 0 })
}

// awaitPending returns once the session has sent a request that is not answered.
func (s *Session) awaitPending(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); runtime.Gosched() {
		l := s.current()
		if l == nil {
			continue
		}
		l.mu.Lock()
		n := len(l.pending)
		l.mu.Unlock()
		if n > 0 {
			return
		}
	}
	t.Fatal("nothing was sent")
}

// Who no longer waits leaves the queue.
func TestCancelledWaitLeavesTheQueue(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	a, b := openSession(t, c, SessionConfig{Holder: "a"}), openSession(t, c, SessionConfig{Holder: "b"})
	mustClaim(t, a, "db")
	ctx, cancel := context.WithCancel(testContext(t))
	failed := make(chan error, 1)
	go func() {
		_, err := b.Claim(ctx, named("db"), ClaimOptions{Wait: true})
		failed <- err
	}()
	b.awaitQueued(t, c, "db", 1)
	if _, err := b.Claim(testContext(t), named("db"), ClaimOptions{}); incumbent.KindOf(err) != incumbent.Exists {
		t.Errorf("a second claim beside the first: %v, want Exists", err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if q := lookUp(t, c, "db").Queue; len(q) != 0 {
		t.Errorf("still in the queue: %v", q)
	}
}

// An offer that was over before the session's new stream began took the place in line with it:
// the claim stands in line again.
func TestAnOfferThatWasMissedIsNotTheLast(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	direct, far := clientOf(t, s.URL()), clientOf(t, r.url())
	a, b := openSession(t, direct, SessionConfig{Holder: "a"}), openSession(t, far, SessionConfig{Holder: "b", TTL: time.Minute})
	held := mustClaim(t, a, "db")
	granted := make(chan error, 1)
	go func() {
		_, err := b.Claim(testContext(t), named("db"), ClaimOptions{Wait: true})
		granted <- err
	}()
	b.awaitQueued(t, direct, "db", 1)
	r.stall()
	r.cut()
	if err := held.Release(testContext(t)); err != nil {
		t.Fatal(err)
	}
	follow(t, direct, "db", func(l *apiv1.Lease) bool { return l.GetHolder() == "" && len(l.GetQueue()) == 0 })
	r.resume()
	if err := <-granted; err != nil {
		t.Error(err)
	}
	if got := lookUp(t, direct, "db").Holder; got != "b" {
		t.Errorf("held by %q", got)
	}
}
