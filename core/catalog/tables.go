package catalog

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// shared are the tables that a View sees.
type shared struct {
	hosts     *btree.BTreeG[*host]     // by namespace and name
	ids       *btree.BTreeG[nodeID]    // the hosts that have an id, by that
	services  *btree.BTreeG[*Service]  // by namespace, node and id
	instances *btree.BTreeG[*Instance] // by namespace, name, node and id of the service
	checks    *btree.BTreeG[*Check]    // by namespace, node and id
	sessions  *btree.BTreeG[*Session]  // by id
	bonds     *btree.BTreeG[bond]      // what sessions depend on
	marks     *btree.BTreeG[mark]      // by what they are of
	floor     incumbent.Index          // no index is below it
	limits    limits
}

// host is a node with what there is to know of it at once.
type host struct {
	node     *Node
	checks   []*Check // of the node itself, by id
	services int
	sessions int

	outdated bool            // the instances on it show another node, or other checks of it: see [tables.renew]
	changed  incumbent.Index // the indexes of its services are to be that at least, once it is no longer outdated
	topics   []core.Topic    // of the node and its services, while it is outdated; nil: they are to be made
}

// nodeName names a node.
type nodeName struct{ namespace, name string }

// nodeID says which node has an id.
type nodeID struct{ namespace, id, name string }

func (n nodeID) compare(o nodeID) int {
	return cmp.Or(strings.Compare(n.namespace, o.namespace), strings.Compare(n.id, o.id))
}

// bond says that a session depends on a node, or on a check of it.
type bond struct {
	namespace, node, check string // "": on the node
	session                incumbent.SessionID
}

// tenancy says that a service ends with a session.
type tenancy struct {
	session             incumbent.SessionID
	namespace, node, id string
}

// limits are those that a test needs smaller.
type limits struct{ records, services, checks, sessions, tombstones int }

type tables struct {
	shared
	tenants  *btree.BTreeG[tenancy]
	dead     *btree.BTreeG[mark] // the marks of names that are of nothing, oldest first
	outdated []nodeName          // of the hosts that are, some perhaps gone or not outdated any more
	marked   *marked             // nil: there is no transaction under way that may have to be taken back
	part     uint8               // of the section that is being restored
	again    recordWriter        // of its records
	usage    *core.Usage         // where the records are counted; nil: nowhere
}

func newTables() *tables {
	return &tables{
		shared: shared{
			hosts:     newTree(func(a, b *host) int { return compare(a.node.Namespace, b.node.Namespace, a.node.Name, b.node.Name) }),
			ids:       newTree(nodeID.compare),
			services:  newTree(compareServices),
			instances: newTree(compareInstances),
			checks:    newTree(compareChecks),
			sessions:  newTree(func(a, b *Session) int { return bytes.Compare(a.ID[:], b.ID[:]) }),
			bonds:     newTree(bond.compare),
			marks:     newTree(mark.compare),
			limits:    limits{MaxRecords, MaxServicesPerNode, MaxChecksOfOne, MaxSessionsPerNode, MaxTombstones},
		},
		tenants: newTree(func(a, b tenancy) int {
			return cmp.Or(bytes.Compare(a.session[:], b.session[:]), compare(a.namespace, b.namespace, a.node, b.node, a.id, b.id))
		}),
		dead: newTree(func(a, b mark) int { return cmp.Or(cmp.Compare(a.at, b.at), a.compare(b)) }),
	}
}

func newTree[T any](compare func(a, b T) int) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(func(a, b T) bool { return compare(a, b) < 0 }, btree.Options{NoLocks: true, Degree: treeDegree})
}

// compare compares a namespace with another, then pairs of names: see [incumbent.CompareNames].
func compare(namespace, other string, pairs ...string) int {
	if c := strings.Compare(namespace, other); c != 0 {
		return c
	}
	for i := 0; i < len(pairs); i += 2 {
		if c := incumbent.CompareNames(pairs[i], pairs[i+1]); c != 0 {
			return c
		}
	}
	return 0
}

func compareServices(a, b *Service) int {
	return compare(a.Namespace, b.Namespace, a.Node, b.Node, a.ID, b.ID)
}

func compareChecks(a, b *Check) int {
	return compare(a.Namespace, b.Namespace, a.Node, b.Node, a.ID, b.ID)
}

func compareInstances(a, b *Instance) int {
	s, o := a.Service, b.Service
	return compare(s.Namespace, o.Namespace, s.Name, o.Name, s.Node, o.Node, s.ID, o.ID)
}

func (b bond) compare(o bond) int {
	return cmp.Or(compare(b.namespace, o.namespace, b.node, o.node, b.check, o.check), bytes.Compare(b.session[:], o.session[:]))
}

// copied returns the tables as they are, in constant time.
func (t *shared) copied() shared {
	c := *t
	c.hosts, c.ids, c.services, c.instances = t.hosts.Copy(), t.ids.Copy(), t.services.Copy(), t.instances.Copy()
	c.checks, c.sessions, c.bonds, c.marks = t.checks.Copy(), t.sessions.Copy(), t.bonds.Copy(), t.marks.Copy()
	return c
}

func (t *shared) records() int {
	return t.hosts.Len() + t.services.Len() + t.checks.Len() + t.sessions.Len()
}

func (t *shared) host(namespace, name string) *host {
	h, _ := t.hosts.Get(&host{node: &Node{Namespace: namespace, Name: name}})
	return h
}

// hostByID returns the host whose node has an id.
func (t *shared) hostByID(namespace, id string) *host {
	if id == "" {
		return nil
	}
	has, ok := t.ids.Get(nodeID{namespace: namespace, id: id})
	if !ok {
		return nil
	}
	return t.host(namespace, has.name)
}

func (t *shared) service(namespace, node, id string) *Service {
	s, _ := t.services.Get(&Service{Namespace: namespace, Node: node, ID: id})
	return s
}

func (t *shared) check(namespace, node, id string) *Check {
	c, _ := t.checks.Get(&Check{Namespace: namespace, Node: node, ID: id})
	return c
}

func (t *shared) session(id incumbent.SessionID) *Session {
	s, _ := t.sessions.Get(&Session{ID: id})
	return s
}

func (t *shared) instance(s *Service) *Instance {
	i, _ := t.instances.Get(&Instance{Service: s})
	return i
}

// servicesOf calls fn with the services of a node, by id, until it returns false.
func (t *shared) servicesOf(namespace, node string, fn func(*Service) bool) {
	t.services.Ascend(&Service{Namespace: namespace, Node: node}, func(s *Service) bool {
		return s.Namespace == namespace && incumbent.Alike(s.Node, node) && fn(s)
	})
}

// checksOn calls fn with the checks of a node and of its services, by id, until it
// returns false.
func (t *shared) checksOn(namespace, node string, fn func(*Check) bool) {
	t.checks.Ascend(&Check{Namespace: namespace, Node: node}, func(c *Check) bool {
		return c.Namespace == namespace && incumbent.Alike(c.Node, node) && fn(c)
	})
}

// hasInstance reports whether a service has an instance on a node.
func (t *shared) hasInstance(namespace, name, node string) (has bool) {
	t.instances.Ascend(&Instance{Service: &Service{Namespace: namespace, Name: name, Node: node}}, func(i *Instance) bool {
		s := i.Service
		has = s.Namespace == namespace && incumbent.Alike(s.Name, name) && incumbent.Alike(s.Node, node)
		return false
	})
	return has
}

// instancesOf calls fn with the instances of a service, by node and id, until it
// returns false.
func (t *shared) instancesOf(namespace, name string, fn func(*Instance) bool) {
	t.instances.Ascend(&Instance{Service: &Service{Namespace: namespace, Name: name}}, func(i *Instance) bool {
		return i.Service.Namespace == namespace && incumbent.Alike(i.Service.Name, name) && fn(i)
	})
}

// bound calls fn with the sessions that depend on a node (check "") or on a check of
// it, by id, until it returns false.
func (t *shared) bound(namespace, node, check string, fn func(incumbent.SessionID) bool) {
	t.bonds.Ascend(bond{namespace: namespace, node: node, check: check}, func(b bond) bool {
		return b.namespace == namespace && incumbent.Alike(b.node, node) && incumbent.Alike(b.check, check) && fn(b.session)
	})
}

// serviceNames are the names of the services of a node, folded, each once.
func (t *shared) serviceNames(namespace, node string) (names []string) {
	t.servicesOf(namespace, node, func(s *Service) bool {
		names = append(names, incumbent.Fold(s.Name))
		return true
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// with returns a list of checks, by id, with n in the place of the one with its id;
// without it if remove. The list it is given stays as it is.
func with(list []*Check, n *Check, remove bool) []*Check {
	i, there := slices.BinarySearchFunc(list, n.ID, func(c *Check, id string) int { return incumbent.CompareNames(c.ID, id) })
	next := make([]*Check, 0, len(list)+1)
	next = append(next, list[:i]...)
	if !remove {
		next = append(next, n)
	}
	if there {
		i++
	}
	if next = append(next, list[i:]...); len(next) == 0 {
		return nil
	}
	return next
}
