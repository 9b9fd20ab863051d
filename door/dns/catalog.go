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
	servicesAt      map[netip.Addr][]string
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
		if !fn(Instance{Node: m, Passing: 1, Warning: 1}) {
			return
		}
	}
}

// instances reports whether the service has any.
func (n *names) instances(service string, fn func(Instance) bool) (found bool) {
	n.v.Instances(n.catalog.Namespace, service, func(i *catalog.Instance) bool {
		found = true
		return n.sees(auth.ServiceRead, service) && fn(instanceOf(i))
	})
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

// found calls fn with the instances of a service that are seen.
func (n *names) found(service string, fn func(*catalog.Instance) bool) {
	if n.sees(auth.ServiceRead, service) {
		n.v.Instances(n.catalog.Namespace, service, fn)
	}
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
		if a, err := netip.ParseAddr(m.Address); err == nil && a.Unmap() == ip {
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
	for _, name := range n.catalog.indexOf(n.v).servicesAt[ip] {
		if n.sees(auth.ServiceRead, name) {
			out = append(out, name)
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
	x := &index{nodes: nodes, services: services, nodesAt: map[netip.Addr][]string{}, servicesAt: map[netip.Addr][]string{}}
	v.Nodes(c.Namespace, "", func(n *catalog.Node) bool {
		add(x.nodesAt, n.Address, n.Name)
		return true
	})
	v.AllInstances(c.Namespace, func(i *catalog.Instance) bool {
		if i.Service.Address != i.Node.Address {
			add(x.servicesAt, i.Service.Address, i.Service.Name)
		}
		return true
	})
	c.index, c.indexed = x, now
	return x
}

// add notes whose an address is, once.
func add(at map[netip.Addr][]string, address, name string) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return
	}
	if ip = ip.WithZone("").Unmap(); !slices.ContainsFunc(at[ip], func(o string) bool { return incumbent.Alike(o, name) }) {
		at[ip] = append(at[ip], name)
	}
}
