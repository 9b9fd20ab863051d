package node

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/incumbent-dev/incumbent"
)

// handOver is a hand-over of leadership that somebody waits for.
type handOver struct {
	to     uint64
	began  uint64 // tick
	caught uint64 // tick at which it was seen to have all of the log: raft has told it to campaign; 0: not yet
	again  bool   // it was told once more
	done   []func(error)
}

// stall is what a replica knows of its own disk.
type stall struct {
	out   bool   // a flush has been out for too long
	slow  bool   // a flush has been out for long, which may be usual here
	ahead uint64 // ticks in a row in which that kept this member behind a quorum of others
	since uint64 // tick at which leadership was to be handed over for it; 0: not
	muted bool

	full    bool              // appends wait for space
	handed  uint64            // term in which leadership was to be handed over for that
	looked  uint64            // tick of the last look at who else has space; 0: none yet
	passed  int               // looks in a row at which enough of the others had
	matches map[uint64]uint64 // what each had at the last look
}

// TransferLeader hands leadership to a voter, or to the one that is furthest if
// to is 0. Proposals are held meanwhile. Done is called when another member
// leads, or with Invalid if to is no voter, NotLeader if this member does not
// lead, or Unavailable if nobody took over in time.
func (r *Replica) TransferLeader(to uint64, done func(error)) {
	t := &r.transfer
	if err := r.checkTransfer(to); err != nil {
		r.tell(done, err)
		return
	}
	if to == r.cfg.ID {
		r.tell(done, nil)
		return
	}
	if len(t.done) > 0 {
		t.done = append(t.done, done) // to the same, or to anybody
		return
	}
	if to == 0 {
		to = r.furthestVoter()
	}
	if to == 0 {
		r.tell(done, incumbent.Errorf(incumbent.Unavailable, "no other voter is there to lead"))
		return
	}
	*t = handOver{to: to, began: r.tick, done: []func(error){done}}
	r.raw.TransferLeader(to)
}

func (r *Replica) checkTransfer(to uint64) error {
	switch {
	case r.role.State != Leader:
		return r.notLeader()
	case to != 0 && roleIn(r.conf, to) != Voter:
		return incumbent.Errorf(incumbent.Invalid, "member %x is no voter", to)
	case to != 0 && len(r.transfer.done) > 0 && to != r.transfer.to:
		return incumbent.Errorf(incumbent.Unavailable, "leadership is being handed to member %x", r.transfer.to)
	}
	return nil
}

// furthestVoter returns the voter, not this member, that has most of the log
// among those heard of lately, or 0.
func (r *Replica) furthestVoter() uint64 {
	var best, match uint64
	r.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == r.cfg.ID || roleIn(r.conf, id) != Voter || !r.active(id) {
			return
		}
		if best == 0 || pr.Match > match {
			best, match = id, pr.Match
		}
	})
	return best
}

// handingOver reports whether raft drops proposals because leadership is being
// handed over.
func (r *Replica) handingOver() bool {
	return len(r.transfer.done) > 0 && r.raw.BasicStatus().LeadTransferee != raft.None
}

// tickTransfer ends a transfer that raft gave up, after an election timeout, or
// that left nobody leading for another.
func (r *Replica) tickTransfer() {
	t := &r.transfer
	if len(t.done) == 0 {
		return
	}
	gaveUp := r.role.State == Leader && r.raw.BasicStatus().LeadTransferee == raft.None
	if gaveUp || r.tick-t.began > 2*electionTicks {
		r.endTransfer(incumbent.Errorf(incumbent.Unavailable, "member %x did not take over in time", t.to))
		if r.role.State == Leader && r.joint() {
			// Raft leaves a joint change by itself when something is applied, but not
			// during a hand-over, and it does not come back to it.
			_ = r.raw.Propose(nil) // refused: the hand-over still goes on, or the next write does it
		}
		return
	}
	if r.role.State == Leader && !t.again && r.hasAll(t.to) {
		r.transferAgain()
	}
}

// transferAgain tells a member once more to campaign: raft says it once, and an
// election timeout would go by if that is lost. The message names the term, so
// that one which comes late, or twice, does nothing. What the member has is still
// all there is: raft takes no proposals meanwhile.
func (r *Replica) transferAgain() {
	t := &r.transfer
	switch {
	case t.caught == 0:
		t.caught = r.tick
	case r.tick-t.caught >= transferAgainTicks && r.active(t.to):
		t.again = true
		r.send(&pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: new(r.cfg.ID), To: new(t.to), Term: new(r.role.Term)})
	}
}

// hasAll reports whether a member is known to have the whole log of this leader.
func (r *Replica) hasAll(id uint64) (all bool) {
	r.raw.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		all = all || other == id && pr.Match >= r.proposals.last
	})
	return all
}

// settleTransfer ends a transfer when another member leads, or this one again.
func (r *Replica) settleTransfer() {
	switch {
	case len(r.transfer.done) == 0, r.role.Leader == 0:
	case r.role.Leader == r.cfg.ID:
		r.endTransfer(incumbent.Errorf(incumbent.Unavailable, "member %x did not take over", r.transfer.to))
	default:
		r.endTransfer(nil)
	}
}

func (r *Replica) endTransfer(err error) {
	for _, done := range r.transfer.done {
		r.tell(done, err)
	}
	r.transfer = handOver{}
}

// FlushStalled tells whether a flush of the log has been out for too long. A
// member whose disk hangs does not campaign. If it leads it hands leadership
// over, and if that fails it falls silent until it is deposed: its heartbeats and
// its answers to appends would keep the others from electing anybody.
func (r *Replica) FlushStalled(out bool) { r.stall.out = out }

// FlushSlow tells whether a flush has been out for so long that a disk would count
// as hanging if that was not usual for it. Where all disks are slow a leader stays,
// or leadership would go round for ever; it hands over to those that are faster.
func (r *Replica) FlushSlow(out bool) { r.stall.slow = out }

// DiskFull tells whether appends wait for space. A member whose disk is full does
// not campaign: it could not even write down its own vote. If it leads, it hands
// leadership over once in a term, if enough of the others are known to go on
// writing what it cannot; else it stays, for nobody else could be elected, and a
// confirmation writes nothing.
func (r *Replica) DiskFull(full bool) { r.stall.full = full }

// tickFull looks after a leader whose disk is full.
func (r *Replica) tickFull() {
	s := &r.stall
	if !s.full || r.role.State != Leader || s.handed == r.role.Term || len(r.transfer.done) > 0 || r.soleVoter() {
		s.looked, s.passed = 0, 0
		return
	}
	if s.looked != 0 && r.tick-s.looked < fullLookTicks {
		return
	}
	to, enough := r.roomElsewhere()
	s.passed++
	if s.looked == 0 || !enough {
		s.passed = 0
	}
	s.looked = r.tick
	if s.passed >= fullLooks {
		s.handed = r.role.Term
		r.TransferLeader(to, func(error) {}) // how it ends shows in who leads
	}
}

// roomElsewhere reports whether a quorum of others goes on writing what this
// member cannot, and which of them has most. Of two that are full one may have a
// little more than the other: so it counts only who has all of the log, or has
// written some of it since the last look.
func (r *Replica) roomElsewhere() (best uint64, enough bool) {
	before := r.stall.matches
	matches := map[uint64]uint64{}
	var with []uint64
	r.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		matches[id] = pr.Match
		if id == r.cfg.ID || pr.Match <= r.log.last() || pr.Match < r.proposals.last && pr.Match <= before[id] || !r.active(id) {
			return
		}
		with = append(with, id)
		if roleIn(r.conf, id) == Voter && pr.Match > matches[best] {
			best = id
		}
	})
	r.stall.matches = matches
	return best, best != 0 && quorum(r.conf.GetVoters(), with) && quorum(r.conf.GetVotersOutgoing(), with)
}

// othersAhead reports whether a quorum of others has written more of the log than
// this member.
func (r *Replica) othersAhead() bool {
	var with []uint64
	r.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id != r.cfg.ID && pr.Match > r.log.last() && r.active(id) {
			with = append(with, id)
		}
	})
	return quorum(r.conf.GetVoters(), with) && quorum(r.conf.GetVotersOutgoing(), with)
}

// quorum reports whether some are a majority of voters, or there are no voters.
func quorum(voters, some []uint64) bool {
	n := 0
	for _, id := range voters {
		if slices.Contains(some, id) {
			n++
		}
	}
	return len(voters) == 0 || n > len(voters)/2
}

// tickStall looks after a leader whose disk hangs, or is full.
func (r *Replica) tickStall() {
	r.tickFull()
	s := &r.stall
	if s.ahead++; r.role.State != Leader || !s.slow || !r.othersAhead() {
		s.ahead = 0
	}
	switch {
	case r.role.State != Leader, !s.out && !s.muted && s.ahead < slowAheadTicks, r.soleVoter():
		s.since = 0
	case s.since == 0:
		s.since = r.tick
		r.TransferLeader(0, func(error) {}) // how it ends shows in who leads
	case s.out && !s.muted && r.tick-s.since >= muteAfterTicks:
		r.mute(true)
	}
}

func (r *Replica) mute(muted bool) {
	r.stall.muted = muted
	r.eff.Mute = &muted
}

// passive reports whether this member must not become leader: its disk hangs or
// is full. A sole voter has nobody else to leave it to.
func (r *Replica) passive() bool { return (r.stall.out || r.stall.full) && !r.soleVoter() }
