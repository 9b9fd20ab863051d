package node

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Status is what a node shows of itself.
type Status struct {
	ReplicaStatus
	Cluster     [16]byte
	Member      uint64
	Incarnation uint64
	Ready       bool // doors may open

	LogSegments  int // files that hold the log
	LastFlush    time.Duration
	FlushOut     time.Duration // for how long a flush has been out; 0: none
	FlushStalled bool          // that is a second or more
	Paused       string        // why appends wait for space, or ""

	Inbox         int // proposals that wait for a place in an entry
	InboxLimit    int
	FreeBytes     int64 // -1: not known
	ReserveBytes  int64
	GrowthRefused bool
}

// PeerStatus is what a leader knows of another member.
type PeerStatus struct {
	ID       uint64
	Match    uint64 // the log is known to be the same up to here
	Next     uint64 // the next entry to send
	Active   bool   // heard of within an election timeout
	Learner  bool
	Snapshot bool // it is too far behind for the log and gets a snapshot
}

// peerStatus returns what this member knows of the others, if it leads.
func (r *Replica) peerStatus() []PeerStatus {
	if r.role.State != Leader || r.soleVoter() && len(r.conf.GetLearners()) == 0 {
		return nil
	}
	var ps []PeerStatus
	r.raw.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id == r.cfg.ID {
			return
		}
		ps = append(ps, PeerStatus{
			ID: id, Match: pr.Match, Next: pr.Next, Active: r.active(id),
			Learner: typ == raft.ProgressTypeLearner, Snapshot: pr.State == tracker.StateSnapshot,
		})
	})
	return ps
}

// Status describes the node. It may be called from any goroutine.
func (n *Node) Status() Status {
	n.mu.Lock()
	st := Status{ReplicaStatus: n.shown}
	n.mu.Unlock()
	st.Cluster, st.Member, st.Incarnation = n.id.Cluster, n.id.Member, n.life
	select {
	case <-n.ready:
		st.Ready = true
	default:
	}
	st.FlushOut = n.appender.out(n.cfg.Clock.Now())
	st.FlushStalled = st.FlushOut >= flushStalledAfter
	log := n.appender.log.Status()
	st.LogSegments = log.Segments
	f := &n.appender.flush
	f.mu.Lock()
	st.LastFlush = f.last
	if f.paused != nil {
		st.Paused = f.paused.Error()
	}
	f.mu.Unlock()
	st.Inbox, st.InboxLimit = n.inbox.depth(), n.cfg.MaxInboxProposals
	st.FreeBytes, st.ReserveBytes, st.GrowthRefused = n.free.Load(), n.cfg.DiskReserve, n.refuse.Load()
	return st
}
