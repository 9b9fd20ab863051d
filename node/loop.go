package node

import (
	"context"
	"io"
	"time"
)

// drainTicks bounds how long a node that is asked to stop waits for what is
// under way: one second.
const drainTicks = 20

// loop owns the replica. Each turn takes all that waits as one batch, so that a
// message of the leader that already arrived counts before the tick that would
// have missed it; the ticker drops ticks that a starved process slept through.
func (n *Node) loop(ctx context.Context) error {
	ticks, stop := n.cfg.Clock.Ticker(n.cfg.Tick)
	defer stop()
	alarm := alarm{clock: n.cfg.Clock}
	defer alarm.set(time.Time{}, false)
	quit := n.quit
	left := -1 // ticks until the stop, once asked for
	n.replica.Confirm(n.confirmedStart)
	n.turn(false)
	var batch inboxBatch
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
			ticked = true
		case <-n.inbox.wake:
		case <-alarm.c:
		case <-quit:
			n.inbox.refuse()
			n.handOver()
			quit = nil
			left = drainTicks
		}
		batch = n.drain(batch)
		if ticked && left > 0 {
			left--
		}
		n.turn(ticked)
		alarm.set(n.replica.Wake())
		if left == 0 || left > 0 && n.idle() {
			return errQuit
		}
	}
}

// idle reports whether nobody waits for anything.
func (n *Node) idle() bool {
	st := &n.status
	return !n.handingOver && st.Waiting == 0 && st.Unanswered == 0 && st.Confirming == 0 && n.outstanding.appends == 0 && n.outstanding.applies == 0
}

// drain gives the replica what came in.
func (n *Node) drain(spare inboxBatch) inboxBatch {
	b := n.inbox.take(spare)
	// These only queue, or are answered at once. They come first, so that whoever
	// waits is in the replica's books, and answered, should a call or a message panic.
	n.replica.Propose(b.proposals)
	for i := range b.confirms {
		b.confirms[i].ask(n.replica)
	}
	for _, f := range b.calls {
		f()
	}
	for i := range b.messages {
		n.step(&b.messages[i])
	}
	for _, f := range b.after {
		f()
	}
	return b
}

// turn performs what the replica wants done.
func (n *Node) turn(ticked bool) {
	now := n.cfg.Clock.Now()
	if ticked {
		n.watchFlush(now)
		n.replica.Tick(now)
		n.everyTick(now)
	}
	for {
		eff, ok := n.replica.Ready(now)
		if !ok {
			break
		}
		if eff.Role != nil {
			n.show() // before anybody can learn of it from a message or an answer
		}
		n.perform(eff)
	}
	n.writeBound()
	n.show()
	n.inbox.settle(&n.status, n.replica.AwaitsApplied())
	n.maybeSnapshot(now)
}

// show lets everybody see what the replica is now.
func (n *Node) show() {
	n.status = n.replica.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shown = n.status
}

// perform does what Effects says, in its order.
func (n *Node) perform(eff Effects) {
	if eff.Role != nil {
		n.cfg.Events.RoleChanged(*eff.Role)
		n.stopSending()
	}
	n.send(eff.Messages)
	n.tell(&eff)
	for _, a := range eff.Appends {
		n.append(a)
	}
	for _, a := range eff.Applies {
		n.outstanding.applies++
		n.applier.queue.push(applyTask{apply: a, mark: n.restoring(a.Restore), since: n.cfg.Clock.Now()})
	}
	for _, a := range eff.Answers {
		a.Done(nil, a.Err)
	}
	for i := range eff.Confirmed {
		c := &eff.Confirmed[i]
		n.cfg.Events.Confirmed(len(c.Done))
		for _, done := range c.Done {
			done(c.Term, c.Err)
		}
	}
	for i := range eff.Ahead {
		eff.Ahead[i].Tell(eff.Ahead[i].Ahead)
	}
}

func (n *Node) append(a *Append) {
	n.outstanding.appends++
	n.appender.queue.push(appendTask{append: a, mark: n.arrived(a.Snapshot)})
}

// appended tells the loop, from the appender.
func (n *Node) appended(group []*Append) {
	n.inbox.call(func() {
		n.outstanding.appends -= len(group)
		for _, a := range group {
			n.replica.Appended(a)
			if a.Snapshot != nil {
				n.snapshotInstalled(a.Snapshot)
			}
		}
	})
}

// applied tells the loop, from the applier.
func (n *Node) applied(a *Apply) {
	n.inbox.callApplied(a.pressing(), func() {
		n.outstanding.applies--
		n.replica.Applied(a)
		if a.Restore != nil {
			n.snapshotRestored(a.Restore)
		}
	})
}

// bound tells the loop that a snapshot can be written, from the applier.
func (n *Node) bound(index uint64, write func(io.Writer) error) {
	n.inbox.call(func() { n.snapshotBound(index, write) })
}

// confirmedStart opens the doors, or asks again on the next tick.
func (n *Node) confirmedStart(_ uint64, err error) {
	if err != nil {
		n.retryReady = true
		return
	}
	close(n.ready)
}

func (n *Node) everyTick(now time.Time) {
	if n.retryReady {
		n.retryReady = false
		n.replica.Confirm(n.confirmedStart)
	}
	n.tickSending(now)
	n.tickReceiving()
}

// watchFlush notices a disk that hangs or is full, before the tick that counts it.
func (n *Node) watchFlush(now time.Time) {
	n.replica.DiskFull(n.appender.waits())
	out, usually := n.appender.out(now), n.appender.usually()
	slow := out >= flushStalledAfter
	n.replica.FlushTakes(usually)
	n.replica.FlushSlow(slow)
	n.replica.FlushStalled(slow && out >= flushStalledTimes*usually)
	if slow != n.stalled {
		n.stalled = slow
		n.cfg.Events.FlushStalled(slow, out)
	}
}
