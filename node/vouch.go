package node

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
)

// Whoever asks the leader of a term vouches for it. A confirmation has to show
// that no other leader can have committed anything before the question was put;
// a round of heartbeats shows it by members that say, after the question, that
// they know of no newer term. A member that puts a question in the leader's own
// term says just that of the moment in which it asked, so it counts among those
// members without being asked in turn: whoever was elected since needed the vote
// of the leader or of a member that vouched, and got it after the question.
//
// With three voters the leader and the one who asks are a quorum, and there is
// nothing left to ask. With five they are not enough: then the question waits for
// a round like any other.

// ConfirmFor confirms what another member asks in the given term of this leader,
// having known of no newer one. Where it is a quorum with this member, done runs
// without a round, once the machine has reached what is committed now. Otherwise
// it gets Unavailable at once: a round is needed. Ahead is as with ConfirmAhead.
func (r *Replica) ConfirmFor(member, term uint64, ahead func(Ahead), done func(term uint64, err error)) {
	index, enough := r.vouches(member, term)
	if !enough {
		err := incumbent.Errorf(incumbent.Unavailable, "the word of member %x in term %d is not enough", member, term)
		r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Err: err, Done: []func(uint64, error){done}})
		return
	}
	var a asked
	a.add(&confirmation{ahead: ahead, done: done})
	r.confirmed(index, a)
}

// vouches reports whether a member that follows this leader in a term is a quorum
// with it, and what is committed then as far as raft knows, which may be ahead of
// what the replica has learnt from it. Nothing is vouched for before the term's
// first entry is committed: until then this leader does not know what its
// predecessors did.
func (r *Replica) vouches(id, term uint64) (index uint64, enough bool) {
	st := r.raw.BasicStatus()
	if r.role.State != Leader || stateOf(st.RaftState) != Leader || r.role.Term != term || st.HardState.GetTerm() != term {
		return 0, false
	}
	index = st.HardState.GetCommit()
	with := []uint64{r.cfg.ID, id}
	return index, r.leadIndex != 0 && index >= r.leadIndex &&
		quorum(r.conf.GetVoters(), with) && quorum(r.conf.GetVotersOutgoing(), with)
}

// stampTerm says in which term a question for the read index is put, which raft
// leaves out. Whatever is asked with it has arrived by then. See answerRead.
func (r *Replica) stampTerm(m *pb.Message) {
	if m.GetType() == pb.MsgReadIndex && m.Term == nil {
		m.Term = proto.Uint64(r.role.Term)
	}
}

// answerRead answers a member that asks for the read index where the question
// itself vouches for this leader, and reports whether it did.
func (r *Replica) answerRead(m *pb.Message) bool {
	if m.GetType() != pb.MsgReadIndex {
		return false
	}
	index, enough := r.vouches(m.GetFrom(), m.GetTerm())
	if !enough {
		return false
	}
	r.send(&pb.Message{
		Type: pb.MsgReadIndexResp.Enum(), To: proto.Uint64(m.GetFrom()), From: proto.Uint64(r.cfg.ID), Term: proto.Uint64(r.role.Term),
		Index: proto.Uint64(index), Entries: slices.Clone(m.GetEntries()),
	})
	return true
}
