package juju

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// shutFor is how long lanes are shut here, and when a client is told to come back.
const shutFor = time.Hour

// crowded is a member with so few places that they are soon taken, under a clock
// that stands: what is refused is refused until it moves on.
func crowded(t *testing.T) (m *member, clock *atomic.Int64, lanes *admit.Controller) {
	t.Helper()
	lanes, err := admit.New(admit.Limits{Min: 1, Max: 1, Interval: shutFor, Retry: shutFor, MaxRetry: shutFor}, func() float64 { return 0.5 })
	if err != nil {
		t.Fatal(err)
	}
	clock = new(atomic.Int64)
	m = newMember(t, nil, func(c *Config) { c.Admission, c.Monotonic = lanes, clock.Load })
	return m, clock, lanes
}

// fill takes all places of the lane of claims.
func fill(t *testing.T, lanes *admit.Controller, clock *atomic.Int64) (held []admit.Ticket) {
	t.Helper()
	return fillLane(t, lanes, clock, admit.Claims)
}

// fillLane takes all places of a lane, and those that are kept for who waits.
func fillLane(t *testing.T, lanes *admit.Controller, clock *atomic.Int64, l admit.Lane) (held []admit.Ticket) {
	t.Helper()
	for range 10 {
		place, err := lanes.Enter(l, 1, clock.Load())
		why := admit.NumReasons
		if err != nil {
			place, why = lanes.EnterNext(admit.Who{}, l, 1, clock.Load())
		}
		if why != admit.NumReasons {
			return held
		}
		held = append(held, place)
	}
	t.Fatal("the lane takes everything")
	return nil
}

// While logins are refused, accepting rests: who comes is let in a little later.
// Only if that lasts is a connection closed, and then before TLS.
func TestG41_AcceptingRestsBeforeItRefuses(t *testing.T) {
	m, clock, lanes := crowded(t)
	fill(t, lanes, clock)
	in := make(chan *client, 1)
	go func() { in <- m.login("unit-app-0") }()
	refused := func() uint64 { return lanes.Stats()[admit.Logins].Refused[admit.Order] }
	deferred := func() uint64 { return lanes.Stats()[admit.Logins].Deferred }
	eventually(t, "logins were refused again and again", func() bool { return deferred() > 3 })
	if n := refused(); n != 1 {
		t.Errorf("one who waits counts as %d that were refused", n)
	}
	if n := m.door.Stats().Refused[refusedOverload].N; n != 0 {
		t.Fatalf("%d were closed", n)
	}
	clock.Add(int64(shutFor) + 1)
	select {
	case <-in:
	case <-time.After(patience):
		t.Fatal("it was not let in when logins were admitted again")
	}

	fill(t, lanes, clock)
	conn, err := net.Dial("tcp", m.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := deferred()
	eventually(t, "accepting rests", func() bool { return deferred() > before })
	clock.Add(int64(loginPatience))
	_ = conn.SetDeadline(time.Now().Add(patience))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d, %v: it was not closed before TLS", n, err)
	}
	if n := m.door.Stats().Refused[refusedOverload].N; n != 1 {
		t.Errorf("%d counted as closed, one was", n)
	}
}

// Claims that find no place wait for one in order, whatever a client would be
// advised; one whose connection ends meanwhile leaves the line, wherever it stands.
func TestClaimsWaitForAPlaceInside(t *testing.T) {
	m, clock, lanes := crowded(t)
	a, b := m.login("unit-app-0"), m.login("unit-app-1")
	gone, other := m.login("application-app"), m.login("unit-other-0")
	behind := m.login("unit-load-0")
	held := fill(t, lanes, clock)
	for i, send := range []func(){
		func() { gone.send(claimText(2, "app", "app-7", "60")) },
		func() { a.send(claimText(2, "app", "app-0", "60")) },
		func() { b.send(claimText(2, "app", "app-1", "60")) },
		func() { other.send(claimText(2, "other", "other-0", "60")) },
		func() { behind.send(claimText(2, "behind", "behind-7", "60")) },
	} {
		send()
		eventually(t, "it waits", func() bool { return m.door.Stats().Retries == uint64(i+1) })
	}
	gone.conn.Close()
	behind.conn.Close()
	eventually(t, "they are gone", func() bool { return m.door.Stats().Agents == 3 })
	eventually(t, "they have left the line", func() bool { return m.door.lines[admit.Claims].Len() == 3 })
	deferred := func() uint64 { return lanes.Stats()[admit.Claims].Deferred }
	before := deferred()
	eventually(t, "the first asks again", func() bool { return deferred() > before+2 })
	if st := m.door.Stats(); st.Claims != 3 || st.Retries != 5 {
		t.Errorf("%d claims wait, and %d attempts were repeated: want 3 and 5", st.Claims, st.Retries)
	}
	for _, place := range held {
		place.Done(clock.Load())
	}
	clock.Add(int64(shutFor) + 1)
	for c, want := range map[*client]string{a: granted(2), b: denied(2), other: granted(2)} {
		if got := c.read(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	eventually(t, "no claim is left", func() bool { return m.door.Stats().Claims == 0 })
}

// A wait for a lease that is held here needs no leader: its end is seen when it
// comes.
func TestG10_HeldLeasesAreWaitedForWithoutALeader(t *testing.T) {
	m := newMember(t, nil)
	a, b := m.login("unit-app-0"), m.login("unit-app-1")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	m.group.Refuse(true)
	b.send(blockText(2, "app"))
	eventually(t, "it waits", func() bool { return m.group.Hub().Stats().Waiters == 1 })
	if n := m.door.Stats().Retries; n != 0 {
		t.Errorf("%d retries", n)
	}
	m.free(nameOf(testModel, "app"))
	if got := b.read(); got != empty(2) {
		t.Error(got)
	}
	// That it is free must be certain.
	b.send(blockText(3, "app"))
	eventually(t, "it is tried again", func() bool { return m.door.Stats().Retries > 1 })
	m.group.Refuse(false)
	if got := b.read(); got != empty(3) {
		t.Error(got)
	}
}

// While a member cannot serve, accepting rests; whoever came meanwhile is served as
// soon as it can. Only if that lasts is a connection closed, and then before TLS.
func TestG41_AcceptingRestsWhileNotReady(t *testing.T) {
	var clock, asked atomic.Int64
	var down atomic.Bool
	down.Store(true)
	m := newMember(t, nil, func(c *Config) {
		c.Monotonic = clock.Load
		c.Ready = func() error {
			asked.Add(1)
			if down.Load() {
				return errNoLeader
			}
			return nil
		}
	})
	in := make(chan *client, 1)
	go func() { in <- m.login("unit-app-0") }()
	eventually(t, "it was looked again and again", func() bool { return asked.Load() > 3 })
	down.Store(false)
	select {
	case <-in:
	case <-time.After(patience):
		t.Fatal("it was not let in when the member was ready")
	}
	down.Store(true)
	conn, err := net.Dial("tcp", m.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := asked.Load()
	eventually(t, "accepting rests", func() bool { return asked.Load() > before+1 })
	clock.Add(int64(loginPatience))
	_ = conn.SetDeadline(time.Now().Add(patience))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d, %v: it was not closed before TLS", n, err)
	}
	if n := m.door.Stats().Refused[refusedUnready].N; n != 1 {
		t.Errorf("%d counted as closed, one was", n)
	}
}
