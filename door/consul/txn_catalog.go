package consul

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// txnNode is an operation on a node as it was sent.
type txnNode struct {
	Verb string
	Node struct {
		ID              string
		Node            string
		Address         string
		TaggedAddresses map[string]string
		Meta            map[string]string
		ModifyIndex     uint64
	}
}

// txnService is an operation on a service.
type txnService struct {
	Verb    string
	Node    string
	Service struct {
		serviceBody
		ModifyIndex uint64
	}
}

// txnCheck is an operation on a check.
type txnCheck struct {
	Verb  string
	Check struct {
		checkBody
		ModifyIndex uint64
	}
}

// recordStep is an operation on a record of the catalog while it is checked.
type recordStep struct {
	r      *request
	what   string // for texts: "node", "service", "check"
	named  string // how texts name the record
	verb   string
	target catalog.Target
	index  uint64
	// register is the command that stores the record, or why there is none.
	register func() (*catalog.Command, string)
	result   func(record any) txnResult
}

func (r *request) target(kind catalog.Kind, node, id string) catalog.Target {
	return catalog.Target{Kind: kind, Namespace: r.door.namespace, Node: node, ID: id}
}

func (r *request) nodeStep(op *txnNode) (txnStep, error) {
	n := &op.Node
	s := recordStep{r: r, what: "node", named: fmt.Sprintf("%q", n.Node), verb: op.Verb, target: r.target(catalog.NodeKind, n.Node, ""), index: n.ModifyIndex}
	if n.Node == "" && op.Verb == "get" && n.ID != "" {
		if o := catalog.Of(r.door.view()).NodeByID(r.door.namespace, strings.ToLower(n.ID)); o != nil {
			s.target.Node = o.Name
		}
	}
	s.register = func() (*catalog.Command, string) {
		in := &registration{ID: n.ID, Node: n.Node, Address: n.Address, TaggedAddresses: n.TaggedAddresses, NodeMeta: n.Meta}
		if n.ID == "" {
			return in.command(r.door.namespace)
		}
		if text := badUUID(n.ID); text != "" {
			return nil, "Bad node ID: " + text
		}
		return in.command(r.door.namespace)
	}
	s.result = func(record any) txnResult {
		o, _ := record.(*catalog.Node)
		if o == nil {
			return txnResult{}
		}
		return txnResult{Node: r.door.nodeOf(o)}
	}
	return s.step()
}

func (r *request) serviceStep(op *txnService) (txnStep, error) {
	in := &op.Service
	id := cmp.Or(in.ID, in.Service)
	s := recordStep{
		r: r, what: "service", named: fmt.Sprintf("%q on node %q", id, op.Node), verb: op.Verb,
		target: r.target(catalog.ServiceKind, op.Node, id), index: in.ModifyIndex,
	}
	if in.Service == "" && op.Verb != "get" {
		return txnStep{}, incumbent.Errorf(incumbent.Invalid, "Must provide service name (Service.Service) when service ID is provided")
	}
	s.register = func() (*catalog.Command, string) {
		c := &catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: r.door.namespace, Node: op.Node}}
		var text string
		c.Service, text = in.record(r.door.namespace, op.Node)
		return c, text
	}
	s.result = func(record any) txnResult {
		o, _ := record.(*catalog.Service)
		if o == nil {
			return txnResult{}
		}
		s := serviceOf(o)
		if len(o.Tags) == 0 {
			s.Tags = nil // as it was written
		}
		return txnResult{Service: s}
	}
	return s.step()
}

func (r *request) checkStep(op *txnCheck) (txnStep, error) {
	in := &op.Check
	id := cmp.Or(in.CheckID, in.Name)
	s := recordStep{
		r: r, what: "check", named: fmt.Sprintf("%q on node %q", id, in.Node), verb: op.Verb,
		target: r.target(catalog.CheckKind, in.Node, id), index: in.ModifyIndex,
	}
	s.register = func() (*catalog.Command, string) {
		c := &catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: r.door.namespace, Node: in.Node}}
		check, text := in.record(r.door.namespace, in.Node)
		if text == "" {
			c.Checks = []*catalog.Check{check}
		}
		return c, text
	}
	s.result = func(record any) txnResult {
		o, _ := record.(*catalog.Check)
		if o == nil {
			return txnResult{}
		}
		return txnResult{Check: checkOf(o)}
	}
	return s.step()
}

// step checks the operation.
func (s *recordStep) step() (step txnStep, err error) {
	step = txnStep{writes: true, why: s.why}
	var c *catalog.Command
	switch s.verb {
	case "get":
		step.writes = false
		c = &catalog.Command{Verb: catalog.Get, Target: s.target, If: true}
	case "set", "cas":
		text := ""
		if c, text = s.register(); text != "" {
			return step, incumbent.Errorf(incumbent.Invalid, "%s", text)
		}
		if s.verb == "cas" {
			c.If, c.Index = true, incumbent.Index(s.index)
		}
	case "delete", "delete-cas":
		step.frees = true
		c = &catalog.Command{Verb: catalog.Deregister, Target: s.target}
		if s.verb == "delete-cas" {
			c.If, c.Index = true, incumbent.Index(s.index)
		}
	default:
		return step, incumbent.Errorf(incumbent.Invalid, "unknown %s operation: %s", strings.ToUpper(s.what[:1])+s.what[1:], s.verb)
	}
	if err := c.Validate(); err != nil {
		return step, err
	}
	if step.action, step.name, err = s.allow(c); err != nil {
		return step, err
	}
	step.command = *c
	if c.Verb != catalog.Deregister {
		step.result = func(res core.Result) []txnResult { return []txnResult{s.result(res.Record)} }
	}
	return step, nil
}

// allow returns what the command does, and to what, as records call it, if the caller may
// do that; else Denied.
func (s *recordStep) allow(c *catalog.Command) (action auth.Action, name string, err error) {
	r := s.r
	action, name = auth.NodeWrite, s.target.Node
	if c.Verb == catalog.Register {
		if !r.mayRegister(c) {
			return action, name, incumbent.Errorf(incumbent.Denied, "the registration") // it has been answered
		}
		return action, name, nil
	}
	v := catalog.Of(r.door.view())
	switch s.target.Kind {
	case catalog.ServiceKind:
		if o := v.Service(s.target.Namespace, s.target.Node, s.target.ID); o != nil {
			action, name = auth.ServiceWrite, o.Name
		}
	case catalog.CheckKind:
		if o := v.Check(s.target.Namespace, s.target.Node, s.target.ID); o != nil && o.ServiceName != "" {
			action, name = auth.ServiceWrite, o.ServiceName
		}
	}
	if c.Verb == catalog.Get {
		action = map[auth.Action]auth.Action{auth.NodeWrite: auth.NodeRead, auth.ServiceWrite: auth.ServiceRead}[action]
	}
	return action, name, r.authorize(action, auth.Resource{Name: r.door.named(name)}, name)
}

// why says why the operation failed.
func (s *recordStep) why(res core.Result) string {
	refusal, _ := res.Record.(*catalog.Refusal)
	switch {
	case refusal == nil:
		return res.Err.Message
	case s.verb == "get":
		return fmt.Sprintf("%s %s doesn't exist", s.what, s.named)
	case refusal.Why == catalog.NotAsSaid && s.verb == "cas":
		return fmt.Sprintf("failed to set %s %s, index is stale", s.what, s.named)
	case refusal.Why == catalog.NotAsSaid:
		return fmt.Sprintf("failed to delete %s %s, index is stale", s.what, s.named)
	case refusal.Why == catalog.NoNode:
		return "Missing node registration"
	case refusal.Why == catalog.NoService:
		return "Missing service registration"
	}
	return res.Err.Message
}
