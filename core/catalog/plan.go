package catalog

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// serfHealth is the id of the check that says whether a node is there at all. Where it
// is critical, another may have the node's name.
const serfHealth = "serfHealth"

// plan is what a command would change in the tables as they are: nothing is done to
// them before all of it is known to be possible.
type plan struct {
	renamed   *host  // the node under another name, which goes with all it has
	name      string // of the node, as it is or will be written
	node      *host  // as it is, nil: it is not there
	newNode   *Node  // nil: it stays as it is
	service   *Service
	newOne    *Service
	checks    []*Check // each as it is, nil: it is not there
	newOnes   []*Check // each as it will be
	removes   *Target
	registers bool // the records are registered, and become those of who asks
}

// idle reports whether nothing would change.
func (p *plan) idle() bool {
	return p.newNode == nil && p.newOne == nil && len(p.newOnes) == 0 && p.removes == nil
}

// planned returns what a command would do, or why it does nothing.
func (t *shared) planned(c *Command, open func(incumbent.SessionID) bool) (*plan, core.Result) {
	switch c.Verb {
	case Register:
		return t.planRegister(c, open)
	case Deregister:
		return t.planDeregister(c)
	case UpdateCheck:
		return t.planUpdate(c)
	default:
		return &plan{}, core.Result{}
	}
}

// refuse is the answer of a command that is refused for what it finds.
func refuse(k incumbent.Kind, r *Refusal, message string) core.Result {
	return core.Result{Record: r, Err: &incumbent.Error{Kind: k, Message: message}}
}

func noNode(name string) core.Result {
	return refuse(incumbent.NotFound, &Refusal{Why: NoNode, Name: name}, "the node is not registered")
}

func noService(id string) core.Result {
	return refuse(incumbent.NotFound, &Refusal{Why: NoService, Name: id}, "the service is not registered on the node")
}

func noCheck(id string) core.Result {
	return refuse(incumbent.NotFound, &Refusal{Why: NoCheck, Name: id}, "the check is not registered on the node")
}

// planRegister has a record of each kind replace the one there is.
func (t *shared) planRegister(c *Command, open func(incumbent.SessionID) bool) (*plan, core.Result) {
	p := &plan{name: c.Target.Node, node: t.host(c.Target.Namespace, c.Target.Node), registers: true}
	if p.node != nil {
		p.name = p.node.node.Name
	}
	if c.If {
		if r := t.as(c, c.one()); r.Err != nil {
			return nil, r
		}
	}
	if r := t.planNode(p, c); r.Err != nil {
		return nil, r
	}
	if c.Service != nil {
		if r := t.planService(p, c, open); r.Err != nil {
			return nil, r
		}
	}
	for _, n := range c.Checks {
		if r := t.planCheck(p, c, n); r.Err != nil {
			return nil, r
		}
	}
	return p, t.crowded(p)
}

// one names the record that a Register has which has one.
func (c *Command) one() Target {
	target := c.Target
	switch {
	case c.Node != nil:
		target.Kind = NodeKind
	case c.Service != nil:
		target.Kind, target.ID = ServiceKind, c.Service.ID
	default:
		target.Kind, target.ID = CheckKind, c.Checks[0].ID
	}
	return target
}

// as refuses a command whose record is not as it says.
func (t *shared) as(c *Command, target Target) core.Result {
	if _, at := t.record(target); at != c.Index {
		return refuse(incumbent.Conflict, &Refusal{Why: NotAsSaid, Name: cmp.Or(target.ID, target.Node)}, "the record is not as the condition says")
	}
	return core.Result{}
}

// record returns the record that a target names and when it was modified; nil and 0:
// it is not there.
func (t *shared) record(target Target) (any, incumbent.Index) {
	switch target.Kind {
	case NodeKind:
		if h := t.host(target.Namespace, target.Node); h != nil {
			return h.node, h.node.Modified
		}
	case ServiceKind:
		if s := t.service(target.Namespace, target.Node, target.ID); s != nil {
			return s, s.Modified
		}
	case CheckKind:
		if c := t.check(target.Namespace, target.Node, target.ID); c != nil {
			return c, c.Modified
		}
	}
	return nil, 0
}

func (t *shared) planNode(p *plan, c *Command) core.Result {
	if c.Node == nil {
		if p.node == nil {
			return noNode(c.Target.Node)
		}
		return core.Result{}
	}
	n := *c.Node
	n.Namespace, n.Name, n.Created = c.Target.Namespace, p.name, 0
	has := t.hostByID(n.Namespace, n.ID)
	switch {
	case p.node == nil:
	case n.ID == "":
		n.ID = p.node.node.ID
	case p.node.node.ID != "" && p.node.node.ID != n.ID && !t.isGone(p.node.node):
		return refuse(incumbent.Conflict, &Refusal{Why: NameTaken, Name: n.Name, Node: p.node.node}, "a node with another id has the name")
	}
	if has != nil && !incumbent.Alike(has.node.Name, n.Name) {
		p.renamed, n.Created = has, has.node.Created
	}
	if p.node == nil || !n.same(p.node.node) {
		p.newNode = &n
	}
	return core.Result{}
}

// isGone reports whether a node's own check says that it is not there any more.
func (t *shared) isGone(n *Node) bool {
	c := t.check(n.Namespace, n.Name, serfHealth)
	return c != nil && c.Status == Critical
}

func (t *shared) planService(p *plan, c *Command, open func(incumbent.SessionID) bool) core.Result {
	n := *c.Service
	n.Namespace, n.Node = c.Target.Namespace, p.name
	if !n.Session.IsZero() && !open(n.Session) {
		return core.Result{Err: &incumbent.Error{Kind: incumbent.Expired, Message: "the session of the service is not open"}}
	}
	p.service = t.service(n.Namespace, n.Node, n.ID)
	if p.service == nil || !n.same(p.service) {
		p.newOne = &n
	}
	return core.Result{}
}

func (t *shared) planCheck(p *plan, c *Command, given *Check) core.Result {
	n := *given
	n.Namespace, n.Node = c.Target.Namespace, p.name
	n.ServiceName, n.ServiceTags = "", nil
	if n.ServiceID != "" {
		s := p.newOne
		if s == nil || !incumbent.Alike(s.ID, n.ServiceID) {
			s = t.service(n.Namespace, n.Node, n.ServiceID)
		}
		if s == nil {
			return noService(n.ServiceID)
		}
		n.ServiceID, n.ServiceName, n.ServiceTags = s.ID, s.Name, s.Tags
	}
	o := t.check(n.Namespace, n.Node, n.ID)
	if o != nil && c.KeepOutput {
		n.Status, n.Output = o.Status, o.Output
	}
	if o != nil && n.same(o) {
		return core.Result{}
	}
	p.checks, p.newOnes = append(p.checks, o), append(p.newOnes, &n)
	return core.Result{}
}

// crowded refuses what would be more than there may be.
func (t *shared) crowded(p *plan) core.Result {
	more := 0
	services, ofNode, ofService := 0, 0, map[string]int{}
	if p.node != nil {
		services, ofNode = p.node.services, len(p.node.checks)
	}
	if p.newNode != nil && p.node == nil {
		more++
	}
	if p.newOne != nil && p.service == nil {
		more++
		services++
	}
	if following(p) > MaxFollowing {
		return crowd("checks of the node that follow sessions", "MaxFollowing", MaxFollowing)
	}
	for i, n := range p.newOnes {
		o := p.checks[i]
		if o != nil && incumbent.Alike(o.ServiceID, n.ServiceID) {
			continue
		}
		if o == nil {
			more++
		}
		if n.ServiceID == "" {
			ofNode++
			continue
		}
		id := incumbent.Fold(n.ServiceID)
		if _, counted := ofService[id]; !counted {
			ofService[id] = t.checksOf(n)
		}
		ofService[id]++
		if ofService[id] > t.limits.checks {
			return crowd("checks of the service", "MaxChecksOfOne", t.limits.checks)
		}
	}
	switch {
	case t.records()+more > t.limits.records:
		return crowd("nodes, services, checks and sessions", "MaxRecords", t.limits.records)
	case services > t.limits.services:
		return crowd("services of the node", "MaxServicesPerNode", t.limits.services)
	case ofNode > t.limits.checks:
		return crowd("checks of the node itself", "MaxChecksOfOne", t.limits.checks)
	}
	return core.Result{}
}

// following is how many checks of the node will follow sessions, if any that is registered does.
func following(p *plan) (n int) {
	follows := func(c *Check) bool { return c != nil && c.SessionName != "" }
	if !slices.ContainsFunc(p.newOnes, follows) {
		return 0
	}
	if p.node != nil {
		for _, c := range p.node.checks {
			if follows(c) {
				n++
			}
		}
	}
	for i, c := range p.newOnes {
		switch {
		case follows(c) && !follows(p.checks[i]):
			n++
		case !follows(c) && follows(p.checks[i]):
			n--
		}
	}
	return n
}

// checksOf is how many checks the service of a check has.
func (t *shared) checksOf(c *Check) int {
	s := t.service(c.Namespace, c.Node, c.ServiceID)
	if s == nil {
		return 0
	}
	return len(t.instance(s).Checks)
}

func crowd(what, limit string, n int) core.Result {
	return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "%s: limit %s is %d", what, limit, n)}
}

// planDeregister succeeds where nothing is there: that is what was asked.
func (t *shared) planDeregister(c *Command) (*plan, core.Result) {
	if c.If {
		if r := t.as(c, c.Target); r.Err != nil {
			return nil, r
		}
	}
	p := &plan{}
	if o, _ := t.record(c.Target); o != nil {
		p.removes = &c.Target
	}
	return p, core.Result{}
}

func (t *shared) planUpdate(c *Command) (*plan, core.Result) {
	o := t.check(c.Target.Namespace, c.Target.Node, c.Target.ID)
	if o == nil {
		return nil, noCheck(c.Target.ID)
	}
	p := &plan{}
	if o.Status == c.Status && (c.StatusOnly || o.Output == c.Output) {
		return p, core.Result{}
	}
	n := *o
	n.Status, n.Output = c.Status, c.Output
	p.checks, p.newOnes = []*Check{o}, []*Check{&n}
	return p, core.Result{}
}

// same reports whether two nodes say the same. Whose a record is and when it changed
// is no part of that.
func (n *Node) same(o *Node) bool {
	return n.Namespace == o.Namespace && n.Name == o.Name && n.ID == o.ID && n.Address == o.Address &&
		slices.Equal(n.TaggedAddresses, o.TaggedAddresses) && slices.Equal(n.Meta, o.Meta)
}

// same is that of services.
func (s *Service) same(o *Service) bool {
	return s.ID == o.ID && s.Name == o.Name && s.Kind == o.Kind && s.Address == o.Address && s.Port == o.Port && slices.Equal(s.Ports, o.Ports) &&
		s.SocketPath == o.SocketPath && s.Weights == o.Weights &&
		s.EnableTagOverride == o.EnableTagOverride && s.Session == o.Session && slices.Equal(s.Tags, o.Tags) &&
		slices.Equal(s.TaggedAddresses, o.TaggedAddresses) && slices.Equal(s.Meta, o.Meta)
}

// same is that of checks.
func (c *Check) same(o *Check) bool {
	return c.ID == o.ID && c.Name == o.Name && c.Status == o.Status && c.Notes == o.Notes && c.Output == o.Output && c.ServiceID == o.ServiceID &&
		c.ServiceName == o.ServiceName && slices.Equal(c.ServiceTags, o.ServiceTags) && c.Type == o.Type && c.Interval == o.Interval &&
		c.Timeout == o.Timeout && c.TTL == o.TTL && c.DeregisterAfter == o.DeregisterAfter && c.Runner == o.Runner &&
		c.SessionName == o.SessionName && bytes.Equal(c.Definition, o.Definition)
}
