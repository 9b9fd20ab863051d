package node

import (
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// ElectionReason is why a member stood for election.
type ElectionReason uint8

// The reasons of elections.
const (
	ElectionTimedOut   ElectionReason = iota // no leader was heard of for an election timeout, or nobody else votes
	ElectionLeaderLost                       // the leader closed its connections: its process has ended
	ElectionHandedOver                       // the leader said so
)

// String returns the reason in lower case.
func (e ElectionReason) String() string {
	switch e {
	case ElectionLeaderLost:
		return "leader_lost"
	case ElectionHandedOver:
		return "leadership_transfer"
	default:
		return "timeout"
	}
}

// Candidacy is the last election for which a member stood since its start.
type Candidacy struct {
	Started time.Time // when it asked for votes, again if they did not come in time; zero: never
	Won     time.Time // zero: not
	Reason  ElectionReason
}

// election is how a member behaves that saw its leader's connections close, and
// how it waits for votes that are written to slow disks.
type election struct {
	rand       *rand.Rand
	campaignAt time.Time     // zero: no campaign is planned
	flush      time.Duration // what a flush of this member's log usually takes; 0: not known
	ledTerm    uint64        // the newest in which a leader was known: its votes are decided
	votesTerm  uint64        // in which this member voted, and since when that is known
	votesSince time.Time
	patience   time.Duration // for the votes of that term; grows with each term that was lost

	stood  Candidacy
	reason ElectionReason // of the candidacy that begins, or goes on
	last   Role           // when noteCandidacy looked
}

// led tells that a leader of a term is known.
func (e *election) led(term uint64) { e.ledTerm, e.patience = term, 0 }

// FlushTakes tells what a flush of the log usually takes here. A vote is written
// before it is given, so a member whose disk is slow leaves others, and itself,
// more time for a round of votes.
func (r *Replica) FlushTakes(usually time.Duration) { r.election.flush = usually }

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
	r.election.campaignAt = now.Add(r.campaignDelay())
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
		if err := r.raw.Campaign(); err == nil {
			e.reason = ElectionLeaderLost
		}
	}
	e.campaignAt = now.Add(r.campaignDelay())
}

// noteCandidacy remembers when this member began to stand for election, and whether
// it won. A sole voter wins before anybody sees it stand.
func (r *Replica) noteCandidacy(now time.Time) {
	e, is := &r.election, r.role
	if is == e.last {
		return
	}
	stood := e.last.State == Candidate
	e.last = is
	if is.State == Follower {
		e.reason = ElectionTimedOut // unless the next one has another
		return
	}
	if is.State == Candidate || !stood {
		e.stood = Candidacy{Started: now, Reason: e.reason}
	}
	if is.State == Leader {
		e.stood.Won = now
		e.reason = ElectionTimedOut
	}
}

// noteHandedOver takes the reason of an election that the leader asked for.
func (r *Replica) noteHandedOver(m *pb.Message) {
	if m.GetType() == pb.MsgTimeoutNow && r.role.State == Follower && stateOf(r.raw.BasicStatus().RaftState) != Follower {
		r.election.reason = ElectionHandedOver
	}
}

// votesMayCome reports whether this member voted in the present term a short
// while ago, for itself or another, and nobody leads in it yet: a new campaign of
// its own would void those votes. After that they are split, or lost.
func (r *Replica) votesMayCome(st raft.BasicStatus, now time.Time) bool {
	e := &r.election
	if st.Lead != raft.None || st.GetVote() == raft.None || st.GetTerm() == e.ledTerm {
		return false
	}
	if st.GetTerm() != e.votesTerm {
		// The term before was lost: on slow disks or links because its votes
		// needed longer, so these get more time.
		e.votesTerm, e.votesSince = st.GetTerm(), now
		e.patience = min(max(2*e.patience, votesPatience), maxVotesPatience)
		e.patience = max(e.patience, min(votesFlushes*e.flush, maxSlowVotesPatience))
	}
	return now.Sub(e.votesSince) < e.patience
}

// tickRaft moves raft's clock. While the disk hangs or is full a follower only
// counts, and so does not campaign. While votes may come that need longer than an
// election timeout the clock stands still, for raft would ask for new ones.
func (r *Replica) tickRaft(now time.Time) {
	st := r.raw.BasicStatus()
	switch {
	case r.passive() && st.RaftState != raft.StateLeader:
		r.raw.TickQuiesced()
	case r.votesMayCome(st, now) && r.election.patience > ordinaryVotes:
	default:
		r.raw.Tick()
	}
}

// unwanted reports whether a message must not reach raft now.
func (r *Replica) unwanted(m *pb.Message) bool {
	switch m.GetType() {
	case pb.MsgTimeoutNow, pb.MsgVoteResp, pb.MsgPreVoteResp:
		return r.passive() // these could make it leader
	case pb.MsgReadIndex:
		// Raft answers at once if there is one voter, also before that one knows
		// what its former life committed; and it must not hand on a question of a
		// later term that has just deposed it. Whoever asks will ask again.
		return r.role.State != Leader || stateOf(r.raw.BasicStatus().RaftState) != Leader || r.leadIndex == 0 || r.commit < r.leadIndex
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
