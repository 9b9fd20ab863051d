package server

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/door/consul"
	"github.com/incumbent-dev/incumbent/engine"
)

// In the catalog that Consul's clients see there is a node for each member, and one that
// is the agent they talk to, whichever member that is: it stands for the whole cluster,
// so that nothing registered with it fails with a member. Each member whose door is open
// sees to its own node and to the agent's; the leader to all.
const (
	nodesEvery    = time.Second
	nodesTimeout  = 5 * time.Second // of one command
	memberService = "consul"        // that every member's node has
)

// keepConsulNodes registers what is missing until ctx ends.
func (s *Server) keepConsulNodes(ctx context.Context) {
	if s.consul == nil {
		return
	}
	tick := time.NewTicker(nodesEvery)
	defer tick.Stop()
	for said := ""; ; {
		if s.ready() == nil {
			said = s.registerConsulNodes(ctx, said)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// registerConsulNodes executes what changes something, and logs what fails, once.
func (s *Server) registerConsulNodes(ctx context.Context, said string) string {
	for _, c := range s.consulCommands() {
		if _, idle := catalog.Of(s.engine.View()).Idling(&c, nil); idle {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
		_, err := s.engine.Await(ctx, engine.Call{Meta: core.Meta{Origin: core.Origin{At: time.Now().UTC().Truncate(time.Millisecond)}}}, c)
		cancel()
		if err == nil {
			continue
		}
		if text := c.Target.Node + err.Error(); text != said {
			s.log.Info("node of the catalog not registered", "node", c.Target.Node, "cause", err)
			return text
		}
		return said
	}
	return ""
}

// consulCommands are what makes the catalog as it should be.
func (s *Server) consulCommands() []catalog.Command {
	d := s.consul.door
	members := consulCluster{s}.Members()
	leads := s.cluster.Leader() == s.cluster.ID()
	var commands []catalog.Command
	there := map[string]bool{incumbent.Fold(d.Node()): true}
	if !slices.ContainsFunc(members, func(m consul.Member) bool { return incumbent.Alike(m.Name, d.Node()) }) {
		agent := &catalog.Node{Name: d.Node(), ID: d.NodeID(), Address: s.consulNodeAddress(), Meta: nodeMeta()}
		tagAddresses(agent)
		commands = append(commands, catalog.Command{
			Verb: catalog.Register, Target: catalog.Target{Namespace: d.Namespace(), Node: d.Node()},
			Node: agent, Checks: []*catalog.Check{aliveCheck(true)},
		})
	}
	for i := range members {
		m := &members[i]
		there[incumbent.Fold(m.Name)] = true
		if leads || m.Self {
			commands = append(commands, s.registerMember(m))
		}
	}
	if leads {
		commands = append(commands, s.deregisterGone(there)...)
	}
	return commands
}

func (s *Server) registerMember(m *consul.Member) catalog.Command {
	d := s.consul.door
	host, text, _ := net.SplitHostPort(m.Address)
	port, _ := strconv.ParseUint(text, 10, 16)
	c := catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: d.Namespace(), Node: m.Name},
		Node: &catalog.Node{Name: m.Name, ID: d.ServerID(m), Address: host, Meta: nodeMeta()},
		Service: &catalog.Service{
			ID: memberService, Name: memberService, Port: uint16(port), Weights: catalog.Weights{Passing: 1, Warning: 1},
			Meta: pairs("non_voter", strconv.FormatBool(!m.Voter), "version", consul.Version, consul.MemberMeta, strconv.FormatUint(m.ID, 10)),
		},
		Checks: []*catalog.Check{aliveCheck(m.Alive)},
	}
	if incumbent.Alike(m.Name, d.Node()) { // the agent is there while the cluster is
		c.Node.Address, c.Checks = s.consulNodeAddress(), []*catalog.Check{aliveCheck(true)}
	}
	tagAddresses(c.Node)
	return c
}

func tagAddresses(n *catalog.Node) {
	n.TaggedAddresses = pairs("lan", n.Address, "lan_ipv4", n.Address, "wan", n.Address, "wan_ipv4", n.Address)
	if ip := net.ParseIP(n.Address); ip == nil || ip.To4() == nil {
		n.TaggedAddresses = pairs("lan", n.Address, "wan", n.Address)
	}
}

// deregisterGone takes out the nodes of members that are none any more.
func (s *Server) deregisterGone(there map[string]bool) (commands []catalog.Command) {
	namespace := s.consul.door.Namespace()
	catalog.Of(s.engine.View()).Instances(namespace, memberService, func(i *catalog.Instance) bool {
		ours := slices.ContainsFunc(i.Service.Meta, func(p catalog.Pair) bool { return p.Key == consul.MemberMeta })
		if ours && !there[incumbent.Fold(i.Node.Name)] {
			commands = append(commands, catalog.Command{
				Verb: catalog.Deregister, Target: catalog.Target{Kind: catalog.NodeKind, Namespace: namespace, Node: i.Node.Name},
			})
		}
		return true
	})
	return commands
}

// consulNodeAddress is that of the agent's node: services registered without one have it.
func (s *Server) consulNodeAddress() string {
	if s.cfg.Consul.NodeAddress != "" {
		return s.cfg.Consul.NodeAddress
	}
	host, _, _ := net.SplitHostPort(cmp.Or(s.cfg.Advertise, s.ConsulAddr()))
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return host
}

// aliveCheck is the one that says whether a node is there at all.
func aliveCheck(alive bool) *catalog.Check {
	c := &catalog.Check{ID: "serfHealth", Name: "Serf Health Status", Status: catalog.Passing, Output: "Agent alive and reachable"}
	if !alive {
		c.Status, c.Output = catalog.Critical, "the member is not connected"
	}
	return c
}

func nodeMeta() []catalog.Pair {
	return pairs("consul-network-segment", "", "consul-version", consul.Version)
}

// pairs are keys with values, by key.
func pairs(of ...string) []catalog.Pair {
	var list []catalog.Pair
	for i := 0; i < len(of); i += 2 {
		list = append(list, catalog.Pair{Key: of[i], Value: of[i+1]})
	}
	slices.SortFunc(list, func(a, b catalog.Pair) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// consulOperator is what operators ask of this member by the door.
func (s *Server) consulOperator() consul.Operator {
	within := func(do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
		defer cancel()
		return do(ctx)
	}
	return consul.Operator{
		TransferLeader: func(to uint64) error {
			return within(func(ctx context.Context) error { return s.transferLeader(ctx, to) })
		},
		RemoveMember: func(id uint64) error {
			return within(func(ctx context.Context) error { return s.removeMember(ctx, id) })
		},
		Reload:     func() { s.Reload() },
		Leave:      func() { s.fail(nil) },
		Monitor:    s.monitors.add,
		Prometheus: s.metrics.text,
	}
}

// operatorTimeout is how long leadership may take to move, and a member to go.
const operatorTimeout = 30 * time.Second

func (s *Server) transferLeader(ctx context.Context, to uint64) error {
	in := &apiv1.TransferLeaderRequest{}
	if to != 0 {
		in.Member = cluster.FormatID(to)
	}
	_, err := s.cluster.TransferLeader(ctx, in)
	return err
}

func (s *Server) removeMember(ctx context.Context, id uint64) error {
	_, err := s.cluster.RemoveMember(ctx, &apiv1.RemoveMemberRequest{Member: cluster.FormatID(id)})
	return err
}
