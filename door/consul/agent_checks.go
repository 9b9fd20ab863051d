package consul

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/health"
)

// agentCheckRegister registers a check of the agent, or of a service of it.
func agentCheckRegister(d *Door, r *request) {
	var in agentCheckBody
	if !r.decodeStrict(&in) {
		return
	}
	if in.Name == "" {
		r.fail(http.StatusBadRequest, "Missing check name")
		return
	}
	if _, ok := catalog.ParseStatus(in.Status); in.Status != "" && !ok {
		r.fail(http.StatusBadRequest, "Bad check status")
		return
	}
	check, u := in.record(d)
	if r.refuseUnfit(u) {
		return
	}
	check.ID = cmp.Or(check.ID, check.Name)
	check.Interval, check.Timeout = time.Duration(in.Interval).String(), time.Duration(in.Timeout).String()
	r.agentView(func(v *catalog.View) {
		if check.ServiceID != "" && d.agentServiceWith(v, check.ServiceID) == nil {
			r.fail(http.StatusNotFound, "ServiceID %q does not exist", check.ServiceID)
			return
		}
		r.registerCheck(check)
	})
}

// registerCheck registers a check on the agent's node, if the caller may.
func (r *request) registerCheck(c *catalog.Check) {
	d := r.door
	cmd := &catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: d.namespace, Node: d.cfg.Node}, Checks: []*catalog.Check{c}, KeepOutput: true}
	if !r.mayRegister(cmd) {
		return
	}
	r.registerHere(cmd, r.nothing)
}

// agentCheckDeregister deregisters a check of the agent.
func agentCheckDeregister(d *Door, r *request) {
	r.agentView(func(v *catalog.View) {
		if d.agentCheckOf(v, r.rest) == nil {
			r.unknownCheck()
			return
		}
		r.deregister(r.agentCheck(r.rest), func() { r.nothing() })
	})
}

func (r *request) agentCheck(id string) catalog.Target {
	return catalog.Target{Kind: catalog.CheckKind, Namespace: r.door.namespace, Node: r.door.cfg.Node, ID: id}
}

// agentCheckIs says of a check with a ttl that it is so.
func agentCheckIs(status catalog.Status) endpoint {
	return func(_ *Door, r *request) { r.updateCheck(status, r.query.Get("note")) }
}

// agentCheckUpdate says of a check with a ttl how it is.
func agentCheckUpdate(_ *Door, r *request) {
	var in struct{ Status, Output string }
	if !r.decode(&in) {
		return
	}
	status, ok := catalog.ParseStatus(in.Status)
	if !ok {
		r.fail(http.StatusBadRequest, "Invalid check status: '%s'", in.Status)
		return
	}
	r.updateCheck(status, in.Output)
}

// outputMark stands where an output was cut off.
const outputMark = "\n... (output was cut off)"

// cutOutput is an output as the catalog takes it: a check is not to fail for what it says.
func cutOutput(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= catalog.MaxOutputBytes {
		return text
	}
	return health.Bounded(text, catalog.MaxOutputBytes-len(outputMark)) + outputMark
}

// updateCheck says of a check with a ttl how it is.
func (r *request) updateCheck(status catalog.Status, output string) {
	d := r.door
	c := catalog.Of(d.view()).Check(d.namespace, d.cfg.Node, r.rest)
	if c == nil { // it may have come just now
		r.agentView(func(v *catalog.View) {
			if c := v.Check(d.namespace, d.cfg.Node, r.rest); c != nil {
				r.updateKnown(c, status, output)
				return
			}
			r.unknownCheck()
		})
		return
	}
	r.updateKnown(c, status, output)
}

func (r *request) updateKnown(c *catalog.Check, status catalog.Status, output string) {
	if c.TTL == 0 {
		r.fail(http.StatusInternalServerError, "CheckID %q does not have associated TTL", c.ID)
		return
	}
	action, name := auth.NodeWrite, c.Node
	if c.ServiceName != "" {
		action, name = auth.ServiceWrite, c.ServiceName
	}
	if !r.allow(action, name, false) {
		return
	}
	// Where it changes nothing it is no command: it extends the ttl.
	d := r.door
	cmd := catalog.Command{Verb: catalog.UpdateCheck, Target: r.agentCheck(c.ID), Status: status, Output: cutOutput(output)}
	cmd.StatusOnly = c.Status == status && d.outputs.settled(c, cmd.Output, d.monotonic(), d.jitter())
	of := change{action: action, subject: d.subject(name)}
	told := func(res *core.Result) {
		is, ok := res.Record.(*catalog.Check)
		r.settled(&of, res, ok && is.Modified == res.Index) // else it was found to be so
	}
	r.execute(func(call engine.Call, done func(core.Result)) {
		r.door.engine.Pass(call, cmd, func(res core.Result) {
			if _, extended := res.Record.(*catalog.Check); extended && res.Err != nil { // the output alone was refused: it is written another time
				d.outputs.notWritten(c.ID)
				res.Err = nil
			}
			done(res)
		})
	}, told, func(res core.Result) {
		if res.Err != nil {
			d.outputs.notWritten(c.ID)
			r.refusedByCatalog(&cmd, &res)
			return
		}
		r.nothing()
	})
}

// What a maintenance says where nobody gave a reason.
const (
	nodeReason    = "Maintenance mode is enabled for this node, but no reason was provided. This is a default message."
	serviceReason = "Maintenance mode is enabled for this service, but no reason was provided. This is a default message."
)

// enables reads whether a maintenance begins or ends. If it does not say so it has been
// answered.
func (r *request) enables() (on, ok bool) {
	if !r.query.Has("enable") {
		r.fail(http.StatusBadRequest, "Missing value for enable")
		return false, false
	}
	text := r.query.Get("enable")
	on, err := strconv.ParseBool(text)
	if err != nil {
		r.fail(http.StatusBadRequest, "Invalid value for enable: %q", text)
	}
	return on, err == nil
}

// agentServiceMaintenance begins or ends the maintenance of a service.
func agentServiceMaintenance(d *Door, r *request) {
	if r.rest == "" {
		r.fail(http.StatusBadRequest, "Missing service ID")
		return
	}
	on, ok := r.enables()
	if !ok {
		return
	}
	r.agentView(func(v *catalog.View) {
		if d.agentServiceWith(v, r.rest) == nil {
			r.unknownService()
			return
		}
		r.maintain(on, &catalog.Check{
			ID: serviceMaintenance + r.rest, Name: "Service Maintenance Mode", Notes: cmp.Or(r.query.Get("reason"), serviceReason), ServiceID: r.rest,
		})
	})
}

// agentMaintenance begins or ends the maintenance of the agent's node.
func agentMaintenance(_ *Door, r *request) {
	on, ok := r.enables()
	if !ok {
		return
	}
	r.agentView(func(*catalog.View) {
		r.maintain(on, &catalog.Check{ID: nodeMaintenance, Name: "Node Maintenance Mode", Notes: cmp.Or(r.query.Get("reason"), nodeReason)})
	})
}

// maintain registers or deregisters the check that says that somebody works on
// something.
func (r *request) maintain(on bool, c *catalog.Check) {
	if !on {
		r.deregister(r.agentCheck(c.ID), func() { r.nothing() })
		return
	}
	c.Namespace, c.Node, c.Status, c.Type = r.door.namespace, r.door.cfg.Node, catalog.Critical, maintained
	r.registerCheck(c)
}
