package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/trust"
	"github.com/incumbent-dev/incumbent/node"
)

// Timing of the steward.
const (
	stewardEvery   = 200 * time.Millisecond
	stewardTimeout = 5 * time.Second // for one change of members
	// replaceWithin is how long a voter that was removed, and is silent, stays one while a
	// new member catches up, so that both happen in one change. It is dead weight meanwhile,
	// but so it was before. One that lives goes as soon as the others can do without it: until
	// then its vote may be needed, for its own removal too.
	replaceWithin = time.Minute
	// caughtUpWithin is how many entries behind the commit index a learner may
	// be to become a voter.
	caughtUpWithin = 1000
)

// census is what the steward decides on: who is wanted, and who is counted.
type census struct {
	self     uint64
	voters   []uint64 // as raft counts them
	learners []uint64
	commit   uint64
	members  []core.Member // as recorded: who is wanted
	gone     bool          // this member itself was removed
	progress map[uint64]node.PeerStatus
	// secretless have not said yet that they have the cluster's secret: only who gave
	// them their place knows them, and if that one is lost they reach nobody.
	secretless map[uint64]bool
	// unwanted is since when a voter has not been wanted any more.
	unwanted map[uint64]time.Duration
}

// stewardStep is the one next thing to do; none is nothing.
type stewardStep struct {
	changes  []node.MemberChange // one change of raft's members
	handOver bool                // give leadership to another: this member is to go
}

// decide says what brings raft's members nearer to the recorded ones. The
// record is what is wanted; raft's configuration follows it:
//
//   - whoever is recorded and not counted becomes a learner, as long as there is room: one
//     whose place a voter has that is no longer recorded comes once that one has gone;
//   - a learner that wants to vote, is caught up and has the cluster's secret becomes a
//     voter, in place of a voter that is no longer recorded if there is one;
//   - whoever is counted and not recorded goes: a voter that is silent only when nobody is
//     about to take its place, one that lives only when the others can do without it;
//   - a leader that was removed hands leadership over, and where nobody is there who is to
//     have it stays until somebody is.
//
// Only one step is taken at a time.
func (c *census) decide() stewardStep {
	if c.gone && slices.ContainsFunc(c.voters, func(id uint64) bool { return c.member(id) != nil && c.progress[id].Active }) {
		return stewardStep{handOver: true}
	}
	if !c.gone && c.member(c.self) == nil {
		return stewardStep{} // it records itself first
	}
	if out := c.strangers(c.learners); len(out) > 0 {
		return stewardStep{changes: changesTo(node.Gone, out)}
	}
	if in := c.newcomers(); len(in) > 0 {
		return stewardStep{changes: changesTo(node.Learner, in)}
	}
	ready, behind := c.candidates()
	unwanted := c.strangers(c.voters)
	if len(unwanted) == 0 || c.gone {
		if len(ready) == 0 || len(c.voters) >= MaxVoters {
			return stewardStep{}
		}
		return stewardStep{changes: changesTo(node.Voter, ready[:1])}
	}
	// One change at a time for each seat, so that each is as small as can be; who is silent
	// first, which makes those that follow easier.
	silent := slices.IndexFunc(unwanted, func(id uint64) bool { return !c.progress[id].Active })
	if len(ready) > 0 {
		return stewardStep{changes: []node.MemberChange{{ID: unwanted[max(0, silent)], Role: node.Gone}, {ID: ready[0], Role: node.Voter}}}
	}
	next := silent
	if next < 0 || behind && c.unwanted[unwanted[next]] < replaceWithin {
		next = slices.IndexFunc(unwanted, c.spares)
	}
	if next < 0 {
		return stewardStep{}
	}
	return stewardStep{changes: changesTo(node.Gone, unwanted[next:next+1])}
}

// spares reports whether a voter lives, and the others can do without it.
func (c *census) spares(id uint64) bool {
	live := 0
	for _, v := range c.voters {
		if v != id && (v == c.self || c.progress[v].Active) {
			live++
		}
	}
	return c.progress[id].Active && live > (len(c.voters)-1)/2
}

func changesTo(role node.MemberRole, ids []uint64) []node.MemberChange {
	out := make([]node.MemberChange, len(ids))
	for i, id := range ids {
		out[i] = node.MemberChange{ID: id, Role: role}
	}
	return out
}

func (c *census) member(id uint64) *core.Member {
	for i := range c.members {
		if c.members[i].ID == id {
			return &c.members[i]
		}
	}
	return nil
}

// strangers are those of ids that are not recorded.
func (c *census) strangers(ids []uint64) []uint64 {
	var out []uint64
	for _, id := range ids {
		if c.member(id) == nil {
			out = append(out, id)
		}
	}
	return out
}

// newcomers are recorded and not counted, as many as there is room for.
func (c *census) newcomers() []uint64 {
	var out []uint64
	for _, m := range c.members {
		if len(c.voters)+len(c.learners)+len(out) >= core.MaxMembers {
			break
		}
		if !slices.Contains(c.voters, m.ID) && !slices.Contains(c.learners, m.ID) {
			out = append(out, m.ID)
		}
	}
	return out
}

// candidates are learners that want to vote: those that are caught up, and
// whether there are others.
func (c *census) candidates() (ready []uint64, behind bool) {
	for _, m := range c.members {
		if m.Learner || !slices.Contains(c.learners, m.ID) {
			continue
		}
		p := c.progress[m.ID]
		if p.Active && !p.Snapshot && p.Match+caughtUpWithin >= c.commit && !c.secretless[m.ID] {
			ready = append(ready, m.ID)
		} else {
			behind = true
		}
	}
	return ready, behind
}

// steward is the loop around decide. It works while this member leads.
type steward struct {
	c     *Cluster
	kick  chan struct{} // look now
	since map[uint64]time.Time
}

func newSteward(c *Cluster) *steward {
	return &steward{c: c, kick: make(chan struct{}, 1), since: map[uint64]time.Time{}}
}

// wake makes the steward look at once; it never blocks.
func (w *steward) wake() {
	select {
	case w.kick <- struct{}{}:
	default: // it will look anyway
	}
}

func (w *steward) run(ctx context.Context) {
	tick := time.NewTicker(stewardEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.kick:
		case <-ctx.Done():
			return
		}
		if c := w.look(time.Now()); c != nil {
			w.perform(ctx, c.decide())
		}
	}
}

// look takes a census; nil while this member does not lead.
func (w *steward) look(now time.Time) *census {
	st := w.c.node.Status()
	if st.State != node.Leader || !st.Ready {
		clear(w.since)
		return nil
	}
	view := w.c.engine.View()
	c := &census{
		self: st.Member, voters: st.Voters, learners: st.Learners, commit: st.Commit,
		members: view.Members(), gone: view.MemberGone(st.Member),
		progress: map[uint64]node.PeerStatus{}, unwanted: map[uint64]time.Duration{}, secretless: map[uint64]bool{},
	}
	if t := trust.Of(view); t.Cluster == st.Cluster {
		for _, m := range c.members {
			has := t.Member(m.ID)
			c.secretless[m.ID] = has == nil || has.Secret == (trust.Hash{})
		}
	}
	for _, p := range st.Peers {
		c.progress[p.ID] = p
	}
	strangers := c.strangers(c.voters)
	for id := range w.since {
		if !slices.Contains(strangers, id) {
			delete(w.since, id)
		}
	}
	for _, id := range strangers {
		if _, seen := w.since[id]; !seen {
			w.since[id] = now
		}
		c.unwanted[id] = now.Sub(w.since[id])
	}
	return c
}

// heir is who is to lead next: of the voters that are heard of and not removed the one that
// has most of the log. 0: there is none, and any will do. Two that were removed would else
// hand leadership to each other until both stop.
func (c *Cluster) heir() uint64 {
	st, view := c.node.Status(), c.engine.View()
	var best node.PeerStatus
	for _, p := range st.Peers {
		if p.Active && slices.Contains(st.Voters, p.ID) && !view.MemberGone(p.ID) && (best.ID == 0 || p.Match > best.Match) {
			best = p
		}
	}
	return best.ID
}

// perform does one step. What fails is tried again at the next look.
func (w *steward) perform(ctx context.Context, step stewardStep) {
	ctx, cancel := context.WithTimeout(ctx, stewardTimeout)
	defer cancel()
	var err error
	switch {
	case step.handOver:
		err = w.c.node.TransferLeader(ctx, w.c.heir())
	case len(step.changes) > 0:
		if err = w.c.node.ChangeMembers(ctx, step.changes...); err == nil {
			w.c.noteChanges(step.changes)
			w.wake() // for the next step
		}
	}
	if err != nil && ctx.Err() == nil {
		w.c.cfg.Logger.Info("members not changed yet", "cause", err)
	}
}
