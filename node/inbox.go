package node

import (
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/overload"
)

// inbox is the only way to the loop. Handing in never blocks: what does not fit
// is refused.
type inbox struct {
	maxProposals int
	maxBytes     int

	mu           sync.Mutex // held to add or to take everything, never longer
	in           inboxBatch
	bytes        int // of the proposals in it
	waiting      int // proposals that the loop took and that wait inside the replica
	waitingBytes int
	confirming   int  // the same of confirmations
	applies      bool // something waits for what is applied: the loop wants to hear of it at once
	closed       bool // no new work
	gone         bool // no loop

	wake chan struct{}
}

// inboxBatch is what the loop takes in one turn.
type inboxBatch struct {
	calls     []func() // from the appender, the applier and others, to run on the loop in order
	messages  []Message
	after     []func() // to run when the messages before them have been taken
	proposals []Proposal
	confirms  []confirmation
}

// confirmation is asked for by this member, or for another one that vouches for
// its leadership in a term.
type confirmation struct {
	ahead  func(Ahead) // nil: see Replica.ConfirmAhead
	done   func(term uint64, err error)
	member uint64 // 0: this one
	term   uint64
}

// ask hands a confirmation to the replica.
func (c *confirmation) ask(r *Replica) {
	if c.member != 0 {
		r.ConfirmFor(c.member, c.term, c.ahead, c.done)
		return
	}
	r.ConfirmAhead(c.ahead, c.done)
}

// add takes as many of ps as fit and returns how many, and why not the next.
func (b *inbox) add(ps []Proposal) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ps {
		if err := b.room(&ps[i]); err != nil {
			return i, err
		}
		b.in.proposals = append(b.in.proposals, ps[i])
		b.bytes += len(ps[i].Command)
	}
	return len(ps), nil
}

// room says why p does not fit, or nil. Proposals with Reserve may use the last
// places, for they make room elsewhere.
func (b *inbox) room(p *Proposal) error {
	if b.closed {
		return errStopped()
	}
	count, bytes := b.maxProposals, b.maxBytes
	if !p.Reserve {
		count -= count / inboxReserveShare
		bytes -= bytes / inboxReserveShare
	}
	if len(b.in.proposals)+b.waiting >= count {
		return overload.Errorf("%d proposals wait, limit is %d", len(b.in.proposals)+b.waiting, count).WithHint(hintFull)
	}
	if b.bytes+b.waitingBytes+len(p.Command) > bytes {
		return overload.Errorf("%d bytes of proposals wait, limit is %d", b.bytes+b.waitingBytes, bytes).WithHint(hintFull)
	}
	return nil
}

// hintFull goes with a refusal for want of room, of which no setting makes more: what waits goes
// at the pace of the disks.
const hintFull = "come back after the given time, and send fewer changes at once"

func errStopped() error { return incumbent.Errorf(incumbent.Unavailable, "the node is stopped") }

func (b *inbox) confirm(c confirmation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errStopped()
	}
	if n := len(b.in.confirms) + b.confirming; n >= MaxInboxConfirms {
		return overload.Errorf("%d confirmations wait, limit is %d", n, MaxInboxConfirms)
	}
	b.in.confirms = append(b.in.confirms, c)
	return nil
}

// message takes a message of a peer, or drops it: raft sends again.
func (b *inbox) message(m Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.gone && len(b.in.messages) < MaxInboxMessages {
		b.in.messages = append(b.in.messages, m)
	}
}

// call hands a function to the loop. It reports false if the loop is gone.
func (b *inbox) call(f func()) bool {
	b.mu.Lock()
	gone := b.gone
	if !gone {
		b.in.calls = append(b.in.calls, f)
	}
	b.mu.Unlock()
	signal(b.wake)
	return !gone
}

// callApplied is call for a function that tells the loop what was applied. Waking it
// for each entry costs as much as applying the entry: so that waits for the loop's
// next turn, a tick at the latest, unless it is pressing or something waits for it.
func (b *inbox) callApplied(pressing bool, f func()) {
	b.mu.Lock()
	if !b.gone {
		b.in.calls = append(b.in.calls, f)
	}
	wake := pressing || b.applies || b.closed
	b.mu.Unlock()
	if wake {
		signal(b.wake)
	}
}

// callAfter hands a function to the loop that runs behind the messages that came
// before it.
func (b *inbox) callAfter(f func()) {
	b.mu.Lock()
	if !b.gone {
		b.in.after = append(b.in.after, f)
	}
	b.mu.Unlock()
	signal(b.wake)
}

// take returns everything and takes the loop's old slices for reuse. What it
// returns counts as waiting until settle says how much of it still does.
func (b *inbox) take(spare inboxBatch) inboxBatch {
	clear(spare.calls)
	clear(spare.messages)
	clear(spare.after)
	clear(spare.proposals)
	clear(spare.confirms)
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.in
	b.in = inboxBatch{
		calls: spare.calls[:0], messages: spare.messages[:0], after: spare.after[:0],
		proposals: spare.proposals[:0], confirms: spare.confirms[:0],
	}
	b.waiting += len(got.proposals)
	b.waitingBytes += b.bytes
	b.confirming += len(got.confirms)
	b.bytes = 0
	return got
}

// settle tells after a turn how much the replica still holds, and whether the loop
// wants to hear at once of what is applied: also of what came during the turn.
func (b *inbox) settle(st *ReplicaStatus, applies bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting, b.waitingBytes, b.confirming = st.Waiting, st.WaitingBytes, st.Confirming
	if b.applies = applies; applies && len(b.in.calls) > 0 {
		signal(b.wake)
	}
}

// depth returns how many proposals wait in all.
func (b *inbox) depth() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.in.proposals) + b.waiting
}

// refuse turns new work away from now on. The node's own goroutines may still
// call.
func (b *inbox) refuse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// close turns everything away from now on and returns what was not taken.
func (b *inbox) close() inboxBatch {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.gone = true, true
	got := b.in
	b.in = inboxBatch{}
	return got
}
