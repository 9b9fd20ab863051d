package catalog

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// View is the family after one batch of commands. It never changes and any number
// of goroutines may read it.
type View struct{ shared }

// Of is the family's view of a state that has it.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// View implements [core.Tables].
func (t *tables) View() core.FamilyView {
	t.renew()
	return &View{t.copied()}
}

// Node returns a node, nil if there is none.
func (v *View) Node(namespace, name string) *Node {
	if h := v.host(namespace, name); h != nil {
		return h.node
	}
	return nil
}

// NodeByID returns the node that has an id, nil if there is none.
func (v *View) NodeByID(namespace, id string) *Node {
	if h := v.hostByID(namespace, id); h != nil {
		return h.node
	}
	return nil
}

// Renames is the name of the node that a registration takes out with all it has, for the new
// one has its id; "": it takes none out.
func (v *View) Renames(namespace string, c *Command) string {
	if c.Node == nil || c.Node.ID == "" {
		return ""
	}
	if n := v.NodeByID(namespace, c.Node.ID); n != nil && !incumbent.Alike(n.Name, c.Target.Node) {
		return n.Name
	}
	return ""
}

// Repeats reports whether a registration says of its node what is there already.
func (v *View) Repeats(c *Command) bool {
	h := v.host(c.Target.Namespace, c.Target.Node)
	if c.Node == nil || h == nil {
		return false
	}
	p := plan{name: h.node.Name, node: h}
	return v.planNode(&p, c).Err == nil && p.newNode == nil
}

// Turns reports whether an update gives a check that is there another status.
func (v *View) Turns(c *Command) bool {
	o := v.check(c.Target.Namespace, c.Target.Node, c.Target.ID)
	return c.Verb == UpdateCheck && o != nil && o.Status != c.Status
}

// Nodes calls fn with the nodes of a namespace behind the one named after, by name,
// until it returns false.
func (v *View) Nodes(namespace, after string, fn func(*Node) bool) {
	v.hosts.Ascend(&host{node: &Node{Namespace: namespace, Name: after}}, func(h *host) bool {
		return h.node.Namespace == namespace && (incumbent.Alike(h.node.Name, after) || fn(h.node))
	})
}

// Service returns a service, nil if there is none.
func (v *View) Service(namespace, node, id string) *Service { return v.service(namespace, node, id) }

// NodeServices calls fn with the services of a node, by id, until it returns false.
func (v *View) NodeServices(namespace, node string, fn func(*Service) bool) {
	v.servicesOf(namespace, node, fn)
}

// Instance returns a service with its node and checks, nil if there is none.
func (v *View) Instance(namespace, node, id string) *Instance {
	s := v.service(namespace, node, id)
	if s == nil {
		return nil
	}
	return v.instance(s)
}

// Instances calls fn with the instances of a service, by node and id, until it returns
// false.
func (v *View) Instances(namespace, name string, fn func(*Instance) bool) {
	v.instancesOf(namespace, name, fn)
}

// AllInstances calls fn with the instances of all services of a namespace, by name,
// node and id, until it returns false.
func (v *View) AllInstances(namespace string, fn func(*Instance) bool) {
	v.instances.Ascend(&Instance{Service: &Service{Namespace: namespace}}, func(i *Instance) bool {
		return i.Service.Namespace == namespace && fn(i)
	})
}

// Check returns a check, nil if there is none.
func (v *View) Check(namespace, node, id string) *Check { return v.check(namespace, node, id) }

// NodeChecks calls fn with the checks of a node and of its services, by id, until it
// returns false.
func (v *View) NodeChecks(namespace, node string, fn func(*Check) bool) {
	v.checksOn(namespace, node, fn)
}

// Checks calls fn with the checks of a namespace, by node and id, until it returns
// false.
func (v *View) Checks(namespace string, fn func(*Check) bool) {
	v.checks.Ascend(&Check{Namespace: namespace}, func(c *Check) bool { return c.Namespace == namespace && fn(c) })
}

// Session returns what a session says, nil if it is not open or was not opened here.
func (v *View) Session(id incumbent.SessionID) *Session { return v.session(id) }

// Sessions calls fn with the sessions of a namespace, by id, until it returns false.
func (v *View) Sessions(namespace string, fn func(*Session) bool) {
	v.sessions.Scan(func(s *Session) bool { return s.Namespace != namespace || fn(s) })
}

// NodeSessions calls fn with the sessions of a node, by id, until it returns false.
func (v *View) NodeSessions(namespace, node string, fn func(*Session) bool) {
	v.bound(namespace, node, "", func(id incumbent.SessionID) bool { return fn(v.session(id)) })
}

// ServiceIndex is the index of the last change of the instances of a service, of their
// nodes or of the checks of either, or of one that may have been. It never goes back.
func (v *View) ServiceIndex(namespace, name string) incumbent.Index {
	return v.at(namespace, ofService, name)
}

// NodeIndex is that of a node and of all that is on it.
func (v *View) NodeIndex(namespace, node string) incumbent.Index {
	return v.at(namespace, ofNode, node)
}

// TableIndex is that of all records of a table.
func (v *View) TableIndex(namespace string, t Table) incumbent.Index {
	return v.at(namespace, ofTable, string(t))
}
