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
	members  map[uint64]*member
	network  []Message
	cut      map[uint64]bool     // messages from and to these are lost
	muted    map[uint64]bool     // the same, as the replicas asked for it
	noFrames bool                // forwarded entries are lost
	held     uint64              // messages to this one stay in the network
	states   map[uint64][]string // the machine's commands after each index
	leaders  map[uint64]uint64   // by term
	now      time.Time
	log      strings.Builder
}

// member is a replica, what is durable of it, and what it wants done.
type member struct {
	*Replica
	id      uint64
	cfg     ReplicaConfig // its snapshot is durable
	hard    *pb.HardState
	entries []*pb.Entry // behind the snapshot
	members Members     // as told last
	appends []*Append
	applies []*Apply
	machine journal
}

// newCluster makes a cluster of n voters, which are the members from 1 on.
func newCluster(n int) *cluster {
	c := &cluster{
		members: map[uint64]*member{}, cut: map[uint64]bool{}, muted: map[uint64]bool{},
		states: map[uint64][]string{}, leaders: map[uint64]uint64{}, now: time.Unix(1000, 0),
	}
	var voters []uint64
	for i := range n {
		voters = append(voters, uint64(i+1))
	}
	for _, id := range voters {
		c.add(id, n > 1, SnapshotMeta{Index: 1, Term: 1, ConfState: pb.EnsureConfState(&pb.ConfState{Voters: voters})})
	}
	return c
}

// join makes a member that knows nobody and has an empty log.
func (c *cluster) join(id uint64) {
	c.add(id, true, SnapshotMeta{ConfState: pb.EnsureConfState(&pb.ConfState{})})
}

func (c *cluster) add(id uint64, forward bool, meta SnapshotMeta) {
	hard := &pb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(meta.Index)}
	c.members[id] = &member{id: id, hard: hard, cfg: ReplicaConfig{
		ID: id, Snapshot: meta, TailEntries: 8, Forward: forward, Seed: 1, Logger: raftLogger{discard},
	}}
	c.start(id)
}

// start opens a member on what is durable.
func (c *cluster) start(id uint64) {
	m := c.members[id]
	m.cfg.Incarnation++
	m.cfg.HardState = m.hard
	m.cfg.Entries = slices.Clone(m.entries)
	m.appends, m.applies = nil, nil
	m.machine = journal{commands: slices.Clone(c.states[m.cfg.Snapshot.Index])}
	delete(c.muted, id)
	r, err := NewReplica(m.cfg)
	if err != nil {
		panic(err)
	}
	m.Replica = r
	m.members = *r.eff.Members
	r.eff.Members = nil // told at every start; the transcripts show changes
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
	for n := rounds(0); ; n.next() {
		eff, ok := m.Ready(c.now)
		if !ok {
			break
		}
		c.effects(m, eff)
	}
	if st := m.Status(); st.SnapshotWanted && st.Applied > st.Snapshot && st.Applied <= st.Durable {
		m.SnapshotTaken(m.MetaAt(st.Applied)) // in memory: a restart begins from the older one
	}
}

func (c *cluster) effects(m *member, eff Effects) {
	if eff.Role != nil {
		c.printf("%d: %s", m.id, describeRole(*eff.Role))
		c.noteLeader(m.id, *eff.Role)
	}
	for _, msg := range eff.Messages {
		c.post(msg)
	}
	m.appends = append(m.appends, eff.Appends...)
	m.applies = append(m.applies, eff.Applies...)
	for _, a := range eff.Answers {
		a.Done(nil, a.Err)
	}
	for _, told := range eff.Told {
		told.Done(told.Err)
	}
	if eff.Members != nil {
		m.members = *eff.Members
		c.printf("%d: voters %v, learners %v", m.id, m.members.Voters, m.members.Learners)
	}
	if eff.Mute != nil {
		c.muted[m.id] = *eff.Mute
		c.printf("%d: muted %v", m.id, *eff.Mute)
	}
	for _, cf := range eff.Confirmed {
		for _, done := range cf.Done {
			done(cf.Term, cf.Err)
		}
	}
	for _, a := range eff.Ahead {
		a.Tell(a.Ahead)
	}
}

// lost reports whether a message gets through now.
func (c *cluster) lost(m Message) bool {
	return c.members[m.To] == nil || c.cut[m.From] || c.cut[m.To] || c.muted[m.From] || c.muted[m.To]
}

func (c *cluster) post(m Message) {
	if c.lost(m) || c.noFrames && m.Forward != nil {
		c.drop(m)
		return
	}
	c.network = append(c.network, m)
}

// drop loses a message. Raft must hear of it if it was a snapshot.
func (c *cluster) drop(m Message) { c.reportSnapshot(m, false) }

func (c *cluster) reportSnapshot(m Message, ok bool) {
	if m.Raft != nil && m.Raft.GetType() == pb.MsgSnap {
		c.members[m.From].ReportSnapshot(m.To, ok)
	}
}

// noteLeader panics if a term has two leaders.
func (c *cluster) noteLeader(id uint64, r Role) {
	if r.State != Leader {
		return
	}
	if other, ok := c.leaders[r.Term]; ok && other != id {
		panic(fmt.Sprintf("members %d and %d lead term %d", other, id, r.Term))
	}
	c.leaders[r.Term] = id
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
	if a.Snapshot != nil {
		md := a.Snapshot.GetMetadata()
		m.cfg.Snapshot = SnapshotMeta{Index: md.GetIndex(), Term: md.GetTerm(), ConfState: md.GetConfState()}
		m.entries = nil
		if m.hard.GetCommit() < md.GetIndex() {
			m.hard = &pb.HardState{Term: m.hard.Term, Vote: m.hard.Vote, Commit: md.Index}
		}
	}
	if len(a.Entries) > 0 {
		keep := a.Entries[0].GetIndex() - m.cfg.Snapshot.Index - 1
		m.entries = append(m.entries[:keep:keep], a.Entries...)
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
	if a.Restore != nil {
		m.machine.commands = slices.Clone(c.states[a.Restore.Index])
		c.printf("%d: restore %d", id, a.Restore.Index)
	}
	for i := range a.Entries {
		c.applyEntry(m, &a.Entries[i])
		c.states[a.Entries[i].Index] = slices.Clone(m.machine.commands)
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

// deliver hands over the oldest message that is not held.
func (c *cluster) deliver() bool {
	i := slices.IndexFunc(c.network, func(m Message) bool { return m.To != c.held })
	if i < 0 {
		return false
	}
	msg := c.network[i]
	c.network = slices.Delete(c.network, i, i+1)
	if c.lost(msg) {
		c.drop(msg)
		return true
	}
	c.members[msg.To].Step(msg)
	c.reportSnapshot(msg, true)
	return true
}

// settle does everything that can be done without a tick.
func (c *cluster) settle() {
	n := rounds(0)
	for busy := true; busy; n.next() {
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
