package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/door/consul"
	"github.com/incumbent-dev/incumbent/gate"
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
	if c.Namespace != "" {
		if err := (incumbent.Name{Namespace: c.Namespace, Model: incumbent.DefaultModel, Lease: "x"}).Validate(); err != nil {
			return invalid("consul-namespace", "%w", err)
		}
	}
	if _, err := c.anonymous(); err != nil {
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

// anonymous is whom requests come from that bring nothing.
func (c Consul) anonymous() (auth.Principal, error) {
	if c.Anonymous == "" {
		return auth.Principal{}, nil
	}
	return auth.ParsePrincipal(c.Anonymous)
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
	gate    *gate.Gate
	door    *consul.Door
	counts  *catalogCounts
	tls     bool
	derived atomic.Pointer[derivedTLS]
}

// listenForConsul opens the door's listener.
func (s *Server) listenForConsul(undo *undoing) error {
	if s.cfg.Consul.Listen == "" {
		return nil
	}
	quiet := net.ListenConfig{KeepAlive: -1} // the door sets it as it wants it
	ln, err := quiet.Listen(context.Background(), "tcp", s.cfg.Consul.Listen)
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "setting consul-listen: %w", err).
			WithHint("is another server running? choose another address with --consul-listen")
	}
	undo.later(func() { ln.Close() })
	s.consul = &consulDoor{
		gate:   s.gateOf(ln, consulListener, 0, s.consulParked),
		counts: newCatalogCounts(func() *core.View { return s.engine.View() }, s.consulNamespace()),
	}
	return nil
}

// openConsul makes the door; it serves from startConsul on.
func (s *Server) openConsul(undo *undoing) (err error) {
	c := s.consul
	if c == nil {
		return nil
	}
	who, err := s.cfg.Consul.anonymous()
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
	set(&cfg.Node, DefaultConsulNode)
	if c.tls = s.certs != nil && !s.cfg.Consul.Plaintext; c.tls {
		cfg.TLS = func() *tls.Config { return c.tlsOf(s.certs) }
	}
	if c.door, err = consul.New(cfg); err != nil {
		return err
	}
	undo.later(func() { c.door.Close(context.Background()) })
	return nil
}

// tlsOf is what a handshake of the door uses: that of the native listener, for HTTP/1.1
// alone, and a certificate may be missing: a token is brought with the request.
func (c *consulDoor) tlsOf(certs *certificates) *tls.Config {
	from := certs.lenient.Load()
	if d := c.derived.Load(); d != nil && d.from == from {
		return d.config
	}
	config := from.Clone()
	config.NextProtos, config.DynamicRecordSizingDisabled = []string{"http/1.1"}, true
	c.derived.Store(&derivedTLS{from, config})
	return config
}

// startConsul lets clients in.
func (s *Server) startConsul() {
	if s.consul == nil {
		return
	}
	s.running.Go(func() {
		if err := s.consul.door.Serve(s.consul.gate); err != nil {
			s.fail(incumbent.Errorf(incumbent.Unavailable, "consul listener: %w", err))
		}
	})
	s.log.Info("listening for clients of consul", "address", s.ConsulAddr())
}

// ConsulAddr is where the door for Consul's clients listens; "" if it is closed.
func (s *Server) ConsulAddr() string {
	if s.consul == nil {
		return ""
	}
	return s.consul.gate.Addr().String()
}

func (s *Server) drainConsul() {
	if s.consul != nil {
		s.consul.door.Drain()
		s.consul.gate.Close()
	}
}

func (s *Server) closeConsul(ctx context.Context) error {
	if s.consul == nil {
		return nil
	}
	return s.consul.door.Close(ctx)
}

// openedConsul returns the door; nil if there is none, or none yet.
func (s *Server) openedConsul() *consul.Door {
	if s.consul == nil {
		return nil
	}
	return s.consul.door
}

// consulParked counts the parked connections of the door; 0 while it is closed.
func (s *Server) consulParked() int {
	if d := s.openedConsul(); d != nil {
		return d.Parked()
	}
	return 0
}

// consulConnections counts the connections of the door; 0 while it is closed.
func (s *Server) consulConnections() int {
	if d := s.openedConsul(); d != nil {
		return s.consul.gate.Open() + d.Parked()
	}
	return 0
}

// showConsul is the door for status; nil while it is closed.
func (s *Server) showConsul() *apiv1.Door {
	d := s.openedConsul()
	if d == nil {
		return nil
	}
	return &apiv1.Door{
		Name: consulListener, Address: s.ConsulAddr(), Tls: s.consul.tls, Connections: uint64(s.consulConnections()), BlockedCalls: uint64(d.Stats().Blocked),
	}
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
	if len(out) == 0 { // it is alone, and recorded nowhere
		out = append(out, consul.Member{ID: st.Member, Name: s.cfg.Name, Voter: true, Leader: leader == st.Member, Alive: true, Self: true})
	}
	for i := range out {
		set(&out[i].Address, s.ConsulAddr())
	}
	slices.SortFunc(out, func(a, b consul.Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}
