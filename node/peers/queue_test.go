package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent/node"
)

// TestOutboxBoundsAndOrder fills both lanes: raft's frames leave first, what is
// too much is refused, and an abandoned entry is named.
func TestOutboxBoundsAndOrder(t *testing.T) {
	o := newOutbox(node.Control)
	frame := func(s string) func([]byte) []byte { return func(b []byte) []byte { return append(b, s...) } }
	if !o.put(&o.app, 1, frame("a")) || !o.put(&o.raft, 1, frame("r")) || !o.put(&o.raft, 1, frame("s")) {
		t.Fatal("refused while empty")
	}
	var got bytes.Buffer
	chunks, _ := o.take(nil)
	for _, c := range chunks {
		got.Write(c.b)
	}
	if got.String() != "rsa" {
		t.Errorf("left in the order %q", &got)
	}
	for i := range MaxControlQueue {
		if !o.put(&o.raft, 1, frame("r")) {
			t.Fatalf("refused after %d frames", i)
		}
	}
	if o.put(&o.raft, 1, frame("r")) {
		t.Error("one too many was taken")
	}
	if !o.put(&o.app, 1, frame("a")) {
		t.Error("the user's frames have no room of their own")
	}
	big := newOutbox(node.Control)
	big.put(&big.raft, MaxControlFrame, func(b []byte) []byte { return append(b, make([]byte, MaxControlFrame)...) })
	if big.put(&big.raft, MaxControlBytes, nil) {
		t.Error("too many bytes were taken")
	}
	if big.queued() != MaxControlFrame {
		t.Errorf("%d bytes queued", big.queued())
	}
	if big.abandon(); big.queued() != 0 {
		t.Errorf("%d bytes are left", big.queued())
	}
	if big.put(&big.raft, 1, frame("r")) {
		t.Error("taken after the end")
	}
}

// TestControlDoesNotWaitForBulk fills the bulk connection of a member that does
// not read it, in virtual time: heartbeats go through, the queue stays bounded, and
// an entry that finds it full is refused, but not one that may have left before.
func TestControlDoesNotWaitForBulk(t *testing.T) { synctest.Test(t, controlDoesNotWait) }

func controlDoesNotWait(t *testing.T) {
	net2 := newPiped()
	a := newMember(t, 1, func(c *Config) { c.Listener = newPiped(); c.Dial = net2.dial })
	f := &fake{t: t, id: 2, boot: newBootNonce(), shows: Standing{Incarnation: 1}, ln: net2}
	a.set.SetMembers([]Member{{ID: 2, Address: "2"}})
	f.meet()
	entry := make([]byte, 1<<20)
	sent := 0
	var first uint64
	for first = 1; len(a.refusedForwards()) == 0; first++ {
		began := time.Now()
		a.set.Send([]node.Message{{From: 1, To: 2, Forward: &node.Forward{Term: 1, First: first, Entry: entry}}})
		if took := time.Since(began); took > 0 {
			t.Fatalf("a send waited for %v", took)
		}
		if sent++; sent > 10*MaxBulkBytes>>20 {
			t.Fatal("the queue takes everything")
		}
	}
	if l := a.set.Links()[0]; l.QueuedBytes > MaxBulkBytes || l.Dropped != 1 {
		t.Errorf("%d bytes are queued, %d dropped", l.QueuedBytes, l.Dropped)
	}
	a.set.Send([]node.Message{{From: 1, To: 2, Forward: &node.Forward{Term: 1, First: first - 2, Entry: entry}}})
	for i := range 50 {
		a.set.Send([]node.Message{heartbeat(1, 2, uint64(i))})
		f.await(node.Control, frameRaft)
	}
	// The write is given up after a while. Of what was queued nothing is known:
	// an earlier copy may have arrived.
	eventually(t, "the bulk connection is closed", func() bool { return !a.set.Links()[0].Bulk })
	a.set.Send([]node.Message{{From: 1, To: 2, Forward: &node.Forward{Term: 1, First: 1, Entry: entry}}})
	if got := a.refusedForwards(); len(got) != 1 || got[0].First != first-1 {
		t.Errorf("refused are %v, want only entry %d", got, first-1)
	}
	if len(a.now().lost) != 0 {
		t.Error("a connection that we gave up counts as lost")
	}
	a.close()
	for _, c := range f.conns {
		c.Close()
	}
}

func (m *member) refusedForwards() (fs []node.Refuse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.got {
		if g.Refuse != nil {
			fs = append(fs, *g.Refuse)
		}
	}
	return fs
}

// fake is a member of which a test speaks every byte. It is dialed.
type fake struct {
	t     *testing.T
	id    uint64
	boot  bootNonce
	shows Standing
	ln    net.Listener
	conns [2]net.Conn
	in    [2]*frameReader
}

func newFake(t *testing.T, id uint64) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, id: id, boot: newBootNonce(), shows: Standing{Incarnation: 1}, ln: ln}
	t.Cleanup(func() {
		ln.Close()
		for _, c := range f.conns {
			if c != nil {
				c.Close()
			}
		}
	})
	return f
}

// meet accepts both connections and shakes hands.
func (f *fake) meet() {
	f.t.Helper()
	for range 2 {
		nc, err := f.ln.Accept()
		if err != nil {
			f.t.Fatal(err)
		}
		f.greet(nc)
	}
}

func (f *fake) greet(nc net.Conn) {
	f.t.Helper()
	in := newFrameReader(nc, 3)
	p, err := welcome(nc, in, []Key{secret})
	if err != nil {
		f.t.Fatal(err)
	}
	first, err := in.wait()
	if err != nil {
		f.t.Fatal(err)
	}
	h, err := helloOf(first, p)
	if err != nil {
		f.t.Fatal(err)
	}
	nc.Write(appendHello(nil, hello{cluster: h.cluster, group: 3, member: f.id, to: h.member, shows: f.shows, boot: f.boot, class: h.class}, p))
	if ready, err := in.wait(); err != nil || ready.kind != frameReady {
		f.t.Fatalf("frame of type %d, %v, want ready", ready.kind, err)
	}
	in.limit = MaxBulkFrame
	f.conns[h.class], f.in[h.class] = nc, in
}

// await reads up to a frame of a type.
func (f *fake) await(class node.Class, kind frameType) {
	f.t.Helper()
	for {
		got, err := f.in[class].wait()
		if err != nil {
			f.t.Fatal(err)
		}
		if got.kind == kind {
			return
		}
	}
}

// TestNewBootOfAMemberIsItsLoss lets a member return although its old
// connections look alive, as after its machine lost power.
func TestNewBootOfAMemberIsItsLoss(t *testing.T) {
	a := newMember(t, 1)
	f := newFake(t, 2)
	a.set.SetMembers([]Member{{ID: 2, Address: f.ln.Addr().String()}})
	f.meet()
	old := f.conns
	m := heartbeat(2, 1, 1)
	old[node.Control].Write(appendMessage(nil, &m, 3))
	a.until("a message", func() bool { return len(a.got) == 1 })
	f.boot, f.shows.Incarnation = newBootNonce(), 2
	a.set.Rotate() // stands for the knock of the new process
	f.meet()
	a.until("the loss", func() bool { return len(a.lost) == 1 })
	// What the old connections still bring is not delivered.
	old[node.Control].Write(appendMessage(nil, &m, 3))
	m = heartbeat(2, 1, 2)
	f.conns[node.Control].Write(appendMessage(nil, &m, 3))
	a.until("a message", func() bool { return len(a.got) == 2 })
	if c := a.now().got[1].Raft.GetCommit(); c != 2 {
		t.Errorf("the second message has commit %d", c)
	}
	for _, c := range old {
		c.Close()
	}
}

// piped is a network in memory, for virtual time: every dial of a member is
// accepted by the other. Bytes are swallowed once it is cut.
type piped struct {
	accepts chan net.Conn
	done    chan struct{}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepts:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

func newPiped() *piped { return &piped{accepts: make(chan net.Conn), done: make(chan struct{})} }

func (p *piped) dial(ctx context.Context, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accepts <- theirs:
		return ours, nil
	case <-p.done:
		return nil, errors.New("refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// street is where members live that reach one another in memory: each is at its id.
type street struct {
	mu sync.Mutex
	at map[string]*piped
}

// listen lets a member, perhaps the next life of one, be reached.
func (s *street) listen(address string) *piped {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[address] = newPiped()
	return s.at[address]
}

func (s *street) dial(ctx context.Context, address string) (net.Conn, error) {
	s.mu.Lock()
	p := s.at[address]
	s.mu.Unlock()
	return p.dial(ctx, address)
}

func (s *street) newMember(t *testing.T, id uint64) *member {
	t.Helper()
	address := fmt.Sprint(id)
	m := newMember(t, id, func(c *Config) { c.Listener = s.listen(address); c.Dial = s.dial })
	m.addr = address
	return m
}

// TestSilentMemberIsDisconnectedNotLost connects to a member that shakes hands
// and then neither answers nor closes, in virtual time: the connections are
// given up, others are opened, and no loss is told. No goroutine remains.
func TestSilentMemberIsDisconnectedNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net2 := newPiped()
		a := newMember(t, 1, func(c *Config) { c.Listener = newPiped(); c.Dial = net2.dial })
		f := &fake{t: t, id: 2, boot: newBootNonce(), shows: Standing{Incarnation: 1}, ln: net2}
		a.set.SetMembers([]Member{{ID: 2, Address: "2"}})
		f.meet()
		old := f.conns
		began := time.Now()
		for _, c := range old { // read everything, say nothing
			go func() {
				for b := make([]byte, 1000); ; {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
			}()
		}
		f.meet()
		if took := time.Since(began); took < silentPings*pingEvery || took > 2*silentPings*pingEvery {
			t.Errorf("given up after %v", took)
		}
		if len(a.now().lost) != 0 {
			t.Error("silence counts as a loss")
		}
		a.close()
		for _, c := range f.conns {
			c.Close()
		}
	})
}

// TestQuietMembersStayConnected lets an hour pass without a message.
func TestQuietMembersStayConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net1, net2 := newPiped(), newPiped()
		a := newMember(t, 1, func(c *Config) { c.Listener = net1; c.Dial = net2.dial })
		b := newMember(t, 2, func(c *Config) { c.Listener = net2; c.Dial = net1.dial })
		know(a, b)
		synctest.Wait()
		since := a.set.Links()[0].Since
		time.Sleep(time.Hour) // virtual
		synctest.Wait()
		if l := a.set.Links()[0]; !l.Connected || l.Since != since {
			t.Errorf("the connections did not last: %+v", l)
		}
		// Nobody can ask a pipe what has arrived: the barrier asks the other side.
		release := b.hold()
		a.set.SendApp(2, []byte("x"))
		synctest.Wait()
		handed := -1
		b.set.Barrier(func() { handed = len(b.apps) })
		synctest.Wait()
		if handed != -1 {
			t.Error("the barrier was done before the frame was handed over")
		}
		release()
		synctest.Wait()
		if handed != 1 {
			t.Errorf("the barrier was done after %d frames", handed)
		}
		a.close()
		b.close()
	})
}

// TestUnreachableMemberIsDialedEverLessOften counts dials in virtual time.
func TestUnreachableMemberIsDialedEverLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan time.Time, 1000)
		a := newMember(t, 1, func(c *Config) {
			c.Listener = newPiped()
			c.Dial = func(context.Context, string) (net.Conn, error) {
				dials <- time.Now()
				return nil, errors.New("no route")
			}
		})
		a.set.SetMembers([]Member{{ID: 2, Address: "2"}})
		time.Sleep(time.Minute) // virtual
		n := len(dials)
		if n < 2*60 || n > 2*150 {
			t.Errorf("%d dials in a minute", n)
		}
		a.close()
	})
}

// TestNothingIsLeftAfterClose looks for goroutines of this package.
func TestNothingIsLeftAfterClose(t *testing.T) {
	a, b := pair(t)
	a.set.Rotate()
	a.close()
	b.close()
	eventually(t, "no goroutine is left", func() bool {
		buf := make([]byte, 1<<20)
		return !strings.Contains(string(buf[:runtime.Stack(buf, true)]), "peers.(*")
	})
	a.set.Send([]node.Message{heartbeat(1, 2, 1)})
	a.set.SetMembers([]Member{{ID: 2, Address: b.addr}})
	a.set.Mute(true)
	a.set.Barrier(func() {})
	if n := len(a.set.Links()); n != 0 {
		t.Error(fmt.Sprint(n, " links after Close"))
	}
}
