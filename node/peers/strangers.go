package peers

import (
	"net/netip"
	"slices"
	"time"
)

// strangers are accepted connections of which nothing is proven, in the order in
// which they came. There are no more than maxStrangers, and maxStrangersHost of one
// address: for one more, another goes. It goes from the address that has most of
// them, and of those the one that has been silent for longest, else the oldest: so a
// member, which greets at once, comes through however many connections others keep
// open, and those that have proven what they are are never counted here. The Set's mu is
// held.
type strangers struct {
	list    []*socket
	closed  int       // since began
	began   time.Time // of a time in which there were too many; zero: it is over
	newest  time.Time // when the last one was closed
	host    netip.Addr
	crowded func() // told of each that is closed
}

func (l *strangers) enter(sock *socket) {
	l.list = append(l.list, sock)
	host := sock.host
	if l.of(host) <= maxStrangersHost {
		if len(l.list) <= maxStrangers {
			return
		}
		host = l.most()
	}
	victim := l.first(host, sock)
	l.leave(victim)
	hangUp(victim)
	l.closed++
	l.host, l.newest = host, time.Now()
	l.crowded()
}

func (l *strangers) leave(sock *socket) {
	if i := slices.Index(l.list, sock); i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
	}
}

// of is how many are of an address.
func (l *strangers) of(host netip.Addr) (n int) {
	for _, s := range l.list {
		if s.host == host {
			n++
		}
	}
	return n
}

// most is the address that has most of them.
func (l *strangers) most() (host netip.Addr) {
	counts, most := map[netip.Addr]int{}, 0
	for _, s := range l.list {
		if counts[s.host]++; counts[s.host] > most {
			host, most = s.host, counts[s.host]
		}
	}
	return host
}

// first is which one of an address goes, which is not the newest of all: that has
// had no time to say anything.
func (l *strangers) first(host netip.Addr, newest *socket) *socket {
	var oldest *socket
	for _, s := range l.list {
		switch {
		case s.host != host || s == newest:
		case s.silent():
			return s
		case oldest == nil:
			oldest = s
		}
	}
	return oldest
}

// watchStrangers logs when there begin to be too many, and when that is over. The
// housekeeper calls it.
func (s *Set) watchStrangers() {
	s.mu.Lock()
	l := &s.strangers
	closed, host, now := l.closed, l.host, time.Now()
	began := closed > 0 && l.began.IsZero()
	over := closed > 0 && now.Sub(l.newest) > crowdOver
	if began {
		l.began = l.newest
	}
	since := l.began
	if over {
		l.closed, l.began = 0, time.Time{}
	}
	s.mu.Unlock()
	if began {
		s.cfg.Logger.Warn("connections that prove nothing crowd the listener for members", "most_of", host.String(), "limit", maxStrangers)
	}
	if over {
		s.cfg.Logger.Info("connections that prove nothing do not crowd the listener for members any more", "closed", closed, "after", now.Sub(since).Round(time.Second))
	}
}
