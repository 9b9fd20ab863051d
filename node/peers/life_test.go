package peers

import (
	"net"
	"slices"
	"testing"

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

// TestGarbageIsCutOff sends what is no hello, and a frame after the hellos that
// breaks the rules.
func TestGarbageIsCutOff(t *testing.T) {
	b := newMember(t, 2)
	b.set.SetMembers([]Member{{ID: 1, Address: "127.0.0.1:1"}})
	shows := Standing{Incarnation: 1}
	good := hello{version: version, cluster: b.cfg.Cluster, group: 3, member: 1, to: 2, shows: shows, class: node.Control}
	other, future := good, good
	other.to = 3
	future.version = 2
	m := heartbeat(7, 2, 1)
	ready := endFrame(beginFrame(nil, frameReady, 3), 0)
	for name, c := range map[string]struct {
		first, then []byte
		answer      frameType // to the first, 0: none
	}{
		"noise":                       {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), nil, 0},
		"a message without hello":     {appendMessage(nil, &m, 3), nil, 0},
		"hello for another":           {appendHello(nil, other), nil, frameRefusal},
		"hello of the next version":   {appendHello(nil, future), nil, frameRefusal},
		"no ready":                    {appendHello(nil, good), appendMessage(nil, &m, 3), frameHello},
		"message of another":          {appendHello(nil, good), appendMessage(ready, &m, 3), frameHello},
		"second hello":                {appendHello(nil, good), appendHello(slices.Clone(ready), good), frameHello},
		"too large a control frame":   {appendHello(nil, good), append(slices.Clone(ready), 0, 0, 0, 1, byte(frameApp), 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), frameHello},
		"frame of another group":      {appendHello(nil, good), endFrame(beginFrame(slices.Clone(ready), frameApp, 4), len(ready)), frameHello},
		"huge hello":                  {endFrame(append(beginFrame(nil, frameHello, 3), make([]byte, maxHelloFrame+1)...), 0), nil, 0},
		"refusal after one's welcome": {appendHello(nil, good), encodeRefusal(&refusal{NotNow, "x"}, 3), frameHello},
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			nc.Write(c.first)
			in := newFrameReader(nc, 3)
			in.limit = MaxControlFrame
			if c.answer != 0 {
				if f, err := in.wait(); err != nil || f.kind != c.answer {
					t.Fatalf("frame of type %d, %v, want %d", f.kind, err, c.answer)
				}
			}
			nc.Write(c.then)
			for err = nil; err == nil; {
				_, err = in.wait() // a ping may come first
			}
		})
	}
	if len(b.now().got)+len(b.now().apps) != 0 {
		t.Errorf("delivered %v and %v", b.now().got, b.now().apps)
	}
}

// TestStrangersAreBounded opens more connections that say nothing than may wait.
func TestStrangersAreBounded(t *testing.T) {
	b := newMember(t, 2)
	conns := make([]net.Conn, maxHandshakes+1)
	for i := range conns {
		nc, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		conns[i] = nc
	}
	// They are accepted in order, so the last one is the one too many.
	if _, err := conns[maxHandshakes].Read(make([]byte, 1)); err == nil {
		t.Error("a byte came")
	}
	b.set.mu.Lock()
	n := b.set.handshakes
	b.set.mu.Unlock()
	if n != maxHandshakes {
		t.Errorf("%d handshakes wait, limit is %d", n, maxHandshakes)
	}
}
