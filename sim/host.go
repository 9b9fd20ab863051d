package sim

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
)

// What hosts do.
const (
	minCheckTTL = time.Second
	maxCheckTTL = 3 * time.Second
	goesAfter   = 2 * time.Second // of being critical a service goes, at the latest
	hostRests   = time.Second     // between two deeds, at most
	passPrefix  = "pass-"         // begins the address that a pass of a check comes from
	ownCheck    = "alive"         // of a node itself
	pairsOf     = "pairs"         // namespace of the keys that say what a service in the catalog says
	pairService = "pair"
)

// serviceNames are those that the hosts' services have, more than one the same.
var serviceNames = []string{"web", "db"}

// host is a client that has a node in the catalog, with a service on it whose check
// has a ttl: it says in time that it is well, and counts on the check for as long as it
// may. It opens sessions that depend on the check, and locks keys by them.
//
// The ids of a service and its check are those of one life: what an earlier one has
// sent and nobody has answered changes nothing of this one.
type host struct {
	w      *world
	a      *agent // its session is the host's
	number int
	nodes  int // names of nodes that it has given up
	life   int

	node, service, check, name string
	ttl, goes                  time.Duration
	until                      time.Duration // the check does not lapse before, on its own clock
	bound                      bool          // counts on its session for as long as on the check
	doubt                      bool          // may have called the check critical itself
}

func newHost(w *world, number, id int) *host {
	return &host{w: w, a: newClient(w, id), number: number}
}

// counts reports whether the host may rely on its check now.
func (h *host) counts() bool { return !h.a.retired && h.a.clock() < h.until }

// begin registers another service with its check.
func (h *host) begin() {
	a, w := h.a, h.w
	a.turn++
	h.life++
	h.until, h.bound, h.doubt = 0, false, false
	h.node = fmt.Sprintf("node-%d-%d", h.number, h.nodes)
	h.name = serviceNames[w.rng.IntN(len(serviceNames))]
	h.service, h.check = fmt.Sprintf("%s-%d", h.name, h.life), fmt.Sprintf("ttl-%d", h.life)
	h.ttl = minCheckTTL + w.upTo(maxCheckTTL-minCheckTTL).Truncate(time.Millisecond)
	if h.goes = 0; w.chance(2) {
		h.goes = w.upTo(goesAfter).Truncate(time.Millisecond) + time.Millisecond
	}
	a.session = incumbent.SessionID{}
	h.register()
}

func (h *host) register() {
	c := h.registration(false)
	c.Checks = append(c.Checks, &catalog.Check{ID: ownCheck, Name: ownCheck, Status: catalog.Passing})
	h.do(c, func(r core.Result) {
		if r.Err != nil {
			h.again()
			return
		}
		h.pass()
		h.rest()
	}, h.register)
}

// registration is what registers the node, its service and the check. keep: as the
// check is.
func (h *host) registration(keep bool) catalog.Command {
	h.w.values++
	return catalog.Command{
		Verb: catalog.Register, Target: h.target(0, ""), KeepOutput: keep,
		Node: &catalog.Node{Address: fmt.Sprintf("10.0.0.%d", h.number)},
		Service: &catalog.Service{
			ID: h.service, Name: h.name, Port: 80, Tags: []string{strconv.FormatUint(h.w.values%4, 10)}, Weights: catalog.Weights{Passing: 1, Warning: 1},
		},
		Checks: []*catalog.Check{{
			ID: h.check, Name: "ttl", Status: catalog.Passing, ServiceID: h.service, Type: "ttl", TTL: h.ttl, DeregisterAfter: h.goes,
		}},
	}
}

func (h *host) target(k catalog.Kind, id string) catalog.Target {
	return catalog.Target{Kind: k, Namespace: incumbent.DefaultNamespace, Node: h.node, ID: id}
}

func (h *host) again() { h.a.later(h.w.upTo(thinks), h.begin) }
func (h *host) rest()  { h.a.later(h.w.upTo(hostRests), h.act) }

// do makes a call on the catalog, at any member.
func (h *host) do(c catalog.Command, then func(core.Result), nothing func()) {
	h.a.at = h.w.anyone()
	n := h.a.submit(c, then, nothing)
	h.w.check.catalog.numbered(n, c)
}

// act does something, and goes on after a rest.
func (h *host) act() {
	w := h.w
	then, nothing := func(core.Result) { h.rest() }, h.rest
	flap := func(id string, s catalog.Status) {
		w.values++
		h.do(catalog.Command{Verb: catalog.UpdateCheck, Target: h.target(catalog.CheckKind, id), Status: s, Output: fmt.Sprint(w.values)}, then, nothing)
	}
	switch w.rng.IntN(12) {
	case 0:
		flap(h.check, catalog.Warning)
	case 1:
		h.doubt, h.bound = true, false
		flap(h.check, catalog.Critical)
	case 2, 3:
		flap(ownCheck, catalog.Status(w.rng.IntN(3)))
	case 4:
		h.do(h.registration(true), then, nothing)
	case 5, 6:
		h.open()
	case 7:
		h.nap()
	case 8, 9:
		h.pair()
	case 10:
		h.leave()
	default:
		h.rest()
	}
}

// pass says that the check is well, again and again: as long as it was so, without the
// log.
func (h *host) pass() {
	a, w := h.a, h.w
	a.later(h.ttl/3, h.pass)
	w.calls++
	sent := a.clock()
	call := engine.Call{Meta: core.Meta{Origin: core.Origin{Address: fmt.Sprintf("%s%08d", passPrefix, w.calls), Principal: a.principal()}}}
	c := catalog.Command{Verb: catalog.UpdateCheck, Target: h.target(catalog.CheckKind, h.check), Status: catalog.Passing, StatusOnly: !w.chance(8)}
	a.call(func(p *process, reply func(func())) {
		p.group.Pass(call, c, func(r core.Result) { reply(func() { h.passed(sent, &r) }) })
	}, func() {})
}

// passed takes what is answered to a pass.
func (h *host) passed(sent time.Duration, r *core.Result) {
	w := h.w
	c, _ := r.Record.(*catalog.Check)
	switch {
	case r.Err == nil && c != nil && c.Status == catalog.Passing:
		h.until = max(h.until, sent+time.Duration(float64(h.ttl)*(1-drift)))
		w.res.Passes++
	case r.Err == nil:
		w.violate("host %d is told %+v of a pass of its check", h.number, r.Record)
	case r.Err.Kind == incumbent.NotFound:
		if h.counts() && !h.doubt { // else its service may have been critical for long enough
			w.violate("host %d is told that its check is gone, %v before it may be (G4)", h.number, h.until-h.a.clock())
		}
		h.again()
	}
}

// nap is a silence about as long as the check lasts.
func (h *host) nap() {
	if w := h.w; !w.healed {
		h.a.quiet = w.now + max(0, h.until-h.a.clock()) + w.upTo(napsOver)
		w.note("host %d naps until %v", h.number, h.a.quiet)
	}
	h.rest()
}

// open opens a session that depends on the check, and locks a key by it. Some have a
// ttl besides, and nobody extends those.
func (h *host) open() {
	w, a := h.w, h.a
	if !a.session.IsZero() {
		h.rest()
		return
	}
	binary.BigEndian.PutUint64(a.session[:8], w.rng.Uint64())
	a.session[15] = 3
	s := &catalog.Session{ID: a.session, Name: "lock", Behavior: catalog.Behavior(w.rng.IntN(2)), ServiceChecks: []string{h.check}}
	if w.chance(2) {
		s.LockDelay = w.upTo(maxDelay).Truncate(time.Millisecond)
	}
	if w.chance(3) {
		s.TTL = max(a.ttl/2, minTTL).Truncate(time.Millisecond) // it lives for twice that
	}
	h.do(catalog.Command{Verb: catalog.OpenSession, Target: h.target(0, ""), Session: s}, func(r core.Result) {
		if r.Err == nil && !r.Replayed {
			h.bound = s.TTL == 0 && !h.doubt
			w.res.Bound++
			h.lock(s)
			return
		}
		h.rest()
	}, h.rest)
}

// lock locks a key by the session, if nobody else has it.
func (h *host) lock(s *catalog.Session) {
	w := h.w
	c := kv.Command{
		Verb: kv.Acquire, Key: keyNamed(fmt.Sprintf("%s%d", lockDir, w.rng.IntN(lockNum))), Session: s.ID, Value: w.someValue(), Delay: s.LockDelay,
	}
	if s.Behavior == catalog.Delete {
		c.OnEnd = kv.Delete
	}
	w.submitKeys(h.a, c, func(core.Result) { h.rest() }, h.rest)
}

// leave takes the check, the service or the node out, closes the session, or dies
// without a word.
func (h *host) leave() {
	w, a := h.w, h.a
	h.until, h.bound = 0, false
	a.turn++
	then, nothing := func(core.Result) { h.again() }, h.again
	out := catalog.Command{Verb: catalog.Deregister}
	switch w.rng.IntN(5) {
	case 0:
		out.Target = h.target(catalog.CheckKind, h.check)
	case 1:
		out.Target = h.target(catalog.ServiceKind, h.service)
	case 2:
		out.Target = h.target(catalog.NodeKind, "")
		h.nodes++ // nobody knows when it takes effect
	case 3:
		if a.session.IsZero() {
			h.again()
			return
		}
		a.submit(core.CloseSessionCommand{ID: a.session, Reason: "done"}, then, nothing)
		return
	default:
		h.again()
		return
	}
	h.do(out, then, nothing)
}

// pair changes a service and a key together, or takes both out: neither is ever seen
// without the other. Some transactions fail at their end, and nothing of them happens.
func (h *host) pair() {
	w, a := h.w, h.a
	w.values++
	says := strconv.FormatUint(w.values, 10)
	node, key := pairNode(h.number), kv.Key{Namespace: pairsOf, Name: pairNode(h.number)}
	target := catalog.Target{Namespace: incumbent.DefaultNamespace, Node: node}
	var txn core.TxnCommand
	if w.chance(4) {
		target.Kind = catalog.NodeKind
		txn.Then = []core.Command{kv.Command{Verb: kv.Remove, Key: key}, catalog.Command{Verb: catalog.Deregister, Target: target}}
	} else {
		txn.Then = []core.Command{
			catalog.Command{
				Verb: catalog.Register, Target: target, Node: &catalog.Node{Address: "10.1.0.1"},
				Service: &catalog.Service{ID: pairService, Name: serviceNames[0], Meta: []catalog.Pair{{Key: "says", Value: says}}, Weights: catalog.Weights{Passing: 1, Warning: 1}},
			},
			kv.Command{Verb: kv.Put, Key: key, Value: []byte(says)},
		}
	}
	if w.chance(4) {
		txn.Then = append(txn.Then, catalog.Command{
			Verb: catalog.Register, Target: catalog.Target{Namespace: incumbent.DefaultNamespace, Node: node}, Checks: []*catalog.Check{{ID: "c", Name: "c", ServiceID: "nowhere"}},
		})
	}
	a.at = w.anyone()
	n := a.submit(txn.Pack(), func(core.Result) { h.rest() }, h.rest)
	w.check.catalog.inTransaction(n)
}

func pairNode(number int) string { return fmt.Sprintf("pair-%d", number) }

// submitCatalog answers what would do nothing from a confirmed view, and proposes all
// else, as doors do; what was sent before only the log decides.
func (p *process) submitCatalog(call lease.Call, c catalog.Command, first bool, done func(core.Result)) {
	execute := func() {
		p.group.Execute(engine.Call{Meta: call.Meta(), Deadline: call.Deadline, Reserve: c.Verb == catalog.Deregister}, c, done)
	}
	asItIs := func() (core.Result, bool) {
		v := p.group.View()
		r, idle := catalog.Of(v).Idling(&c, func(id incumbent.SessionID) bool { return v.Session(id) != nil })
		r.Index = v.Index()
		return r, idle
	}
	if _, idle := asItIs(); !first || !idle {
		execute()
		return
	}
	p.group.Confirm(func(err error) {
		if err != nil {
			done(failed(err))
			return
		}
		if r, idle := asItIs(); idle {
			p.w.res.Idle++
			done(r)
			return
		}
		execute()
	})
}
