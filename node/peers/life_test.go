package peers

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/node"
)

// throughRelay connects a to b such that single connections can be cut.
func throughRelay(t *testing.T) (a, b *member, r *relay) {
	t.Helper()
	a, b = newMember(t, 1), newMember(t, 2)
	r = newRelay(t, b.addr)
	b.set.SetMembers([]Member{{ID: 1, Address: a.addr}})
	a.set.SetMembers([]Member{{ID: 2, Address: r.ln.Addr().String()}})
	connected(t, a, b)
	return a, b, r
}

// TestOneConnectionLostIsNotAMemberLost cuts either connection, again and again:
// it comes back, and nobody is told that a member was lost.
func TestOneConnectionLostIsNotAMemberLost(t *testing.T) {
	a, b, r := throughRelay(t)
	for range 6 {
		n := r.count()
		r.cut(n - 1)
		eventually(t, "a new connection", func() bool { return r.count() > n })
		connected(t, a, b)
	}
	b.set.Send([]node.Message{heartbeat(2, 1, 1)})
	a.until("a message", func() bool { return len(a.got) == 1 })
	if len(a.now().lost)+len(b.now().lost) != 0 {
		t.Errorf("lost %v and %v", a.now().lost, b.now().lost)
	}
}

// TestLostComesAfterEverythingReceived kills a member right after it has sent a
// lot: the other hands over all that arrived, then is told of the loss, once.
func TestLostComesAfterEverythingReceived(t *testing.T) {
	for range 20 {
		a, b := pair(t)
		const messages = 300
		for i := range messages {
			a.set.Send([]node.Message{heartbeat(1, 2, uint64(i)), appendOf(1, 2, uint64(i), 3000)})
		}
		eventually(t, "everything has left", func() bool { return a.set.Links()[0].QueuedBytes == 0 })
		awaitArrival(t, a)
		atLoss := -1
		b.mu.Lock()
		b.onLost = func() { atLoss = len(b.got) }
		b.mu.Unlock()
		a.close()
		b.until("the loss", func() bool { return len(b.lost) > 0 })
		b.close()
		if !slices.Equal(b.now().lost, []uint64{1}) || atLoss != 2*messages || len(b.now().got) != atLoss {
			t.Fatalf("lost %v after %d messages, %d at the end, %d were sent", b.now().lost, atLoss, len(b.now().got), 2*messages)
		}
		if len(a.now().lost) != 0 {
			t.Fatalf("who closed by itself is told of a loss: %v", a.now().lost)
		}
	}
}

// TestMuteIsSilenceThatOthersNotice mutes a member: the others are told of the
// loss at once, it is told nothing, sends and hears nothing, and comes back.
func TestMuteIsSilenceThatOthersNotice(t *testing.T) {
	for _, muted := range []int{0, 1} {
		a, b := pair(t)
		m, o := []*member{a, b}[muted], []*member{a, b}[1-muted]
		m.set.Mute(true)
		m.set.Mute(true)
		o.until("the loss", func() bool { return len(o.lost) == 1 })
		m.set.Send([]node.Message{heartbeat(m.id, o.id, 1)})
		o.set.Send([]node.Message{heartbeat(o.id, m.id, 1)})
		if l := m.set.Links()[0]; l.Control || l.Bulk || l.Trouble == "" {
			t.Errorf("a muted member is connected: %+v", l)
		}
		m.set.Mute(false)
		connected(t, a, b)
		m.set.Send([]node.Message{heartbeat(m.id, o.id, 2)})
		o.until("a message", func() bool { return len(o.got) == 1 })
		if len(m.now().lost)+len(m.now().got) != 0 || o.now().got[0].Raft.GetCommit() != 2 {
			t.Errorf("lost %v, got %d, the other got %v", m.now().lost, len(m.now().got), o.now().got[0].Raft)
		}
	}
}

func TestMemberThatLeavesTheSetIsNotLost(t *testing.T) {
	a, b := pair(t)
	a.set.SetMembers(nil)
	b.until("the loss", func() bool { return len(b.lost) == 1 })
	if len(a.now().lost) != 0 || len(a.set.Links()) != 0 {
		t.Errorf("lost %v, links %v", a.now().lost, a.set.Links())
	}
	if x, y := a.set.Disconnections(), b.set.Disconnections(); x != 2 || y != 2 {
		t.Errorf("%d and %d connections have ended, of two", x, y)
	}
	know(a, b)
	connected(t, a, b)
}

// TestNewAddressIsFollowed moves a member that nobody else lost sight of.
func TestNewAddressIsFollowed(t *testing.T) {
	a, b := pair(t)
	r := newRelay(t, b.addr)
	a.set.SetMembers([]Member{{ID: 2, Address: r.ln.Addr().String()}})
	eventually(t, "both connections lead through the new address", func() bool { return r.count() >= 2 })
	connected(t, a, b)
	if len(a.now().lost)+len(b.now().lost) != 0 {
		t.Errorf("lost %v and %v", a.now().lost, b.now().lost)
	}
}

// TestRemovedMemberIsTold removes the one that dials, and the one that is dialed
// and so must ask.
func TestRemovedMemberIsTold(t *testing.T) {
	for _, removed := range []int{0, 1} {
		a, b := pair(t)
		m, o := []*member{a, b}[removed], []*member{a, b}[1-removed]
		o.change(func() { o.gone[m.id] = true })
		o.set.SetMembers(nil)
		m.until("the refusal", func() bool { return len(m.refused) > 0 })
		if k := incumbent.KindOf(m.now().refused[0]); k != incumbent.Denied {
			t.Errorf("refused with %v: %v", k, m.now().refused[0])
		}
		if len(o.now().refused) != 0 {
			t.Errorf("the other was refused: %v", o.now().refused)
		}
		o.set.book.mu.Lock()
		if len(o.set.book.rows) != 0 {
			t.Error("a removed member is still in the book")
		}
		o.set.book.mu.Unlock()
	}
}

// TestUnknownMemberIsTakenOnceItIsKnown lets one dial before the other has heard
// of it.
func TestUnknownMemberIsTakenOnceItIsKnown(t *testing.T) {
	a, b := newMember(t, 1), newMember(t, 2)
	a.set.SetMembers([]Member{{ID: 2, Address: b.addr}})
	b.until("a refusal", func() bool { return slices.Contains(b.refusals, NotKnown) })
	b.set.SetMembers([]Member{{ID: 1, Address: a.addr}})
	connected(t, a, b)
	if len(a.now().refused) != 0 {
		t.Errorf("refused for good: %v", a.now().refused)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change option
		want   Reason
	}{
		"cluster": {func(c *Config) { c.Cluster = [16]byte{8} }, WrongCluster},
		"group":   {func(c *Config) { c.Group = 4 }, WrongCluster},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newMember(t, 1, c.change), newMember(t, 2)
			know(a, b)
			b.until("the refusal", func() bool { return slices.Contains(b.refusals, c.want) })
			if l := b.set.Links()[0]; l.Control || l.Bulk {
				t.Error("they are connected")
			}
		})
	}
}

// TestGarbageIsCutOff sends what is no handshake, and a frame after the hellos that
// breaks the rules.
func TestGarbageIsCutOff(t *testing.T) {
	b := newMember(t, 2)
	b.set.SetMembers([]Member{{ID: 1, Address: "127.0.0.1:1"}})
	good := hello{cluster: b.cfg.Cluster, group: 3, member: 1, to: 2, shows: Standing{Incarnation: 1}, class: node.Control}
	other := good
	other.to = 3
	m := heartbeat(7, 2, 1)
	raw := func(bytes []byte) func(*proof) []byte { return func(*proof) []byte { return bytes } }
	says := func(h hello) func(*proof) []byte { return func(p *proof) []byte { return appendHello(nil, h, p) } }
	ready := endFrame(beginFrame(nil, frameReady, 3), 0)
	for name, c := range map[string]struct {
		first  []byte                // of one that does not greet
		hello  func(p *proof) []byte // of one that has proven that it belongs here
		then   func(p *proof) []byte
		answer frameType // to what came first, 0: none
	}{
		"noise":                       {first: []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		"a message without greeting":  {first: appendMessage(nil, &m, 3)},
		"greeting of another version": {first: greetingFrame(&greeting{version: version + 1}, 3), answer: frameRefusal},
		"greeting without our key":    {first: greetingFrame(&greeting{version: version, keys: []keyID{{1}}}, 3), answer: frameRefusal},
		"huge greeting":               {first: endFrame(append(beginFrame(nil, frameGreeting, 3), make([]byte, maxHelloFrame+1)...), 0)},
		"a message without hello":     {hello: raw(appendMessage(nil, &m, 3))},
		"hello for another":           {hello: says(other), answer: frameRefusal},
		"no ready":                    {hello: says(good), then: raw(appendMessage(nil, &m, 3)), answer: frameHello},
		"message of another":          {hello: says(good), then: raw(appendMessage(slices.Clone(ready), &m, 3)), answer: frameHello},
		"second hello":                {hello: says(good), then: func(p *proof) []byte { return appendHello(slices.Clone(ready), good, p) }, answer: frameHello},
		"too large a control frame":   {hello: says(good), then: raw(append(slices.Clone(ready), 0, 0, 0, 1, byte(frameApp), 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), answer: frameHello},
		"frame of another group":      {hello: says(good), then: raw(endFrame(beginFrame(slices.Clone(ready), frameApp, 4), len(ready))), answer: frameHello},
		"refusal after one's welcome": {hello: says(good), then: func(p *proof) []byte { return encodeRefusal(&refusal{NotNow, "x"}, 3, p) }, answer: frameHello},
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			in := newFrameReader(nc, 3)
			in.limit = MaxControlFrame
			var p *proof
			if c.hello != nil {
				if p, err = meet(nc, in, []Key{secret}); err != nil {
					t.Fatal(err)
				}
				c.first = c.hello(p)
			}
			nc.Write(c.first)
			if c.answer != 0 {
				f, err := in.wait()
				if err != nil || f.kind != c.answer {
					t.Fatalf("frame of type %d, %v, want %d", f.kind, err, c.answer)
				}
				if f.kind == frameHello {
					if _, err := helloOf(f, p); err != nil {
						t.Fatal(err)
					}
				}
			}
			if c.then != nil {
				nc.Write(c.then(p))
			}
			for err = nil; err == nil; {
				_, err = in.wait() // a ping may come first
			}
		})
	}
	if len(b.now().got)+len(b.now().apps) != 0 {
		t.Errorf("delivered %v and %v", b.now().got, b.now().apps)
	}
}

// TestForgedHellos: who does not have the cluster's secret learns no id, leaves
// nothing in the book, and stops nobody, whichever side it takes.
func TestForgedHellos(t *testing.T) {
	another := Key{Secret: []byte("a secret that somebody made up")}
	t.Run("it dials", func(t *testing.T) {
		b := newMember(t, 2)
		b.set.SetMembers([]Member{{ID: 1, Address: "127.0.0.1:1"}})
		forged := hello{cluster: b.cfg.Cluster, group: 3, member: 1, to: 2, shows: Standing{Incarnation: 1 << 60, Term: 1 << 60, Durable: 1 << 60, Commit: 1 << 60}}
		for name, attack := range map[string]func(nc net.Conn, in *frameReader){
			"with a key of its own": func(nc net.Conn, in *frameReader) {
				if _, err := meet(nc, in, []Key{another}); err == nil {
					t.Error("it was welcomed")
				}
			},
			"with the name of the key": func(nc net.Conn, in *frameReader) {
				nc.Write(greetingFrame(&greeting{version: version, keys: []keyID{secret.id()}}, 3))
				f, err := in.wait()
				if err != nil || f.kind != frameChallenge || len(f.payload) != nonceBytes+8+codeBytes {
					t.Errorf("answered by a frame of type %d with %d bytes, %v", f.kind, len(f.payload), err)
				}
				nc.Write(appendHello(nil, forged, &proof{key: another, self: dialer}))
			},
			"with what it was told": func(nc net.Conn, in *frameReader) {
				nc.Write(greetingFrame(&greeting{version: version, keys: []keyID{secret.id()}}, 3))
				f, _ := in.wait()
				ch, err := decodeChallenge(f.payload)
				if err != nil {
					t.Fatal(err)
				}
				hi := appendHello(nil, forged, &proof{key: another, self: dialer})
				hi = endFrame(append(hi[:len(hi)-codeBytes], ch.code[:]...), 0)
				nc.Write(hi)
			},
		} {
			nc, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			in := newFrameReader(nc, 3)
			attack(nc, in)
			if f, err := in.wait(); err == nil {
				t.Errorf("%s: answered by a frame of type %d", name, f.kind)
			}
			nc.Close()
		}
		b.set.book.mu.Lock()
		if n := len(b.set.book.rows); n != 0 {
			t.Errorf("%d rows are in the book", n)
		}
		b.set.book.mu.Unlock()
	})
	t.Run("it is dialed", func(t *testing.T) {
		a := newMember(t, 1)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		a.set.SetMembers([]Member{{ID: 2, Address: ln.Addr().String()}})
		for _, no := range []*refusal{{Removed, "gone"}, {RolledBack, "back"}} {
			nc, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			in := newFrameReader(nc, 3)
			if f, err := in.wait(); err != nil || f.kind != frameGreeting {
				t.Fatalf("frame of type %d, %v", f.kind, err)
			}
			nc.Write(encodeRefusal(no, 3, nil))
			if f, err := in.wait(); err == nil {
				t.Errorf("it goes on with a frame of type %d", f.kind)
			}
			nc.Close()
			a.set.Rotate() // do not wait for the backoff
		}
		if got := a.now().refused; len(got) != 0 {
			t.Errorf("a stranger stopped it: %v", got)
		}
	})
}

// TestKeyOfOneMember is that of a member that joins: no other can use it.
func TestKeyOfOneMember(t *testing.T) {
	joins := Key{Secret: []byte("of one that joins"), Member: 1}
	b := newMember(t, 5, func(c *Config) { c.Keys = func() []Key { return []Key{secret, joins} } })
	b.set.SetMembers([]Member{{ID: 1, Address: "127.0.0.1:1"}, {ID: 3, Address: "127.0.0.1:1"}})
	for id, want := range map[uint64]bool{1: true, 3: false} {
		nc, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		in := newFrameReader(nc, 3)
		p, err := meet(nc, in, []Key{joins})
		if err != nil {
			t.Fatal(err)
		}
		nc.Write(appendHello(nil, hello{cluster: b.cfg.Cluster, group: 3, member: id, to: 5, shows: Standing{Incarnation: 1}}, p))
		f, err := in.wait()
		if got := err == nil && f.kind == frameHello; got != want {
			t.Errorf("member %d: taken %v, want %v", id, got, want)
		}
		nc.Close()
	}
}

// TestMembersChangeTheirSecret one after the other: each has both for a while, and
// they stay connected; one that has the old one only comes no more.
func TestMembersChangeTheirSecret(t *testing.T) {
	next := Key{Secret: []byte("the next secret")}
	var keys [2]atomic.Pointer[[]Key]
	a := newMember(t, 1, func(c *Config) { c.Keys = func() []Key { return *keys[0].Load() } })
	b := newMember(t, 2, func(c *Config) { c.Keys = func() []Key { return *keys[1].Load() } })
	keys[0].Store(&[]Key{secret})
	keys[1].Store(&[]Key{secret})
	know(a, b)
	connected(t, a, b)
	for _, step := range [][2][]Key{{{secret, next}, {secret}}, {{secret, next}, {next, secret}}, {{secret, next}, {next}}, {{next}, {next}}} {
		keys[0].Store(&step[0])
		keys[1].Store(&step[1])
		before := a.set.Links()[0].Since
		a.set.Rotate()
		eventually(t, "new connections", func() bool { l := a.set.Links()[0]; return l.Connected && l.Since.After(before) })
	}
	keys[1].Store(&[]Key{secret})
	a.set.Rotate()
	eventually(t, "the refusal", func() bool { return slices.Contains(b.now().refusals, WrongSecret) })
}

// TestStrangersAreBounded opens more connections that say nothing than may wait, in
// real time: the oldest goes, and a member comes through.
func TestStrangersAreBounded(t *testing.T) {
	var closed atomic.Int64
	b := newMember(t, 2, func(c *Config) { c.Events.Crowded = func() { closed.Add(1) } })
	var conns []net.Conn
	for range 3 * maxStrangers {
		nc, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		conns = append(conns, nc)
	}
	eventually(t, "those too many are closed", func() bool { return closed.Load() == 3*maxStrangers-maxStrangersHost })
	if _, err := conns[0].Read(make([]byte, 1)); err == nil {
		t.Error("a byte came on the oldest")
	}
	b.set.mu.Lock()
	n := len(b.set.strangers.list)
	b.set.mu.Unlock()
	if n != maxStrangersHost {
		t.Errorf("%d strangers wait, limit is %d", n, maxStrangersHost)
	}
	a := newMember(t, 1)
	know(a, b)
	connected(t, a, b)
}

// TestWhichStrangerGoes: of the address that has most, the one that has been silent
// for longest, and never the one that has just come.
func TestWhichStrangerGoes(t *testing.T) {
	crowd, few := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	var l strangers
	l.crowded = func() {}
	in := func(host netip.Addr, read uint64) *socket {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		s := &socket{Conn: near, host: host, read: read}
		l.enter(s)
		return s
	}
	gone := func(s *socket) bool { return !slices.Contains(l.list, s) }
	member := in(few, 0)
	speaks, silent := in(crowd, 9), in(crowd, 0)
	for range maxStrangersHost - 2 {
		in(crowd, 9)
	}
	newest := in(crowd, 0)
	if gone(newest) || gone(speaks) || !gone(silent) {
		t.Error("it is not the silent one that went")
	}
	next := in(crowd, 0)
	if !gone(newest) || gone(next) || gone(speaks) {
		t.Error("the one that came before is silent still, and did not go")
	}
	next.read = 9
	if last := in(crowd, 0); gone(last) || !gone(speaks) {
		t.Error("all others speak: it is not the oldest that went")
	}
	if gone(member) {
		t.Error("the only one of its address went")
	}
	for i := range 2 * maxStrangers {
		in(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 0)
	}
	if len(l.list) != maxStrangers {
		t.Errorf("%d strangers wait, limit is %d", len(l.list), maxStrangers)
	}
}

// TestSilenceEndsEarly: who says nothing is cut off long before a handshake may be
// over, in virtual time.
func TestSilenceEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &street{at: map[string]*piped{}}
		b := s.newMember(t, 2)
		for _, says := range []string{"", "x"} {
			nc, err := s.at[b.addr].dial(t.Context(), b.addr)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if says != "" {
				nc.Write([]byte(says))
			}
			nc.Read(make([]byte, 1))
			want := firstByteTimeout
			if says != "" {
				want = handshakeTimeout
			}
			if took := time.Since(began); took != want {
				t.Errorf("%q: cut off after %v, want %v", says, took, want)
			}
			nc.Close()
		}
		b.close()
	})
}
