package gate

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestG47_WhoIsSilentForTooLongIsClosed(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{FirstByte: time.Second})
		c, spoke := r.dial("192.0.2.1"), r.speak("192.0.2.1")
		wait(oneSecond - 1)
		if !open(c) {
			t.Fatal("closed early")
		}
		wait(3)
		if open(c) {
			t.Error("it is still there")
		}
		if !open(spoke) || r.next() == nil {
			t.Error("who has said something is closed")
		}
		if got := r.gate.Stats(); got.Closed[Silent] != 1 || got.Silent != 0 || got.Unproven != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// What was read to know that somebody speaks is read again by whoever serves.
func TestTheFirstByteIsNotLost(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{})
		client := r.dial("192.0.2.1")
		go func() { _, _ = client.Write([]byte("hello")) }()
		c := r.mustLetIn()
		got := make([]byte, 5)
		n, err := c.Read(got)
		for err == nil && n < len(got) {
			var more int
			more, err = c.Read(got[n:])
			n += more
		}
		if string(got) != "hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// The silent make room for who comes; the proven never do.
func TestG47_TheOldestStrangerMakesRoom(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 10, FirstByte: time.Hour})
		known := r.speak("192.0.2.1")
		if !Prove(r.mustLetIn(), false) {
			t.Fatal("no place for the first")
		}
		var idle []net.Conn
		for range 9 {
			idle = append(idle, r.dial("192.0.2.2"))
		}
		wait(youngest)
		for i := range 20 {
			guest := r.speak("192.0.2.3")
			if !Prove(r.mustLetIn(), false) {
				t.Fatalf("no place for guest %d", i)
			}
			if !open(known) || !open(guest) {
				t.Fatal("who is proven made room")
			}
			if i == 8 {
				break
			}
		}
		for i, c := range idle {
			if open(c) {
				t.Errorf("silent connection %d is still there", i)
			}
		}
		// Now everybody is proven.
		late := r.speak("192.0.2.4")
		if open(late) {
			t.Error("one too many is not closed")
		}
		if got := r.gate.Stats(); got.Closed[MadeRoom] != 9 || got.Closed[Full] != 1 || got.Proven != 10 {
			t.Errorf("%+v", got)
		}
	})
}

// With the last descriptors it is as with the last places: who is proven keeps its own, who
// comes has that of somebody who is not, or is closed; operators come in.
func TestG47_TheLastDescriptorsAreNotForClients(t *testing.T) {
	play(t, func(t *testing.T) {
		few := false
		r := newRig(t, Config{Max: 100, Reserved: 1, FirstByte: time.Hour, Few: func() bool { return few }})
		agent := r.speak("192.0.2.1")
		Prove(r.mustLetIn(), false)
		shy := r.dial("192.0.2.2")
		wait(youngest)
		few = true
		second := r.speak("192.0.2.3")
		Prove(r.mustLetIn(), false)
		if open(shy) || !open(second) || !open(agent) {
			t.Errorf("silent one open: %v, who came open: %v, agent open: %v", open(shy), open(second), open(agent))
		}
		agents := r.speak("127.0.0.1") // the place for an operator
		if c := r.mustLetIn(); Prove(c, false) {
			t.Error("who is no operator keeps the reserved place")
		} else {
			c.Close()
		}
		operator := r.speak("127.0.0.1")
		if !Prove(r.mustLetIn(), true) {
			t.Error("an operator has no place")
		}
		late := r.speak("192.0.2.3")
		if open(agents) || !open(operator) || open(late) {
			t.Errorf("agent in the reserved place open: %v, operator open: %v, one too many open: %v", open(agents), open(operator), open(late))
		}
		if got := r.gate.Stats(); got.Closed[NoDescriptors] != 2 || got.Closed[MadeRoom] != 1 || r.gate.Refused() != 2 {
			t.Errorf("%+v", got)
		}
		few = false
		if !open(r.dial("192.0.2.3")) {
			t.Error("who comes when there are descriptors again is closed")
		}
	})
}

// Who makes room is of the address that has the most, whoever is older.
func TestG47_TheAddressWithTheMostMakesRoom(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 10, FirstByte: time.Hour})
		shy := r.dial("192.0.2.1")
		wait(youngest)
		// Nine of one customer's IPv6 network, each from another address of it.
		for i := range 9 {
			r.dial(fmt.Sprintf("2001:db8:0:1::%x", i+1))
		}
		for i := range 5 {
			r.dial(fmt.Sprintf("198.51.100.%d", i+1))
		}
		if !open(shy) {
			t.Error("the only one of its address made room")
		}
		if got := r.gate.Stats(); got.Closed[MadeRoom] != 5 || got.Silent != 10 {
			t.Errorf("%+v", got)
		}
	})
}

// While more come than there are places, who has only just come stays: else nobody
// would ever be served.
func TestAStormDoesNotStarveItself(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 10})
		for range 10 {
			r.speak("192.0.2.1")
		}
		for range 10 {
			if late := r.speak("192.0.2.1"); open(late) {
				t.Fatal("one too many is not closed")
			}
		}
		for i := range 10 {
			if c := r.mustLetIn(); !Prove(c, false) {
				t.Errorf("no place for %d", i)
			}
		}
		if got := r.gate.Stats(); got.Closed[MadeRoom] != 0 || got.Closed[Full] != 10 {
			t.Errorf("%+v", got)
		}
	})
}

// Fifteen thousand agents behind one address, all at once: each is served, in turn.
func TestAgentsBehindOneAddressAreAllServed(t *testing.T) {
	const agents = 15_000
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 16_000})
		for range agents {
			near, far := net.Pipe()
			t.Cleanup(func() { near.Close() })
			r.wire.conns <- from{far, netip.MustParseAddrPort("192.0.2.1:1")}
			go func() { _, _ = near.Write([]byte("x")) }()
		}
		synctest.Wait()
		share := r.gate.Stats().Unproven
		if share > DefaultUnproven*sharePercent/100 || share == 0 {
			t.Errorf("%d unproven at a time", share)
		}
		for i := range agents {
			if c := r.mustLetIn(); !Prove(c, false) {
				t.Fatalf("no place for agent %d", i)
			}
		}
		if got := r.gate.Stats(); got.Closed != [NumReasons]uint64{} || got.Proven != agents {
			t.Errorf("%+v", got)
		}
	})
}

// Who dribbles takes at most its share of the places, and less as soon as others of
// its own address wait.
func TestG47_WhoDribblesDoesNotKeepOthersOut(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Unproven: 8})
		for range 100 {
			r.speak("192.0.2.1")
		}
		for range 6 {
			r.mustLetIn()
		}
		if r.next() != nil {
			t.Error("one address has more than its share")
		}
		r.speak("192.0.2.2")
		if c := r.mustLetIn(); !strings.HasPrefix(c.RemoteAddr().String(), "192.0.2.2:") {
			t.Errorf("let in %v", c.RemoteAddr())
		}
		// Another that dribbles fills the rest; the third still finds a place.
		for range 100 {
			r.speak("192.0.2.3")
		}
		r.mustLetIn()
		wait(youngest)
		r.speak("192.0.2.4")
		var served []string
		for c := r.next(); c != nil; c = r.next() {
			served = append(served, c.RemoteAddr().String())
		}
		if !strings.Contains(strings.Join(served, " "), "192.0.2.4:") {
			t.Errorf("served: %v", served)
		}
		// Their own others come in as well, after a while.
		before := r.gate.Stats().Closed[MadeRoom]
		wait(2 * patience)
		if r.gate.Stats().Closed[MadeRoom] <= before || r.next() == nil {
			t.Errorf("who dribbles keeps its places: %+v", r.gate.Stats())
		}
	})
}

// Beyond the limit there are places for operators alone.
func TestReservedPlacesAreForOperators(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 2, Reserved: 2})
		for range 2 {
			r.speak("192.0.2.1")
			Prove(r.mustLetIn(), false)
		}
		agent := r.speak("192.0.2.2")
		c := r.mustLetIn()
		if Prove(c, false) {
			t.Error("an agent has a reserved place")
		}
		c.Close()
		if open(agent) {
			t.Error("it is not closed")
		}
		operator := r.speak("192.0.2.3")
		if !Prove(r.mustLetIn(), true) {
			t.Fatal("no place for an operator")
		}
		if r.speak("192.0.2.3"); !Prove(r.mustLetIn(), true) {
			t.Fatal("no place for the second")
		}
		if third := r.speak("192.0.2.3"); open(third) {
			t.Error("more than are reserved")
		}
		operator.Close()
		if got := r.gate.Stats(); got.Proven != 4 {
			t.Errorf("%+v", got)
		}
	})
}

// Strangers try for a reserved place so often that a handshake each costs little.
func TestReservedPlacesAreTriedInTurn(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 1, Reserved: 100})
		r.speak("192.0.2.1")
		Prove(r.mustLetIn(), false)
		in := 0
		for i := range 50 {
			r.speak(fmt.Sprintf("198.51.100.%d", i))
			if c := r.next(); c != nil {
				in++
				c.Close()
			}
		}
		if in > reservedATick {
			t.Errorf("%d of 50 at once", in)
		}
		if r.speak("127.0.0.1"); r.next() == nil {
			t.Error("the machine's own operator has to wait")
		}
		wait(2)
		if r.speak("198.51.100.1"); r.next() == nil {
			t.Error("nobody may try any more")
		}
	})
}

// What has left is counted by somebody else.
func TestWhoHasLeftIsCountedElsewhere(t *testing.T) {
	play(t, func(t *testing.T) {
		parked := 0
		r := newRig(t, Config{Max: 2, Parked: func() int { return parked }})
		for range 2 {
			r.speak("192.0.2.1")
			c := r.mustLetIn()
			parked++
			Leave(c)
			Leave(c)
		}
		if open(r.speak("192.0.2.1")) {
			t.Error("more than there is room for")
		}
		parked--
		if !open(r.speak("192.0.2.1")) {
			t.Error("there is room")
		}
		if got := r.gate.Open(); got != 1 {
			t.Errorf("%d open, want 1", got)
		}
	})
}

// Silent neighbours, who come back at once, do not keep out who speaks, however short
// they stay.
func TestG47_SilentNeighboursMakeRoom(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 10})
		for range 25 {
			r.dial("192.0.2.1")
		}
		for i := range 10 {
			r.speak("192.0.2.1")
			if c := r.next(); c == nil || !Prove(c, false) {
				t.Fatalf("no place for guest %d", i)
			}
		}
	})
}

// Who takes long to show who it is keeps its place, however many come again and again
// from one address meanwhile: those make room for one another.
func TestG47_ACrowdDoesNotTakeTheNewcomersPlace(t *testing.T) {
	play(t, func(t *testing.T) {
		const most, crowd, alone = 10, "192.0.2.66", "192.0.2.1"
		r := newRig(t, Config{Max: most})
		for range most {
			r.speak(crowd)
		}
		// Nothing has been said yet, and nobody of the crowd is silent or has been there
		// for long.
		slow := r.dial(alone)
		for range most {
			r.speak(crowd)
		}
		if !open(slow) {
			t.Fatal("the newcomer made room before its first byte")
		}
		r.say(slow, "x")
		var shown *Conn
		for range 5 {
			wait(youngest)
			for range 2 * most {
				r.speak(crowd)
			}
			for c := r.next(); c != nil; c = r.next() {
				if strings.HasPrefix(c.RemoteAddr().String(), alone+":") {
					shown = c
				}
			}
			if !open(slow) {
				t.Fatal("the newcomer made room in its handshake")
			}
		}
		if shown == nil || !Prove(shown, false) {
			t.Error("the newcomer has no place")
		}
		if got := r.gate.Stats(); got.Proven != 1 || got.Unproven+got.Waiting != most-1 || got.Closed[MadeRoom] < 5*(most-1) {
			t.Errorf("%+v", got)
		}
	})
}

// Who makes room for an address has more than it, or is its own: equals take nothing
// from one another.
func TestEqualAddressesKeepTheirPlaces(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 4, FirstByte: time.Hour})
		first := []net.Conn{r.dial("192.0.2.1"), r.dial("192.0.2.1")}
		wait(youngest)
		second := []net.Conn{r.dial("192.0.2.2"), r.dial("192.0.2.2")}
		wait(youngest)
		for range 3 {
			r.dial("192.0.2.2")
		}
		if !open(first[0]) || !open(first[1]) || open(second[0]) || open(second[1]) {
			t.Error("a third of one address took a place of another that has two")
		}
	})
}

// The books hold nothing of those who have gone.
func TestNothingStaysOfWhoHasGone(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 50})
		for i := range 200 {
			c := r.dial(fmt.Sprintf("192.0.2.%d", i%20))
			switch i % 4 {
			case 0:
				r.say(c, "x")
			case 1:
				c.Close()
			}
		}
		for c := r.next(); c != nil; c = r.next() {
			c.Close()
		}
		wait(uint32(DefaultFirstByte/tickEvery) + 2)
		r.gate.mu.Lock()
		defer r.gate.mu.Unlock()
		if n := len(r.gate.sources) + r.gate.silent.n + r.gate.ready + r.gate.unproven.n; n != 0 || len(r.gate.ranks) > 1 {
			t.Errorf("%d left, %d ranks", n, len(r.gate.ranks))
		}
	})
}

// How many strangers are served, and how long they may be silent, changes while the
// gate is open.
func TestLimitsOfStrangersChange(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Max: 50, Unproven: 4, FirstByte: time.Hour})
		for i := range 8 {
			r.speak(fmt.Sprintf("192.0.2.%d", i))
		}
		for range 4 {
			if r.next() == nil {
				t.Fatal("fewer are served than may be")
			}
		}
		if st := r.gate.Stats(); st.Waiting != 4 {
			t.Errorf("%d wait, want 4", st.Waiting)
		}
		r.gate.SetStrangers(8, time.Second)
		for range 4 {
			if r.next() == nil {
				t.Fatal("who waits is not served once more may be")
			}
		}
		silent := r.dial("192.0.2.99")
		wait(3 * oneSecond)
		if st := r.gate.Stats(); st.Closed[Silent] != 1 {
			t.Errorf("%d were closed for their silence", st.Closed[Silent])
		}
		silent.Close()
	})
}

// A storm is one line when it begins and one when it is over.
func TestAStormIsTwoLines(t *testing.T) {
	play(t, func(t *testing.T) {
		var log strings.Builder
		r := newRig(t, Config{Name: "native", FirstByte: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 4 {
			for range 100 {
				r.dial("192.0.2.1")
			}
			wait(2 * oneSecond)
		}
		wait(3 * stormWindow)
		text := log.String()
		if strings.Count(text, "\n") != 2 || !strings.Contains(text, `"strangers are closed" listener=native reason=silent address=192.0.2.1`) ||
			!strings.Contains(text, `"strangers are no longer closed" listener=native closed=400`) {
			t.Errorf("log:\n%s", text)
		}
		if r.gate.ticking {
			t.Error("ticks go on")
		}
	})
}

// A proxy that is believed says where a connection comes from; others cannot.
func TestAProxySaysWhereAConnectionComesFrom(t *testing.T) {
	play(t, func(t *testing.T) {
		r := newRig(t, Config{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, FirstByte: time.Second})
		c := r.dial("10.1.2.3")
		r.say(c, "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\nhello")
		got := r.mustLetIn()
		if got.RemoteAddr().String() != "192.0.2.7:4711" || !got.proxied {
			t.Errorf("from %v", got.RemoteAddr())
		}
		if got.source.address != netip.MustParseAddr("192.0.2.7") || len(r.gate.sources) != 1 {
			t.Errorf("counted as %v", got.source.address)
		}
		liar := r.dial("192.0.2.9")
		r.say(liar, "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nhello")
		if got := r.mustLetIn(); got.RemoteAddr().String() != "192.0.2.9:1" || got.proxied {
			t.Errorf("from %v", got.RemoteAddr())
		}
		bare := r.dial("10.1.2.3")
		r.say(bare, "GET / HTTP/1.1\r\n")
		if open(bare) || r.next() != nil {
			t.Error("a connection of a proxy without a header")
		}
		slow := r.dial("10.1.2.3")
		r.say(slow, "PROXY TCP4 ")
		wait(2 * oneSecond)
		if open(slow) {
			t.Error("half a header is waited for without end")
		}
		check := r.dial("10.1.2.3")
		r.say(check, proxyMagic+"\x20\x00\x00\x00x")
		if got := r.mustLetIn(); got.RemoteAddr().String() != "10.1.2.3:1" {
			t.Errorf("the proxy's own is from %v", got.RemoteAddr())
		}
		if got := r.gate.Stats(); got.Closed[BadProxy] != 1 || got.Closed[Silent] != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// A fleet comes back, each from an address of its own, to a gate that has one place:
// finding out who is next, or that nobody is, costs the same however many wait.
func TestG47_ManyAddressesThatWaitCostNothing(t *testing.T) {
	play(t, func(t *testing.T) {
		const addresses = 10_000
		r := newRig(t, Config{Max: 2 * addresses, Unproven: 1})
		r.speak("192.0.2.1")
		first := r.mustLetIn()
		for i := range addresses {
			near, far := net.Pipe()
			t.Cleanup(func() { near.Close() })
			at := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			r.wire.conns <- from{far, netip.AddrPortFrom(at, 1)}
			go func() { _, _ = near.Write([]byte("x")) }()
		}
		synctest.Wait()
		looked := r.looked()
		r.gate.mu.Lock()
		c := r.gate.next()
		r.gate.mu.Unlock()
		if n := r.looked() - looked; c != nil || n != 1 {
			t.Errorf("%d addresses were looked at, want 1; let in: %v", n, c)
		}
		looked = r.looked()
		Prove(first, false)
		for range addresses {
			if !Prove(r.mustLetIn(), false) {
				t.Fatal("no place")
			}
		}
		// One that comes in, and one that does not, for each that proves who it is.
		if n := r.looked() - looked; n > 2*addresses {
			t.Errorf("%d addresses were looked at to let in %d", n, addresses)
		}
	})
}

// next looks at few of those who wait, but lets in and closes whom it would if it asked
// each in turn.
func TestNextIsWhoIsFoundInTurn(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		unproven := 1 + rng.IntN(8)
		a, b := newBooks(unproven), newBooks(unproven)
		for range 400 {
			switch op, id := rng.IntN(10), rng.IntN(1<<16); op {
			case 0, 1, 2, 3:
				a.come(id)
				b.come(id)
			case 4, 5:
				a.leave(id)
				b.leave(id)
			case 6:
				a.gate.now += oneSecond / 2
				b.gate.now += oneSecond / 2
			default:
				got, want := a.gate.next(), b.nextByAsking()
				if name(got) != name(want) || !slices.Equal(names(a.gate.doomed), names(b.gate.doomed)) {
					t.Fatalf("seed %d: let in %q, want %q; closed %v, want %v", seed, name(got), name(want), names(a.gate.doomed), names(b.gate.doomed))
				}
			}
		}
	}
}

// books are a gate's, whose connections are nothing but names.
type books struct {
	gate  *Gate
	conns []*Conn // that came, in order
	queue []*source
}

type named struct {
	net.Conn
	name string
}

func newBooks(unproven int) *books {
	g := New(nil, Config{Unproven: unproven, after: func(time.Duration, func()) {}})
	g.watcher = nobody{}
	return &books{gate: g}
}

// nobody watches.
type nobody struct{}

func (nobody) watch(*Conn)  {}
func (nobody) forget(*Conn) {}
func (nobody) close()       {}

// come has somebody wait, who comes from one of a few addresses: from some more often.
func (b *books) come(id int) {
	address := netip.AddrFrom4([4]byte{10, 0, 0, byte(min(id%12, id/12%12))})
	c := &Conn{Conn: named{name: fmt.Sprint(address, "/", len(b.conns))}, gate: b.gate}
	b.conns = append(b.conns, c)
	b.gate.enter(c, address)
	b.gate.spoke(c)
	b.tidy()
	if !slices.Contains(b.queue, c.source) {
		b.queue = append(b.queue, c.source)
	}
}

// tidy takes those out of the queue of whom nobody waits any more.
func (b *books) tidy() {
	b.queue = slices.DeleteFunc(b.queue, func(s *source) bool { return s.waiting.n == 0 })
}

// leave has somebody leave, whatever became of them.
func (b *books) leave(id int) {
	if len(b.conns) > 0 {
		b.gate.leave(b.conns[id%len(b.conns)])
		b.tidy()
	}
}

// nextByAsking is next in the plainest way.
func (b *books) nextByAsking() *Conn {
	g := b.gate
	b.tidy()
	for range len(b.queue) {
		s := b.queue[0]
		b.queue = append(b.queue[1:], s)
		if b.mayPlace(s) {
			return g.letIn(s)
		}
	}
	return nil
}

func (b *books) mayPlace(s *source) bool {
	g := b.gate
	if s.served*100 >= g.cfg.Unproven*sharePercent && s.served > 0 {
		return g.yield(s.oldestServed(), patience)
	}
	if g.unproven.n < g.cfg.Unproven {
		return true
	}
	most := s
	for c := g.unproven.first; c != nil; c = c.links[ofStage].next {
		if c.source.served > most.served {
			most = c.source
		}
	}
	if s.served+1 < most.served {
		return g.yield(most.oldestServed(), youngest)
	}
	return g.yield(most.oldestServed(), patience)
}

func name(c *Conn) string {
	if c == nil {
		return ""
	}
	return c.Conn.(named).name
}

func names(cs []*Conn) []string {
	var all []string
	for _, c := range cs {
		all = append(all, name(c))
	}
	return all
}
