package consul

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strconv"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

func indented(b []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, b, "", prettyIndent) != nil {
		return b // what we have not encoded
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// statusLeader says where the leader is; "" where there is none.
func statusLeader(d *Door, r *request) {
	address := ""
	for _, m := range d.cfg.Cluster.Members() {
		if m.Leader {
			address = m.Address
		}
	}
	r.json(http.StatusOK, address)
}

// statusPeers says where those are who vote.
func statusPeers(d *Door, r *request) {
	peers := []string{}
	for _, m := range d.cfg.Cluster.Members() {
		if m.Voter {
			peers = append(peers, m.Address)
		}
	}
	r.json(http.StatusOK, peers)
}

// The numbers by which clients know how members stand.
const (
	memberAlive  = 1
	memberFailed = 4
)

// agentMember is a member as /v1/agent/members shows it.
type agentMember struct {
	Name        string
	Addr        string `bexpr:"-"` // to Consul it is bytes, which equal nothing
	Port        uint16
	Tags        map[string]string
	Status      int
	ProtocolMin uint8
	ProtocolMax uint8
	ProtocolCur uint8
	DelegateMin uint8
	DelegateMax uint8
	DelegateCur uint8
}

func (d *Door) agentMember(m *Member) agentMember {
	host, port := hostAndPort(m.Address)
	out := agentMember{
		Name: m.Name, Addr: host, Port: port, Status: memberFailed,
		Tags: map[string]string{
			"role": "consul", "dc": d.cfg.Datacenter, "build": Version + ":", "id": d.ServerID(m), "port": strconv.Itoa(int(port)), "vsn": "2",
		},
		ProtocolMin: 1, ProtocolMax: 5, ProtocolCur: 2, DelegateMin: 2, DelegateMax: 5, DelegateCur: 4,
	}
	if m.Alive {
		out.Status = memberAlive
	}
	if !m.Voter {
		out.Tags["nonvoter"] = "1"
	}
	return out
}

// ServerID is a member's id as clients know it: where the agent's node is the member,
// that node's.
func (d *Door) ServerID(m *Member) string {
	if incumbent.Alike(m.Name, d.cfg.Node) {
		return d.NodeID()
	}
	return memberID(m.ID)
}

func hostAndPort(address string) (string, uint16) {
	host, text, _ := net.SplitHostPort(address)
	port, _ := strconv.ParseUint(text, 10, 16) // of what has none: 0
	return host, uint16(port)
}

// memberID is a member's id in the form of Consul's node ids.
func memberID(id uint64) string {
	var b [16]byte
	for i := range 8 {
		b[8+i] = byte(id >> (56 - 8*i))
	}
	return incumbent.SessionID(b).String()
}

// agentMembers lists the members that a filter selects.
func agentMembers(d *Door, r *request) {
	if s := r.query.Get("segment"); s != "" && s != "_all" { // which the command asks for
		r.fail(http.StatusInternalServerError, "Network segments are not supported in this version of Consul")
		return
	}
	e, err := expressionOf[agentMember](&d.expressions, r.opts.filter)
	if err != nil {
		r.fail(http.StatusInternalServerError, "%v", err)
		return
	}
	out := []agentMember{}
	for _, m := range d.cfg.Cluster.Members() {
		if shown := d.agentMember(&m); e.selects(&shown) {
			out = append(out, shown)
		}
	}
	r.json(http.StatusOK, out)
}

// agentSelf speaks of the node that the agent is, and of the member that was asked.
func agentSelf(d *Door, r *request) {
	members := d.cfg.Cluster.Members()
	var self agentMember
	leader := false
	for i := range members {
		if members[i].Self {
			self, leader = d.agentMember(&members[i]), members[i].Leader
		}
	}
	r.json(http.StatusOK, map[string]any{
		"Config": map[string]any{
			"Datacenter": d.cfg.Datacenter, "PrimaryDatacenter": d.cfg.Datacenter, "NodeName": d.cfg.Node, "NodeID": d.NodeID(),
			"Server": true, "Revision": "", "Version": Version, "BuildDate": buildDate, "BindAddr": self.Addr,
		},
		"DebugConfig": map[string]any{},
		"Coord":       nil,
		"Member":      self,
		"Meta":        map[string]string{"consul-network-segment": "", "consul-version": Version},
		"Stats": map[string]any{
			"agent":  d.agentStats(),
			"build":  map[string]string{"prerelease": "", "revision": "", "version": Version, "version_metadata": ""},
			"consul": map[string]string{"server": "true", "leader": strconv.FormatBool(leader), "known_servers": strconv.Itoa(len(members))},
			"raft":   map[string]string{"applied_index": formatIndex(d.view().Index()), "num_peers": strconv.Itoa(max(0, len(members)-1))},
		},
	})
}

// agentStats counts what is registered with the agent.
func (d *Door) agentStats() map[string]string {
	services, checks, ttls := 0, 0, 0
	v := catalog.Of(d.view())
	v.NodeServices(d.namespace, d.cfg.Node, func(s *catalog.Service) bool {
		if agentHas(s) {
			services++
		}
		return true
	})
	v.NodeChecks(d.namespace, d.cfg.Node, func(c *catalog.Check) bool {
		if !incumbent.Alike(c.ID, nodeHealth) {
			checks++
		}
		if c.TTL > 0 {
			ttls++
		}
		return true
	})
	return map[string]string{
		"services": strconv.Itoa(services), "checks": strconv.Itoa(checks), "check_ttls": strconv.Itoa(ttls), "check_monitors": "0",
	}
}

// buildDate is what clients parse as a time where they ask for one.
const buildDate = "1970-01-01T00:00:01Z"

// NodeID is the id of the node that the agent is: the configured one, unless the node has
// been registered with another by members of this cluster or of the one that it was restored
// from. No node changes its id without being gone for a moment, and that would end all
// sessions that depend on it.
func (d *Door) NodeID() string {
	v := catalog.Of(d.view())
	if n := v.Node(d.namespace, d.cfg.Node); n != nil && n.ID != "" {
		s := v.Service(d.namespace, d.cfg.Node, MemberService)
		if ofMembers(n.Meta) || s != nil && ofMembers(s.Meta) {
			d.agentID.Store(&n.ID)
		}
		// Who registers the node anew leaves the id as it is, and the members put back what
		// tells that it is theirs.
		if id := d.agentID.Load(); id != nil && *id == n.ID {
			return n.ID
		}
	}
	return incumbent.SessionID(d.cfg.NodeID).String()
}

// Node is the name of the node that the agent is.
func (d *Door) Node() string { return d.cfg.Node }

// Namespace is that of everything the door shows.
func (d *Door) Namespace() string { return d.namespace }

// agentVersion says which version's behaviour is answered.
func agentVersion(_ *Door, r *request) {
	r.json(http.StatusOK, map[string]any{
		"SHA": "", "BuildDate": buildDate, "HumanVersion": Version, "FIPS": "",
	})
}

// agentHost says what the machine is.
func agentHost(_ *Door, r *request) {
	memory := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(memory) // stops nobody, as runtime.ReadMemStats would
	r.json(http.StatusOK, map[string]any{
		"Memory": map[string]any{"total": memory[0].Value.Uint64(), "used": memory[1].Value.Uint64()},
		"CPU":    []any{map[string]any{"cores": runtime.NumCPU()}},
		"Host":   map[string]any{"os": runtime.GOOS, "kernelArch": runtime.GOARCH},
		"Disk":   nil, "CollectionTime": 0, "Errors": nil,
	})
}
