package node

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Effects is what a replica wants done. Within one Effects and from one to the
// next:
//
//   - Messages may leave at once, even before the appends. Those that must wait
//     for durability come out of [Replica.Appended] later.
//   - Appends are written in order. One is acknowledged with Appended once it is
//     durable if MustSync is set, and once it is written otherwise; never before
//     those that came earlier.
//   - Applies are performed in order on the goroutine that owns the machine, and
//     each is acknowledged with Applied afterwards.
//   - Answers, Ahead, Confirmed and Told are called now, by whoever drives the
//     replica, Confirmed before Ahead.
type Effects struct {
	Messages  []Message
	Appends   []*Append
	Applies   []*Apply
	Answers   []Answer
	Confirmed []Confirmed
	Ahead     []ToldAhead
	Told      []Told
	Role      *Role    // set when the role, the leader or the term changed
	Members   *Members // set at the start and when the members changed
	Mute      *bool    // set when the transport must fall silent, or may speak again
}

func (e *Effects) empty() bool {
	return len(e.Messages) == 0 && len(e.Appends) == 0 && len(e.Applies) == 0 && len(e.Answers) == 0 &&
		len(e.Confirmed) == 0 && len(e.Ahead) == 0 && len(e.Told) == 0 && e.Role == nil && e.Members == nil && e.Mute == nil
}

// Members are the ids of the members, in order. In the middle of a joint change
// Voters are those of both sides, and Learners all others.
type Members struct {
	Voters   []uint64
	Learners []uint64
}

// Told ends a change of membership or a transfer of leadership: Done is called
// with Err.
type Told struct {
	Done func(error)
	Err  error
}

// State is what a member is in its term.
type State uint8

// The states of a member.
const (
	Follower State = iota
	Candidate
	Leader
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Leader:
		return "leader"
	case Candidate:
		return "candidate"
	default:
		return "follower"
	}
}

// Role is what a member is, in which term, and who leads. Leader is 0 while
// nobody is known to lead.
type Role struct {
	State  State
	Leader uint64
	Term   uint64
}

// Append is a write to the log: the hard state if there is one, then the
// entries. An entry at index i discards everything the log has from i on.
type Append struct {
	HardState *pb.HardState // nil: unchanged
	Entries   []*pb.Entry   // immutable
	Snapshot  *pb.Snapshot  // metadata of a snapshot received from the leader: its file replaces the whole log
	MustSync  bool          // entries, term or vote changed, or the commit index passed a change of members

	responses []*pb.Message // to be delivered once it is acknowledged; the replica's alone, whoever writes the rest
}

// answersOnly reports whether there is nothing to write, and nobody is to be told more
// than which entries are here.
func (a *Append) answersOnly() bool {
	return a.HardState == nil && len(a.Entries) == 0 && a.Snapshot == nil &&
		!slices.ContainsFunc(a.responses, func(m *pb.Message) bool {
			return m.GetType() != pb.MsgAppResp && m.GetType() != pb.MsgStorageAppendResp
		})
}

// answerWith has responses wait for an append that is under way: it is the last one, so
// that everything they depend on is durable once it is acknowledged. While a disk is full
// or hangs the leader asks with each heartbeat, and the answer is always the same. Of
// those that are equal one stays, so that what waits is bounded by what differs: to raft
// the others are messages that were lost, or say again what is known.
func (a *Append) answerWith(responses []*pb.Message) {
	for _, m := range responses {
		if !slices.ContainsFunc(a.responses, func(have *pb.Message) bool { return proto.Equal(have, m) }) {
			a.responses = append(a.responses, m)
		}
	}
}

// commitOnly reports whether it says how much is committed and nothing else.
func (a *Append) commitOnly() bool {
	return a.HardState != nil && len(a.Entries) == 0 && a.Snapshot == nil && !a.MustSync
}

// pressing reports whether the loop is to hear at once that it was done: the replica
// goes on differently then, whoever waits.
func (a *Apply) pressing() bool {
	return a.Follow != nil || a.Restore != nil ||
		slices.ContainsFunc(a.Entries, func(c Committed) bool { return c.conf != nil || c.Lead != 0 })
}

// Apply is work for the machine: first Follow, then Restore, then the entries.
type Apply struct {
	Follow  *Role         // tell the machine that this member does not lead
	Restore *SnapshotMeta // replace the machine's state by this snapshot's
	Entries []Committed

	responses []*pb.Message
}

// Committed is one committed entry.
type Committed struct {
	Index uint64
	Term  uint64
	Data  []byte             // commands in the entry format; nil for raft's own entries
	Done  []func(any, error) // who waits, one for each command, or nil if nobody does; elements may be nil
	Lead  uint64             // non-zero: after this entry tell the machine that it leads this term

	conf *pb.ConfChangeV2 // a change of membership
}

// Answer calls Done with an error. The proposal was certainly not applied and
// never will be, unless the error's kind is Unknown.
type Answer struct {
	Done func(any, error)
	Err  error
}

// Confirmed calls each of Done with the term in which leadership was confirmed,
// or with the error.
type Confirmed struct {
	Term uint64
	Err  error
	Done []func(term uint64, err error)
}

// ToldAhead calls Tell with what is ahead of the machine: see [Replica.ConfirmAhead].
type ToldAhead struct {
	Ahead Ahead
	Tell  func(Ahead)
}

// Class is the connection a message travels on.
type Class uint8

// Control messages are small and urgent: heartbeats, votes, read confirmations.
// Bulk messages carry entries and snapshots; they must never delay control.
const (
	Control Class = iota
	Bulk
)

// Message goes to a peer: exactly one of Raft, Forward, Refuse, Chunk and Taken
// is set.
type Message struct {
	From    uint64
	To      uint64
	Raft    *pb.Message
	Forward *Forward
	Refuse  *Refuse
	Chunk   *Chunk
	Taken   *Taken
}

// Forward hands an encoded entry to the leader of Term. It may be sent again:
// the leader appends it at most once, and only behind the entry that After names.
type Forward struct {
	Term  uint64
	First uint64 // sequence of the first command, which names the entry in a refusal
	After uint64 // First of the entry that must be appended before; 0: none
	Entry []byte // immutable
}

// Refuse tells that a forwarded entry was certainly not appended in Term, nor
// what came after it, and never will be.
type Refuse struct {
	Term  uint64
	First uint64
}

// Chunk is a piece of a snapshot file on its way to a member that is behind.
// Index, Term, Bytes and Checksum name the file and are the same in all pieces.
type Chunk struct {
	Index    uint64      // what the snapshot covers
	Term     uint64      // of the entry at Index
	Bytes    int64       // of the whole file
	Checksum [32]byte    // SHA-256 of the whole file
	Offset   int64       // where Data belongs in the file, in bytes
	Data     []byte      // immutable
	Raft     *pb.Message // raft's own snapshot message, without data; at least with the last piece, else nil
}

// Taken answers pieces of a snapshot file: how much of it has arrived. The
// sender goes on from there, also after its connection was lost.
type Taken struct {
	Index    uint64 // with Term and Checksum: which file
	Term     uint64
	Checksum [32]byte
	Offset   int64  // bytes that have arrived without a gap; if it failed, before they were given up
	Done     bool   // the snapshot was installed, or is not needed any more
	Failed   string // why it cannot be installed; "": it can
}

// Class says which connection the message travels on.
func (m *Message) Class() Class {
	if m.Forward != nil || m.Chunk != nil {
		return Bulk
	}
	if m.Raft == nil {
		return Control
	}
	switch m.Raft.GetType() {
	case pb.MsgApp, pb.MsgSnap:
		return Bulk
	default:
		return Control
	}
}
