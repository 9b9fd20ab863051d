package client

import (
	"context"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// A client that is to spread ([Config.Spread]) has a home among the members, chosen by
// lot. Sessions that had to leave it come back, each at a time of its own: so a member
// that returns gets its share back within minutes, and never at once.

// Of spreading.
const (
	maxMembers   = 64               // that a client remembers, besides those that have left the cluster
	findEvery    = 10 * time.Minute // between two looks at who belongs to the cluster
	minAway      = time.Minute      // before a session goes back
	awaySpan     = 4 * time.Minute  // over which that is spread
	findPatience = 5 * time.Second  // for one look
)

// pace is how slowly a client spreads.
type pace struct{ away, span, find time.Duration }

// spread is what a session knows for it. It is of the session's goroutine, which beats, so
// that nothing here may take long: who belongs to the cluster is asked beside it.
type spread struct {
	pace
	home   int32         // among the members
	homeAt time.Duration // when it goes back; 0: it is there
	findAt time.Duration // when it looks who belongs to the cluster
	found  chan found    // of the look under way, which writes to it once and has nothing else of this; nil: there is none
}

// found is what a look at the cluster has shown.
type found struct {
	list []int32 // places of its members; empty: it was in vain
	more bool    // there are some that were not known
}

// movePerTTL is how many times shorter than the ttl each of the two steps home is, reaching
// it and beginning there. Since the last beat a third of the ttl has passed, and somebody
// else must be found yet if home does not answer.
const movePerTTL = 6

func (c *Client) newSpread() *spread {
	if !c.cfg.Spread {
		return nil
	}
	i, _ := c.members.current()
	return &spread{pace: c.pace, home: i}
}

// remember adds a member, unless it is known, and returns its place; -1: there is no
// room for it, or it is no URL.
func (m *members) remember(address string) int32 {
	u, err := parseServer(address)
	if err != nil {
		return -1
	}
	for {
		list := m.list.Load()
		if i := slices.IndexFunc(*list, func(k *url.URL) bool { return k.Scheme == u.Scheme && k.Host == u.Host }); i >= 0 {
			return int32(i)
		}
		if m.live() >= maxMembers {
			return -1
		}
		longer := append(slices.Clone(*list), u)
		if m.list.CompareAndSwap(list, &longer) {
			return int32(len(longer) - 1)
		}
	}
}

// tend is called between two beats: it has somebody look who belongs to the cluster, takes
// up what was found since the last beat, and goes back home. It returns false if the
// session has lost its link by that.
func (s *Session) tend() bool {
	p := s.spread
	if p == nil {
		return true
	}
	now := s.clock()
	select {
	case f := <-p.found:
		p.found = nil
		p.settle(f)
	default:
	}
	if p.found == nil && now >= p.findAt {
		p.findAt = now + p.find/2 + rand.N(p.find)
		ch := make(chan found, 1)
		p.found = ch
		go func() { ch <- s.c.findMembers(s.stop) }()
	}
	s.mu.Lock()
	at := s.member
	s.mu.Unlock()
	switch {
	case at == p.home:
		p.homeAt = 0
	case p.homeAt == 0:
		p.homeAt = now + p.away + rand.N(p.span)
	case now >= p.homeAt:
		p.homeAt = 0
		return s.goHome()
	}
	return true
}

// findMembers asks who belongs to the cluster.
func (c *Client) findMembers(ctx context.Context) (f found) {
	ctx, cancel := context.WithTimeout(ctx, findPatience)
	defer cancel()
	res, err := c.cluster.Members(ctx, connect.NewRequest(&apiv1.MembersRequest{}))
	if err != nil {
		return found{} // another time
	}
	known := len(c.members.urls())
	for _, m := range res.Msg.Members {
		if i := c.members.remember(m.Address); i >= 0 && !slices.Contains(f.list, i) {
			f.list = append(f.list, i)
		}
	}
	if f.more = len(c.members.urls()) > known; len(f.list) > 0 {
		c.members.belong(f.list, known)
	}
	return f
}

// belong notes which members the cluster has. Of those that were learnt from it, and were so
// many when it was asked, the others have left it, and are tried no more: their addresses may
// answer nothing, for as long as each attempt lasts. What the user has named may be another
// name of one that belongs to it.
func (m *members) belong(places []int32, known int) {
	former := map[int32]bool{}
	for i := m.named; i < known; i++ {
		if !slices.Contains(places, int32(i)) {
			former[int32(i)] = true
		}
	}
	m.former.Store(&former)
}

// settle gives a home up that does not belong to the cluster; where there are more members
// than were known, each may become it.
func (p *spread) settle(f found) {
	if len(f.list) > 0 && (f.more || !slices.Contains(f.list, p.home)) {
		p.home = f.list[rand.IntN(len(f.list))]
	}
}

// goHome moves the session to its home, if that serves: else it stays where it is. It does
// not wait in line there: it has a place where it is, and beats nowhere meanwhile, which is
// why it has little patience with home.
func (s *Session) goHome() bool {
	patience := min(s.patience(0), s.TTL()/movePerTTL)
	dialing, cancel := context.WithTimeout(s.stop, patience)
	defer cancel()
	home := s.spread.home
	l, err := s.dial(dialing, s.c.members.urls()[home])
	if err != nil {
		return true
	}
	s.drop() // what it says of the move says nothing of the session
	beginning, cancel := context.WithTimeout(s.stop, patience)
	defer cancel()
	if err := s.begin(beginning, l, false, 0, patience, s.toAsk(l)); err != nil {
		l.close()
		return false
	}
	s.mu.Lock()
	s.member = home
	s.mu.Unlock()
	s.c.members.preferred.Store(home)
	return true
}
