package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// cluster drives replicas by hand, for transcripts and model tests: nothing
// happens that a test did not ask for.
type cluster struct {
	members map[uint64]*member
	network []Message
	cut     map[uint64]bool // messages from and to these are lost
	now     time.Time
	log     strings.Builder
}

// member is a replica, what is durable of it, and what it wants done.
type member struct {
	*Replica
	id      uint64
	cfg     ReplicaConfig
	hard    *pb.HardState
	entries []*pb.Entry
	appends []*Append
	applies []*Apply
	machine journal
}

func newCluster(n int) *cluster {
	c := &cluster{members: map[uint64]*member{}, cut: map[uint64]bool{}, now: time.Unix(1000, 0)}
	var voters []uint64
	for i := range n {
		voters = append(voters, uint64(i+1))
	}
	for _, id := range voters {
		c.members[id] = &member{id: id, hard: &pb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))}, cfg: ReplicaConfig{
			ID: id, Snapshot: SnapshotMeta{Index: 1, Term: 1, ConfState: pb.EnsureConfState(&pb.ConfState{Voters: voters})},
			TailEntries: 8, Forward: n > 1, Logger: raftLogger{discard},
		}}
		c.start(id)
	}
	return c
}

// start opens a member on what is durable.
func (c *cluster) start(id uint64) {
	m := c.members[id]
	m.cfg.Incarnation++
	m.cfg.HardState = m.hard
	m.cfg.Entries = slices.Clone(m.entries)
	m.appends, m.applies = nil, nil
	m.machine = journal{}
	r, err := NewReplica(m.cfg)
	if err != nil {
		panic(err)
	}
	m.Replica = r
}

func (c *cluster) ids() []uint64 {
	var ids []uint64
	for id := range c.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (c *cluster) printf(format string, args ...any) { fmt.Fprintf(&c.log, format+"\n", args...) }

// ready collects what a member wants done and performs what needs no I/O.
func (c *cluster) ready(id uint64) {
	m := c.members[id]
	for {
		eff, ok := m.Ready(c.now)
		if !ok {
			return
		}
		c.effects(m, eff)
	}
}

func (c *cluster) effects(m *member, eff Effects) {
	if eff.Role != nil {
		c.printf("%d: %s", m.id, describeRole(*eff.Role))
	}
	for _, msg := range eff.Messages {
		if !c.cut[msg.From] && !c.cut[msg.To] {
			c.network = append(c.network, msg)
		}
	}
	m.appends = append(m.appends, eff.Appends...)
	m.applies = append(m.applies, eff.Applies...)
	for _, a := range eff.Answers {
		a.Done(nil, a.Err)
	}
	for _, cf := range eff.Confirmed {
		for _, done := range cf.Done {
			done(cf.Term, cf.Err)
		}
	}
}

func describeRole(r Role) string {
	return fmt.Sprintf("%v in term %d, leader %d", r.State, r.Term, r.Leader)
}

func (c *cluster) propose(id uint64, p Proposal) {
	cmd := string(p.Command)
	p.Done = func(v any, err error) {
		if err != nil {
			c.printf("%d: %s -> %v", id, cmd, err)
			return
		}
		c.printf("%d: %s -> %v", id, cmd, v)
	}
	c.members[id].Propose([]Proposal{p})
}

func (c *cluster) confirm(id uint64, name string) {
	c.members[id].Confirm(func(term uint64, err error) {
		if err != nil {
			c.printf("%d: confirm %s -> %v", id, name, err)
			return
		}
		m := c.members[id]
		c.printf("%d: confirm %s -> term %d, %d applied", id, name, term, m.Status().Applied)
	})
}

// append makes a member's oldest append durable.
func (c *cluster) append(id uint64) bool {
	m := c.members[id]
	if len(m.appends) == 0 {
		return false
	}
	a := m.appends[0]
	m.appends = m.appends[1:]
	if a.HardState != nil {
		m.hard = a.HardState
	}
	if len(a.Entries) > 0 {
		m.entries = append(m.entries[:a.Entries[0].GetIndex()-2:a.Entries[0].GetIndex()-2], a.Entries...)
	}
	m.Appended(a)
	return true
}

// apply performs a member's oldest apply.
func (c *cluster) apply(id uint64) bool {
	m := c.members[id]
	if len(m.applies) == 0 {
		return false
	}
	a := m.applies[0]
	m.applies = m.applies[1:]
	if a.Follow != nil {
		c.printf("%d: follow %d in term %d", id, a.Follow.Leader, a.Follow.Term)
	}
	for i := range a.Entries {
		c.applyEntry(m, &a.Entries[i])
	}
	m.Applied(a)
	return true
}

func (c *cluster) applyEntry(m *member, e *Committed) {
	if e.Data != nil {
		cmds, err := decodeEntry(e.Data, nil)
		if err != nil {
			panic(err)
		}
		results := make([]any, len(cmds))
		m.machine.Apply(cmds, results)
		c.printf("%d: apply %d: %s", m.id, e.Index, strings.Join(m.machine.commands[len(m.machine.commands)-len(cmds):], " "))
		for i, done := range e.Done {
			if done != nil {
				done(results[i], nil)
			}
		}
	}
	if e.Lead != 0 {
		c.printf("%d: lead term %d", m.id, e.Lead)
	}
}

func (c *cluster) deliver() bool {
	if len(c.network) == 0 {
		return false
	}
	msg := c.network[0]
	c.network = c.network[1:]
	if !c.cut[msg.From] && !c.cut[msg.To] {
		c.members[msg.To].Step(msg)
	}
	return true
}

// settle does everything that can be done without a tick.
func (c *cluster) settle() {
	for busy := true; busy; {
		busy = false
		for _, id := range c.ids() {
			c.ready(id)
			busy = c.append(id) || busy
			c.ready(id)
			busy = c.apply(id) || busy
			c.ready(id)
		}
		busy = c.deliver() || busy
	}
}
