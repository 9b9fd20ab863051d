package node

import (
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// election is how a member behaves that saw its leader's connections close.
type election struct {
	rand       *rand.Rand
	campaignAt time.Time     // zero: no campaign is planned
	patience   time.Duration // for the votes of one term; grows with each term that was lost
	votesTerm  uint64        // in which votes were asked for, and since when that is known
	votesSince time.Time
}

// PeerLost tells that the other side closed its connections: its process ended.
// What it had sent must have been given to Step before. If it led, this member
// forgets it, so that it votes at once instead of after an election timeout, and
// a voter campaigns after a short random delay, again and again until it knows a
// leader: voters that have not forgotten yet drop its pre-votes without a word.
// This changes how soon somebody is elected and nothing else: a member that only
// lost its own link gets no votes from those who hear the leader.
func (r *Replica) PeerLost(id uint64, now time.Time) {
	st := r.raw.BasicStatus()
	if st.RaftState == raft.StateLeader {
		r.raw.ReportUnreachable(id)
		return
	}
	if st.Lead != id || st.RaftState != raft.StateFollower {
		return
	}
	if err := r.raw.ForgetLeader(); err != nil || !r.isVoter() {
		return
	}
	r.election.campaignAt, r.election.patience = now.Add(r.campaignDelay()), votesPatience
}

func (r *Replica) campaignDelay() time.Duration {
	return campaignSoonest + time.Duration(r.election.rand.Int64N(int64(campaignLatest-campaignSoonest)))
}

// Wake returns when Ready is wanted even if nothing happens until then, if it is.
func (r *Replica) Wake() (time.Time, bool) {
	return r.election.campaignAt, !r.election.campaignAt.IsZero()
}

// campaignIfDue begins the election that PeerLost planned.
func (r *Replica) campaignIfDue(now time.Time) {
	e := &r.election
	if e.campaignAt.IsZero() || now.Before(e.campaignAt) {
		return
	}
	st := r.raw.BasicStatus()
	if st.Lead != raft.None || !r.isVoter() || r.passive() {
		e.campaignAt = time.Time{} // from here on the election timeout is enough
		return
	}
	if !r.votesMayCome(st, now) {
		// An error means that a change of membership is not applied yet: again.
		_ = r.raw.Campaign()
	}
	e.campaignAt = now.Add(r.campaignDelay())
}

// votesMayCome reports whether votes were asked for a short while ago: a new
// pre-vote would void them. After that they are split, or lost.
func (r *Replica) votesMayCome(st raft.BasicStatus, now time.Time) bool {
	e := &r.election
	if st.RaftState != raft.StateCandidate {
		return false
	}
	if st.GetTerm() != e.votesTerm {
		// The term before was lost: on slow disks or links because its votes
		// needed longer, so these get more time.
		e.votesTerm, e.votesSince, e.patience = st.GetTerm(), now, min(2*e.patience, maxVotesPatience)
	}
	return now.Sub(e.votesSince) < e.patience
}

// tickRaft moves raft's clock. While the disk hangs or is full a follower only
// counts, and so does not campaign.
func (r *Replica) tickRaft() {
	if r.passive() && r.raw.BasicStatus().RaftState != raft.StateLeader {
		r.raw.TickQuiesced()
		return
	}
	r.raw.Tick()
}

// unwanted reports whether a message must not reach raft now.
func (r *Replica) unwanted(m *pb.Message) bool {
	switch m.GetType() {
	case pb.MsgTimeoutNow, pb.MsgVoteResp, pb.MsgPreVoteResp:
		return r.passive() // these could make it leader
	case pb.MsgReadIndex:
		// Raft answers at once if there is one voter, also before that one knows
		// what its former life committed. Whoever asks will ask again.
		return r.role.State != Leader || r.leadIndex == 0 || r.commit < r.leadIndex
	}
	return false
}

// hear remembers when a member was last heard of.
func (r *Replica) hear(id uint64) {
	if _, ok := r.heard[id]; ok || roleIn(r.conf, id) != Gone {
		r.heard[id] = r.tick
	}
}

// active reports whether a member was heard of within an election timeout.
func (r *Replica) active(id uint64) bool {
	at, ok := r.heard[id]
	return ok && r.tick-at <= electionTicks
}
