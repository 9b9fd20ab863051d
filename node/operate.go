package node

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// ChangeMembers makes members what the changes say, and returns once that is
// applied here and a majority of those who vote then knows that it is committed: it
// outlives the loss of this member. Several changes are made together, in one joint
// change: as long as it lasts both majorities count. What is so already is left alone,
// so a call may be repeated. The error is Invalid (no such id, or no voter left), TooLarge,
// Overloaded, NotLeader or Unavailable if the change was not made; Unknown if
// leadership ended meanwhile, and DeadlineExceeded if ctx did: then it may yet be
// made.
func (n *Node) ChangeMembers(ctx context.Context, changes ...MemberChange) error {
	return n.ask(ctx, "the change of membership", func(done func(error)) bool { return n.startChange(done, changes) })
}

func (n *Node) startChange(done func(error), changes []MemberChange) bool {
	return n.inbox.call(func() { n.replica.ChangeMembers(changes, done) })
}

// TransferLeader hands leadership to a voter, or to the one whose log is furthest
// if to is 0, and returns when another member leads. Proposals are held
// meanwhile. The error is Invalid if to is no voter, NotLeader, Unavailable if
// nobody took over within an election timeout, or DeadlineExceeded if ctx ended
// first.
func (n *Node) TransferLeader(ctx context.Context, to uint64) error {
	return n.ask(ctx, "the transfer of leadership", func(done func(error)) bool { return n.startTransfer(to, done) })
}

func (n *Node) startTransfer(to uint64, done func(error)) bool {
	return n.inbox.call(func() { n.replica.TransferLeader(to, done) })
}

// ask hands something to the loop and waits for how it ends.
func (n *Node) ask(ctx context.Context, what string, start func(done func(error)) bool) error {
	answer := make(chan error, 1)
	if !start(func(err error) { answer <- err }) {
		return errStopped()
	}
	select {
	case err := <-answer:
		return err
	case <-n.stopped:
	case <-ctx.Done():
		return incumbent.Errorf(incumbent.DeadlineExceeded, "%s goes on: %w", what, ctx.Err())
	}
	select {
	case err := <-answer: // the stop answered it
		return err
	default:
		return errStopped()
	}
}

// PeerLost tells that the other side closed all connections with a member: its
// process ended. Everything it sent must have been handed to Step before, and
// nothing it sends on those connections may come after. If it led, the others
// elect another leader at once instead of after an election timeout.
func (n *Node) PeerLost(id uint64) {
	n.inbox.callAfter(func() { n.replica.PeerLost(id, n.cfg.Clock.Now()) })
}

// Unreachable tells that messages to a member may have been lost.
func (n *Node) Unreachable(id uint64) {
	n.inbox.call(func() { n.replica.ReportUnreachable(id) })
}

// Standing returns what this member can prove to remember: its incarnation, and
// the term and commit index that are durable. None of them ever goes down, in
// this run or a later one, unless the disk was put back to an earlier state.
func (n *Node) Standing() (incarnation, term, durable uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life, n.shown.DurableTerm, n.shown.DurableCommit
}

// Held returns where this member's log on disk ends, and up to where of it is
// known to be committed, so that no leader may cut it. Each may fall, with a
// restart or for an uncommitted tail; but durable is never below what settled was
// at any time before, unless the disk was put back to an earlier state.
func (n *Node) Held() (durable, settled uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shown.Durable, n.shown.Settled
}

// tell passes on what the replica tells.
func (n *Node) tell(eff *Effects) {
	for _, t := range eff.Told {
		t.Done(t.Err)
	}
	if m := eff.Members; m != nil {
		n.cfg.Events.MembersChanged(m.Voters, m.Learners)
	}
	if eff.Mute != nil {
		n.cfg.Events.Mute(*eff.Mute)
	}
}

// handOver begins to hand leadership over before a stop.
func (n *Node) handOver() {
	if n.status.State != Leader {
		return
	}
	n.handingOver = true
	n.replica.TransferLeader(0, func(error) { n.handingOver = false })
}

// alarm wakes the loop at a time between two ticks.
type alarm struct {
	clock Clock
	at    time.Time
	c     <-chan time.Time
	stop  func()
}

// set sets the alarm, or turns it off.
func (a *alarm) set(at time.Time, on bool) {
	if on && a.c != nil && at.Equal(a.at) {
		return
	}
	if a.c != nil {
		a.stop()
		a.c = nil
	}
	if !on {
		return
	}
	a.at = at
	// A ticker's first tick is the alarm; the next turn sets the next one.
	a.c, a.stop = a.clock.Ticker(max(at.Sub(a.clock.Now()), time.Millisecond))
}
