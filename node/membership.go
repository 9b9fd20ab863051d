package node

import (
	"bytes"
	"encoding/binary"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/overload"
)

// MemberRole is what a member is to be.
type MemberRole uint8

// The roles of a member. A voter counts in the quorum, a learner only follows.
const (
	Voter MemberRole = iota
	Learner
	Gone
)

// String returns the role in lower case.
func (m MemberRole) String() string {
	switch m {
	case Voter:
		return "voter"
	case Learner:
		return "learner"
	default:
		return "gone"
	}
}

// MemberChange says what a member is to be from now on.
type MemberChange struct {
	ID   uint64
	Role MemberRole
}

// memberChange is a change that somebody waits for.
type memberChange struct {
	want []MemberChange
	done func(error)

	// What was proposed for it, if anything is out.
	context   []byte // tells our entry from others; fresh for each attempt
	seen      bool   // raft appended it as it is
	notBefore uint64 // tick: after raft refused it
}

// memberChanges is the replica's book of changes of membership. Raft allows one
// at a time, so one is proposed and the others wait.
type memberChanges struct {
	queue  []*memberChange
	nextID uint64

	// An entry that was appended, in this term of leadership, behind the newest change;
	// see knownChange.
	behind uint64 // its index, or of one behind it; 0: none is in the log yet
	asked  bool   // raft has taken it, and no Ready has brought it
}

// ChangeMembers makes members what the changes say; several are made together,
// in one joint change. What is so already is left alone. Done is called once the
// change is applied here and, if it is joint, complete, and a majority of those who
// vote then knows that it is. Its error is Invalid,
// Overloaded, NotLeader or Unavailable (not made), or Unknown if leadership ended
// while the change was under way.
func (r *Replica) ChangeMembers(changes []MemberChange, done func(error)) {
	if err := r.checkChange(changes); err != nil {
		r.tell(done, err)
		return
	}
	r.changes.queue = append(r.changes.queue, &memberChange{want: slices.Clone(changes), done: done})
	r.settleChanges()
}

func (r *Replica) tell(done func(error), err error) {
	r.eff.Told = append(r.eff.Told, Told{Done: done, Err: err})
}

// checkChange refuses what can never be made.
func (r *Replica) checkChange(changes []MemberChange) error {
	if r.role.State != Leader {
		return r.notLeader()
	}
	if len(r.changes.queue) >= maxMemberChanges {
		return overload.Errorf("%d changes of membership wait, limit is %d", len(r.changes.queue), maxMemberChanges)
	}
	for i, c := range changes {
		same := func(o MemberChange) bool { return o.ID == c.ID }
		switch {
		case !validID(c.ID):
			return incumbent.Errorf(incumbent.Invalid, "%x is no id of a member", c.ID)
		case c.Role > Gone:
			return incumbent.Errorf(incumbent.Invalid, "member %x has an unknown role", c.ID)
		case slices.ContainsFunc(changes[:i], same):
			return incumbent.Errorf(incumbent.Invalid, "member %x is named twice", c.ID)
		}
	}
	return nil
}

// validID reports whether raft can use an id: neither none nor one of the two
// highest, which name its storage threads.
func validID(id uint64) bool { return id != 0 && id < 1<<64-2 }

// roleIn returns what a member is in a configuration. One that is a voter of the
// outgoing side only is what the incoming side says.
func roleIn(cs *pb.ConfState, id uint64) MemberRole {
	switch {
	case slices.Contains(cs.GetVoters(), id):
		return Voter
	case slices.Contains(cs.GetLearners(), id), slices.Contains(cs.GetLearnersNext(), id):
		return Learner
	}
	return Gone
}

// missing returns those changes that are not so already.
func (r *Replica) missing(want []MemberChange) []MemberChange {
	return slices.DeleteFunc(slices.Clone(want), func(c MemberChange) bool { return roleIn(r.conf, c.ID) == c.Role })
}

// joint reports whether the members are in the middle of a change.
func (r *Replica) joint() bool { return len(r.conf.GetVotersOutgoing()) > 0 }

// isVoter reports whether this member is a voter, of either side of a change.
func (r *Replica) isVoter() bool {
	return slices.Contains(r.conf.GetVoters(), r.cfg.ID) || slices.Contains(r.conf.GetVotersOutgoing(), r.cfg.ID)
}

// settleChanges answers the changes in front that are made. A leader that has not
// applied its predecessors' entries does not know yet which are.
func (r *Replica) settleChanges() {
	if r.role.State == Leader && (r.leadIndex == 0 || r.applied < r.leadIndex) {
		return
	}
	for len(r.changes.queue) > 0 && !r.joint() && len(r.missing(r.changes.queue[0].want)) == 0 && r.knownChange() {
		r.endChange(nil)
	}
}

// knownChange reports whether a majority of those who vote now knows that the newest
// change is committed; if that is not on its way, it is sent. Members vote by what they
// have applied: were the leader lost before anybody else knew of the change, those who
// are left would go on without whom it has let in, or with whom it has let go, and may
// then never be a majority of what they know. A majority that has a later entry from a
// leader that had applied the change was told with it how far the log is committed.
func (r *Replica) knownChange() bool {
	c := &r.changes
	if !r.isVoter() {
		return true // it has let itself go, and leads no more
	}
	if c.behind == 0 && !c.asked {
		c.asked = r.raw.Propose(nil) == nil // refused: the next turn tries again
	}
	return c.behind > 0 && r.applied >= c.behind
}

// noteBehind takes the entries that raft appended since the last Ready: the one that
// knownChange has proposed is among them.
func (r *Replica) noteBehind(entries []*pb.Entry) {
	if c := &r.changes; c.asked && len(entries) > 0 {
		c.asked, c.behind = false, entries[len(entries)-1].GetIndex()
	}
}

// forgetBehind is for when another change is applied, or another term begins.
func (r *Replica) forgetBehind() { r.changes.behind, r.changes.asked = 0, false }

func (r *Replica) endChange(err error) {
	c := r.changes.queue[0]
	r.changes.queue[0] = nil
	r.changes.queue = r.changes.queue[1:]
	r.tell(c.done, err)
}

// proposeChange proposes the change in front, if none is out and raft would take
// it: it refuses one while an earlier one may be unapplied, silently.
func (r *Replica) proposeChange() {
	r.settleChanges()
	for len(r.changes.queue) > 0 {
		c := r.changes.queue[0]
		if c.context != nil || r.role.State != Leader || r.joint() || r.handingOver() ||
			r.leadIndex == 0 || r.applied < r.leadIndex || r.tick < c.notBefore {
			return
		}
		missing := r.missing(c.want)
		if len(missing) == 0 {
			return // it is for settleChanges to say so
		}
		if err := r.checkOutcome(missing); err != nil {
			r.endChange(err)
			r.settleChanges()
			continue
		}
		r.changes.nextID++
		id := binary.LittleEndian.AppendUint64(nil, r.cfg.ID)
		id = binary.LittleEndian.AppendUint64(id, r.cfg.Incarnation)
		id = binary.LittleEndian.AppendUint64(id, r.changes.nextID)
		// An error means that it was certainly not appended: another time.
		if r.raw.ProposeConfChange(confChange(missing, id)) == nil {
			c.context, c.seen = id, false
		}
		return
	}
}

// checkOutcome refuses a change that would leave nobody to vote, or more members
// than the header of a snapshot can name.
func (r *Replica) checkOutcome(changes []MemberChange) error {
	voters, all := len(r.conf.GetVoters()), len(r.conf.GetVoters())+len(r.conf.GetLearners())
	for _, c := range changes {
		was := roleIn(r.conf, c.ID)
		if was == Voter {
			voters--
		}
		if c.Role == Voter {
			voters++
		}
		if was != Gone {
			all--
		}
		if c.Role != Gone {
			all++
		}
	}
	switch {
	case voters == 0:
		return incumbent.Errorf(incumbent.Invalid, "the change would leave no voter")
	case all > maxConfStateIDs:
		return incumbent.Errorf(incumbent.TooLarge, "the change would make %d members, limit is %d", all, maxConfStateIDs)
	}
	return nil
}

func confChange(changes []MemberChange, id []byte) *pb.ConfChangeV2 {
	cc := &pb.ConfChangeV2{Context: id}
	for _, c := range changes {
		typ := pb.ConfChangeRemoveNode
		switch c.Role {
		case Voter:
			typ = pb.ConfChangeAddNode
		case Learner:
			typ = pb.ConfChangeAddLearnerNode
		}
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: typ.Enum(), NodeId: new(c.ID)})
	}
	return cc
}

// noteChange looks for the change that was proposed among the entries that raft
// appended since. If it is not there, raft put an empty entry in its place.
func (r *Replica) noteChange(entries []*pb.Entry) {
	if len(r.changes.queue) == 0 {
		return
	}
	c := r.changes.queue[0]
	if c.context == nil || c.seen {
		return
	}
	c.seen = slices.ContainsFunc(entries, func(e *pb.Entry) bool {
		return e.GetType() == pb.EntryConfChangeV2 && bytes.Equal(decodeConfChange(e).GetContext(), c.context)
	})
	if !c.seen {
		c.context, c.notBefore = nil, r.tick+1
	}
}

// awaitChange remembers an entry on its way into the log, in place of all that
// were at its index or behind it, if it changes members.
func (r *Replica) awaitChange(e *pb.Entry) {
	for n := len(r.undecided); n > 0 && r.undecided[n-1] >= e.GetIndex(); n-- {
		r.undecided = r.undecided[:n-1]
	}
	if e.GetType() != pb.EntryNormal {
		r.undecided = append(r.undecided, e.GetIndex())
	}
}

// changeDecided reports whether a commit index is the first to cover a change of
// members. Such a one is synced: a member that forgot, with its power, that it had
// become a voter would not campaign, and where its log alone holds all that
// was committed nobody else can win.
func (r *Replica) changeDecided(commit uint64) bool {
	n := 0
	for n < len(r.undecided) && r.undecided[n] <= commit {
		n++
	}
	r.undecided = r.undecided[n:]
	return n > 0
}

// applyConfChange takes a committed change of membership. Raft must be told of
// every one, in order, on every member.
func (r *Replica) applyConfChange(index uint64, cc *pb.ConfChangeV2) {
	r.conf = r.raw.ApplyConfChange(cc)
	r.log.confIndex = index
	r.forgetBehind()
	if q := r.changes.queue; len(q) > 0 && q[0].context != nil && bytes.Equal(q[0].context, cc.GetContext()) {
		q[0].context = nil // it has come; a joint one is complete when raft has left it
	}
	r.tellMembers()
	r.settleChanges()
}

// takeMembers takes the members that a received snapshot names.
func (r *Replica) takeMembers(cs *pb.ConfState) {
	r.conf = proto.Clone(pb.EnsureConfState(cs)).(*pb.ConfState)
	r.tellMembers()
}

// tellMembers tells who the members are now.
func (r *Replica) tellMembers() {
	m := Members{Voters: slices.Concat(r.conf.GetVoters(), r.conf.GetVotersOutgoing())}
	slices.Sort(m.Voters)
	m.Voters = slices.Compact(m.Voters)
	m.Learners = slices.Concat(r.conf.GetLearners(), r.conf.GetLearnersNext())
	m.Learners = slices.DeleteFunc(m.Learners, func(id uint64) bool { return slices.Contains(m.Voters, id) })
	slices.Sort(m.Learners)
	r.eff.Members = &m
	for id := range r.heard {
		if !slices.Contains(m.Voters, id) && !slices.Contains(m.Learners, id) {
			delete(r.heard, id)
		}
	}
}

// failChanges answers those who wait when this member leads no more. What was
// proposed may yet be made.
func (r *Replica) failChanges() {
	for len(r.changes.queue) > 0 {
		err := r.notLeader()
		if r.changes.queue[0].context != nil || r.joint() || len(r.missing(r.changes.queue[0].want)) == 0 {
			err = incumbent.Errorf(incumbent.Unknown, "leadership ended while the change of membership was under way")
		}
		r.endChange(err)
	}
}

func (r *Replica) stopChanges(err error) {
	for len(r.changes.queue) > 0 {
		e := err
		if r.changes.queue[0].context != nil {
			e = incumbent.Errorf(incumbent.Unknown, "the node stopped while the change of membership was under way")
		}
		r.endChange(e)
	}
	r.endTransfer(err)
}
