package peers

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent/node"
)

var (
	errMuted    = errors.New("this member is muted")
	errReplaced = errors.New("replaced by a new connection")
	errRemoved  = errors.New("not a member to be connected with")
	errStuck    = errors.New("the other side takes no bytes")
	errSilent   = errors.New("nothing was heard for too long")
	errNotUp    = errors.New("no connection")
	errFull     = errors.New("queue is full")
)

// send queues one message, or says why it cannot.
func (s *Set) send(p *peer, m *node.Message) error {
	if p == nil {
		return errNotUp
	}
	if err := sendable(m); err != nil {
		return err
	}
	encode := func(b []byte) []byte { return appendMessage(b, m, s.cfg.Group) }
	size := headerBytes + sizeMessage(m)
	if m.Forward == nil {
		return p.put(m.Class(), false, size, encode)
	}
	s.forwardMu.Lock()
	last := s.forwarded[m.To]
	again := m.Forward.Term < last.Term || m.Forward.Term == last.Term && m.Forward.First <= last.First
	err := p.put(node.Bulk, false, size, encode)
	if err == nil && !again {
		s.forwarded[m.To] = node.Forward{Term: m.Forward.Term, First: m.Forward.First}
	}
	s.forwardMu.Unlock()
	if err != nil && !again {
		s.refuseForward(m.To, m.Forward)
	}
	return err
}

// dropped counts a message that cannot be sent and adds its receiver to those
// that raft should know as unreachable.
func (s *Set) dropped(m *node.Message, err error, unreachable []uint64) []uint64 {
	class := m.Class()
	if p := (*s.peers.Load())[m.To]; p != nil {
		p.dropped[class].Add(1)
	}
	s.cfg.Events.Dropped(m.To, class, !errors.Is(err, errNotUp))
	if !errors.Is(err, errNotUp) && !errors.Is(err, errFull) {
		s.warn(m.To, 0, "message cannot be sent", err)
	}
	if m.Raft != nil && !slices.Contains(unreachable, m.To) {
		unreachable = append(unreachable, m.To)
	}
	return unreachable
}

// refuseForward says in the receiver's place that an entry was not appended. It
// must be certain that no copy of it ever left: a second copy that is dropped
// says nothing of the first.
func (s *Set) refuseForward(to uint64, f *node.Forward) {
	s.cfg.Deliver([]node.Message{{From: to, To: s.cfg.Self, Refuse: &node.Refuse{Term: f.Term, First: f.First}}})
}

// warn logs a complaint about a member once.
func (s *Set) warn(member uint64, reason Reason, msg string, err error) {
	key := complaint{member, reason}
	s.mu.Lock()
	said := s.warned[key]
	if len(s.warned) >= maxWarned {
		clear(s.warned)
	}
	s.warned[key] = true
	s.mu.Unlock()
	if !said {
		s.cfg.Logger.Warn(msg, "member", idText(member), "error", err) //nolint:sloglint // the message is one of a few constants
	}
}

// idText is a member's id as people read it.
func idText(id uint64) string { return fmt.Sprintf("%016x", id) }

// settledDown forgets complaints about a member that is connected again.
func (s *Set) settledDown(member uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := Reason(0); r < numReasons; r++ {
		delete(s.warned, complaint{member, r})
	}
}

// keepHouse pings, and notices silence.
func (s *Set) keepHouse() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		shows := s.cfg.Standing()
		for id, p := range *s.peers.Load() {
			p.ping(shows)
			s.book.acknowledged(id, s.cfg.Acknowledged(id))
		}
		s.watchStrangers()
	}
}

// keepBook writes now and then what members showed since their hellos. It has a
// goroutine of its own, for a disk may hang.
func (s *Set) keepBook() {
	tick := time.NewTicker(bookEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.book.flush(); err != nil {
			// Hellos are refused while the book cannot be written; what was shown
			// since is written with the next.
			s.warn(s.cfg.Self, NotNow, "book of members is not written", err)
		}
	}
}
