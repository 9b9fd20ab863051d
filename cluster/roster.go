package cluster

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node/peers"
)

// rosterKeeper keeps whom this member knows: those recorded in the replicated state,
// those that raft counts, and until the state has caught up, those of the last
// run. They differ for a moment whenever somebody joins or leaves: a member that
// was removed votes on its own removal, so it stays connected until raft has let
// it go.
type rosterKeeper struct {
	self uint64
	now  atomic.Pointer[Roster] // what everybody reads

	mu       sync.Mutex // guards the rest and the order of rosters; held to make one
	view     *core.View
	counted  map[uint64]bool // by raft; true: votes
	seeds    []peers.Member  // of the last run or of the answer to joining; nil once caught up
	met      map[uint64]peers.Member
	connect  func([]peers.Member) // never blocks; nil while there is nobody to tell
	onChange func()               // never blocks
}

// Roster is whom a member knows at one moment. It never changes.
type Roster struct {
	View    *core.View      // in which members are recorded
	Counted map[uint64]bool // by raft; true: votes
	Others  []peers.Member  // whom to be connected with, by id
}

func newRoster(view *core.View, onChange func()) *rosterKeeper {
	r := &rosterKeeper{view: view, counted: map[uint64]bool{}, met: map[uint64]peers.Member{}, onChange: onChange}
	r.update(func() {})
	return r
}

// begin says who this member is, whom it knew when it last ran, and the state it
// has recovered.
func (r *rosterKeeper) begin(self uint64, seeds []peers.Member, view *core.View) {
	r.update(func() { r.self, r.seeds, r.view = self, seeds, view })
}

// update changes the roster and tells who is to be connected.
func (r *rosterKeeper) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	next := &Roster{View: r.view, Counted: r.counted}
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
		if next.standing(id) != peers.Current && !r.seeded(id) {
			delete(r.met, id)
			continue
		}
		if m.Address != "" {
			next.Others = append(next.Others, m)
		}
	}
	slices.SortFunc(next.Others, func(a, b peers.Member) int { return cmp.Compare(a.ID, b.ID) })
	r.now.Store(next)
	if r.connect != nil {
		r.connect(next.Others)
	}
	r.onChange()
}

// seeded reports whether a member of the last run is still believed in: until
// this member has caught up, unless it has heard that the other is gone.
func (r *rosterKeeper) seeded(id uint64) bool {
	return !r.view.MemberGone(id) && slices.ContainsFunc(r.seeds, func(m peers.Member) bool { return m.ID == id })
}

// recorded takes a state in which members changed.
func (r *rosterKeeper) recorded(view *core.View) { r.update(func() { r.view = view }) }

// configured takes what raft counts.
func (r *rosterKeeper) configured(voters, learners []uint64) {
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
func (r *rosterKeeper) caughtUp() { r.update(func() { r.seeds = nil }) }

// connectWith begins to tell who is to be connected.
func (r *rosterKeeper) connectWith(f func([]peers.Member)) { r.update(func() { r.connect = f }) }

// standing is what is known of a member's right to be here.
func (l *Roster) standing(id uint64) peers.Membership {
	if _, counted := l.Counted[id]; counted {
		return peers.Current
	}
	if _, recorded := l.View.Member(id); recorded {
		return peers.Current
	}
	if l.View.MemberGone(id) {
		return peers.Gone
	}
	return peers.Unknown
}

// membership is peers.Config's: from any goroutine.
func (r *rosterKeeper) membership(id uint64) peers.Membership {
	now := r.now.Load()
	s := now.standing(id)
	if s == peers.Unknown && slices.ContainsFunc(now.Others, func(m peers.Member) bool { return m.ID == id }) {
		return peers.Current // known from the last run
	}
	return s
}

// Voters returns who votes, by id.
func (l *Roster) Voters() []uint64 {
	var out []uint64
	for id, votes := range l.Counted {
		if votes {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
