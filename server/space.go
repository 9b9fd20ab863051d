package server

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"
)

// Members tell each other how much room their disks have. What is committed needs
// the disks of a majority: while fewer voters than that have space above their
// reserve, every member refuses growth to its clients, before an append has to
// wait for space. A minority that is short holds nobody up; it falls behind and
// is brought up to date when it has space again.

const (
	spaceEvery = time.Second     // as often as the node looks at its disk
	spaceFresh = 5 * time.Second // what was said before is not known any more
)

// Frames between members about disks.
//
//	'S'  growth refused (1: yes)  free bytes (8, little endian; all ones: not known)  reserve (8)
const (
	spaceKind  = 'S'
	spaceBytes = 1 + 1 + 8 + 8
)

// space is what a member says of its disk.
type space struct {
	short         bool // its node refuses growth
	free, reserve int64
}

func encodeSpace(p space) []byte {
	b := append(make([]byte, 0, spaceBytes), spaceKind, 0)
	if p.short {
		b[1] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(p.free))
	return binary.LittleEndian.AppendUint64(b, uint64(p.reserve))
}

// isSpaceReport reports whether a frame from another member is for
// [spaces.receive].
func isSpaceReport(frame []byte) bool { return len(frame) > 0 && frame[0] == spaceKind }

// spaces is what was heard of the members' disks.
type spaces struct {
	mu    sync.Mutex // held for moments
	heard map[uint64]heardSpace
}

type heardSpace struct {
	space
	at time.Duration // since this member began
}

// receive takes a report, from any goroutine. One that is malformed is dropped.
func (t *spaces) receive(from uint64, frame []byte, now time.Duration) {
	if len(frame) != spaceBytes || !isSpaceReport(frame) || frame[1] > 1 {
		return
	}
	p := space{
		short: frame[1] == 1,
		free:  int64(binary.LittleEndian.Uint64(frame[2:])), reserve: int64(binary.LittleEndian.Uint64(frame[10:])),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.heard == nil || len(t.heard) >= reportersKept {
		t.heard = map[uint64]heardSpace{}
	}
	t.heard[from] = heardSpace{p, now}
}

// fresh returns what is known now.
func (t *spaces) fresh(now time.Duration) map[uint64]space {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[uint64]space{}
	for id, h := range t.heard {
		if now-h.at <= spaceFresh {
			out[id] = h.space
		}
	}
	return out
}

// needed returns the voters that are short and without whom there is no quorum of
// voters that are known to have space: none if there is one.
func needed(voters []uint64, known map[uint64]space) []uint64 {
	var short []uint64
	enough := 0
	for _, id := range voters {
		p, ok := known[id]
		switch {
		case ok && p.short:
			short = append(short, id)
		case ok:
			enough++
		}
	}
	if enough > len(voters)/2 {
		return nil
	}
	return short
}

// keepSpaces tells the others of this member's disk, and decides on growth.
func (s *Server) keepSpaces(ctx context.Context) {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		s.lookAtSpaces()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) lookAtSpaces() {
	look := s.roster.look.Load()
	for _, m := range look.others {
		s.courier.SendApp(m.ID, encodeSpace(s.ownSpace()))
	}
	var names []string
	for _, id := range needed(look.voters(), s.knownSpaces()) {
		names = append(names, s.nameOf(id))
	}
	slices.Sort(names)
	if !s.growth.shortOf(s.node, names) {
		return
	}
	if len(names) > 0 {
		err := errShort(strings.Join(names, ", "))
		s.events.add(Event{What: "refusing growth everywhere", Subject: s.cfg.Name, Detail: err.Error()})
		s.log.Warn("refusing growth everywhere", "cause", err)
		return
	}
	s.events.add(Event{What: "growing again everywhere", Subject: s.cfg.Name})
	s.log.Info("growing again everywhere")
}

func (s *Server) ownSpace() space {
	st := s.node.Status()
	return space{short: st.GrowthRefused, free: st.FreeBytes, reserve: st.ReserveBytes}
}

// knownSpaces is what is known of all members' disks now, this one's too.
func (s *Server) knownSpaces() map[uint64]space {
	known := s.spaces.fresh(time.Since(s.begun))
	known[s.id] = s.ownSpace()
	return known
}

// shortMember is another member that is short of disk.
type shortMember struct {
	name string
	space
}

// shortMembers are the other members that are short of disk, by name.
func (s *Server) shortMembers() []shortMember {
	var out []shortMember
	for id, p := range s.spaces.fresh(time.Since(s.begun)) {
		if p.short {
			out = append(out, shortMember{s.nameOf(id), p})
		}
	}
	slices.SortFunc(out, func(a, b shortMember) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return out
}
