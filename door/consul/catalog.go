package consul

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// catalogRoutes are those of /v1/catalog.
func catalogRoutes() []route {
	return []route{
		{"/v1/catalog/register", methods{"PUT": catalogRegister}},
		{"/v1/catalog/deregister", methods{"PUT": catalogDeregister}},
		{"/v1/catalog/datacenters", methods{"GET": catalogDatacenters}},
		{"/v1/catalog/nodes", methods{"GET": catalogNodes}},
		{"/v1/catalog/services", methods{"GET": catalogServices}},
		{"/v1/catalog/service/", methods{"GET": catalogService}},
		{"/v1/catalog/connect/", methods{"GET": healthConnect}},
		{"/v1/catalog/gateway-services/", methods{"GET": healthConnect}},
		{"/v1/catalog/node/", methods{"GET": catalogNode}},
		{"/v1/catalog/node-services/", methods{"GET": catalogNodeServices}},
	}
}

// catalogDatacenters lists the one datacenter.
func catalogDatacenters(d *Door, r *request) {
	r.json(http.StatusOK, []string{d.cfg.Datacenter})
}

// catalogNodes lists the nodes.
func catalogNodes(_ *Door, r *request) {
	p, ok := r.parsePicks()
	if !ok {
		return
	}
	p = picks{meta: p.meta, filter: p.filter}
	if len(p.meta) == 0 {
		serveList(r, nodeKind, "", p, nil)
		return
	}
	serveList(r, nodeKind, "", p, p.ofNode)
}

// catalogService lists the instances of a service.
func catalogService(_ *Door, r *request) {
	if !r.named("service name") {
		return
	}
	if p, ok := r.parsePicks(); ok {
		p.passing = false
		serveList(r, instanceKind, r.rest, p, p.instances())
	}
}

// catalogServices lists the names of all services with their tags.
func catalogServices(d *Door, r *request) {
	p, ok := r.parsePicks()
	if !ok {
		return
	}
	e, err := expressionOf[instanceJSON](&d.expressions, p.filter)
	if err != nil {
		r.failRead(http.StatusInternalServerError, "%v", err)
		return
	}
	p.tags, p.passing = nil, false
	seen := r.who.sights()
	r.serveValue("catalog/services", p.key(""), seen, func(c engine.CatalogReading) (any, incumbent.Index, bool) {
		index := c.ReadServices(func(*catalog.Service) bool { return false })
		if len(p.meta) > 0 || e != nil {
			index = max(index, c.ReadNodes(func(*catalog.Node) bool { return false }))
		}
		names, hides := map[string][]string{}, false
		c.AllInstances(d.namespace, func(i *catalog.Instance) bool {
			switch name := i.Service.Name; {
			case !seen.service(name):
				hides = true
			case p.ofNode(i.Node) && (e == nil || e.selects(d.instanceOf(i))):
				names[name] = append(listOf(names[name]), i.Service.Tags...)
			}
			return true
		})
		for name, tags := range names {
			slices.Sort(tags)
			names[name] = slices.Compact(tags)
		}
		return names, index, hides
	})
}

// nodeServices is a node with its services.
type nodeServices[S any] struct {
	Node     *nodeJSON
	Services S
}

// catalogNode shows a node with its services by their ids.
func catalogNode(d *Door, r *request) {
	r.serveNode("catalog/node", func(n *catalog.Node, services []*serviceJSON) any {
		if n == nil {
			return nil
		}
		byID := make(map[string]*serviceJSON, len(services))
		for _, s := range services {
			byID[s.ID] = s
		}
		return &nodeServices[map[string]*serviceJSON]{d.nodeOf(n), byID}
	})
}

// catalogNodeServices shows a node with a list of its services.
func catalogNodeServices(d *Door, r *request) {
	r.serveNode("catalog/node-services", func(n *catalog.Node, services []*serviceJSON) any {
		if n == nil {
			return &nodeServices[[]*serviceJSON]{}
		}
		return &nodeServices[[]*serviceJSON]{d.nodeOf(n), services}
	})
}

// serveNode answers with a node, nil if it is not there, and those of its services that
// are selected.
func (r *request) serveNode(kind string, shape func(*catalog.Node, []*serviceJSON) any) {
	d := r.door
	if !r.named("node name") {
		return
	}
	e, err := expressionOf[serviceJSON](&d.expressions, r.opts.filter)
	if err != nil {
		r.failRead(http.StatusInternalServerError, "%v", err)
		return
	}
	name, seen := incumbent.Fold(r.rest), r.who.sights()
	r.serveValue(kind, fmt.Sprintf("%q %q", name, r.opts.filter), seen, func(c engine.CatalogReading) (any, incumbent.Index, bool) {
		n, index := c.ReadNode(name)
		if n == nil || !seen.node(name) {
			return shape(nil, nil), index, n != nil
		}
		services, hides := []*serviceJSON{}, false
		c.NodeServices(d.namespace, name, func(s *catalog.Service) bool {
			if !seen.service(s.Name) {
				hides = true
			} else if shown := serviceOf(s); e.selects(shown) {
				services = append(services, shown)
			}
			return true
		})
		return shape(n, services), index, hides
	})
}

// serveValue answers with a value that is made anew at each change, and the index by
// which it is blocked; hides: something was left out that the caller may not see.
func (r *request) serveValue(kind, params string, seen *sights, read func(engine.CatalogReading) (value any, index incumbent.Index, hides bool)) {
	d := r.door
	var was result
	r.shared(sharedQuery{
		kind: kind, params: params, rights: seen.key(),
		eval: func(v *core.View, notes *watch.Reads) result {
			value, index, hides := read(engine.ReadCatalog(v, notes, d.namespace))
			b := encodeJSON(value)
			hash := digestOf(b)
			if was.body == nil || hash != was.hash || hides != was.filtered { // else something moved that is not shown
				was = result{index: max(index, 1), hash: hash, body: newBody(func() []byte { return b }), filtered: hides, size: 2 * len(b)}
			}
			return was
		},
	})
}
