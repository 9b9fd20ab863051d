package server

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node/peers"
)

// roster is whom this member knows: those recorded in the replicated state,
// those that raft counts, and until the state has caught up, those of the last
// run. They differ for a moment whenever somebody joins or leaves: a member that
// was removed votes on its own removal, so it stays connected until raft has let
// it go.
type roster struct {
	self uint64

	// look is what everybody reads. It is replaced, never changed.
	look atomic.Pointer[rosterLook]

	mu       sync.Mutex // guards the rest and the order of looks; held to make one
	view     *core.View
	counted  map[uint64]bool // by raft; true: votes
	seeds    []peers.Member  // of the last run or of the answer to joining; nil once caught up
	met      map[uint64]peers.Member
	connect  func([]peers.Member) // never blocks; nil while there is nobody to tell
	onChange func()               // never blocks
}

// rosterLook is the roster at one moment.
type rosterLook struct {
	view    *core.View
	counted map[uint64]bool
	others  []peers.Member // whom to be connected with, by id
}

func newRoster(view *core.View, onChange func()) *roster {
	r := &roster{view: view, counted: map[uint64]bool{}, met: map[uint64]peers.Member{}, onChange: onChange}
	r.update(func() {})
	return r
}

// begin says who this member is, whom it knew when it last ran, and the state it
// has recovered.
func (r *roster) begin(self uint64, seeds []peers.Member, view *core.View) {
	r.update(func() { r.self, r.seeds, r.view = self, seeds, view })
}

// update changes the roster and tells who is to be connected.
func (r *roster) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	look := &rosterLook{view: r.view, counted: r.counted}
	for _, m := range r.seeds {
		r.met[m.ID] = m
	}
	for _, m := range r.view.Members() {
		r.met[m.ID] = peers.Member{ID: m.ID, Name: m.Name, Address: m.PeerAddress}
	}
	for id, m := range r.met {
		if id == r.self {
			continue
		}
		if look.standing(id) != peers.Current && !r.seeded(id) {
			delete(r.met, id)
			continue
		}
		if m.Address != "" {
			look.others = append(look.others, m)
		}
	}
	slices.SortFunc(look.others, func(a, b peers.Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	r.look.Store(look)
	if r.connect != nil {
		r.connect(look.others)
	}
	r.onChange()
}

// seeded reports whether a member of the last run is still believed in: until
// this member has caught up, unless it has heard that the other is gone.
func (r *roster) seeded(id uint64) bool {
	return !r.view.MemberGone(id) && slices.ContainsFunc(r.seeds, func(m peers.Member) bool { return m.ID == id })
}

// recorded takes a state in which members changed.
func (r *roster) recorded(view *core.View) { r.update(func() { r.view = view }) }

// configured takes what raft counts.
func (r *roster) configured(voters, learners []uint64) {
	counted := make(map[uint64]bool, len(voters)+len(learners))
	for _, id := range learners {
		counted[id] = false
	}
	for _, id := range voters {
		counted[id] = true
	}
	r.update(func() { r.counted = counted })
}

// caughtUp forgets the last run: the state knows better.
func (r *roster) caughtUp() { r.update(func() { r.seeds = nil }) }

// connectWith begins to tell who is to be connected.
func (r *roster) connectWith(f func([]peers.Member)) { r.update(func() { r.connect = f }) }

// standing is what is known of a member's right to be here.
func (l *rosterLook) standing(id uint64) peers.Membership {
	if _, counted := l.counted[id]; counted {
		return peers.Current
	}
	if _, recorded := l.view.Member(id); recorded {
		return peers.Current
	}
	if l.view.MemberGone(id) {
		return peers.Gone
	}
	return peers.Unknown
}

// membership is peers.Config's: from any goroutine.
func (r *roster) membership(id uint64) peers.Membership {
	look := r.look.Load()
	s := look.standing(id)
	if s == peers.Unknown && slices.ContainsFunc(look.others, func(m peers.Member) bool { return m.ID == id }) {
		return peers.Current // known from the last run
	}
	return s
}

// voters returns who votes, by id.
func (l *rosterLook) voters() []uint64 {
	var out []uint64
	for id, votes := range l.counted {
		if votes {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
