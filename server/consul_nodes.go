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
	"github.com/incumbent-dev/incumbent/health"
)

// In the catalog that Consul's clients see there is a node for each member, and one that
// is the agent they talk to, whichever member that is: it stands for the whole cluster,
// so that nothing registered with it fails with a member. Each member whose door is open
// sees to its own node and to the agent's, and one of them to all: see keepsNodes. That one
// alone says whether members are there.
const (
	nodesEvery   = time.Second
	nodesTimeout = 5 * time.Second // of one command
)

// keepConsulNodes registers what is missing until ctx ends.
func (s *Server) keepConsulNodes(ctx context.Context) {
	if s.consul == nil {
		return
	}
	tick := time.NewTicker(nodesEvery)
	defer tick.Stop()
	for said := map[string]string{}; ; {
		if s.ready() == nil {
			s.registerConsulNodes(ctx, said)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// registerConsulNodes executes what changes something. Why a node is not registered is
// logged once; said has it by the node's name.
func (s *Server) registerConsulNodes(ctx context.Context, said map[string]string) {
	for _, c := range s.consulCommands() {
		refused, err := s.registerConsulNode(ctx, c)
		if err == nil {
			delete(said, c.Target.Node)
			continue
		}
		if text := err.Error(); text != said[c.Target.Node] {
			said[c.Target.Node] = text
			s.log.Info("node of the catalog not registered", "node", c.Target.Node, "cause", err)
		}
		if !refused { // the next one would wait as long
			return
		}
	}
}

// registerConsulNode executes a command if it changes something. refused: the catalog as it
// is here refuses it, or there is no room for another node; nothing was waited for.
func (s *Server) registerConsulNode(ctx context.Context, c catalog.Command) (refused bool, err error) {
	if r, idle := catalog.Of(s.engine.View()).Idling(&c, nil); idle {
		if r.Err != nil {
			return true, r.Err
		}
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	call := engine.Call{Meta: core.Meta{Origin: core.Origin{At: time.Now().UTC().Truncate(time.Millisecond)}}}
	call.Reserve = catalog.Of(s.engine.View()).Node(c.Target.Namespace, c.Target.Node) != nil // a node that is there changes or goes: no growth
	_, err = s.engine.Await(ctx, call, c)
	return incumbent.KindOf(err) == incumbent.Overloaded, err
}

// consulCommands are what makes the catalog as it should be.
func (s *Server) consulCommands() []catalog.Command {
	d := s.consul.door
	members := consulCluster{s}.Members()
	keeps := s.keepsNodes(members)
	var commands []catalog.Command
	there := map[string]bool{incumbent.Fold(d.Node()): true}
	if !slices.ContainsFunc(members, func(m consul.Member) bool { return incumbent.Alike(m.Name, d.Node()) }) {
		commands = append(commands, catalog.Command{
			Verb: catalog.Register, Target: catalog.Target{Namespace: d.Namespace(), Node: d.Node()},
			Node: s.agentNode(members), Checks: []*catalog.Check{aliveCheck(true)},
		})
	}
	for i := range members {
		m := &members[i]
		there[incumbent.Fold(m.Name)] = true
		if keeps || m.Self {
			if c := s.retireFormer(m, members); c != nil {
				commands = append(commands, *c)
				continue // the rest once that is so
			}
			c := s.registerMember(m)
			c.KeepOutput = !keeps && !s.isAgent(m)
			commands = append(commands, c)
		}
	}
	if keeps {
		commands = append(commands, s.deregisterGone(there)...)
	}
	return commands
}

// keepsNodes reports whether this member sees to the nodes of all: the leader does, or if its
// door is closed the first of those whose is open, which are those that run checks. Who has
// begun a moment ago does not run any yet; while nobody does it is the leader. All find the
// same in one state, so that two differ for no longer than it takes one to hear what the
// other has. Who does not hear the leader would take all to be gone.
func (s *Server) keepsNodes(members []consul.Member) bool {
	i := slices.IndexFunc(members, func(m consul.Member) bool { return m.Leader })
	if i < 0 || !members[i].Alive {
		return false
	}
	keeper := members[i].ID
	serving := slices.DeleteFunc(health.Present(s.engine.View(), s.consulNamespace()), func(id uint64) bool { return !belongs(members, id) })
	if len(serving) > 0 && !slices.Contains(serving, keeper) {
		keeper = serving[0]
	}
	return keeper == s.cluster.ID()
}

// isAgent reports whether the agent's node is a member's.
func (s *Server) isAgent(m *consul.Member) bool { return incumbent.Alike(m.Name, s.consul.door.Node()) }

// agentNode is the agent's node where that is no member's. Members whose doors are on
// different hosts agree on the address: it is that of the one the node names, until
// that belongs to the cluster no longer, unless another's configuration says an address.
func (s *Server) agentNode(members []consul.Member) *catalog.Node {
	d := s.consul.door
	n := &catalog.Node{Name: d.Node(), ID: d.NodeID(), Address: s.consulNodeAddress()}
	place := s.cluster.ID()
	if o := catalog.Of(s.engine.View()).Node(d.Namespace(), d.Node()); o != nil {
		named := memberIn(o.Meta)
		if named != place && belongs(members, named) && (s.cfg.Consul.NodeAddress == "" || o.Address == n.Address) {
			n.Address, place = o.Address, named
		}
	}
	n.Meta = nodeMeta(consul.MemberMeta, memberText(place))
	tagAddresses(n)
	return n
}

// retireFormer says of the node of a former member, whose name a member has now, that it is
// not there: until then none with another id may have its name. nil: there is no such node.
// One whose id is not the former member's is somebody else's, and stays.
func (s *Server) retireFormer(m *consul.Member, members []consul.Member) *catalog.Command {
	d, v := s.consul.door, catalog.Of(s.engine.View())
	i := v.Instance(d.Namespace(), m.Name, consul.MemberService)
	if i == nil || i.Node.ID == d.ServerID(m) {
		return nil
	}
	former := memberIn(i.Service.Meta)
	if former == 0 || belongs(members, former) || i.Node.ID != d.ServerID(&consul.Member{ID: former, Name: m.Name}) {
		return nil
	}
	c := catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: d.Namespace(), Node: m.Name}, Checks: []*catalog.Check{aliveCheck(false)},
		If: true, // else it might be said of the node that another member has registered meanwhile
	}
	c.Checks[0].Output = "the member belongs to the cluster no longer"
	if o := v.Check(d.Namespace(), m.Name, c.Checks[0].ID); o != nil {
		if o.Status == catalog.Critical {
			return nil
		}
		c.Index = o.Modified
	}
	return &c
}

func (s *Server) registerMember(m *consul.Member) catalog.Command {
	d := s.consul.door
	host, text, _ := net.SplitHostPort(m.Address)
	port, _ := strconv.ParseUint(text, 10, 16)
	c := catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: d.Namespace(), Node: m.Name},
		Node: &catalog.Node{Name: m.Name, ID: d.ServerID(m), Address: host, Meta: nodeMeta()},
		Service: &catalog.Service{
			ID: consul.MemberService, Name: consul.MemberService, Port: uint16(port), Weights: catalog.Weights{Passing: 1, Warning: 1},
			Meta: pairs("non_voter", strconv.FormatBool(!m.Voter), "version", consul.Version, consul.MemberMeta, memberText(m.ID)),
		},
		Checks: []*catalog.Check{aliveCheck(m.Alive)},
	}
	if s.isAgent(m) { // the agent is there while the cluster is
		c.Checks = []*catalog.Check{aliveCheck(true)}
		if o := catalog.Of(s.engine.View()).Node(d.Namespace(), m.Name); m.Self {
			c.Node.Address = s.consulNodeAddress()
		} else if o != nil { // the member says where it is
			c.Node.Address = o.Address
		}
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
	catalog.Of(s.engine.View()).Instances(namespace, consul.MemberService, func(i *catalog.Instance) bool {
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

func nodeMeta(more ...string) []catalog.Pair {
	return pairs(append([]string{"consul-network-segment", "", "consul-version", consul.Version}, more...)...)
}

func memberText(id uint64) string { return strconv.FormatUint(id, 10) }

// memberIn is the member that metadata names; 0: none.
func memberIn(meta []catalog.Pair) (id uint64) {
	for _, p := range meta {
		if p.Key == consul.MemberMeta {
			id, _ = strconv.ParseUint(p.Value, 10, 64) // what is no number names nobody
		}
	}
	return id
}

func belongs(members []consul.Member, id uint64) bool {
	return slices.ContainsFunc(members, func(m consul.Member) bool { return m.ID == id })
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
			return s.whereLeader(within(func(ctx context.Context) error { return s.transferLeader(ctx, to) }), "transfer-leader")
		},
		RemoveMember: func(id uint64) error {
			return s.whereLeader(within(func(ctx context.Context) error { return s.removeMember(ctx, id) }), "rm")
		},
		Reload:     func() { s.Reload() },
		Leave:      func() { s.fail(nil) },
		Monitor:    s.monitors.add,
		Prometheus: s.metrics.text,
	}
}

// operatorTimeout is how long leadership may take to move, and a member to go.
const operatorTimeout = 30 * time.Second

// whereLeader has the error of a member that does not lead say which one does, for whoever
// reads it: members hand no such call on. command is what does the same from anywhere.
func (s *Server) whereLeader(err error, command string) error {
	_, leader, at := s.cluster.Standing()
	if incumbent.KindOf(err) != incumbent.NotLeader || leader == "" {
		return err
	}
	return incumbent.Errorf(incumbent.NotLeader, "node is not the leader: ask %s (%s), or give the command 'incumbent cluster %s'", leader, at, command)
}

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
