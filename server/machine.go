package server

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/door/native"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/watch"
)

// leaseKind is the hub's kind of topics about leases; the kinds of other
// families follow it.
const leaseKind watch.Kind = 1

// changeBytes is what keeping a change costs besides its texts: the change and
// the lease's record, which history shares with the state in most cases.
const changeBytes = 256

// machine is what the node drives: the replicated state, and behind it, in this
// order, the lease loop and the watch hub. The node resolves proposals after
// Apply has returned, so that whoever gets an answer finds view, deadlines and
// history at least as new as the answer.
//
// All methods but view are called by the node's apply goroutine.
type machine struct {
	state   *core.State
	current atomic.Pointer[core.View]
	leases  *lease.Service
	hub     *watch.Hub
	metrics *metrics
	events  *timeline
	members func(*core.View) // is told of a state with other members; never blocks; may be nil

	compare    func(*core.View) // is told of the state at a checkpoint; never blocks; may be nil
	comparedAt atomic.Uint64    // index of the newest checkpoint

	// tamper, where a test has set it, changes what this member applies, as broken
	// memory would.
	tamper atomic.Pointer[func(cmds [][]byte)]
}

func newMachine(leases *lease.Service, hub *watch.Hub, m *metrics, events *timeline) *machine {
	out := &machine{state: core.New(), leases: leases, hub: hub, metrics: m, events: events}
	out.current.Store(out.state.View())
	return out
}

// view is the newest applied state; from any goroutine.
func (m *machine) view() *core.View { return m.current.Load() }

// Apply implements node.Machine.
func (m *machine) Apply(cmds [][]byte, results []any) {
	// The results outlive the call: those who proposed get pointers into them.
	rs := make([]core.Result, len(cmds))
	if f := m.tamper.Load(); f != nil {
		(*f)(cmds)
	}
	changes := m.state.Apply(cmds, rs)
	v := m.state.View()
	m.current.Store(v)
	m.leases.Applied(v, changes)
	m.tellMembers(v, changes)
	m.hub.Publish(v, v.Index(), topical(changes))
	for i := range rs {
		results[i] = &rs[i]
		m.tellCheckpoint(rs[i].View)
	}
	m.count(rs, changes)
}

// tellMembers passes a state on whose members changed.
func (m *machine) tellMembers(v *core.View, changes []core.Change) {
	if m.members == nil {
		return
	}
	for i := range changes {
		if changes[i].Member != nil || changes[i].MemberBefore != nil {
			m.members(v)
			return
		}
	}
}

// tellCheckpoint passes the state at a checkpoint on; nil is none.
func (m *machine) tellCheckpoint(v *core.View) {
	if v == nil {
		return
	}
	m.comparedAt.Store(uint64(v.Index()))
	if m.compare != nil {
		m.compare(v)
	}
}

// topical turns changes of leases into events of the hub. Changes of sessions
// reach their clients through the lease loop.
func topical(changes []core.Change) []*watch.Event {
	n := 0
	for i := range changes {
		if changes[i].Lease != nil {
			n++
		}
	}
	// One array for all: history drops them together, as it does the changes.
	made, topics := make([]watch.Event, n), make([]watch.Topic, n)
	events := make([]*watch.Event, 0, n)
	for i := range changes {
		c := &changes[i]
		if c.Lease == nil {
			continue
		}
		k := len(events)
		topics[k] = native.LeaseTopic(leaseKind, c.Lease.Name)
		made[k] = watch.Event{Index: c.Index, Topics: topics[k : k+1 : k+1], Payload: c, Size: sizeOf(c.Lease)}
		events = append(events, &made[k])
	}
	return events
}

func sizeOf(l *core.Lease) int {
	return changeBytes + len(l.Name.Lease) + len(l.Holder) + len(l.Origin.Address)
}

// count keeps the numbers and the timeline. Losing a lease is a state
// transition worth a line there; a claim is not.
func (m *machine) count(rs []core.Result, changes []core.Change) {
	for i := range rs {
		kind := incumbent.OK
		if rs[i].Err != nil {
			kind = rs[i].Err.Kind
		}
		m.metrics.result(kind)
	}
	for i := range changes {
		c := &changes[i]
		m.metrics.change(c.What)
		switch c.What {
		case core.Expired, core.Declined:
			m.metrics.lateness.Observe(c.Late.Seconds())
		case core.MemberPut, core.MemberGone:
			m.events.member(c)
		}
		if what := lossOf(c); what != "" && c.LeaseBefore != nil {
			m.events.lost(what, c.Lease.Name.String(), c.LeaseBefore.Holder, uint64(c.Index), c.Late)
		}
	}
}

// lossOf names the ways to lose a lease without giving it up.
func lossOf(c *core.Change) string {
	switch c.What {
	case core.Expired:
		return "lease expired"
	case core.Revoked:
		return "lease revoked"
	case core.Declined:
		return "offer declined"
	}
	return ""
}

// Snapshot implements node.Machine.
func (m *machine) Snapshot() func(io.Writer) error { return m.view().WriteSnapshot }

// Restore implements node.Machine.
func (m *machine) Restore(r io.Reader) error {
	state, err := core.Restore(r)
	if err != nil {
		return err
	}
	m.state = state
	v := state.View()
	m.current.Store(v)
	m.leases.Restored(v)
	m.hub.Reset(v, v.Index())
	if m.members != nil {
		m.members(v)
	}
	return nil
}

// Lead implements node.Machine.
func (m *machine) Lead(term uint64) { m.leases.Lead(term) }

// Follow implements node.Machine.
func (m *machine) Follow(leader, term uint64) { m.leases.Follow(leader, term) }

// member notes who came and who went. What a member says anew of itself is of no
// interest unless it changes who it is.
func (t *timeline) member(c *core.Change) {
	switch {
	case c.MemberBefore == nil && c.Member != nil:
		t.add(Event{What: "member added", Subject: c.Member.Name, Detail: idText(c.Member.ID) + " at " + c.Member.PeerAddress, Index: uint64(c.Index)})
	case c.What == core.MemberGone && c.MemberBefore != nil:
		t.add(Event{What: "member removed", Subject: c.MemberBefore.Name, Detail: idText(c.MemberBefore.ID), Index: uint64(c.Index)})
	}
}

// lost notes one loss; of very many in one second only their number, so that an
// avalanche does not wash everything else out of the timeline.
func (t *timeline) lost(what, name, holder string, index uint64, late time.Duration) {
	second := t.now().Unix()
	if t.loss.second.Swap(second) != second {
		if skipped := t.loss.skipped.Swap(0); skipped > 0 {
			t.add(Event{What: what, Subject: "and others", Detail: plural(skipped, "more loss", "more losses") + " in one second", Index: index})
		}
		t.loss.noted.Store(0)
	}
	if t.loss.noted.Add(1) > lossesNoted {
		t.loss.skipped.Add(1)
		return
	}
	detail := "was held by " + holder
	if late > 0 {
		detail += ", freed " + late.Round(time.Millisecond).String() + " after its deadline"
	}
	t.add(Event{What: what, Subject: name, Detail: detail, Index: index})
}
