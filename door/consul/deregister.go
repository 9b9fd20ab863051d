package consul

import (
	"net/http"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// deregistration is the body of /v1/catalog/deregister.
type deregistration struct {
	Datacenter string
	Node       string
	Address    string // not looked at
	ServiceID  string
	CheckID    string
}

// catalogDeregister deregisters a node, a service or a check; whether it is there or not.
func catalogDeregister(d *Door, r *request) {
	var in deregistration
	if !r.decode(&in) || !r.inDatacenter(in.Datacenter) {
		return
	}
	if in.Node == "" {
		r.refusedBody("Must provide node")
		return
	}
	target := catalog.Target{Kind: catalog.NodeKind, Namespace: d.namespace, Node: in.Node}
	switch {
	case in.ServiceID != "":
		target.Kind, target.ID = catalog.ServiceKind, in.ServiceID
	case in.CheckID != "":
		target.Kind, target.ID = catalog.CheckKind, in.CheckID
	}
	r.deregister(target, func() { r.json(http.StatusOK, true) })
}

// deregister deregisters what a target names, if the caller may.
func (r *request) deregister(t catalog.Target, then func()) {
	action, name := auth.NodeWrite, t.Node
	v := catalog.Of(r.door.view())
	switch t.Kind {
	case catalog.ServiceKind:
		if s := v.Service(t.Namespace, t.Node, t.ID); s != nil {
			action, name = auth.ServiceWrite, s.Name
		}
	case catalog.CheckKind:
		if c := v.Check(t.Namespace, t.Node, t.ID); c != nil && c.ServiceName != "" {
			action, name = auth.ServiceWrite, c.ServiceName
		}
	}
	if r.allow(action, name, false) {
		r.change(&catalog.Command{Verb: catalog.Deregister, Target: t}, true, action, name, func(incumbent.Index) { then() })
	}
}
