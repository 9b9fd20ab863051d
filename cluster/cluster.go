// Package cluster is who belongs to a cluster, as one member sees it: how a data
// directory becomes a member of one (init, join), what the member keeps about itself
// (member.json, its certificate), whom it knows, how members come and go while it
// runs, whether their states are equal, and how the last member goes on alone
// (recover).
//
//	record, err := cluster.Identify(ctx, …) // who this member is; joins if it has to
//	c := cluster.New(cfg)                   // before the engine, which calls it
//	err = c.Open(engine)                    // with the recovered state: talks to the others
//	c.Run(ctx)                              // looks after members until ctx ends
//	err = c.Close(ctx)
//
// Who belongs stands in the replicated state. The leader's steward moves raft's
// configuration there, one change at a time.
//
// # Invariants
//
//   - A member's id is durable before anybody hears it, and never votes again once its
//     log is gone (G34).
//   - A member that was removed stays connected, and votes, until raft has let it go.
//   - A join token is spent before anything is answered, and gives nobody a secret or
//     a key: those travel between members that know each other (see trust.go).
//   - A member whose state differs from a majority's stops; where there is no
//     majority, nobody grants (G27).
//
// # Concurrency
//
// The engine's and the node's callbacks (Applied, Restored, Leads, Configured,
// RoleChanged, Admissible) come from their goroutines and do not block. Everything else may be
// called from any goroutine once Open has returned.
package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/trust"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
)

// Config is what a member's part in its cluster works with. All of it is needed
// unless said otherwise.
type Config struct {
	DataDir, Name, Version string
	Schema                 uint32 // newest that this member knows, as others are told

	Record    *Record      // as Identify returned it; nil: the node says who this member is
	TLS       *TLS         // nil: the cluster has no authority
	Listener  net.Listener // for other members; nil: this member stays alone
	Transport *Transport   // the one that engine and node were given

	// PeerAddress and URL are where other members and clients reach this one.
	PeerAddress, URL string
	// CAHash is what who joins knows the native listener by; "" without TLS. own: it is
	// of the cluster's authority.
	CAHash func() (hash string, own bool, err error)

	CheckpointInterval time.Duration // between two comparisons of the members' states

	Logger     *slog.Logger
	Event      func(what, subject, detail string) // notes a state transition; does not block
	PeerEvents peers.Events
	Fail       func(error)     // stops this member; nil: it left in order
	Ended      <-chan struct{} // closed when this member has stopped
}

// Cluster is one member's part in its cluster.
type Cluster struct {
	cfg     Config
	begun   time.Time
	engine  *engine.Engine
	node    *node.Node // the engine's
	id      uint64
	trust   truster
	peers   *peers.Set // nil: this member does not listen for others
	steward *steward
	growth  growth
	disks   disks

	progress progress

	recordMu sync.Mutex // held while member.json is written
	record   *Record    // what it says; what it points to never changes

	roster        *rosterKeeper
	rosterChanged chan struct{} // has room for one

	consistency *consistency  // nil without peers
	comparedAt  atomic.Uint64 // index of the newest checkpoint

	leader    atomic.Uint64 // 0: none known
	heard     atomic.Int64  // when anything came from the leader, in nanoseconds since begun
	confirmed atomic.Int64  // when a question was put that was confirmed, likewise; 0: none was
	left      atomic.Bool   // this member takes itself out of the cluster

	removing sync.Mutex // held while it is decided that a member goes
}

// New returns a member's part in its cluster, which knows no state yet.
func New(cfg Config) *Cluster {
	c := &Cluster{cfg: cfg, begun: time.Now(), record: cfg.Record, rosterChanged: make(chan struct{}, 1)}
	c.steward = newSteward(c)
	c.trust = newTruster()
	c.roster = newRoster(core.New().View(), c.rosterMoved)
	return c
}

// Joins is who this member is if the cluster has taken it in and it has no log yet,
// for [node.Config].
func (c *Cluster) Joins() *node.Identity { return c.record.joins() }

// Open takes the engine, opened, settles who this member is, and begins to talk to
// the others. The error is Corrupt if log and record are of different members.
func (c *Cluster) Open(e *engine.Engine) (err error) {
	c.engine, c.node = e, e.Node()
	st := c.node.Status()
	c.id = st.Member
	if c.record, err = c.record.adopt(c.cfg.DataDir, c.cfg.Name, st, c.cfg.Listener != nil); err != nil {
		return err
	}
	if c.record.Split != "" {
		c.growth.splitBy(c.node, errors.New(c.record.Split))
	}
	c.roster.begin(c.id, peersOf(c.record.Members), e.View())
	if c.cfg.Listener == nil {
		return nil
	}
	c.openConsistency()
	if err := c.openPeers(); err != nil {
		c.consistency.close()
		return err
	}
	return nil
}

// Run looks after members until ctx ends. A member that is alone looks after its own
// record.
func (c *Cluster) Run(ctx context.Context) {
	loops := []func(context.Context){c.keepRecord}
	if c.peers != nil {
		loops = append(loops, c.steward.run, c.keepComparing, c.keepDisks, c.forgetLastRun, c.keepTrust)
	}
	var running sync.WaitGroup
	for _, f := range loops {
		running.Go(func() { f(ctx) })
	}
	running.Wait()
}

// forgetLastRun waits until this member has caught up: the state knows better whom
// there is than the last run.
func (c *Cluster) forgetLastRun(ctx context.Context) {
	select {
	case <-c.node.Ready():
		c.roster.caughtUp()
	case <-ctx.Done():
	}
}

// Close ends the connections with the other members, and the comparing of states.
// Close the engine before: it hands leadership over.
func (c *Cluster) Close(ctx context.Context) error {
	if c.peers == nil {
		return nil
	}
	err := c.peers.Close(ctx)
	c.consistency.close()
	return err
}

// Applied takes note of a batch, on the apply goroutine.
func (c *Cluster) Applied(a *engine.Applied) {
	members, trusted := false, false
	for i := range a.Changes {
		ch := &a.Changes[i]
		members = members || ch.Member != nil || ch.MemberBefore != nil
		trusted = trusted || ch.Family != nil && ch.Family.Family == trust.Number
	}
	if members {
		c.roster.recorded(a.View)
	}
	if members || trusted {
		c.trust.wake()
	}
	for i := range a.Results {
		if v := a.Results[i].View; v != nil {
			c.atCheckpoint(v)
		}
	}
}

// Restored takes a state that came in the place of the old one, on the apply
// goroutine.
func (c *Cluster) Restored(v *core.View) { c.roster.recorded(v) }

// Leads takes that this member leads a new term, on the apply goroutine, before the
// member is ready. What it knows is recorded before any command of a client: so the log
// says from where on the rules of its schema hold, and a later binary that applies it
// again comes to the same state. A member that is alone is recorded like any other.
func (c *Cluster) Leads() {
	if m, right := c.self(); !right && !c.engine.View().MemberGone(c.id) {
		c.node.Propose(node.Proposal{Command: core.PutMemberCommand{Member: m}.Encode(core.Meta{}), Reserve: true, Done: func(any, error) {}}) // keepRecord looks whether it came to pass
	}
}

// Configured takes whom raft counts.
func (c *Cluster) Configured(voters, learners []uint64) { c.roster.configured(voters, learners) }

// RoleChanged takes who leads, and reports whether that is another member than
// before.
func (c *Cluster) RoleChanged(r node.Role) bool {
	return c.leader.Swap(r.Leader) != r.Leader && r.Leader != 0
}

// rosterMoved wakes those who look after members.
func (c *Cluster) rosterMoved() {
	select {
	case c.rosterChanged <- struct{}{}:
	default: // somebody looks already
	}
	c.steward.wake()
}

// ID is this member's id.
func (c *Cluster) ID() uint64 { return c.id }

// ClusterID is that of the cluster.
func (c *Cluster) ClusterID() [16]byte { return c.node.Status().Cluster }

// Alone reports whether this member does not listen for others.
func (c *Cluster) Alone() bool { return c.peers == nil }

// Roster is whom this member knows now.
func (c *Cluster) Roster() *Roster { return c.roster.now.Load() }

// Leader is the id of the member that leads; 0 if none is known.
func (c *Cluster) Leader() uint64 { return c.leader.Load() }

// Standing names this member and the leader, if known, with the URL of the leader's
// native API if that is known.
func (c *Cluster) Standing() (member, leader, leaderURL string) {
	switch id := c.Leader(); id {
	case 0:
	case c.id:
		leader, leaderURL = c.cfg.Name, c.cfg.URL
	default:
		m, _ := c.Roster().View.Member(id)
		leader, leaderURL = c.NameOf(id), m.ClientURL
	}
	return c.cfg.Name, leader, leaderURL
}

// NameOf is what a person calls a member.
func (c *Cluster) NameOf(id uint64) string {
	if id == 0 {
		return "unknown"
	}
	if m, ok := c.Roster().View.Member(id); ok {
		return m.Name
	}
	if id == c.id {
		return c.cfg.Name
	}
	return FormatID(id)
}

// Rotate shows a new certificate to the other members: new connections open before
// the old ones close.
func (c *Cluster) Rotate() {
	if c.peers != nil {
		c.peers.Rotate()
	}
}
