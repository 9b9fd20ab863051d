package sim

import (
	"bytes"
	"hash/fnv"
	"slices"
	"strings"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/watch"
)

// hashEvery is at which indexes the state's hash is compared: one in so many.
const hashEvery = 8

// entry is one batch of commands as the first member applied it.
type entry struct {
	before, after incumbent.Index
	cmds          [][]byte
	changes       []changed
	hash          [32]byte // of the state after it, where after is a multiple of hashEvery
	hashed        bool
}

// changed is one change: what it was, as a hash, and under which topic watchers are
// told of it, the zero one if they are not.
type changed struct {
	index   incumbent.Index
	sum     uint64
	topic   watch.Topic
	fields  string // that differ, each with a space behind it
	was, is string // the lease's holder
}

// applied checks that every member applies the same at the same index, with the
// same effect (G15, G27, G28). The first to apply something says what it is.
func (c *checker) applied(p *process, a *engine.Applied) {
	before, cmds, changes, v := a.Before, a.Commands, a.Changes, a.View
	place, known := c.places[before]
	if !known {
		c.first(p, a)
		return
	}
	e := &c.canon[place]
	if e.after != v.Index() || !slices.EqualFunc(e.cmds, cmds, bytes.Equal) {
		c.w.violate("member %d applied something else after index %d than the first did (G27)", p.m.at, before)
		return
	}
	if !slices.Equal(summed(changes), e.changes) {
		c.w.violate("member %d made other changes of the commands after index %d (G28)", p.m.at, before)
	}
	if e.hashed && v.Hash() != e.hash {
		c.w.violate("member %d has another state at index %d (G27)", p.m.at, v.Index())
	}
}

// first takes a batch that nobody has applied before.
func (c *checker) first(p *process, a *engine.Applied) {
	before, cmds, results, changes, v := a.Before, a.Commands, a.Results, a.Changes, a.View
	if before != c.index {
		c.w.violate("member %d applied something after index %d, the log is at %d (G27)", p.m.at, before, c.index)
		return
	}
	e := entry{before: before, after: v.Index()}
	for _, cmd := range cmds {
		e.cmds = append(e.cmds, bytes.Clone(cmd))
	}
	e.changes = summed(changes)
	if e.after%hashEvery == 0 {
		e.hash, e.hashed = v.Hash(), true
	}
	c.places[before] = len(c.canon)
	c.canon = append(c.canon, e)
	c.index = e.after
	c.executed(&e, results, changes)
	c.ends(a)
	for i := range changes {
		c.changed(&changes[i])
		c.keys.changed(&changes[i])
		c.catalog.changed(&changes[i])
		c.tables.changed(&changes[i])
	}
	c.keys.applied(p, v, e.hashed)
	c.catalog.applied(p, v, e.hashed)
	c.policies.applied(changes, v)
	c.tables.applied(p, v)
}

// summed tells changes apart.
func summed(changes []core.Change) []changed {
	out := make([]changed, len(changes))
	for i := range changes {
		out[i] = sum(&changes[i])
	}
	return out
}

func sum(x *core.Change) changed {
	out := changed{index: x.Index}
	b := appendUint([]byte{byte(x.What)}, uint64(x.Index))
	if c, _ := leases.ChangeOf(x); c.Lease != nil {
		l := c.Lease
		out.topic = engine.FamilyTopic(leases.Number, leases.TopicOf(l.Name))
		out.fields, out.was, out.is = leaseDiffers(c.LeaseBefore, l)
		b = append(b, byte(c.What))
		b = appendUint(b, uint64(l.Token))
		b = appendUint(b, l.Renewal)
		b = append(append(b, l.Name.Lease...), l.Holder...)
	}
	for _, s := range []*core.Session{x.SessionBefore, x.Session} {
		if s != nil {
			b = append(b, s.ID[:]...)
		}
	}
	if f := x.Family; f != nil && f.Family != leases.Number {
		before, after := entriesOf(f)
		if f.Told() {
			out.topic = engine.FamilyTopic(f.Family, f.Topic)
			out.fields = keyDiffers(before, after)
		}
		b = appendDeadline(appendEntry(appendEntry(b, before), after), f.Deadline)
		if f.Family == catalog.Number {
			b = appendRecord(appendRecord(b, f.Before), f.After)
		}
		if t := tableChange(x); t != nil {
			b = appendTableChange(b, t)
		}
	}
	h := fnv.New64a()
	_, _ = h.Write(b) // a hash takes everything
	out.sum = h.Sum64()
	return out
}

// leaseDiffers says which fields of a lease differ, of those that watchers select by.
func leaseDiffers(o, n *leases.Lease) (fields, was, is string) {
	var pins []string
	if o == nil {
		o = new(leases.Lease)
	} else {
		pins = o.Pins
	}
	if o.Holder != n.Holder || o.Token != n.Token || o.Session != n.Session {
		fields += "holder "
	}
	if !slices.Equal(pins, n.Pins) {
		fields += "pins "
	}
	if o.Offered != n.Offered {
		fields += "offered "
	}
	if o.Waiting != n.Waiting {
		fields += "queue "
	}
	return fields, o.Holder, n.Holder
}

// keyFields are the fields of keys.
var keyFields = []string{"value", "flags", "lock"}

// keyDiffers says which fields of a key differ.
func keyDiffers(o, n *kv.Entry) (fields string) {
	switch {
	case o == n:
		return "lock "
	case o == nil || n == nil:
		return strings.Join(keyFields, " ") + " "
	}
	if !bytes.Equal(o.Value, n.Value) {
		fields += "value "
	}
	if o.Flags != n.Flags {
		fields += "flags "
	}
	if o.Session != n.Session || o.LockIndex != n.LockIndex || o.OnEnd != n.OnEnd || o.Delay != n.Delay {
		fields += "lock "
	}
	return fields
}

func appendUint(b []byte, v uint64) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
}

// restored checks a state that came out of a snapshot, as far as its hash is
// known (G29).
func (c *checker) restored(p *process, v *core.View) {
	for i := len(c.canon) - 1; i >= 0 && c.canon[i].after >= v.Index(); i-- {
		if e := &c.canon[i]; e.after == v.Index() && e.hashed && v.Hash() != e.hash {
			c.w.violate("member %d restored another state at index %d (G29)", p.m.at, v.Index())
		}
	}
}

// watched checks what a watcher was told: exactly the changes of what it watches,
// after one index up to another, whole and in order (G15, G16, G17).
func (c *checker) watched(a *agent, of *selection, from, to incumbent.Index, got []changed) {
	c.w.res.Watched += len(got)
	var want []changed
	i, _ := slices.BinarySearchFunc(c.canon, from, func(e entry, at incumbent.Index) int {
		if e.after <= at {
			return -1
		}
		return 1
	})
	for ; i < len(c.canon) && c.canon[i].before < to; i++ {
		for _, x := range c.canon[i].changes {
			if x.index > from && x.index <= to && x.topic.Kind != 0 && of.picks(&x) {
				want = append(want, x)
			}
		}
	}
	if !slices.Equal(got, want) {
		c.w.violate("agent %d was told %d changes from %d to %d, there were %d (G15)", a.id, len(got), from, to, len(want))
	}
}

// role checks that nobody else leads a term (G27).
func (c *checker) role(m *member, r node.Role) {
	if r.State != node.Leader {
		return
	}
	if other, led := c.leaders[r.Term]; led && other != m.id {
		c.w.violate("members %x and %x both led term %d (G27)", other, m.id, r.Term)
	}
	c.leaders[r.Term] = m.id
	if r.Term > c.term {
		c.term = r.Term
		c.w.note("member %d leads term %d", m.at, r.Term)
	}
}

// spoken checks that no word of a term leaves a member before the member shows
// it: what vouches for a leader relies on that (G02, G22). A vote that is only
// asked for in advance speaks of a term that nobody has begun.
func (c *checker) spoken(p *process, m *pb.Message) {
	inAdvance := m.GetType() == pb.MsgPreVote || m.GetType() == pb.MsgPreVoteResp && !m.GetReject()
	if m == nil || p.node == nil || inAdvance {
		return
	}
	if _, term := p.node.Leader(); term < m.GetTerm() {
		c.w.violate("member %d speaks of term %d in a %v and shows term %d (G22)", p.m.at, m.GetTerm(), m.GetType(), term)
	}
}

// vouched checks that who vouches for a leader knows of no newer term when the
// frame leaves (G02).
func (c *checker) vouched(p *process, to uint64, frame []byte) {
	term, vouched := lease.VouchedTerm(frame)
	if !vouched {
		return
	}
	c.w.res.Vouched++
	if leader, shown := p.node.Leader(); leader != to || shown != term {
		c.w.violate("member %d vouches for member %x in term %d and shows member %x in term %d (G02)", p.m.at, to, term, leader, shown)
	}
}
