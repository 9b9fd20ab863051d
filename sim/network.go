package sim

import (
	"bytes"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent/node"
)

// Times of the network between members.
const (
	lanTakes     = time.Millisecond       // a message, at most
	spikeTakes   = 60 * time.Millisecond  // one in spikeOneIn, at most
	hostileTakes = 700 * time.Millisecond // one in hostileOneIn of a hostile network, at most
	dialTakes    = 100 * time.Millisecond // a connection that was lost is there again, at most, once there is a way
	givesUp      = 4 * time.Second        // a connection that carries nothing is given up, at most
	spikeOneIn   = 100
	hostileOneIn = 15
)

// copiesOf is how often a message arrives in a hostile network, as likely as it
// is there.
var copiesOf = [...]int{0, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}

// network connects members. It has two natures.
//
// As TCP carries messages, each pair of members has one connection for each
// class. What a connection carries arrives in order, once, or never: while there
// is no way it waits, and when the connection is given up, or one of its ends
// dies, all that was under way is lost. An end that dies by itself closes its
// connections, which the other end notices; one that loses power does not.
//
// A hostile network knows no connections: any message may be late, lost, or come
// twice.
type network struct {
	w     *world
	conns map[[2]int]*conn // by places, the lower first
	cut   map[[2]int]int   // by places, directed: how often cut
	lag   map[[2]int]time.Duration
	book  map[int]map[uint64]standing // by place: what each member has seen of others, durably
}

// standing is what a member has shown of itself.
type standing struct {
	incarnation, term, durable uint64
	life                       int
}

// lower reports whether s shows less than was seen before, or another life under
// the same number.
func (s standing) lower(seen standing) bool {
	return s.incarnation < seen.incarnation || s.incarnation == seen.incarnation && s.life != seen.life ||
		s.term < seen.term || s.durable < seen.durable
}

// conn is both connections of two members.
type conn struct {
	a, b  *member
	epoch int  // which attempt; what belongs to an earlier one is lost
	up    bool // messages are taken
	last  [2][2]time.Duration
	stuck []stuck
}

// stuck is a message without a way.
type stuck struct {
	from, to *member
	class    node.Class
	deliver  func(*process)
}

func newNetwork(w *world) *network {
	return &network{w: w, book: map[int]map[uint64]standing{}, conns: map[[2]int]*conn{}, cut: map[[2]int]int{}, lag: map[[2]int]time.Duration{}}
}

func (n *network) conn(a, b *member) *conn {
	if a.at > b.at {
		a, b = b, a
	}
	c := n.conns[[2]int{a.at, b.at}]
	if c == nil {
		c = &conn{a: a, b: b}
		n.conns[[2]int{a.at, b.at}] = c
	}
	return c
}

func (n *network) blocked(from, to *member) bool { return n.cut[[2]int{from.at, to.at}] > 0 }

// member returns the machine on which a member lives.
func (w *world) member(id uint64) *member {
	for _, m := range w.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

// send takes a message of a node.
func (n *network) send(p *process, msg *node.Message) {
	to := n.w.member(msg.To)
	if to == nil || p.gone || to == p.m {
		return
	}
	c := copyOf(msg)
	taken := n.carry(p, to, c.Class(), func(q *process) {
		if q.m.id == c.To {
			q.node.Step(copyOf(&c))
		}
	})
	if !taken {
		p.node.Unreachable(c.To)
	}
}

// copyOf returns a message that shares nothing that either side may change, as
// one that came over a wire.
func copyOf(msg *node.Message) node.Message {
	c := *msg
	if c.Raft != nil {
		c.Raft = proto.Clone(c.Raft).(*pb.Message) //nolint:forcetypeassert // of its own type
	}
	if c.Chunk != nil {
		piece := *c.Chunk
		piece.Data = bytes.Clone(piece.Data)
		if piece.Raft != nil {
			piece.Raft = proto.Clone(piece.Raft).(*pb.Message) //nolint:forcetypeassert // of its own type
		}
		c.Chunk = &piece
	}
	return c
}

// carry brings something to another member, or loses it. It reports whether
// there was a connection to take it.
func (n *network) carry(p *process, to *member, class node.Class, deliver func(*process)) bool {
	if p.muted {
		return false
	}
	if n.w.cfg.Hostile {
		n.hostile(p.m, to, deliver)
		return true
	}
	c := n.conn(p.m, to)
	if !c.up {
		return false
	}
	s := stuck{p.m, to, class, deliver}
	if n.blocked(p.m, to) {
		c.stuck = append(c.stuck, s)
		return true
	}
	n.flow(c, s)
	return true
}

// flow lets a message travel on a connection, behind those before it.
func (n *network) flow(c *conn, s stuck) {
	direction := 0
	if s.from == c.b {
		direction = 1
	}
	last := &c.last[direction][s.class%2]
	*last = max(*last, n.w.now+n.takes(s.from, s.to))
	epoch := c.epoch
	from := s.from.at*2 + int(s.class%2)
	n.w.after(*last-n.w.now, func() {
		if q := s.to.proc; c.epoch == epoch && q != nil {
			q.arrive(frame{from, func() { s.deliver(q) }})
		}
	})
}

func (n *network) takes(from, to *member) time.Duration {
	d := n.w.upTo(lanTakes)
	if n.w.chance(spikeOneIn) {
		d = n.w.upTo(spikeTakes)
	}
	if lag := n.lag[[2]int{from.at, to.at}]; lag > 0 {
		d += n.w.upTo(lag)
	}
	return d
}

// hostile lets a single message travel, as it likes.
func (n *network) hostile(from, to *member, deliver func(*process)) {
	if n.blocked(from, to) {
		return
	}
	copies := 1
	if !n.w.healed {
		copies = copiesOf[n.w.rng.IntN(len(copiesOf))]
	}
	for range copies {
		d := n.takes(from, to)
		if !n.w.healed && n.w.chance(hostileOneIn) {
			d = n.w.upTo(hostileTakes)
		}
		n.w.after(d, func() {
			if q := to.proc; q != nil && !q.muted && !n.blocked(from, to) {
				q.arrive(frame{from.at, func() { deliver(q) }})
			}
		})
	}
}

// opened is called when a process has begun: peers learn that what they had
// with an earlier one is over, and connect anew.
func (n *network) opened(m *member) {
	for _, o := range n.w.members {
		if o == m {
			continue
		}
		c := n.conn(m, o)
		if c.up {
			c.epoch++ // nothing that was under way to the earlier one arrives
			n.lost(c, m)
		}
		n.dial(c)
	}
}

// mute closes all connections of a process that wants to be silent, which to its
// peers looks like its end, and opens them again when it speaks.
func (n *network) mute(p *process, muted bool) {
	n.w.note("member %d muted: %v", p.m.at, muted)
	p.muted = muted
	if muted {
		n.closed(p.m)
		return
	}
	for _, o := range n.w.members {
		if o != p.m {
			n.dial(n.conn(p.m, o))
		}
	}
}

// closed is called when a process has ended by itself: the system closes its
// sockets, and peers read what was sent before and then the end.
func (n *network) closed(m *member) {
	for _, o := range n.w.members {
		if o == m {
			continue
		}
		if c := n.conn(m, o); c.up {
			n.lost(c, m)
		}
	}
}

// lost ends a connection because one end of it is gone: the other hears of it,
// behind all that was sent before, if there is a way.
func (n *network) lost(c *conn, gone *member) {
	other, direction := c.a, 1
	if gone == c.a {
		other, direction = c.b, 0
	}
	c.up, c.stuck = false, nil
	epoch, id := c.epoch, gone.id
	end := max(c.last[direction][0], c.last[direction][1], n.w.now) + n.takes(gone, other)
	if n.blocked(gone, other) {
		c.epoch++
		return
	}
	n.w.after(end-n.w.now, func() {
		if q := other.proc; c.epoch == epoch && q != nil {
			c.epoch++
			q.arrive(frame{barrierFrom, func() { q.node.PeerLost(id) }}) // behind all that came on both
		}
	})
}

// dial connects two members as soon as both run and there is a way both ways.
func (n *network) dial(c *conn) {
	n.w.after(n.w.upTo(dialTakes), func() {
		switch {
		case c.up || !c.a.speaks() || !c.b.speaks(): // whoever comes back dials
		case n.blocked(c.a, c.b) || n.blocked(c.b, c.a):
			n.dial(c)
		case n.admits(c.a, c.b) && n.admits(c.b, c.a):
			c.up = true
			c.epoch++
			c.stuck = nil
			c.last = [2][2]time.Duration{}
			n.shows(c, c.epoch)
		}
	})
}

// admits reports whether a member speaks with another, which shows what it
// remembers. One that shows less than it did was put back: it is told so.
func (n *network) admits(m, other *member) bool {
	s := other.shows()
	if seen, known := n.book[m.at][other.id]; known && s.lower(seen) {
		n.w.refused(other)
		return false
	}
	n.note(m, other, s)
	return true
}

func (n *network) note(m, other *member, s standing) {
	if n.book[m.at] == nil {
		n.book[m.at] = map[uint64]standing{}
	}
	n.book[m.at][other.id] = s
}

// showsEvery is how often members show on a connection what they remember.
const showsEvery = time.Second

// shows lets both ends of a connection show it for as long as it is there.
func (n *network) shows(c *conn, epoch int) {
	n.w.after(showsEvery, func() {
		if !c.up || c.epoch != epoch || c.a.proc == nil || c.b.proc == nil {
			return
		}
		if !n.blocked(c.b, c.a) {
			n.note(c.a, c.b, c.b.shows())
		}
		if !n.blocked(c.a, c.b) {
			n.note(c.b, c.a, c.a.shows())
		}
		n.shows(c, epoch)
	})
}

// shows is what a member can prove to remember.
func (m *member) shows() standing {
	s := standing{life: m.lives}
	s.incarnation, s.term, s.durable = m.proc.node.Standing()
	return s
}

// newer reports whether all others have seen more of a member than the copy of
// its disk would show.
func (n *network) newer(m *member) bool {
	for _, o := range n.w.members {
		if o != m && n.book[o.at][m.id].durable <= m.backupEnds {
			return false
		}
	}
	return true
}

// forget drops what a machine that was emptied had seen.
func (n *network) forget(m *member) { delete(n.book, m.at) }

// block cuts or mends one direction.
func (n *network) block(from, to *member, cut bool) {
	k := [2]int{from.at, to.at}
	c := n.conn(from, to)
	if !cut {
		n.cut[k] = max(0, n.cut[k]-1)
		n.mended(c)
		return
	}
	n.cut[k]++
	if !n.w.chance(2) {
		return // nobody gives up the connection before there is a way again
	}
	epoch := c.epoch
	n.w.after(n.w.upTo(givesUp), func() {
		if c.epoch == epoch && c.up && n.blocked(from, to) {
			n.breaks(c)
		}
	})
}

// breaks ends a connection of which both ends are there: it is no sign of death.
func (n *network) breaks(c *conn) {
	c.up, c.stuck = false, nil
	c.epoch++
	for _, m := range []*member{c.a, c.b} {
		if p := m.proc; p != nil {
			other := c.a
			if m == c.a {
				other = c.b
			}
			p.arrive(frame{other.at * 2, func() { p.node.Unreachable(other.id) }})
		}
	}
	n.dial(c)
}

// mended lets what was stuck go on.
func (n *network) mended(c *conn) {
	ss := c.stuck
	c.stuck = nil
	for i, s := range ss {
		if n.blocked(s.from, s.to) {
			c.stuck = append(c.stuck, ss[i])
			continue
		}
		n.flow(c, s)
	}
}

// mend takes all cuts and delays away.
func (n *network) mend() {
	clear(n.cut)
	clear(n.lag)
	for _, a := range n.w.members {
		for _, b := range n.w.members[:a.at] {
			n.mended(n.conn(a, b))
		}
	}
}

// speaks reports whether a process runs that has not fallen silent.
func (m *member) speaks() bool { return m.proc != nil && !m.proc.muted }
