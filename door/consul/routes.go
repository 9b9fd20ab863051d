package consul

import (
	"net/http"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent/calls"
)

// endpoint answers a request. It must not wait: it ends by exactly one answer (fail,
// json, shared …), on any goroutine, now or later.
type endpoint func(d *Door, r *request)

// methods are the endpoints of a path.
type methods map[string]endpoint

// route is a path with its endpoints. One that ends in a slash takes the rest of the
// path ([request.rest]).
type route struct {
	path    string
	methods methods
}

// routes are all paths. What a method of a path needs says its row in the table of
// calls: the way "consul.GET /v1/agent/self".
func routes() []route {
	return slices.Concat(
		agentRoutes(), agentCallRoutes(), operatorRoutes(), rootsRoutes(), coordinateRoutes(), aclRoutes(),
		kvRoutes(), sessionRoutes(), eventRoutes(), snapshotRoutes(), catalogRoutes(), healthRoutes(), registrationRoutes(), queryRoutes(), pageRoutes(),
	)
}

// agentRoutes speak of members and of this door.
func agentRoutes() []route {
	return []route{
		{"/v1/status/leader", methods{"GET": statusLeader}},
		{"/v1/status/peers", methods{"GET": statusPeers}},
		{"/v1/agent/self", methods{"GET": agentSelf}},
		{"/v1/agent/members", methods{"GET": agentMembers}},
		{"/v1/agent/version", methods{"GET": agentVersion}},
		{"/v1/agent/host", methods{"GET": agentHost}},
	}
}

// action is an endpoint with the row of its call.
type action struct {
	serve  endpoint
	call   calls.Call
	number int // in the counts
}

// served is a route with its rows.
type served struct {
	path    string
	methods map[string]action
	allowed []string // methods, for Allow
}

// router finds routes. It never changes.
type router struct {
	exact    map[string]*served
	prefixes []*served // that take the rest, longest first
}

// methodsInOrder is the order in which Allow names them.
var methodsInOrder = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete}

// newRouter looks up the rows: there is none without.
func newRouter() *router {
	t := &router{exact: map[string]*served{}}
	for _, r := range routes() {
		s := &served{path: r.path, methods: map[string]action{}}
		for m, f := range r.methods {
			s.methods[m] = action{serve: f, call: calls.Must(wayOf(m, r.path))}
			s.allowed = append(s.allowed, m)
		}
		slices.SortFunc(s.allowed, func(a, b string) int { return slices.Index(methodsInOrder, a) - slices.Index(methodsInOrder, b) })
		s.allowed = append([]string{http.MethodOptions}, s.allowed...)
		if strings.HasSuffix(r.path, "/") {
			t.prefixes = append(t.prefixes, s)
		} else {
			t.exact[r.path] = s
		}
	}
	slices.SortFunc(t.prefixes, func(a, b *served) int { return len(b.path) - len(a.path) })
	return t
}

// wayOf is how a call is named in the table of calls.
func wayOf(method, path string) string { return doorName + "." + method + " " + path }

// lacksSlash reports whether a path is no route, but one if a slash is added.
func (t *router) lacksSlash(path string) bool {
	if t.exact[path] != nil {
		return false
	}
	return slices.ContainsFunc(t.prefixes, func(s *served) bool { return len(s.path) == len(path)+1 && strings.HasPrefix(s.path, path) })
}

// find returns what serves a path, and the rest of the path.
func (t *router) find(path string) (*served, string, bool) {
	if s := t.exact[path]; s != nil {
		return s, "", true
	}
	for _, s := range t.prefixes {
		if rest, ok := strings.CutPrefix(path, s.path); ok {
			return s, rest, true
		}
	}
	return nil, "", false
}
