package node

import (
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// ReplicaConfig is what a replica starts from: what its log holds durably.
type ReplicaConfig struct {
	Group       uint64
	ID          uint64
	Incarnation uint64                 // durable boot counter, raised by every start
	HardState   *pb.HardState          // nil on the first start
	Snapshot    SnapshotMeta           // with the members as of its index; the machine holds this state already
	Entries     []*pb.Entry            // durable entries after the snapshot
	TailEntries uint64                 // entries kept in memory behind a snapshot
	Forward     bool                   // a transport carries entries to the leader; without one only a leader proposes
	Admissible  func(cmd []byte) error // see Config; nil: all may
	Seed        uint64                 // of the delays before a campaign
	Logger      raft.Logger
}

// Replica is one member's part of the protocol as a pure state machine: raft,
// its log in memory, and those who wait for proposals and confirmations. It has
// no clock, goroutine or I/O: time is ticks and the argument of Tick and Ready.
// It is owned by one goroutine. It panics when an invariant is broken; whoever
// drives it must then stop for good.
type Replica struct {
	cfg  ReplicaConfig
	raw  *raft.RawNode
	log  *memoryLog
	conf *pb.ConfState
	tick uint64 // ticks so far
	eff  Effects

	role      Role
	commit    uint64
	applied   uint64 // acknowledged by Applied
	restoring uint64 // index of the last snapshot taken from a leader; above applied until the machine has it
	leadIndex uint64 // first entry of our own term of leadership, 0 until it came out

	durableTerm   uint64 // in the last hard state that was synced, and its commit index
	durableCommit uint64
	written       *pb.HardState // the last one written
	lagging       *pb.HardState // says that more is committed than the log has been given; nil: it has
	appending     *Append       // the last one under way; nil: none is
	applying      uint64        // last entry handed out for applying
	acked         *pb.Message   // the last acknowledgement of entries that left
	repeated      *pb.Message   // one that says the same again, to the same leader; nil: none waits
	undecided     []uint64      // indexes of entries that change members and are not known to be committed
	stale         staleTail
	heard         map[uint64]uint64 // tick at which each member was last heard of
	peers         []PeerStatus      // while leading, as of the last tick

	proposals proposals
	forwards  forwards
	reads     reads
	changes   memberChanges
	transfer  handOver
	stall     stall
	election  election
}

// NewReplica returns a replica that continues from what cfg says is durable.
func NewReplica(cfg ReplicaConfig) (*Replica, error) {
	log, err := newMemoryLog(cfg.HardState, cfg.Snapshot, cfg.Entries)
	if err != nil {
		return nil, err
	}
	if c := cfg.HardState.GetCommit(); c > log.last() {
		return nil, fmt.Errorf("hard state says %d is committed, but the log ends at %d", c, log.last())
	}
	raw, err := raft.NewRawNode(&raft.Config{
		ID:                        cfg.ID,
		ElectionTick:              electionTicks,
		HeartbeatTick:             heartbeatTicks,
		Storage:                   log,
		Applied:                   cfg.Snapshot.Index,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxRaftMessage,
		MaxCommittedSizePerReady:  maxApplyingBytes,
		MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs:           maxInflightMsgs,
		MaxInflightBytes:          maxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	r := &Replica{
		cfg: cfg, raw: raw, log: log, conf: proto.Clone(pb.EnsureConfState(cfg.Snapshot.ConfState)).(*pb.ConfState),
		applied: cfg.Snapshot.Index, applying: cfg.Snapshot.Index,
	}
	r.cfg.Entries = nil // the log has them; do not keep them for ever
	r.proposals.pending = map[uint64]*batch{}
	r.proposals.next = firstSequence(cfg.Incarnation)
	r.role = Role{Term: cfg.HardState.GetTerm()}
	r.durableTerm, r.durableCommit = cfg.HardState.GetTerm(), max(cfg.HardState.GetCommit(), cfg.Snapshot.Index)
	r.commit = r.durableCommit
	for _, e := range cfg.Entries {
		if e.GetIndex() > r.commit {
			r.awaitChange(e)
		}
	}
	r.heard = map[uint64]uint64{}
	r.election.rand = rand.New(rand.NewPCG(cfg.Seed, cfg.ID))
	r.tellMembers()
	return r, nil
}

// Tick moves the protocol's clock by one tick and answers whom now has passed.
func (r *Replica) Tick(now time.Time) {
	r.tick++
	r.tickRaft(now)
	r.tickTransfer()
	r.tickStall()
	r.expireProposals(now)
	r.forwardAgain(forwardAgainTicks)
	r.tickReads()
	if m := r.repeated; m != nil {
		r.send(m)
	}
	r.peers = r.peerStatus()
}

// WriteCommit returns an append of how much is committed if the log has not been
// given that, else nil. A commit index may be lost: the leader tells it again, and
// who leads finds it out. So it is not worth a write of its own and goes with the
// next append. Only a snapshot must not cover more than the log says is committed:
// whoever takes one asks for this first.
func (r *Replica) WriteCommit() *Append {
	if r.lagging == nil {
		return nil
	}
	a := &Append{HardState: r.lagging}
	r.lagging = nil
	r.appending = a
	return a
}

// Step takes a message from a peer. Messages that make no sense here are
// dropped: peers may be behind, or gone.
func (r *Replica) Step(m Message) {
	r.hear(m.From)
	switch {
	case m.Raft != nil && (r.unwanted(m.Raft) || r.answerRead(m.Raft)):
	case m.Raft.GetType() == pb.MsgSnap:
		r.StepSnapshot(m.Raft)
	case m.Raft != nil:
		// A refusal by the library concerns the message, not us: from a peer that
		// was removed, or of a kind that only travels inside a member.
		_ = r.raw.Step(m.Raft)
		r.noteHandedOver(m.Raft)
	case m.Forward != nil:
		r.stepForward(m)
	case m.Refuse != nil:
		r.stepRefuse(m)
	}
}

// StepSnapshot takes raft's message about a snapshot whose file is here, durable.
// It reports whether raft wants it: then an Append with the snapshot and later an
// Apply that restores it come out of Ready. If not, the file is of no use.
func (r *Replica) StepSnapshot(m *pb.Message) bool {
	before := r.restoring
	_ = r.raw.Step(m) // as in Step
	r.refresh()
	if r.raw.HasReady() {
		r.collect(r.raw.Ready())
	}
	return r.restoring != before && r.restoring == m.GetSnapshot().GetMetadata().GetIndex()
}

// Appended acknowledges an append: it is durable, or written if it need not be
// synced, and so is everything before it.
func (r *Replica) Appended(a *Append) {
	if r.appending == a {
		r.appending = nil // they are acknowledged in order
	}
	if a.Snapshot != nil {
		md := a.Snapshot.GetMetadata()
		meta := SnapshotMeta{Index: md.GetIndex(), Term: md.GetTerm(), ConfState: md.GetConfState()}
		r.log.restore(meta)
		r.restored(meta)
		r.applying = max(r.applying, meta.Index)
		r.eff.Applies = append(r.eff.Applies, &Apply{Restore: &meta})
	}
	r.log.append(a.Entries)
	r.stale.appended(a)
	r.noteDurable(a)
	r.deliver(a.responses)
}

// noteDurable remembers what is durable of the hard state. A sync covers what was
// written before it.
func (r *Replica) noteDurable(a *Append) {
	if a.HardState != nil {
		r.written = a.HardState
	}
	if a.MustSync && r.written != nil {
		r.durableTerm, r.durableCommit = r.written.GetTerm(), max(r.durableCommit, r.written.GetCommit())
	}
}

// Applied acknowledges that the machine has applied everything in a.
func (r *Replica) Applied(a *Apply) {
	if a.Restore != nil {
		r.applied = max(r.applied, a.Restore.Index)
	}
	for i := range a.Entries {
		// What a snapshot from the leader covers is in its members already.
		if c := a.Entries[i].conf; c != nil && a.Entries[i].Index > r.restoring {
			r.applyConfChange(a.Entries[i].Index, c)
		}
	}
	if n := len(a.Entries); n > 0 {
		r.applied = a.Entries[n-1].Index
	}
	r.deliver(a.responses)
}

// AwaitsApplied reports whether something waits for the machine to apply what it
// has been given: reads, proposals for which raft has no room, or entries that are
// handed out only then.
func (r *Replica) AwaitsApplied() bool {
	return len(r.reads.applying) > 0 || r.proposals.waiting.len() > 0 || r.commit > r.applying
}

// deliver hands the messages that waited for storage to whom they are for.
func (r *Replica) deliver(ms []*pb.Message) {
	for _, m := range ms {
		if m.GetTo() == r.cfg.ID {
			// An error here is a message about a term that is over: raft drops it.
			_ = r.raw.Step(m)
			continue
		}
		if r.repeats(m) {
			r.repeated = m
			continue
		}
		r.send(m)
	}
}

// repeats reports whether a message acknowledges what the last one to the same
// leader, in the same term, has acknowledged: it answers a message that brought no
// entry but said that more is committed. Losing it costs nothing, and a leader that
// asks again because it has lost the first waits for no more than a tick.
func (r *Replica) repeats(m *pb.Message) bool {
	l := r.acked
	return l != nil && m.GetType() == pb.MsgAppResp && !m.GetReject() &&
		m.GetTo() == l.GetTo() && m.GetTerm() == l.GetTerm() && m.GetIndex() == l.GetIndex()
}

func (r *Replica) send(m *pb.Message) {
	if m.GetType() == pb.MsgAppResp {
		r.repeated = nil
		if r.acked = m; m.GetReject() {
			r.acked = nil
		}
	}
	r.eff.Messages = append(r.eff.Messages, Message{From: r.cfg.ID, To: m.GetTo(), Raft: m})
}

// SnapshotTaken records that a snapshot is durable and marked in the log: the
// entries it covers may leave memory, but for those that others are about to need.
func (r *Replica) SnapshotTaken(meta SnapshotMeta) {
	r.log.snapshotTaken(meta, r.cfg.TailEntries, r.needed(meta.Index+1))
}

// needed is the first entry, no later than given, that a member lacks which answers this
// leader, or will lack once it has the snapshot that is being sent to it. Without these it would
// need the next snapshot when it has this one: under load, for ever.
func (r *Replica) needed(first uint64) uint64 {
	if r.role.State != Leader {
		return first
	}
	r.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id != r.cfg.ID && r.active(id) {
			first = min(first, max(pr.Match, pr.PendingSnapshot)+1)
		}
	})
	return first
}

// MetaAt describes a snapshot of the state after index, which must be the
// applied index: only then the members are known to be those of that index.
func (r *Replica) MetaAt(index uint64) SnapshotMeta {
	if index != r.applied {
		panic(fmt.Sprintf("snapshot bound at %d while %d is applied", index, r.applied))
	}
	term, err := r.log.Term(index)
	if err != nil {
		panic(fmt.Sprintf("applied entry %d is not in the log: %v", index, err))
	}
	return SnapshotMeta{Index: index, Term: term, ConfState: proto.Clone(r.conf).(*pb.ConfState)}
}

// ReportSnapshot tells how sending a snapshot to a peer ended. It must be
// called for every snapshot message, or that peer stays paused.
func (r *Replica) ReportSnapshot(peer uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	r.raw.ReportSnapshot(peer, status)
}

// ReportUnreachable tells that messages to a peer may have been lost.
func (r *Replica) ReportUnreachable(peer uint64) {
	r.raw.ReportUnreachable(peer)
	if peer == r.role.Leader {
		r.forwardAgain(1)
	}
}

// Campaign starts an election.
func (r *Replica) Campaign() error { return r.raw.Campaign() }

// soleVoter reports whether this member alone is the quorum.
func (r *Replica) soleVoter() bool {
	return len(r.conf.GetVoters()) == 1 && r.conf.GetVoters()[0] == r.cfg.ID && len(r.conf.GetVotersOutgoing()) == 0
}

// Ready returns what is to be done now. Call it until it reports false.
func (r *Replica) Ready(now time.Time) (Effects, bool) {
	r.campaignIfDue(now)
	r.refresh()
	r.noteCandidacy(now)
	r.propose(now)
	r.proposeChange()
	r.startRound()
	if r.raw.HasReady() {
		r.collect(r.raw.Ready())
	}
	r.releaseReads()
	eff := r.eff
	r.eff = Effects{}
	return eff, !eff.empty()
}

// refresh learns from raft what this member is now.
func (r *Replica) refresh() {
	st := r.raw.BasicStatus()
	if r.soleVoter() && len(r.conf.GetLearners()) == 0 && st.RaftState == raft.StateFollower {
		// Nobody else can lead: there is nothing to wait for. But whom this disk
		// knows as a learner may be a voter today, if the disk was put back: who
		// has learners waits for the election timeout, in which they say so. Raft
		// refuses while a change of membership is committed and not applied; then
		// the next Applied brings us here again.
		if err := r.raw.Campaign(); err == nil {
			st = r.raw.BasicStatus()
		}
	}
	r.commit = st.HardState.GetCommit()
	role := Role{State: stateOf(st.RaftState), Leader: st.Lead, Term: st.HardState.GetTerm()}
	if role == r.role {
		return
	}
	r.changeRole(role)
}

// changeRole draws the consequences of another role, leader or term.
func (r *Replica) changeRole(role Role) {
	if role.Term != r.role.Term {
		r.proposals.chain = 0
	}
	r.role = role
	if role.Leader != 0 {
		r.election.led(role.Term)
	}
	r.eff.Role = &role
	r.leadIndex = 0
	r.forgetBehind()
	r.peers = nil
	r.proposals.refused = false
	r.failRound()
	r.settleTransfer()
	if role.State == Leader {
		r.forwards = forwards{term: role.Term, books: map[uint64]*forwardBook{}}
		return
	}
	r.failChanges()
	if r.stall.muted {
		r.mute(false)
	}
	r.eff.Applies = append(r.eff.Applies, &Apply{Follow: &role})
}

func stateOf(s raft.StateType) State {
	switch s {
	case raft.StateLeader:
		return Leader
	case raft.StateCandidate, raft.StatePreCandidate:
		return Candidate
	default:
		return Follower
	}
}

// collect turns raft's own effects into ours.
func (r *Replica) collect(rd raft.Ready) {
	if r.role.State == Leader && r.leadIndex == 0 {
		r.findLeadIndex(rd.Entries)
	}
	r.noteAppended(rd.Entries)
	r.noteChange(rd.Entries)
	r.noteBehind(rd.Entries)
	for _, e := range rd.Entries {
		r.awaitChange(e)
	}
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			r.collectAppend(m, rd.MustSync)
		case raft.LocalApplyThread:
			r.collectApply(m)
		default:
			r.stampTerm(m)
			r.send(m)
		}
	}
	for _, rs := range rd.ReadStates {
		r.roundAnswered(rs)
	}
}

// findLeadIndex finds the empty entry with which a leader begins its term. Raft
// appends it in the moment it becomes leader, so it is in the first Ready after.
func (r *Replica) findLeadIndex(entries []*pb.Entry) {
	for _, e := range entries {
		if e.GetTerm() == r.role.Term {
			r.leadIndex = e.GetIndex()
			return
		}
	}
	panic(fmt.Sprintf("leader of term %d without a first entry", r.role.Term))
}

func (r *Replica) collectAppend(m *pb.Message, mustSync bool) {
	a := &Append{Entries: m.GetEntries(), MustSync: mustSync, responses: m.GetResponses()}
	if m.Term != nil && m.Commit != nil {
		a.HardState = &pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
		a.MustSync = r.changeDecided(m.GetCommit()) || a.MustSync
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		a.Snapshot = m.GetSnapshot()
		a.MustSync = true
		r.stale.replaces(a, r.applied)
		r.restoring = a.Snapshot.GetMetadata().GetIndex()
		r.takeMembers(a.Snapshot.GetMetadata().GetConfState())
	}
	if r.appending != nil && a.answersOnly() {
		// Votes keep their own appends: two members that wait for each other's would
		// have them all at the same moment, and stand against one another for ever.
		r.appending.answerWith(a.responses)
		return
	}
	if r.appending == nil && a.commitOnly() {
		r.lagging = a.HardState
		r.deliver(a.responses) // what they acknowledge is durable
		return
	}
	if a.HardState == nil {
		a.HardState = r.lagging
	}
	r.lagging = nil
	if len(a.Entries) > 0 {
		r.stale.submits(a, r.log.last())
	}
	r.appending = a
	r.eff.Appends = append(r.eff.Appends, a)
}

func (r *Replica) collectApply(m *pb.Message) {
	a := &Apply{Entries: make([]Committed, 0, len(m.GetEntries())), responses: m.GetResponses()}
	for _, e := range m.GetEntries() {
		a.Entries = append(a.Entries, r.committed(e))
		r.applying = e.GetIndex()
	}
	r.eff.Applies = append(r.eff.Applies, a)
}

func (r *Replica) committed(e *pb.Entry) Committed {
	c := Committed{Index: e.GetIndex(), Term: e.GetTerm()}
	switch e.GetType() {
	case pb.EntryNormal:
		if len(e.GetData()) > 0 {
			c.Data = e.GetData()
			c.Done = r.takeWaiters(e)
		}
	default:
		c.conf = decodeConfChange(e)
	}
	r.requeueLost(c.Index, c.Term)
	if r.role.State == Leader && c.Index == r.leadIndex {
		c.Lead = r.role.Term
	}
	return c
}

// decodeConfChange panics on bytes that are no change of membership: they were
// committed, so every member meets them and none may guess.
func decodeConfChange(e *pb.Entry) *pb.ConfChangeV2 {
	var cc pb.ConfChangeI
	var err error
	if e.GetType() == pb.EntryConfChange {
		v1 := new(pb.ConfChange)
		err = proto.Unmarshal(e.GetData(), v1)
		cc = v1
	} else {
		v2 := new(pb.ConfChangeV2)
		err = proto.Unmarshal(e.GetData(), v2)
		cc = v2
	}
	if err != nil {
		panic(fmt.Sprintf("membership change at %d does not decode: %v", e.GetIndex(), err))
	}
	return cc.AsV2()
}

// ReplicaStatus is a replica's part of a Status.
type ReplicaStatus struct {
	Role
	Vote                     uint64 // whom the member voted for in this term; 0: nobody
	Commit, Applied, Durable uint64
	First                    uint64 // first entry in memory
	Snapshot                 uint64 // index of the last snapshot
	Entries                  int    // in memory
	EntryBytes               int64  // in memory, their cost included
	SinceSnapshot            int64  // of those, after the last snapshot
	InFlight                 int    // entries proposed and not yet committed
	Waiting                  int    // proposals that wait for a place in an entry
	WaitingBytes             int
	Unanswered               int // proposals appended and not yet answered
	Confirming               int // confirmations that wait
	Voters                   []uint64
	Learners                 []uint64
	SnapshotWanted           bool         // a member needs a snapshot that is newer than the last one
	Peers                    []PeerStatus // while leading, as of the last tick: the other members
	DurableTerm              uint64       // in the last hard state that was synced
	DurableCommit            uint64       // in the same; what is committed may be further
	Settled                  uint64       // up to here the log on disk is committed: nobody may lawfully cut it
	Candidacy                Candidacy    // the last election that the member stood for
}

// Status describes the replica. Its lists are shared and never changed.
func (r *Replica) Status() ReplicaStatus {
	return ReplicaStatus{
		Role: r.role, Vote: r.raw.BasicStatus().GetVote(), Commit: r.commit, Applied: r.applied, Durable: r.log.last(),
		First: r.log.first, Snapshot: r.log.snap.Index, Entries: len(r.log.entries), EntryBytes: r.log.bytes, SinceSnapshot: r.log.since,
		InFlight: len(r.proposals.pending), Waiting: r.proposals.waiting.len(), WaitingBytes: r.proposals.waitingBytes,
		Unanswered: r.proposals.unanswered, Confirming: r.confirming(),
		Voters: r.conf.GetVoters(), Learners: r.conf.GetLearners(),
		Peers: r.peers, SnapshotWanted: r.log.wanted, DurableTerm: r.durableTerm, DurableCommit: r.durableCommit,
		Settled: r.stale.below(min(r.log.last(), r.commit)), Candidacy: r.election.stood,
	}
}
