package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/door/consul"
)

// Consul configures the door for Consul's clients.
type Consul struct {
	Listen      string // its own address; "": the door is closed
	Namespace   string // of everything it shows; the default one
	Node        string // name of the node that the agent is; DefaultConsulNode
	Datacenter  string // consul.DefaultDatacenter
	NodeID      string // of that node, as a UUID; the cluster's
	NodeAddress string // of that node: services registered without one have it; where the door listens
	Anonymous   string // KIND:NAME of whom requests come from that bring nothing; "": nobody
	Plaintext   bool   // no TLS, also where the native listener has it; on loopback only

	ChecksAnywhere bool // checks may connect to addresses of the link and of metadata, too
	DNS            ConsulDNS
}

// DefaultConsulNode is the name of the node that the door's agent is: one of the whole
// cluster.
const DefaultConsulNode = "incumbent"

func (c Consul) validate(policy auth.ListenerPolicy) error {
	if c.Listen == "" {
		if c.DNS.Listen == "" && c != (Consul{}) {
			return invalid("consul-listen", "is not set, but another --consul setting is").WithHint("give --consul-listen 127.0.0.1:8500")
		}
		return nil
	}
	if err := cluster.ValidAddress("consul-listen", c.Listen); err != nil {
		return err
	}
	if err := inNamespace("consul-namespace", c.Namespace); err != nil {
		return err
	}
	if _, err := anonymous(c.Anonymous); err != nil {
		return invalid("consul-anonymous", "%w", err)
	}
	if _, err := c.nodeID([16]byte{}); err != nil {
		return invalid("consul-node-id", "%w", err)
	}
	policy.Address = c.Listen
	if c.Plaintext && !policy.OnlyLoopback() {
		return invalid("consul-plaintext", "goes with an address on loopback only")
	}
	return policy.Check()
}

// nodeID is that of the agent's node.
func (c Consul) nodeID(cluster [16]byte) ([16]byte, error) {
	if c.NodeID == "" {
		return cluster, nil
	}
	return incumbent.ParseSessionID(c.NodeID)
}

// consulDoor is the open door and what belongs to it.
type consulDoor struct {
	openDoor
	door   *consul.Door
	counts *catalogCounts
}

// listenForConsul opens the door's listener.
func (s *Server) listenForConsul(undo *undoing) error {
	if s.cfg.Consul.Listen == "" {
		return nil
	}
	ln, err := undo.listenFor("consul-listen", s.cfg.Consul.Listen)
	if err != nil {
		return err
	}
	s.consul = &consulDoor{
		openDoor: openDoor{name: consulListener},
		counts:   newCatalogCounts(func() *core.View { return s.engine.View() }, s.consulNamespace()),
	}
	s.guardDoor(&s.consul.openDoor, ln, false)
	s.opened = append(s.opened, &s.consul.openDoor)
	return nil
}

// openConsul makes the door; it serves from startConsul on.
func (s *Server) openConsul(undo *undoing) (err error) {
	c := s.consul
	if c == nil {
		return nil
	}
	who, err := anonymous(s.cfg.Consul.Anonymous)
	if err != nil {
		return err
	}
	cfg := consul.Config{
		Limits: consul.Limits{MaxConnections: doorConnections(s.cfg.MaxConnections)},
		Engine: s.engine, Park: s.park, Guard: s.guard, Cluster: consulCluster{s}, Namespace: s.cfg.Consul.Namespace,
		Datacenter: s.cfg.Consul.Datacenter, Node: s.cfg.Consul.Node, Anonymous: who, Operator: s.consulOperator(),
		Admission: s.admission.Controller, Monotonic: func() int64 { return int64(time.Since(s.begun)) }, Logger: s.log, Audit: s.trail.note, Tally: s.tally,
		Snapshot: func(ctx context.Context, w io.Writer, v *core.View) error {
			return backup.WriteArchive(ctx, w, v, s.backupInfo())
		},
		Restore: func(r io.Reader) (*core.View, error) {
			_, v, err := backup.Verify(r, "the snapshot")
			return v, err
		},
	}
	if cfg.NodeID, err = s.cfg.Consul.nodeID(s.cluster.ClusterID()); err != nil {
		return err
	}
	cfg.Node = cmp.Or(cfg.Node, DefaultConsulNode)
	if c.tls = s.certs != nil && !s.cfg.Consul.Plaintext; c.tls {
		cfg.TLS = func() *tls.Config { return c.tlsOf(s.certs, "http/1.1") }
	}
	if c.door, err = consul.New(cfg); err != nil {
		return err
	}
	undo.later(func() { c.door.Close(context.Background()) })
	c.serving = c.door
	c.limit = func(most int) { c.door.SetLimits(consul.Limits{MaxConnections: doorConnections(most)}) }
	c.show = func(d *apiv1.Door) { d.BlockedCalls = uint64(c.door.Stats().Blocked) }
	return nil
}

// startConsul lets clients in.
func (s *Server) startConsul() {
	if s.consul == nil {
		return
	}
	s.keepServing("consul listener", func() error { return s.consul.door.Serve(s.consul.gates[0]) })
	s.log.Info("listening for clients of consul", "address", s.ConsulAddr())
}

// ConsulAddr is where the door for Consul's clients listens; "" if it is closed.
func (s *Server) ConsulAddr() string {
	if s.consul == nil {
		return ""
	}
	return s.consul.addresses()[0]
}

// consulCluster is what the door asks of the cluster.
type consulCluster struct{ s *Server }

// Age implements consul.Cluster.
func (c consulCluster) Age() time.Duration { return c.s.cluster.Age() }

// Members implements consul.Cluster.
func (c consulCluster) Members() []consul.Member {
	s := c.s
	st, leader := s.node.Status(), s.cluster.Leader()
	var out []consul.Member
	for _, m := range s.engine.View().Members() {
		out = append(out, consul.Member{
			ID: m.ID, Name: m.Name, Address: m.PeerAddress, Voter: slices.Contains(st.Voters, m.ID),
			Leader: m.ID == leader, Alive: m.ID == st.Member || s.cluster.Connected(m.ID), Self: m.ID == st.Member,
		})
	}
	if len(out) == 0 { // nobody is recorded yet
		out = append(out, consul.Member{ID: st.Member, Name: s.cfg.Name, Voter: true, Leader: leader == st.Member, Alive: true, Self: true})
	}
	for i := range out {
		out[i].Address = cmp.Or(out[i].Address, s.ConsulAddr())
	}
	slices.SortFunc(out, func(a, b consul.Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}
