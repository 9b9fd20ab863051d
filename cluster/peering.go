package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Timing of what a member does about its own membership.
const (
	keepEvery    = time.Second      // looks at its own record
	keepTimeout  = 5 * time.Second  // for changing it
	removalGrace = 10 * time.Second // how long a removed member still votes on its own removal, at least
)

// peersOf turns the members of a record into whom to dial.
func peersOf(known []KnownMember) []peers.Member {
	var out []peers.Member
	for _, m := range known {
		if id := ParseID(m.ID); id != 0 && m.Peer != "" {
			out = append(out, peers.Member{ID: id, Name: m.Name, Address: m.Peer})
		}
	}
	return out
}

// openPeers begins to talk to the other members.
func (c *Cluster) openPeers() error {
	st := c.node.Status()
	cfg := peers.Config{
		Cluster: st.Cluster, Self: c.id, SelfName: c.cfg.Name, Schema: c.cfg.Schema, Listener: c.cfg.Listener,
		Standing: c.standing, Acknowledged: c.acknowledged, Membership: c.roster.membership, Deliver: c.deliver, App: c.receive,
		Keys: c.keys, Lost: c.node.PeerLost, Unreachable: c.node.Unreachable, Refused: c.refused,
		FS: vfs.OS{}, Dir: filepath.Join(c.cfg.DataDir, "peers"), Logger: c.cfg.Logger, Events: c.cfg.PeerEvents,
	}
	if c.cfg.TLS != nil {
		cfg.ServerTLS, cfg.ClientTLS = c.cfg.TLS.Accept, c.cfg.TLS.Dial
		cfg.Verify = c.cfg.TLS.Verify
	}
	set, err := peers.Open(cfg)
	if err != nil {
		return err
	}
	c.peers = set
	c.cfg.Transport.Use(set)
	c.roster.connectWith(set.SetMembers)
	return nil
}

// receive takes a frame of another member and gives it to whom it is for.
func (c *Cluster) receive(from uint64, frame []byte) {
	switch {
	case isReport(frame):
		c.consistency.receive(from, frame)
	case isDiskReport(frame):
		c.disks.receive(from, frame, time.Since(c.begun))
	case isTrustFrame(frame):
		c.trust.receive(from, frame)
	default:
		c.engine.Leases().Receive(from, frame)
	}
}

// standing is what this member shows of itself to others.
func (c *Cluster) standing() peers.Standing {
	incarnation, term, _ := c.node.Standing()
	durable, settled := c.node.Held()
	return peers.Standing{Incarnation: incarnation, Term: term, Durable: durable, Commit: settled}
}

// acknowledged is up to where a member has acknowledged to this one, if it leads,
// what is committed: it cannot lawfully lose that.
func (c *Cluster) acknowledged(id uint64) uint64 {
	st := c.node.Status()
	for _, p := range st.Peers {
		if p.ID == id {
			return min(p.Match, st.Commit)
		}
	}
	return 0
}

// deliver hands messages of peers to the node, and notes when the leader was
// last heard of.
func (c *Cluster) deliver(ms []node.Message) {
	if fromLeader(c.Leader(), ms) {
		c.heard.Store(int64(time.Since(c.begun)))
	}
	c.node.Step(ms...)
}

// fromLeader reports whether messages show that the leader was alive: some of
// them are raft's. What has the leader's name on it besides may have been made
// here: a refusal by the transport, which could not bring it something.
func fromLeader(leader uint64, ms []node.Message) bool {
	return leader != 0 && slices.ContainsFunc(ms, func(m node.Message) bool { return m.From == leader && m.Raft != nil })
}

// Age is how old a stale read may be: how long ago the leader was heard of.
func (c *Cluster) Age() time.Duration {
	if c.Leader() == c.id {
		return 0
	}
	return time.Since(c.begun) - time.Duration(c.heard.Load())
}

// refused stops this member: another will never talk to it again.
func (c *Cluster) refused(by uint64, err error) {
	name := c.NameOf(by)
	switch {
	case c.left.Load() && incumbent.KindOf(err) == incumbent.Denied:
		c.cfg.Fail(nil)
	case incumbent.KindOf(err) == incumbent.Denied:
		c.cfg.Fail(errRemoved("member " + name + " says so"))
	default:
		c.cfg.Fail(incumbent.Errorf(incumbent.Corrupt, "member %s remembers more of this member than it does itself: its data directory was put back to an earlier state, %w", name, err).
			WithHint("empty the data directory and start with --join-file FILE: the member comes back under a new id; 'incumbent cluster token NAME' on another member prints a token"))
	}
}

func errRemoved(how string) error {
	return incumbent.Errorf(incumbent.Conflict, "this member was removed from its cluster: %s", how).
		WithHint("to come back, empty the data directory and start with --join-file FILE: it becomes a new member; 'incumbent cluster token NAME' on another member prints a token")
}

// Links are the connections with the other members; none for a member that is alone.
func (c *Cluster) Links() []peers.Link {
	if c.peers == nil {
		return nil
	}
	return c.peers.Links()
}

// Disconnections is how often connections with other members have ended since the start.
func (c *Cluster) Disconnections() uint64 {
	if c.peers == nil {
		return 0
	}
	return c.peers.Disconnections()
}

// Connected reports whether another member is connected with this one.
func (c *Cluster) Connected(id uint64) bool {
	return slices.ContainsFunc(c.Links(), func(l peers.Link) bool { return l.Member.ID == id && l.Connected })
}

// self is what this member says of itself, and whether that is recorded.
func (c *Cluster) self() (m core.Member, recorded bool) {
	m = core.Member{
		ID: c.id, Name: c.cfg.Name, PeerAddress: c.cfg.PeerAddress, ClientURL: c.cfg.URL, Schema: c.cfg.Schema, Version: c.cfg.Version,
	}
	have, ok := c.engine.View().Member(c.id)
	if ok {
		m.Learner, m.Since = have.Learner, have.Since
	}
	if c.cfg.Listener == nil {
		m.PeerAddress = have.PeerAddress // others that it had may look for it there again
	}
	return m, ok && have == m
}

// keepRecord keeps two records true until ctx ends: this member's in the
// replicated state, and whom it knows in its data directory. It also notices
// that this member was removed.
func (c *Cluster) keepRecord(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	trouble := ""
	for {
		if c.engine.View().MemberGone(c.id) {
			c.goWhenLetGo(ctx)
			return
		}
		err := errors.Join(c.describeSelf(ctx), c.rememberOthers())
		switch {
		case err == nil:
			trouble = ""
		case ctx.Err() == nil && err.Error() != trouble:
			trouble = err.Error()
			c.cfg.Logger.Info("own record not up to date", "cause", err)
		}
		select {
		case <-tick.C:
		case <-c.rosterChanged:
		case <-ctx.Done():
			return
		}
	}
}

// describeSelf puts this member's record right.
func (c *Cluster) describeSelf(ctx context.Context) error {
	st := c.node.Status()
	if !st.Ready || st.Leader == 0 {
		return nil
	}
	want, recorded := c.self()
	if recorded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	_, err := c.propose(ctx, core.PutMemberCommand{Member: want})
	return err
}

// rememberOthers writes whom this member knows, if that changed.
func (c *Cluster) rememberOthers() error {
	if !c.node.Status().Ready {
		return nil // what the last run knew is better
	}
	var known []KnownMember
	r := c.Roster()
	for _, m := range r.Others {
		recorded, _ := r.View.Member(m.ID)
		known = append(known, KnownMember{ID: FormatID(m.ID), Name: m.Name, Peer: m.Address, URL: recorded.ClientURL})
	}
	return c.rewrite(func(r *Record) bool {
		if slices.Equal(known, r.Members) && r.Name == c.cfg.Name {
			return false
		}
		r.Members, r.Name = known, c.cfg.Name
		return true
	})
}

// goWhenLetGo ends a member that was removed, once raft does not count it any
// more: until then its vote may be needed, for its own removal too. One that does not hear of
// that goes after a while if those who stay are a majority of all that are counted.
func (c *Cluster) goWhenLetGo(ctx context.Context) {
	began := time.Now()
	_, err := c.settle(ctx, func(r *Roster) bool {
		if len(r.Counted) == 0 {
			return false // it is not known yet who is counted
		}
		_, counted := r.Counted[c.id]
		return !counted || time.Since(began) >= removalGrace && c.majorityOf(r.Voters())
	})
	if err != nil {
		return // stopping anyway
	}
	if c.left.Load() {
		c.cfg.Fail(nil)
		return
	}
	c.cfg.Fail(errRemoved("an operator did it"))
}

// noteChanges puts a change of raft's members into the timeline.
func (c *Cluster) noteChanges(changes []node.MemberChange) {
	var parts []string
	for _, change := range changes {
		parts = append(parts, c.NameOf(change.ID)+" is "+change.Role.String())
	}
	c.cfg.Event("members changed", c.cfg.Name, strings.Join(parts, ", "))
	c.cfg.Logger.Info("members changed", "changes", parts)
}
