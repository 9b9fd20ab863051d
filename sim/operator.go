package sim

import (
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// Times of the operator.
const (
	operates   = 200 * time.Millisecond // looks again after so long, at most
	answersIn  = 3 * time.Second        // a change of which nothing is heard is asked for again
	backsUp    = 10 * time.Second       // between two copies of a disk
	backupAged = 5 * time.Second        // a copy is put back no earlier: others have seen what came since
	stays      = 4 * time.Second        // a removed process goes on, at most
)

// operation is what people and the leader's server do about one machine: it
// leaves the cluster, and joins it again, under a new id if it has lost its
// disk. There is one at a time, as people are told to do.
type operation struct {
	w     *world
	m     *member
	steps []step        // one after another
	asked time.Duration // the first was asked for then; 0: it is not
	rests time.Duration // nothing is done before
}

// step is a change of membership, with what is to be done before.
type step struct {
	rest    time.Duration // nothing is done for so long first
	before  func()        // nil: nothing
	changes func() []node.MemberChange
}

// operate begins an operation.
func (w *world) operate(m *member, steps ...step) {
	w.operation = &operation{w: w, m: m, steps: steps}
	w.after(w.upTo(operates), w.operation.look)
}

// look does what is next.
func (op *operation) look() {
	w := op.w
	switch {
	case w.operation != op: // its cluster was lost
		return
	case len(op.steps) == 0:
		w.operation = nil
		return
	case op.steps[0].rest > 0:
		op.rests, op.steps[0].rest = w.now+op.steps[0].rest, 0
	case w.now < op.rests:
	case op.steps[0].before != nil:
		op.steps[0].before()
		op.steps[0].before = nil
	case op.asked == 0 || w.now > op.asked+answersIn:
		op.ask()
	}
	w.after(w.upTo(operates), op.look)
}

// ask asks the leader for the next step.
func (op *operation) ask() {
	l, changes, left := op.w.leading(), op.steps[0].changes(), len(op.steps)
	if l == nil || !caughtUp(l, changes) {
		return
	}
	op.asked = op.w.now
	l.node.StartChangeMembers(func(err error) {
		if len(op.steps) != left {
			return // an answer to an earlier question
		}
		op.asked = 0
		if err == nil {
			op.w.note("members changed: %x", changes)
			op.steps = op.steps[1:]
		}
	}, changes...)
	l.work()
}

// becomes is the step after which the member on a machine has a role.
func (m *member) becomes(r node.MemberRole) step {
	return step{changes: func() []node.MemberChange { return []node.MemberChange{{ID: m.id, Role: r}} }}
}

// joins are the steps after which it has the role it is meant to have.
func (m *member) joins() []step {
	if m.learner {
		return []step{m.becomes(node.Learner)}
	}
	return []step{m.becomes(node.Learner), m.becomes(node.Voter)}
}

// caughtUp reports whether whoever is to vote has everything.
func caughtUp(l *process, step []node.MemberChange) bool {
	st := l.node.Status()
	for _, c := range step {
		if c.Role != node.Voter || slices.Contains(st.Voters, c.ID) {
			continue
		}
		if !slices.ContainsFunc(st.Peers, func(p node.PeerStatus) bool { return p.ID == c.ID && p.Active && p.Match >= st.Commit }) {
			return false
		}
	}
	return true
}

// leading is the process that leads the newest term.
func (w *world) leading() *process {
	if m := w.leader(); m != nil && m.proc.node != nil && m.proc.node.Status().State == node.Leader {
		return m.proc
	}
	return nil
}

// operable is a machine on which an operation may begin now, or nil.
func (w *world) operable() *member {
	m := w.victim()
	if w.down || w.operation != nil || w.putBack != nil || !m.learner && w.cfg.Voters < 3 {
		return nil
	}
	return m
}

// handOver asks the leader to hand leadership to another, or to whom it likes.
func (w *world) handOver() {
	l := w.leading()
	if l == nil {
		return
	}
	to := w.anyone().id
	if w.chance(2) {
		to = 0
	}
	l.node.StartTransferLeader(to, func(error) {})
	l.work()
}

// demote makes a learner of a voter, and a voter of it again.
func (w *world) demote() {
	if m := w.operable(); m != nil && !m.learner {
		w.operate(m, m.joins()...)
	}
}

// wipe loses a machine's disk. It joins again under a new id.
func (w *world) wipe() {
	if m := w.operable(); m != nil {
		w.replace(m)
	}
}

// replace empties a machine and lets it take its own place under a new id, in
// one change of membership.
func (w *world) replace(m *member) {
	old := m.emptied()
	steps := m.joins()
	steps[0].changes = func() []node.MemberChange {
		return []node.MemberChange{{ID: m.id, Role: node.Learner}, {ID: old, Role: node.Gone}}
	}
	w.operate(m, steps...)
}

// remove removes a member, whose process goes on for a while and may not
// disturb anybody (G33); then it is emptied and joins again.
func (w *world) remove() {
	m := w.operable()
	if m == nil {
		return
	}
	steps := append([]step{m.becomes(node.Gone)}, m.joins()...)
	steps[1].rest, steps[1].before = w.upTo(stays), func() { m.emptied() }
	w.operate(m, steps...)
}

// emptied ends the process, empties the disk and gives the machine a new id. It
// returns the old one.
func (m *member) emptied() (old uint64) {
	m.ends()
	old = m.id
	m.disk = vfs.NewMem()
	m.backup, m.slow, m.hung, m.broken, m.outcast = nil, 0, 0, false, false
	m.w.net.forget(m)
	if m.w.putBack == m {
		m.w.putBack = nil
	}
	m.newID()
	m.w.note("member %d emptied: %x is now %x", m.at, old, m.id)
	m.w.after(m.w.upTo(bootTakes), m.boot)
	return old
}

// ends ends the process, if one runs, as when it is told to stop.
func (m *member) ends() {
	if p := m.proc; p != nil {
		p.end()
		m.w.net.closed(m)
	}
}

// rollBack puts an earlier copy of a machine's disk back: it has forgotten what
// it promised since, its peers have not (G34). Where a peer has not seen anything
// newer than the copy it cannot notice; such a copy is not put back here.
func (w *world) rollBack() {
	m := w.operable()
	if m == nil || w.cfg.Hostile || m.backup == nil || w.now < m.backedUp+backupAged || m.proc == nil || !w.net.newer(m) {
		return
	}
	w.note("member %d put back to %v", m.at, m.backedUp)
	m.ends()
	m.disk = m.backup.Clone()
	w.putBack = m
	w.after(w.upTo(bootTakes), m.boot)
}

// backUp copies a machine's disk now and then.
func (m *member) backUp() {
	m.w.after(m.w.upTo(2*backsUp), func() {
		if m.proc != nil && m.proc.node != nil {
			m.copyDisk()
		}
		m.backUp()
	})
}

// copyDisk copies a machine's disk. What is being written may be in the copy already, before
// the process knows of it.
func (m *member) copyDisk() {
	m.backup, m.backedUp = m.disk.Clone(), m.w.now
	fs := m.backup.Clone()
	fs.SetCapacity(0)
	log, found, err := wal.Open(fs, "data/log", wal.Options{SegmentBytes: node.MinSegmentBytes})
	m.w.must(err)
	if err != nil {
		return
	}
	m.backupEnds = 0
	for _, g := range found.Groups {
		m.backupEnds = max(m.backupEnds, g.Snapshot.Index, g.HardState.Commit)
		if n := len(g.Entries); n > 0 {
			m.backupEnds = max(m.backupEnds, g.Entries[n-1].Index)
		}
	}
	m.w.must(log.Close())
}

// refused is a member that its peers know to have been put back: it stops, and
// joins again like one that lost its disk.
func (w *world) refused(m *member) {
	w.res.RolledBack++
	w.note("member %d refused", m.at)
	m.ends()
	m.outcast = true
	w.rejoin(m)
}

// rejoin replaces a member as soon as no other operation is under way.
func (w *world) rejoin(m *member) {
	switch {
	case !m.outcast: // or the whole cluster was lost meanwhile
	case w.operation == nil:
		w.replace(m)
	default:
		w.after(operates, func() { w.rejoin(m) })
	}
}
