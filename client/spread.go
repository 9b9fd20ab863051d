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
	maxMembers   = 64               // that a client remembers
	findEvery    = 10 * time.Minute // between two looks at who belongs to the cluster
	minAway      = time.Minute      // before a session goes back
	awaySpan     = 4 * time.Minute  // over which that is spread
	findPatience = 5 * time.Second  // for one look
)

// pace is how slowly a client spreads.
type pace struct{ away, span, find time.Duration }

// spread is what a session knows for it.
type spread struct {
	pace
	home   int32         // among the members
	homeAt time.Duration // when it goes back; 0: it is there
	findAt time.Duration // when it looks who belongs to the cluster
}

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
		if len(*list) >= maxMembers {
			return -1
		}
		longer := append(slices.Clone(*list), u)
		if m.list.CompareAndSwap(list, &longer) {
			return int32(len(longer) - 1)
		}
	}
}

// tend is called between two beats: it looks who belongs to the cluster, and goes back
// home. It returns false if the session has lost its link by that.
func (s *Session) tend() bool {
	p := s.spread
	if p == nil {
		return true
	}
	now := s.clock()
	if now >= p.findAt {
		p.findAt = now + p.find/2 + rand.N(p.find)
		s.findMembers()
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

// findMembers asks who belongs to the cluster. A home that does not is given up, and
// where there are more than were known, each may become it.
func (s *Session) findMembers() {
	ctx, cancel := context.WithTimeout(s.stop, findPatience)
	defer cancel()
	res, err := s.c.cluster.Members(ctx, connect.NewRequest(&apiv1.MembersRequest{}))
	if err != nil {
		return // another time
	}
	known := len(s.c.members.urls())
	var list []int32
	for _, m := range res.Msg.Members {
		if i := s.c.members.remember(m.Address); i >= 0 && !slices.Contains(list, i) {
			list = append(list, i)
		}
	}
	more := len(s.c.members.urls()) > known
	if len(list) > 0 && (more || !slices.Contains(list, s.spread.home)) {
		s.spread.home = list[rand.IntN(len(list))]
	}
}

// goHome moves the session to its home, if that serves: else it stays where it is. It does
// not wait in line there: it has a place where it is, and beats nowhere meanwhile.
func (s *Session) goHome() bool {
	patience := s.patience(0)
	ctx, cancel := context.WithTimeout(s.stop, patience)
	defer cancel()
	home := s.spread.home
	l, err := s.c.dial(ctx, s.c.members.urls()[home], s.event)
	if err != nil {
		return true
	}
	s.drop() // what it says of the move says nothing of the session
	if err := s.begin(s.stop, l, false, 0, patience, s.toAsk(l)); err != nil {
		l.close()
		return false
	}
	s.mu.Lock()
	s.member = home
	s.mu.Unlock()
	s.c.members.preferred.Store(home)
	return true
}
