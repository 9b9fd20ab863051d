package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Member is another member and where it listens.
type Member struct {
	ID      uint64
	Name    string
	Address string // host and port
}

// Standing is how far a member's log is, as it shows it to the others. What it
// has shown it must still have after any restart: Term and Durable are what is
// on disk, never what is only in memory.
type Standing struct {
	Incarnation uint64 // durable boot counter
	Term        uint64 // of the hard state on disk
	Durable     uint64 // last entry on disk, or the snapshot's index
	Commit      uint64 // highest index known to be committed; 0 if not known
}

// Membership is what the replicated state says of a member.
type Membership uint8

// Unknown members may not have been heard of yet: they are refused and try
// again. Gone is for ever.
const (
	Unknown Membership = iota
	Current
	Gone
)

// Config says who we are and whom to tell. Functions that are not marked as
// optional must be set. All of them may be called from any goroutine, must not
// block, and must not call the Set's Close.
type Config struct {
	Cluster  [16]byte
	Group    uint64
	Self     uint64 // not 0
	SelfName string // at most MaxNameBytes
	Schema   uint32 // shown to the others

	// Listener is taken over and closed by Close. nil: connections come only
	// from this member's own dials.
	Listener net.Listener
	// Dial connects to a member's address; nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// ServerTLS and ClientTLS are asked for each connection, so that
	// certificates can change; both nil: plaintext. The server's must ask for a
	// certificate. A client's without a ServerName gets the host it dials.
	ServerTLS, ClientTLS func() *tls.Config
	// Keys are the secrets by which members know each other, the best first: two that
	// have none in common are never connected. They may change at any time.
	Keys func() []Key
	// Verify says whether the certificate belongs to that member; with TLS only.
	Verify func(cs tls.ConnectionState, member uint64) error

	// Standing is what this member shows. It must not go back within a start.
	Standing func() Standing
	// Acknowledged is up to where a member has acknowledged committed entries to
	// this one: it must still have them when it comes back, though it may not have
	// shown them yet. 0: not known. Optional.
	Acknowledged func(id uint64) uint64
	// Membership is what is known of a member.
	Membership func(id uint64) Membership
	// Deliver takes messages that one read brought, in order. The slice is the
	// caller's again when it returns; what it points to is the callee's. It may
	// be called from within Send, with the refusal of an entry that could not
	// be queued.
	Deliver func(ms []node.Message)
	// App takes a frame of the user's from a member. The frame is the callee's.
	App func(from uint64, frame []byte)
	// Lost tells that a member closed both of its connections, or came back
	// with a new boot: its process is gone. Everything received on them was
	// delivered before, and nothing is after.
	Lost func(id uint64)
	// Unreachable tells that messages to a member may have been lost.
	Unreachable func(id uint64)
	// Refused tells that a member will never talk to this one: Denied if it was
	// removed from the cluster, Corrupt if its disk has gone back in time. This
	// member must stop.
	Refused func(by uint64, err error)

	FS     vfs.FS // holds the book of what the others have shown
	Dir    string // made if it is not there
	Logger *slog.Logger
	Events Events

	waits waits // of tests
}

// Validate returns an Invalid error for a Config that cannot work.
func (c *Config) Validate() error {
	switch {
	case c.Self == 0:
		return incumbent.Errorf(incumbent.Invalid, "peers: a member's id is not 0")
	case len(c.SelfName) > MaxNameBytes:
		return incumbent.Errorf(incumbent.Invalid, "peers: a name of %d bytes, limit is %d", len(c.SelfName), MaxNameBytes)
	case c.FS == nil || c.Dir == "":
		return incumbent.Errorf(incumbent.Invalid, "peers: a filesystem and a folder are needed for the book")
	case c.Standing == nil || c.Membership == nil || c.Deliver == nil || c.App == nil || c.Lost == nil || c.Unreachable == nil || c.Refused == nil || c.Keys == nil:
		return incumbent.Errorf(incumbent.Invalid, "peers: a function is missing")
	case (c.ServerTLS == nil) != (c.ClientTLS == nil):
		return incumbent.Errorf(incumbent.Invalid, "peers: TLS on one side only")
	case c.ServerTLS != nil && c.Verify == nil:
		return incumbent.Errorf(incumbent.Invalid, "peers: TLS without Verify would let any member speak for any other")
	}
	return nil
}

// Set holds the connections of this member with all others.
type Set struct {
	cfg    Config
	boot   bootNonce
	book   *book
	start  time.Time
	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	group  sync.WaitGroup // every goroutine
	peers  atomic.Pointer[map[uint64]*peer]
	muted  atomic.Bool

	disconnections atomic.Uint64 // ends of connections that no other had replaced, with members that have left as well

	// forwarded is the highest entry that was queued for each member, in the order
	// of term and sequence, without its bytes. It outlives members that leave the
	// set. forwardMu is held while one entry is queued.
	forwardMu sync.Mutex
	forwarded map[uint64]node.Forward

	mu        sync.Mutex         // guards what follows; held for moments, never while calling out
	sockets   map[*socket]*conn  // all that may still deliver; without a conn while it shakes hands
	strangers strangers          // those among them that were accepted and have proven nothing
	unmuted   chan struct{}      // closed while not muted
	warned    map[complaint]bool // logged already
}

// complaint is what is logged once.
type complaint struct {
	member uint64
	reason Reason
}

var _ node.Transport = (*Set)(nil)

// Open reads the book and begins to accept. Nobody is dialed before SetMembers.
// There is one Set for each start of the node: a second one under the same
// incarnation is refused by the others as rolled back. A damaged book is
// Corrupt.
func Open(cfg Config) (*Set, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Acknowledged == nil {
		cfg.Acknowledged = func(uint64) uint64 { return 0 }
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	cfg.Events = cfg.Events.withDefaults()
	cfg.waits = cfg.waits.withDefaults()
	b, err := openBook(cfg.FS, cfg.Dir, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	s := &Set{
		cfg: cfg, boot: newBootNonce(), book: b, start: time.Now(),
		sockets: map[*socket]*conn{}, forwarded: map[uint64]node.Forward{}, unmuted: make(chan struct{}), warned: map[complaint]bool{},
	}
	close(s.unmuted)
	s.strangers.crowded = cfg.Events.Crowded
	s.peers.Store(&map[uint64]*peer{})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.group.Go(s.keepHouse)
	s.group.Go(s.keepBook)
	if cfg.Listener != nil {
		s.group.Go(s.accept)
	}
	return s, nil
}

// SetMembers says whom to be connected with; this member itself is ignored.
// Connections with others are closed. A new address opens new connections and
// then closes the old ones.
func (s *Set) SetMembers(ms []Member) {
	s.mu.Lock()
	old := *s.peers.Load()
	next := make(map[uint64]*peer, len(ms))
	var added, moved, removed []*peer
	for _, m := range ms {
		if m.ID == s.cfg.Self || m.ID == 0 || s.ctx.Err() != nil {
			continue
		}
		p := old[m.ID]
		if p == nil {
			p = newPeer(s, m)
			added = append(added, p)
		} else if before := p.member.Swap(&m); before.Address != m.Address {
			moved = append(moved, p)
		}
		next[m.ID] = p
	}
	for id, p := range old {
		if next[id] == nil {
			removed = append(removed, p)
		}
	}
	s.peers.Store(&next)
	for _, p := range added {
		p.startDialing()
	}
	s.mu.Unlock()
	for _, p := range moved {
		p.redialAll()
	}
	for _, p := range removed {
		p.remove()
	}
	s.book.forget(func(id uint64) bool { return s.cfg.Membership(id) == Gone })
}

// Rotate opens new connections and then closes the old ones, in both
// directions: this member's certificate has changed.
func (s *Set) Rotate() {
	for _, p := range *s.peers.Load() {
		if s.dials(p.id) {
			p.redialAll()
			continue
		}
		if c := p.slots[node.Control].Load(); c != nil {
			c.putSmall(func(b []byte) []byte { return endFrame(beginFrame(b, frameRedial, s.cfg.Group), len(b)) })
		}
	}
}

// dials reports whether this member dials that one: the one with the smaller id
// does.
func (s *Set) dials(id uint64) bool { return s.cfg.Self < id }

// Send implements node.Transport. What cannot be queued is dropped: Unreachable
// is told, and an entry that was to be forwarded for the first time is refused,
// for it certainly was not appended. Of one that may have left before nothing is
// known, and nothing is said.
func (s *Set) Send(ms []node.Message) {
	peers := *s.peers.Load()
	var unreachable []uint64
	for i := range ms {
		m := &ms[i]
		if err := s.send(peers[m.To], m); err != nil {
			unreachable = s.dropped(m, err, unreachable)
		}
	}
	for _, p := range peers {
		p.flush()
	}
	for _, id := range unreachable {
		s.cfg.Unreachable(id)
	}
}

// SendApp sends a frame of the user's on the control connection, behind what
// raft has to say. It reports false if the frame was not taken: there is no
// connection, the queue is full, or it is larger than MaxControlFrame. The
// frame is the caller's again when it returns.
func (s *Set) SendApp(to uint64, frame []byte) bool { return s.SendApps(to, [][]byte{frame}) == 1 }

// SendApps is SendApp for frames that leave together. It returns how many of
// them, from the first on, were taken.
func (s *Set) SendApps(to uint64, frames [][]byte) (taken int) {
	p := (*s.peers.Load())[to]
	if p == nil {
		return 0
	}
	for _, f := range frames {
		if len(f) > MaxControlFrame {
			break
		}
		err := p.put(node.Control, true, headerBytes+len(f), func(b []byte) []byte {
			at := len(b)
			return endFrame(append(beginFrame(b, frameApp, s.cfg.Group), f...), at)
		})
		if err != nil {
			p.dropped[node.Control].Add(1)
			s.cfg.Events.Dropped(to, node.Control, !errors.Is(err, errNotUp))
			break
		}
		taken++
	}
	p.flush()
	return taken
}

// Mute closes all connections and neither dials nor accepts until it is
// unmuted. When it returns nothing is sent or delivered any more.
func (s *Set) Mute(muted bool) {
	s.mu.Lock()
	if s.muted.Swap(muted) == muted {
		s.mu.Unlock()
		return
	}
	if !muted {
		close(s.unmuted)
		s.mu.Unlock()
		return
	}
	s.unmuted = make(chan struct{})
	s.closeHandshakes()
	s.mu.Unlock()
	for _, p := range *s.peers.Load() {
		p.closeAll(errMuted)
	}
}

// closeHandshakes ends what has not become a connection yet. mu is held.
func (s *Set) closeHandshakes() {
	for sock, c := range s.sockets {
		if c == nil {
			hangUp(sock)
		}
	}
}

// open returns a channel that is closed while the set is not muted.
func (s *Set) open() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unmuted
}

// Barrier calls done, once, when every frame that had arrived at any socket
// before the call has been handed to Deliver or App, or its connection has
// ended. It may be called within Barrier and must not block. What arrives later
// is not waited for. Where the system does not say what has arrived, the other
// members are asked to answer, and are waited for until their connection ends.
func (s *Set) Barrier(done func()) {
	b := &barrier{done: done}
	b.left.Store(1)
	s.mu.Lock()
	socks := make(map[*socket]*conn, len(s.sockets))
	for sock, c := range s.sockets {
		socks[sock] = c
	}
	s.mu.Unlock()
	for sock, c := range socks {
		b.left.Add(1)
		switch {
		case sock.wait(b):
		case c != nil:
			c.waitPong(b)
		default:
			b.arrive() // nobody sends messages before the hellos are done
		}
	}
	b.arrive()
}

// Close ends everything and waits until no goroutine is left, or ctx ends.
func (s *Set) Close(ctx context.Context) error {
	s.cancel()
	if s.cfg.Listener != nil {
		hangUp(s.cfg.Listener)
	}
	s.mu.Lock()
	s.closeHandshakes()
	s.mu.Unlock()
	for _, p := range *s.peers.Load() {
		p.remove()
	}
	ended := make(chan struct{})
	go func() {
		s.group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return s.book.flush()
	case <-ctx.Done():
		return incumbent.Errorf(incumbent.DeadlineExceeded, "connections with other members did not end in time: %w", ctx.Err())
	}
}
