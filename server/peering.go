package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Timing of what a member does about its own membership.
const (
	keepEvery    = time.Second      // looks at its own record
	keepTimeout  = 5 * time.Second  // for changing it
	removalGrace = 10 * time.Second // how long a removed member still votes on its own removal
)

// courier is the way to the peers: the node and the lease loop are made before
// the connections are.
type courier struct{ set atomic.Pointer[peers.Set] }

// Send implements node.Transport.
func (c *courier) Send(ms []node.Message) {
	if s := c.set.Load(); s != nil {
		s.Send(ms)
	}
}

// SendApp sends a frame that is not for the lease loop.
func (c *courier) SendApp(to uint64, frame []byte) bool {
	return c.SendApps(to, [][]byte{frame}) == 1
}

// SendApps implements lease.Peers.
func (c *courier) SendApps(to uint64, frames [][]byte) int {
	s := c.set.Load()
	if s == nil {
		return 0
	}
	return s.SendApps(to, frames)
}

// mute closes the peers' sockets, or lets them speak again.
func (c *courier) mute(muted bool) {
	if s := c.set.Load(); s != nil {
		s.Mute(muted)
	}
}

// barrier calls done once everything that had arrived at any socket before was
// handed on: at those of clients, parked or served by net/http, and at those of
// members, who gather for theirs.
func (s *Server) barrier(done func()) {
	parts := []func(func()){s.park.Barrier, s.arrivals.Barrier}
	if set := s.courier.set.Load(); set != nil {
		parts = append(parts, set.Barrier)
	}
	var left atomic.Int32
	left.Store(int32(len(parts)))
	for _, begin := range parts {
		begin(func() {
			if left.Add(-1) == 0 {
				done()
			}
		})
	}
}

// wantsPeers reports whether this member is to listen for others.
func (c Config) wantsPeers(r *cluster.Record) bool {
	return c.PeerListen != "" || c.JoinToken != "" || r != nil && r.Clustered
}

// listenForPeers opens the listener for other members, if there is to be one.
func (s *Server) listenForPeers() error {
	r, err := cluster.ReadRecord(s.cfg.DataDir)
	if err != nil || !s.cfg.wantsPeers(r) {
		return err
	}
	set(&s.cfg.PeerListen, DefaultPeerListen)
	if err := s.cfg.peerPolicy(s.cfg.expectsOwnTLS()); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", s.cfg.PeerListen)
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "setting peer-listen: %w", err).
			WithHint("is another server running? choose another address with --peer-listen")
	}
	s.peerListener = ln
	if s.peerAddress, err = reachable("peer-listen", ln.Addr().String(), "peer-advertise", s.cfg.PeerAdvertise); err != nil {
		ln.Close()
		return err
	}
	if _, err := reachable("listen", s.gate.Addr().String(), "advertise", s.cfg.Advertise); err != nil {
		ln.Close()
		return err
	}
	return nil
}

// PeerAddr is where other members reach this one; "" if it listens for none.
func (s *Server) PeerAddr() string { return s.peerAddress }

// peersOf turns the members of a record into whom to dial.
func peersOf(known []cluster.KnownMember) []peers.Member {
	var out []peers.Member
	for _, m := range known {
		if id := cluster.ParseID(m.ID); id != 0 && m.Peer != "" {
			out = append(out, peers.Member{ID: id, Name: m.Name, Address: m.Peer})
		}
	}
	return out
}

// openPeers begins to talk to the other members.
func (s *Server) openPeers() error {
	st := s.node.Status()
	cfg := peers.Config{
		Cluster: st.Cluster, Self: s.id, SelfName: s.cfg.Name, Schema: core.SchemaVersion, Listener: s.peerListener,
		Standing: s.standing, Acknowledged: s.acknowledged, Membership: s.roster.membership, Deliver: s.deliver, App: s.receive,
		Lost: s.node.PeerLost, Unreachable: s.node.Unreachable, Refused: s.refused,
		FS: vfs.OS{}, Dir: filepath.Join(s.cfg.DataDir, "peers"), Logger: s.log, Events: s.peerEvents(),
	}
	if s.ownTLS != nil {
		cfg.ServerTLS, cfg.ClientTLS = s.ownTLS.Accept, s.ownTLS.Dial
		cfg.Verify = func(cs tls.ConnectionState, id uint64) error { return s.ownTLS.Verify(cs, id) }
	}
	set, err := peers.Open(cfg)
	if err != nil {
		return err
	}
	s.peers = set
	s.courier.set.Store(set)
	s.roster.connectWith(set.SetMembers)
	return nil
}

// receive takes a frame of another member and gives it to whom it is for.
func (s *Server) receive(from uint64, frame []byte) {
	switch {
	case isReport(frame):
		s.consistency.receive(from, frame)
	case isSpaceReport(frame):
		s.spaces.receive(from, frame, time.Since(s.begun))
	default:
		s.engine.Leases().Receive(from, frame)
	}
}

// standing is what this member shows of itself to others.
func (s *Server) standing() peers.Standing {
	incarnation, term, _ := s.node.Standing()
	durable, settled := s.node.Held()
	return peers.Standing{Incarnation: incarnation, Term: term, Durable: durable, Commit: settled}
}

// acknowledged is up to where a member has acknowledged to this one, if it leads,
// what is committed: it cannot lawfully lose that.
func (s *Server) acknowledged(id uint64) uint64 {
	st := s.node.Status()
	for _, p := range st.Peers {
		if p.ID == id {
			return min(p.Match, st.Commit)
		}
	}
	return 0
}

// deliver hands messages of peers to the node, and notes when the leader was
// last heard of.
func (s *Server) deliver(ms []node.Message) {
	if fromLeader(s.leader.Load(), ms) {
		s.heard.Store(int64(time.Since(s.begun)))
	}
	s.node.Step(ms...)
}

// fromLeader reports whether messages show that the leader was alive: some of
// them are raft's. What has the leader's name on it besides may have been made
// here: a refusal by the transport, which could not bring it something.
func fromLeader(leader uint64, ms []node.Message) bool {
	return leader != 0 && slices.ContainsFunc(ms, func(m node.Message) bool { return m.From == leader && m.Raft != nil })
}

// age is how old a stale read may be: how long ago the leader was heard of.
func (s *Server) age() time.Duration {
	if s.leader.Load() == s.id {
		return 0
	}
	return time.Since(s.begun) - time.Duration(s.heard.Load())
}

// refused stops this member: another will never talk to it again.
func (s *Server) refused(by uint64, err error) {
	name := cluster.FormatID(by)
	if m, ok := s.engine.View().Member(by); ok {
		name = m.Name
	}
	switch {
	case s.left.Load() && incumbent.KindOf(err) == incumbent.Denied:
		s.fail(nil)
	case incumbent.KindOf(err) == incumbent.Denied:
		s.fail(errRemoved("member " + name + " says so"))
	default:
		s.fail(incumbent.Errorf(incumbent.Corrupt, "member %s remembers more of this member than it does itself: its data directory was put back to an earlier state, %w", name, err).
			WithHint("empty the data directory and start with --join TOKEN: the member comes back under a new id; 'incumbent cluster token' on another member prints a token"))
	}
}

func errRemoved(how string) error {
	return incumbent.Errorf(incumbent.Conflict, "this member was removed from its cluster: %s", how).
		WithHint("to come back, empty the data directory and start with --join TOKEN: it becomes a new member; 'incumbent cluster token' on another member prints a token")
}

// linked says who is connected.
func (s *Server) linked() map[uint64]bool {
	out := map[uint64]bool{}
	if s.peers == nil {
		return out
	}
	for _, l := range s.peers.Links() {
		out[l.Member.ID] = l.Connected
	}
	return out
}

func (s *Server) connected(id uint64) bool { return s.linked()[id] }

// self is what this member says of itself.
func (s *Server) self() core.Member {
	m := core.Member{
		ID: s.id, Name: s.cfg.Name, PeerAddress: s.peerAddress, ClientURL: s.URL(), Schema: core.SchemaVersion, Version: s.cfg.Version,
	}
	if have, ok := s.engine.View().Member(s.id); ok {
		m.Learner, m.Since = have.Learner, have.Since
	}
	return m
}

// keepRecord keeps two records true until ctx ends: this member's in the
// replicated state, and whom it knows in its data directory. It also notices
// that this member was removed.
func (s *Server) keepRecord(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	trouble := ""
	for {
		if s.engine.View().MemberGone(s.id) {
			s.goWhenLetGo(ctx)
			return
		}
		err := errors.Join(s.describeSelf(ctx), s.rememberOthers())
		switch {
		case err == nil:
			trouble = ""
		case ctx.Err() == nil && err.Error() != trouble:
			trouble = err.Error()
			s.log.Info("own record not up to date", "cause", err)
		}
		select {
		case <-tick.C:
		case <-s.rosterChanged:
		case <-ctx.Done():
			return
		}
	}
}

// describeSelf puts this member's record right.
func (s *Server) describeSelf(ctx context.Context) error {
	st := s.node.Status()
	if !st.Ready || st.Leader == 0 {
		return nil
	}
	want := s.self()
	if have, ok := s.engine.View().Member(s.id); ok && have == want {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	_, err := s.propose(ctx, core.PutMemberCommand{Member: want})
	return err
}

// rememberOthers writes whom this member knows, if that changed.
func (s *Server) rememberOthers() error {
	if !s.node.Status().Ready {
		return nil // what the last run knew is better
	}
	var known []cluster.KnownMember
	look := s.roster.look.Load()
	for _, m := range look.others {
		recorded, _ := look.view.Member(m.ID)
		known = append(known, cluster.KnownMember{ID: cluster.FormatID(m.ID), Name: m.Name, Peer: m.Address, URL: recorded.ClientURL})
	}
	if slices.Equal(known, s.record.Members) && s.record.Name == s.cfg.Name {
		return nil
	}
	next := *s.record
	next.Members, next.Name = known, s.cfg.Name
	if err := next.Write(s.cfg.DataDir); err != nil {
		return err
	}
	s.record = &next
	return nil
}

// goWhenLetGo ends a member that was removed, once raft does not count it any
// more: until then its vote may be needed, for its own removal too.
func (s *Server) goWhenLetGo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removalGrace)
	defer cancel()
	_, err := s.settle(ctx, func(look *rosterLook) bool {
		_, counted := look.counted[s.id]
		return !counted
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return // stopping anyway
	}
	if s.left.Load() {
		s.fail(nil)
		return
	}
	s.fail(errRemoved("an operator did it"))
}

// noteChanges puts a change of raft's members into the timeline.
func (s *Server) noteChanges(changes []node.MemberChange) {
	var parts []string
	for _, c := range changes {
		name := cluster.FormatID(c.ID)
		if m, ok := s.engine.View().Member(c.ID); ok {
			name = m.Name
		}
		parts = append(parts, name+" is "+c.Role.String())
	}
	s.events.add(Event{What: "members changed", Subject: s.cfg.Name, Detail: strings.Join(parts, ", ")})
	s.log.Info("members changed", "changes", parts)
}
