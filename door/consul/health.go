package consul

import (
	"net/http"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// healthRoutes are those of /v1/health.
func healthRoutes() []route {
	return []route{
		{"/v1/health/service/", methods{"GET": healthService}},
		{"/v1/health/connect/", methods{"GET": healthConnect}},
		{"/v1/health/ingress/", methods{"GET": healthConnect}},
		{"/v1/health/checks/", methods{"GET": healthChecks}},
		{"/v1/health/node/", methods{"GET": healthNode}},
		{"/v1/health/state/", methods{"GET": healthState}},
	}
}

// named reports whether the path names what it must. If not it has been answered.
func (r *request) named(what string) bool {
	if r.rest == "" {
		r.fail(http.StatusBadRequest, "Missing %s", what)
	}
	return r.rest != ""
}

// healthService lists the instances of a service with their checks.
func healthService(_ *Door, r *request) {
	if !r.named("service name") {
		return
	}
	if p, ok := r.parsePicks(); ok {
		serveList(r, entryKind, r.rest, p, p.instances())
	}
}

// instances returns what selects instances; nil: all.
func (p *picks) instances() func(*catalog.Instance) bool {
	if len(p.tags) == 0 && !p.passing && len(p.meta) == 0 {
		return nil
	}
	return p.ofInstance
}

// healthConnect lists the instances of a service that are in a mesh: there are none.
func healthConnect(_ *Door, r *request) {
	if !r.named("service name") {
		return
	}
	if p, ok := r.parsePicks(); ok {
		serveList(r, meshKind, r.rest, picks{filter: p.filter}, nil)
	}
}

// healthChecks lists the checks of a service.
func healthChecks(_ *Door, r *request) {
	if !r.named("service name") {
		return
	}
	if p, ok := r.parsePicks(); ok {
		serveList(r, serviceChecks, r.rest, picks{meta: p.meta, filter: p.filter}, p.checks())
	}
}

// checks returns what selects checks by their nodes; nil: all.
func (p *picks) checks() func(checkRow) bool {
	if len(p.meta) == 0 {
		return nil
	}
	return func(row checkRow) bool { return p.ofNode(row.node) }
}

// healthNode lists the checks of a node and of its services.
func healthNode(_ *Door, r *request) {
	if !r.named("node name") {
		return
	}
	serveList(r, nodeChecks, r.rest, picks{filter: r.opts.filter}, nil)
}

// healthState lists the checks in a state: in any case, but that of all is "any" alone.
func healthState(_ *Door, r *request) {
	if !r.named("check state") {
		return
	}
	state := r.rest
	if state != anyState && incumbent.Alike(state, anyState) {
		state = "" // none is in that
	}
	p, ok := r.parsePicks()
	switch {
	case !ok:
	case len(p.meta) == 0:
		serveList(r, stateChecks, state, picks{filter: p.filter}, nil)
	default:
		serveList(r, stateChecksOn, state, picks{meta: p.meta, filter: p.filter}, p.checks())
	}
}
