package peers

import (
	"cmp"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent/node"
)

// Link says how this member and another are connected.
type Link struct {
	Member      Member
	Dials       bool          // this member opens the connections; else the other does
	Connected   bool          // both connections are up
	Control     bool          // each of them
	Bulk        bool          //
	Since       time.Time     // when the younger of the two came up; zero unless Connected
	Silence     time.Duration // since the ping was sent that the member answered last, on any connection; since Open if it never did
	Heard       bool          // it has answered since Open
	RTT         time.Duration // of the last answered ping on the control connection; 0: none yet
	QueuedBytes int           // on both, not yet given to the system
	Dropped     uint64        // messages and frames since this member is in the set
	Schema      uint32        // as it showed last
	Trouble     string        // why the last connection or attempt ended; "" while connected
}

// Ping asks every member that is connected for an answer now: Silence then says
// whether it is there.
func (s *Set) Ping() {
	shows := s.cfg.Standing()
	for _, p := range *s.peers.Load() {
		if c := p.slots[node.Control].Load(); c != nil {
			c.ping(shows)
		}
	}
}

// Disconnections is how often a connection with another member has ended since Open
// without another in its place. A pair of members has two.
func (s *Set) Disconnections() uint64 { return s.disconnections.Load() }

// Links describes the connections with all members of the set, by id.
func (s *Set) Links() []Link {
	peers := *s.peers.Load()
	links := make([]Link, 0, len(peers))
	for _, p := range peers {
		links = append(links, p.link())
	}
	slices.SortFunc(links, func(a, b Link) int { return cmp.Compare(a.Member.ID, b.Member.ID) })
	return links
}

func (p *peer) link() Link {
	control, bulk := p.slots[node.Control].Load(), p.slots[node.Bulk].Load()
	l := Link{
		Member: *p.member.Load(), Dials: p.set.dials(p.id), Control: control != nil, Bulk: bulk != nil, Connected: control != nil && bulk != nil,
		Heard: p.answered.Load() != 0, Silence: time.Duration(elapsed(p.set.start) - p.answered.Load()),
		Dropped: p.dropped[node.Control].Load() + p.dropped[node.Bulk].Load(),
	}
	for _, c := range [...]*conn{control, bulk} {
		if c == nil {
			continue
		}
		l.QueuedBytes += c.out.queued()
		if l.Connected && c.since.After(l.Since) {
			l.Since = c.since
		}
	}
	if control != nil {
		l.RTT = time.Duration(control.rtt.Load())
	}
	p.life.Lock()
	defer p.life.Unlock()
	l.Schema = p.schema
	if !l.Connected {
		l.Trouble = p.trouble
	}
	return l
}
