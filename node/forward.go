package node

import (
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/incumbent-dev/incumbent"
)

// Entries on their way to the leader of a term.
//
// Frames get lost, doubled and refused, and must neither be appended twice nor
// overtake one another. So a member sends what it has not seen appended again
// and again, in order, for as long as the term lasts, and each frame names the
// one before it. The leader of the term keeps, for each member, the last frame it
// appended and the last it refused. It appends a frame only behind the one that
// frame names, ignores what it has appended already (First only grows), and once
// it has refused a frame it refuses it for ever, so that the sender may safely
// put the commands into another one.
//
// The book lives and dies with the leader's process: whoever restarts never
// leads that term again, and without the book of a term nobody refuses its frames.

// forwards is the leader's part.
type forwards struct {
	term  uint64 // the last term that this member led; 0: none
	books map[uint64]*forwardBook
}

// forwardBook is what a leader knows of one member's frames.
type forwardBook struct {
	incarnation uint64
	appended    uint64 // First of the last appended
	refused     uint64 // First of the last refused
}

// stepForward appends an entry of another member, if we lead the term it names.
func (r *Replica) stepForward(m Message) {
	f := m.Forward
	if f.Term != r.forwards.term {
		return // the sender learns how the term ended from the log
	}
	h, cmds, err := r.checkForward(m)
	if err != nil {
		return
	}
	book := r.forwards.books[m.From]
	if book == nil || book.incarnation < h.Incarnation {
		book = &forwardBook{incarnation: h.Incarnation}
		r.forwards.books[m.From] = book
	}
	switch {
	case h.Incarnation < book.incarnation: // nobody waits for it any more
	case f.First <= book.appended: // it came before
	case f.First <= book.refused:
		r.refuse(m)
	case f.After != 0 && f.After != book.appended: // one before it is missing; both come again
	case !r.admitsAll(cmds), !r.appendForward(f):
		book.refused = f.First
		r.refuse(m)
	default:
		book.appended = f.First
	}
}

// checkForward keeps out of the log what no member could apply.
func (r *Replica) checkForward(m Message) (entryHeader, [][]byte, error) {
	h, err := decodeHeader(m.Forward.Entry)
	if err != nil {
		return h, nil, err
	}
	if h.Group != r.cfg.Group || h.Member != m.From || h.First != m.Forward.First || h.First == 0 {
		return h, nil, incumbent.Errorf(incumbent.Invalid, "entry %d of member %x came as %d of %x", h.First, h.Member, m.Forward.First, m.From)
	}
	cmds, err := decodeEntry(m.Forward.Entry, nil)
	return h, cmds, err
}

// admitsAll reports whether all commands of a forwarded entry may enter the log.
// The member whose entry is refused asks again one by one, and by then knows what
// this one knows.
func (r *Replica) admitsAll(cmds [][]byte) bool {
	return !slices.ContainsFunc(cmds, func(c []byte) bool { return r.admits(c) != nil })
}

// appendForward reports false if the entry was certainly not appended: this
// member leads no more, or hands its leadership over, or has too much uncommitted.
func (r *Replica) appendForward(f *Forward) bool {
	st := r.raw.BasicStatus()
	return st.RaftState == raft.StateLeader && st.GetTerm() == f.Term && r.raw.Propose(f.Entry) == nil
}

func (r *Replica) refuse(m Message) {
	r.eff.Messages = append(r.eff.Messages, Message{
		From: r.cfg.ID, To: m.From, Refuse: &Refuse{Term: m.Forward.Term, First: m.Forward.First},
	})
}

// forward sends a batch to the leader.
func (r *Replica) forward(b *batch) {
	b.sent = r.tick
	r.eff.Messages = append(r.eff.Messages, Message{
		From: r.cfg.ID, To: b.to, Forward: &Forward{Term: b.term, First: b.first, After: b.after, Entry: b.entry},
	})
}

// onItsWay reports whether the leader of this term may still append a batch that
// was forwarded to it.
func (r *Replica) onItsWay(b *batch) bool {
	return b.to != 0 && b.index == 0 && b.term == r.role.Term
}

// forwardAgain sends what the leader has not appended as far as this member
// knows, if that has been out for so many ticks.
func (r *Replica) forwardAgain(ticks uint64) {
	due := false
	for _, b := range r.pendingInOrder() {
		if r.onItsWay(b) && b.to == r.role.Leader {
			due = due || r.tick-b.sent >= ticks
			if due {
				r.forward(b)
			}
		}
	}
}

// stepRefuse lets a forwarded batch that the leader did not append wait again,
// with those after it, which the leader therefore did not append either.
func (r *Replica) stepRefuse(m Message) {
	b := r.proposals.pending[m.Refuse.First]
	if b == nil || b.to == 0 || b.to != m.From || b.term != m.Refuse.Term || b.index != 0 {
		return
	}
	var back []*batch
	for _, p := range r.pendingInOrder() {
		if p.first >= b.first && p.term == b.term {
			back = append(back, p)
		}
	}
	if b.term == r.role.Term {
		r.proposals.chain = b.after
	}
	r.requeueAll(back)
	r.proposals.refused = true
}
