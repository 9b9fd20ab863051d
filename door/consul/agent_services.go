package consul

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// The agent is one node of the whole cluster: what is registered with it is in the
// catalog under that node, so that every member shows the same.

// registrationRoutes are those of the agent's services and checks.
func registrationRoutes() []route {
	return []route{
		{"/v1/agent/services", methods{"GET": agentServices}},
		{"/v1/agent/service/", methods{"GET": agentService}},
		{"/v1/agent/checks", methods{"GET": agentChecks}},
		{"/v1/agent/health/service/id/", methods{"GET": agentHealthByID}},
		{"/v1/agent/health/service/name/", methods{"GET": agentHealthByName}},
		{"/v1/agent/service/register", methods{"PUT": agentServiceRegister}},
		{"/v1/agent/service/deregister/", methods{"PUT": agentServiceDeregister}},
		{"/v1/agent/service/maintenance/", methods{"PUT": agentServiceMaintenance}},
		{"/v1/agent/maintenance", methods{"PUT": agentMaintenance}},
		{"/v1/agent/check/register", methods{"PUT": agentCheckRegister}},
		{"/v1/agent/check/deregister/", methods{"PUT": agentCheckDeregister}},
		{"/v1/agent/check/pass/", methods{"PUT": agentCheckIs(catalog.Passing)}},
		{"/v1/agent/check/warn/", methods{"PUT": agentCheckIs(catalog.Warning)}},
		{"/v1/agent/check/fail/", methods{"PUT": agentCheckIs(catalog.Critical)}},
		{"/v1/agent/check/update/", methods{"PUT": agentCheckUpdate}},
	}
}

// agentServiceJSON is a service as the agent shows it.
type agentServiceJSON struct {
	Kind              string `json:",omitempty"`
	ID                string
	Service           string
	Tags              []string
	Meta              map[string]string
	Port              int
	Ports             []portJSON `json:",omitempty" bexpr:"-"`
	Address           string
	SocketPath        string                 `json:",omitempty"`
	TaggedAddresses   map[string]addressJSON `json:",omitempty"`
	Weights           weightsJSON
	EnableTagOverride bool
	ContentHash       string `json:",omitempty"`
	Datacenter        string
}

func (d *Door) agentServiceOf(s *catalog.Service) *agentServiceJSON {
	out := &agentServiceJSON{
		Kind: s.Kind, ID: s.ID, Service: s.Name, Tags: listOf(s.Tags), Meta: mapOf(s.Meta), Port: int(s.Port), Ports: portsOf(s.Ports), Address: s.Address,
		SocketPath:      s.SocketPath,
		TaggedAddresses: addressesOf(s.TaggedAddresses), Weights: weightsOf(s.Weights), EnableTagOverride: s.EnableTagOverride, Datacenter: d.cfg.Datacenter,
	}
	if out.Meta == nil {
		out.Meta = map[string]string{}
	}
	return out
}

// agentView is what the agent has, as new as was asked for.
func (r *request) agentView(then func(v *catalog.View)) {
	r.fresh(func() { then(catalog.Of(r.door.view())) })
}

// MemberService is the id, and the name, of the service of a member on its node, and
// MemberMeta the key that tells it: it is the catalog's alone. No agent knows it, so that
// who clears up an agent leaves it. An agent's node that is no member's has the key itself.
const (
	MemberService = "consul"
	MemberMeta    = "incumbent-member"
)

// agentHas reports whether a service on the agent's node was registered with the agent.
func agentHas(s *catalog.Service) bool { return s != nil && !ofMembers(s.Meta) }

// ofMembers reports whether members have registered what has this metadata.
func ofMembers(meta []catalog.Pair) bool {
	return slices.ContainsFunc(meta, func(p catalog.Pair) bool { return p.Key == MemberMeta })
}

// agentCheckOf returns a check that the agent knows: not that of whether its node is
// alive, on which sessions depend.
func (d *Door) agentCheckOf(v *catalog.View, id string) *catalog.Check {
	if incumbent.Alike(id, nodeHealth) {
		return nil
	}
	return v.Check(d.namespace, d.cfg.Node, id)
}

// agentServiceWith returns a service that the agent knows.
func (d *Door) agentServiceWith(v *catalog.View, id string) *catalog.Service {
	if s := v.Service(d.namespace, d.cfg.Node, id); agentHas(s) {
		return s
	}
	return nil
}

// agentServices shows all services, by id.
func agentServices(d *Door, r *request) {
	e, err := expressionOf[serviceJSON](&d.expressions, r.opts.filter)
	if err != nil {
		r.fail(http.StatusInternalServerError, "%v", err)
		return
	}
	seen := r.who.sights()
	r.agentView(func(v *catalog.View) {
		out, hides := map[string]*agentServiceJSON{}, false
		v.NodeServices(d.namespace, d.cfg.Node, func(s *catalog.Service) bool {
			switch {
			case !agentHas(s):
			case !seen.service(s.Name):
				hides = true
			case e == nil || e.selects(serviceOf(s)):
				out[s.ID] = d.agentServiceOf(s)
			}
			return true
		})
		r.tellFiltered(hides)
		r.json(http.StatusOK, out)
	})
}

// agentChecks shows all checks, by id.
func agentChecks(d *Door, r *request) {
	e, err := expressionOf[checkJSON](&d.expressions, r.opts.filter)
	if err != nil {
		r.fail(http.StatusInternalServerError, "%v", err)
		return
	}
	seen := r.who.sights()
	r.agentView(func(v *catalog.View) {
		out, hides := map[string]*checkJSON{}, false
		v.NodeChecks(d.namespace, d.cfg.Node, func(c *catalog.Check) bool {
			shown := checkOf(c)
			switch {
			case incumbent.Alike(c.ID, nodeHealth):
			case !seen.of(c.Node, c.ServiceName):
				hides = true
			case e.selects(shown):
				shown.CreateIndex, shown.ModifyIndex = 0, 0
				out[c.ID] = shown
			}
			return true
		})
		r.tellFiltered(hides)
		r.json(http.StatusOK, out)
	})
}

// agentService shows one service, and waits for another hash of it.
func agentService(d *Door, r *request) {
	id, seen := r.rest, r.who.sights()
	r.agentView(func(v *catalog.View) {
		s := d.agentServiceWith(v, id)
		if s == nil {
			r.fail(http.StatusNotFound, "unknown service ID: %s", id)
			return
		}
		if !seen.service(s.Name) {
			of := auth.Resource{Name: d.named(s.Name)}
			r.denied(auth.ServiceRead, &of, s.Name, auth.Authorize(r.who.rights, auth.ServiceRead, of))
			return
		}
		r.opts.index = 0 // it is blocked by hash alone
		r.shared(sharedQuery{
			kind: "agent/service", params: strconv.Quote(id), rights: seen.key(),
			eval: func(v *core.View, notes *watch.Reads) result { return d.agentServiceResult(v, notes, id, seen) },
		})
	})
}

// agentServiceResult is one service as those see it who see the same. Another registration
// may have made it an instance of a service that they do not: then it is not there.
func (d *Door) agentServiceResult(v *core.View, notes *watch.Reads, id string, seen *sights) result {
	c := engine.ReadCatalog(v, notes, d.namespace)
	c.ReadNode(d.cfg.Node)
	s := d.agentServiceWith(c.View, id)
	if s == nil || !seen.service(s.Name) {
		text := []byte("unknown service ID: " + id)
		return result{status: http.StatusNotFound, hash: digestOf(text), fails: string(text), size: len(text)}
	}
	shown := d.agentServiceOf(s)
	hash := digestOf(encodeJSON(shown))
	shown.ContentHash = hex.EncodeToString(hash[:])
	b := encodeJSON(shown)
	return result{hash: hash, body: newBody(func() []byte { return b }), size: 2 * len(b)}
}

// Names of checks that say that somebody works on a node or a service.
const (
	nodeMaintenance    = "_node_maintenance"
	serviceMaintenance = "_service_maintenance:"

	maintained = "maintenance" // the status then
)

// aggregate is the status of a service by all its checks.
func aggregate(checks []*catalog.Check) string {
	worst := catalog.Passing
	for _, c := range checks {
		if c.ID == nodeMaintenance || strings.HasPrefix(c.ID, serviceMaintenance) {
			return maintained
		}
		worst = min(worst, c.Status)
	}
	return worst.String()
}

// healthStatus is the status of an answer about a service that has this one.
func healthStatus(status string) int {
	switch status {
	case catalog.Passing.String():
		return http.StatusOK
	case catalog.Warning.String():
		return http.StatusTooManyRequests
	default:
		return http.StatusServiceUnavailable
	}
}

// agentHealthJSON is how a service is, with its checks.
type agentHealthJSON struct {
	AggregatedStatus string
	Service          *agentServiceJSON
	Checks           []*agentHealthCheckJSON
}

// agentHealthCheckJSON is a check as /v1/agent/health shows it.
type agentHealthCheckJSON struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	ExposedPort int
	Definition  agentDefinitionJSON
	CreateIndex uint64
	ModifyIndex uint64
}

// agentDefinitionJSON says nothing there.
type agentDefinitionJSON struct {
	Interval                       string
	Timeout                        string
	DeregisterCriticalServiceAfter string
	HTTP                           string
	Header                         map[string][]string
	Method                         string
	Body                           string
	TLSServerName                  string
	TLSSkipVerify                  bool
	TCP                            string
	TCPUseTLS                      bool
	UDP                            string
	GRPC                           string
	OSService                      string
	GRPCUseTLS                     bool
}

// agentHealthOf is how an instance on the agent's node is. What its node's own health is
// does not count.
func (d *Door) agentHealthOf(i *catalog.Instance) *agentHealthJSON {
	var checks []*catalog.Check
	for _, c := range i.NodeChecks {
		if !incumbent.Alike(c.ID, nodeHealth) {
			checks = append(checks, c)
		}
	}
	checks = append(checks, i.Checks...)
	out := &agentHealthJSON{AggregatedStatus: aggregate(checks), Service: d.agentServiceOf(i.Service), Checks: []*agentHealthCheckJSON{}}
	for _, c := range checks {
		out.Checks = append(out.Checks, &agentHealthCheckJSON{
			Node: c.Node, CheckID: c.ID, Name: c.Name, Status: c.Status.String(), Notes: c.Notes, Output: c.Output,
			ServiceID: c.ServiceID, ServiceName: c.ServiceName, ServiceTags: c.ServiceTags,
			Definition: agentDefinitionJSON{Interval: "0s", Timeout: "0s", DeregisterCriticalServiceAfter: "0s"},
		})
	}
	return out
}

// healthReply answers how something is, as a text if that is asked for: by what is
// accepted, whatever the parameter says, or by that.
func (r *request) healthReply(status int, reason string, v any) {
	r.setHeader("X-Consul-Reason", reason)
	if strings.HasPrefix(r.header.Get("Accept"), "text/plain") || r.query.Get("format") == "text" {
		r.bytes(status, "text/plain", []byte(reason))
		return
	}
	r.json(status, v)
}

// agentHealthByID says how the service of an id is.
func agentHealthByID(d *Door, r *request) {
	if r.rest == "" {
		r.fail(http.StatusInternalServerError, "Missing serviceID")
		return
	}
	seen := r.who.sights()
	r.agentView(func(v *catalog.View) {
		i := v.Instance(d.namespace, d.cfg.Node, r.rest)
		if i == nil || !agentHas(i.Service) || !seen.service(i.Service.Name) {
			r.healthReply(http.StatusNotFound, "ServiceId "+r.rest+" not found", &agentHealthJSON{AggregatedStatus: catalog.Critical.String()})
			return
		}
		h := d.agentHealthOf(i)
		r.healthReply(healthStatus(h.AggregatedStatus), h.AggregatedStatus, h)
	})
}

// agentHealthByName says how the services of a name are, and the worst of them.
func agentHealthByName(d *Door, r *request) {
	if r.rest == "" {
		r.fail(http.StatusInternalServerError, "Missing service Name")
		return
	}
	seen := r.who.sights()
	r.agentView(func(v *catalog.View) {
		all, status := []*agentHealthJSON{}, catalog.Passing.String()
		v.NodeServices(d.namespace, d.cfg.Node, func(s *catalog.Service) bool {
			if s.Name == r.rest && agentHas(s) && seen.service(s.Name) {
				h := d.agentHealthOf(v.Instance(d.namespace, d.cfg.Node, s.ID))
				all, status = append(all, h), worse(status, h.AggregatedStatus)
			}
			return true
		})
		if len(all) == 0 {
			r.healthReply(http.StatusNotFound, "ServiceName "+r.rest+" Not Found", all)
			return
		}
		r.healthReply(healthStatus(status), status, all)
	})
}

// worse is the worse of two statuses.
func worse(a, b string) string {
	for _, status := range []string{maintained, catalog.Critical.String(), catalog.Warning.String()} {
		if a == status || b == status {
			return status
		}
	}
	return a
}

// agentServiceRegister registers a service with its checks. Checks that it has and the
// body has not stay, unless it says that they are to be replaced.
func agentServiceRegister(d *Door, r *request) {
	var in agentServiceBody
	if !r.decodeStrict(&in) {
		return
	}
	cmd, u := in.command(d)
	if r.refuseUnfit(u) || !r.mayRegister(cmd) {
		return
	}
	replace := r.query.Has("replace-existing-checks") && r.query.Get("replace-existing-checks") != "false"
	r.registerHere(cmd, func() {
		if !replace {
			r.nothing()
			return
		}
		r.dropChecks(cmd)
	})
}

// registerHere registers what is on the agent's node. The ttls of its checks begin anew,
// also where nothing changes.
func (r *request) registerHere(c *catalog.Command, then func()) {
	r.keepRunners(c.Checks)
	r.withAgent(c)
	r.register(c, func(at incumbent.Index) { r.restartTTLs(c.Checks, at, then) })
}

// keepRunners leaves checks to the members that run the same: who registers again what there
// is, by way of another member, changes nothing.
func (r *request) keepRunners(checks []*catalog.Check) {
	v := r.door.view()
	for _, c := range checks {
		o := catalog.Of(v).Check(r.door.namespace, r.door.cfg.Node, c.ID)
		if o == nil || c.Runner == 0 || o.Runner == 0 || !bytes.Equal(o.Definition, c.Definition) {
			continue
		}
		if _, belongs := v.Member(o.Runner); belongs {
			c.Runner = o.Runner
		}
	}
}

// restartTTLs has the ttls of checks that are registered begin anew, but for those that
// began at an index, and goes on.
func (r *request) restartTTLs(checks []*catalog.Check, at incumbent.Index, then func()) {
	if len(checks) == 0 {
		then()
		return
	}
	next := func() { r.restartTTLs(checks[1:], at, then) }
	c := catalog.Of(r.door.view()).Check(r.door.namespace, r.door.cfg.Node, checks[0].ID)
	if c == nil || c.Since == at { // it is gone again, or has just begun
		next()
		return
	}
	deadline := c.Deadline()
	if deadline == nil || !deadline.Extended {
		next()
		return
	}
	r.attempt(func(done func(error, func()) bool) {
		r.door.engine.Extend(deadline, func(err error) {
			if incumbent.KindOf(err) == incumbent.NotFound { // it is over, or has begun anew: either is what the check shows
				err = nil
			}
			done(err, next)
		})
	})
}

// dropChecks deregisters, one after the other, the checks of a service that a
// registration of it has not, and answers.
func (r *request) dropChecks(registered *catalog.Command) {
	d := r.door
	kept := map[string]bool{serviceMaintenance + registered.Service.ID: true}
	for _, c := range registered.Checks {
		kept[c.ID] = true
	}
	i := catalog.Of(d.view()).Instance(d.namespace, d.cfg.Node, registered.Service.ID)
	if i != nil {
		for _, c := range i.Checks {
			if kept[c.ID] {
				continue
			}
			t := catalog.Target{Kind: catalog.CheckKind, Namespace: d.namespace, Node: d.cfg.Node, ID: c.ID}
			r.change(&catalog.Command{Verb: catalog.Deregister, Target: t}, true, auth.ServiceWrite, registered.Service.Name, func(incumbent.Index) { r.dropChecks(registered) })
			return
		}
	}
	r.nothing()
}

// nodeHealth is the check that says whether a node is there at all.
const nodeHealth = "serfHealth"

// withAgent has a registration register the agent's node, if that is not there.
func (r *request) withAgent(c *catalog.Command) {
	d := r.door
	if catalog.Of(d.view()).Check(d.namespace, d.cfg.Node, nodeHealth) != nil {
		return // and so its node
	}
	address := ""
	for _, m := range d.cfg.Cluster.Members() {
		if host, _, err := net.SplitHostPort(m.Address); err == nil && (m.Self || address == "") {
			address = host
		}
	}
	c.Node = &catalog.Node{
		Namespace: d.namespace, Name: d.cfg.Node, ID: d.NodeID(), Address: cmp.Or(address, loopback),
		TaggedAddresses: ownAddresses(cmp.Or(address, loopback)),
		Meta:            []catalog.Pair{{Key: "consul-network-segment"}, {Key: "consul-version", Value: Version}},
	}
	c.Checks = append([]*catalog.Check{{
		Namespace: d.namespace, Node: d.cfg.Node, ID: nodeHealth, Name: "Serf Health Status", Status: catalog.Passing, Output: "Agent alive and reachable",
	}}, c.Checks...)
}

// agentServiceDeregister deregisters a service of the agent with its checks.
func agentServiceDeregister(d *Door, r *request) {
	r.agentView(func(v *catalog.View) {
		if d.agentServiceWith(v, r.rest) == nil {
			r.unknownService()
			return
		}
		t := catalog.Target{Kind: catalog.ServiceKind, Namespace: d.namespace, Node: d.cfg.Node, ID: r.rest}
		r.deregister(t, func() { r.nothing() })
	})
}

// loopback is the address of an agent of which none is known.
const loopback = "127.0.0.1"

// ownAddresses are the addresses of a node that has one.
func ownAddresses(address string) []catalog.Pair {
	family := "_ipv4"
	if a, err := netip.ParseAddr(address); err == nil && !a.Is4() {
		family = "_ipv6"
	}
	return []catalog.Pair{{Key: "lan", Value: address}, {Key: "lan" + family, Value: address}, {Key: "wan", Value: address}, {Key: "wan" + family, Value: address}}
}

// nothing answers that it is done.
func (r *request) nothing() { r.bytes(http.StatusOK, "application/json; charset=utf-8", nil) }

func (r *request) unknownService() {
	r.fail(http.StatusNotFound, "Unknown service ID %q. Ensure that the service ID is passed, not the service name.", r.rest)
}

func (r *request) unknownCheck() {
	r.fail(http.StatusNotFound, "Unknown check ID %q. Ensure that the check ID is passed, not the check name.", r.rest)
}
