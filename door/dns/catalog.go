package dns

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/prepared"
)

// remadeEvery is how often the index of a catalog that changes is made anew, at most.
const remadeEvery = time.Second

// Catalog answers from the catalog of one namespace.
type Catalog struct {
	View      func() *core.View
	Age       func() time.Duration // of the view
	Namespace string
	// As is whose rights decide what is seen: DNS carries no credentials. The zero
	// value: everything is.
	As auth.Principal
	// Knows reports whether a principal is still known; nil: all are. It is asked of those
	// as whom prepared queries are executed.
	Knows func() func(auth.Principal) bool
	// Agent is the node that "_agent" stands for.
	Agent string
	// Members are the cluster's own nodes, whose service is [MembersService].
	Members func() []Node
	Now     func() time.Time

	mu      sync.Mutex // protects the rest; held while the index is made
	index   *index
	indexed time.Time
}

// MembersService is the name under which members are found where no other service has
// it.
const MembersService = "consul"

// index finds what the catalog is not ordered by. It never changes.
type index struct {
	nodes, services incumbent.Index // of the tables, when it was made
	nodesAt         map[netip.Addr][]string
	servicesAt      map[netip.Addr][]placed
}

// placed is a service that is at an address, and where it is so.
type placed struct {
	service string
	nodes   []string
}

// Names is for [Config].
func (c *Catalog) Names() (Names, time.Duration) {
	v := c.View()
	n := &names{catalog: c, all: v, v: catalog.Of(v)}
	if c.As != (auth.Principal{}) {
		n.rights = policy.Of(v).Rules().Of(c.As)
	}
	return n, c.Age()
}

// names is a view of the catalog.
type names struct {
	catalog *Catalog
	all     *core.View
	v       *catalog.View
	rights  *auth.Rights // nil: everything is seen
}

func (n *names) sees(a auth.Action, name string) bool {
	return n.rights == nil || auth.Authorize(n.rights, a, auth.Resource{Name: incumbent.Name{Namespace: n.catalog.Namespace, Lease: name}}) == nil
}

// Node implements Names.
func (n *names) Node(name string) (Node, bool) {
	if r := n.v.Node(n.catalog.Namespace, name); r != nil {
		return nodeOf(r), n.sees(auth.NodeRead, r.Name)
	}
	for _, m := range n.catalog.Members() {
		if incumbent.Alike(m.Name, name) {
			return m, n.sees(auth.NodeRead, m.Name)
		}
	}
	return Node{}, false
}

func nodeOf(r *catalog.Node) Node {
	out := Node{Name: r.Name, Address: r.Address}
	for _, p := range r.Meta {
		out.Meta = append(out.Meta, Pair(p))
	}
	return out
}

// Instances implements Names.
func (n *names) Instances(service string, fn func(Instance) bool) {
	if n.instances(service, fn) || service != MembersService || !n.sees(auth.ServiceRead, service) {
		return
	}
	for _, m := range n.catalog.Members() {
		if n.sees(auth.NodeRead, m.Name) && !fn(Instance{Node: m, Passing: 1, Warning: 1}) {
			return
		}
	}
}

// instances reports whether the service has any, seen or not.
func (n *names) instances(service string, fn func(Instance) bool) (found bool) {
	n.v.Instances(n.catalog.Namespace, service, func(*catalog.Instance) bool {
		found = true
		return false
	})
	n.found(service, func(i *catalog.Instance) bool { return fn(instanceOf(i)) })
	return found
}

// Prepared implements Names.
func (n *names) Prepared(name string) (out Prepared, ok bool) {
	q, err := prepared.Resolve(n.all, n.catalog.Namespace, name)
	if err != nil || q == nil {
		return out, false
	}
	as := n
	if q.As != nil {
		p := *q.As
		if n.catalog.Knows != nil && !n.catalog.Knows()(p) {
			return out, false
		}
		as = &names{catalog: n.catalog, all: n.all, v: n.v, rights: policy.Of(n.all).Rules().Of(p)}
	}
	out.Service, out.Near = q.Service.Service, q.Service.Near
	if out.Near == "_agent" {
		out.Near = n.catalog.Agent
	}
	if ttl, says := q.TTL(); says {
		out.TTL = &ttl
	}
	for _, i := range q.Select(as.found) {
		out.Instances = append(out.Instances, instanceOf(i))
	}
	return out, true
}

// found calls fn with the instances of a service that are seen: those on nodes that are.
func (n *names) found(service string, fn func(*catalog.Instance) bool) {
	if !n.sees(auth.ServiceRead, service) {
		return
	}
	n.v.Instances(n.catalog.Namespace, service, func(i *catalog.Instance) bool {
		return !n.sees(auth.NodeRead, i.Node.Name) || fn(i)
	})
}

func instanceOf(i *catalog.Instance) Instance {
	out := Instance{
		Node: nodeOf(i.Node), Address: i.Service.Address, Port: int(i.Service.Port), Tags: i.Service.Tags,
		Passing: int(i.Service.Weights.Passing), Warning: int(i.Service.Weights.Warning),
	}
	switch i.Status() {
	case catalog.Warning:
		out.Status = Warning
	case catalog.Critical:
		out.Status = Critical
	}
	return out
}

// Servers implements Names.
func (n *names) Servers() []Node { return n.catalog.Members() }

// NodesAt implements Names.
func (n *names) NodesAt(ip netip.Addr) (out []string) {
	for _, m := range n.catalog.Members() {
		if a, err := netip.ParseAddr(m.Address); err == nil && a.Unmap() == ip && n.sees(auth.NodeRead, m.Name) {
			out = append(out, m.Name)
		}
	}
	for _, name := range n.catalog.indexOf(n.v).nodesAt[ip] {
		if n.sees(auth.NodeRead, name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// ServicesAt implements Names.
func (n *names) ServicesAt(ip netip.Addr) (out []string) {
	for _, at := range n.catalog.indexOf(n.v).servicesAt[ip] {
		if n.sees(auth.ServiceRead, at.service) && slices.ContainsFunc(at.nodes, func(node string) bool { return n.sees(auth.NodeRead, node) }) {
			out = append(out, at.service)
		}
	}
	return out
}

// indexOf returns the index of the catalog, which may be of one a moment ago: a
// catalog that changes all the time is looked through now and then.
func (c *Catalog) indexOf(v *catalog.View) *index {
	nodes, services := v.TableIndex(c.Namespace, catalog.Nodes), v.TableIndex(c.Namespace, catalog.Services)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	if x := c.index; x != nil && (x.nodes == nodes && x.services == services || now.Sub(c.indexed) < remadeEvery) {
		return x
	}
	x := &index{nodes: nodes, services: services, nodesAt: map[netip.Addr][]string{}, servicesAt: map[netip.Addr][]placed{}}
	v.Nodes(c.Namespace, "", func(n *catalog.Node) bool {
		if ip, ok := ipOf(n.Address); ok {
			x.nodesAt[ip] = append(x.nodesAt[ip], n.Name)
		}
		return true
	})
	v.AllInstances(c.Namespace, func(i *catalog.Instance) bool {
		if i.Service.Address == i.Node.Address {
			return true
		}
		if ip, ok := ipOf(i.Service.Address); ok {
			x.servicesAt[ip] = place(x.servicesAt[ip], i.Service.Name, i.Node.Name)
		}
		return true
	})
	c.index, c.indexed = x, now
	return x
}

// ipOf is an address of the catalog, if it is one and no name.
func ipOf(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	return ip.WithZone("").Unmap(), err == nil
}

// place adds a node to those of a service.
func place(list []placed, service, node string) []placed {
	at := slices.IndexFunc(list, func(p placed) bool { return incumbent.Alike(p.service, service) })
	if at < 0 {
		at, list = len(list), append(list, placed{service: service})
	}
	list[at].nodes = append(list[at].nodes, node)
	return list
}
