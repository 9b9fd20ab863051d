package sim

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// What pollers do.
const (
	pollsFor   = 3 * time.Second // a poll waits, at most
	pollRests  = 200 * time.Millisecond
	asksOther  = 30 // polls in whose place it asks for something else: one in so many
	pollKind   = watch.Kind(1)
	pollsAgain = time.Second // it gives up so long after the wait is over
)

// poller is a client that asks for a list of the catalog again and again, each time
// blocking until it has changed: by the index, or by the hash, of the answer before. It
// asks any member, from one question to the next another.
type poller struct {
	w *world
	a *agent
	question

	index incumbent.Index // of the last answer; 0: there was none
	hash  watch.Hash
	said  string          // by it
	read  incumbent.Index // it was right at this index
	known bool            // there was an answer
}

// question is what a poller asks for.
type question struct {
	what string // which list
	name string // of the service or node; "": a whole table
}

// The lists that are asked for: of the instances of a service, of what is on a node, and
// of tables.
const (
	ofService  = "service"
	ofNode     = "node"
	ofServices = "services"
	ofChecks   = "checks"
	ofNodes    = "nodes"
	ofSessions = "sessions"
)

func newPoller(w *world, id int) *poller {
	return &poller{w: w, a: newClient(w, id), question: w.someQuestion()}
}

func (w *world) someQuestion() question {
	switch w.rng.IntN(8) {
	case 0:
		return question{what: ofNode, name: fmt.Sprintf("node-%d-0", w.rng.IntN(max(1, w.cfg.Hosts)))}
	case 1:
		return question{what: ofServices}
	case 2:
		return question{what: ofChecks}
	case 3:
		return question{what: ofNodes}
	case 4:
		return question{what: ofSessions}
	}
	return question{what: ofService, name: serviceNames[w.rng.IntN(len(serviceNames))]}
}

func (k *poller) next() { k.a.later(k.w.upTo(pollRests), k.poll) }

// poll asks, and takes what is answered.
func (k *poller) poll() {
	w := k.w
	if w.chance(asksOther) {
		*k = poller{w: w, a: k.a, question: w.someQuestion()}
	}
	p := &poll{of: k, want: watch.Want{For: w.upTo(pollsFor)}, began: w.now, question: k.question}
	switch {
	case !k.known:
		p.want.For = 0
	case w.chance(3):
		p.want.Not = k.hash
	default:
		p.want.After = k.index
	}
	p.stale = w.chance(3)
	k.a.at = w.anyone()
	k.a.callWithin(p.want.For+p.want.For/8+pollsAgain, func(at *process, reply func(func())) {
		p.bound = w.check.acked
		// As at the door for Consul's clients, a state that nobody has written yet is
		// asked nothing: what is not there is told under index 1, and nothing may begin
		// under that.
		if p.stale = p.stale && at.group.View().Index() > 0; p.stale {
			p.await(at, reply)
			return
		}
		at.group.Confirm(func(err error) {
			if err != nil || at.group.View().Index() == 0 {
				reply(k.next)
				return
			}
			p.want.AtLeast = at.group.View().Index()
			p.await(at, reply)
		})
	}, k.next)
}

// poll is one question under way.
type poll struct {
	of       *poller
	question question
	want     watch.Want
	stale    bool
	began    time.Duration
	bound    incumbent.Index // acknowledged when it arrived
}

// await waits for the query at a member, as a door does.
func (p *poll) await(at *process, reply func(func())) {
	k := p.of
	q, err := at.group.Queries().Query(watch.QuerySpec[*core.View]{
		Key:  watch.QueryKey{Kind: pollKind, Params: p.question.what + " " + p.question.name},
		Eval: p.question.eval,
	})
	if err != nil {
		k.w.violate("member %d refuses to be polled: %v (G16)", at.m.at, err)
		return
	}
	_, err = q.Wait(p.want, func(t watch.Told) {
		q.Release()
		if t.Err != nil || at.gone {
			return
		}
		index := max(t.Answer.Changed, 1)
		if p.want.After <= t.Read {
			index = max(index, p.want.After)
		}
		k.w.check.polls.answered(at, p, &t)
		early := k.w.now-p.began < time.Duration(float64(p.want.For)*(1-drift))
		reply(func() { k.told(at, p, index, &t, early) })
	})
	if err != nil {
		k.w.violate("member %d refuses to be waited for: %v (G16)", at.m.at, err)
	}
}

// told takes an answer.
func (k *poller) told(at *process, p *poll, index incumbent.Index, t *watch.Told, early bool) {
	k.w.res.Polls++
	k.w.check.polls.heard(k, at, p, index, t, early)
	k.index, k.hash, k.read, k.known = index, t.Answer.Hash, t.Read, true
	k.said = t.Answer.Value.(string) //nolint:forcetypeassert // what eval gives
	k.next()
}

// eval is the answer to a question: its records, each with when it was modified. Where
// nothing ever was the index is 1.
func (q question) eval(v *core.View, notes *watch.Reads) watch.Result {
	c := engine.ReadCatalog(v, notes, incumbent.DefaultNamespace)
	var b strings.Builder
	var at incumbent.Index
	switch q.what {
	case ofService:
		at = c.ReadService(q.name, func(i *catalog.Instance) bool {
			say(&b, i.Node)
			say(&b, i.Service)
			for _, list := range [][]*catalog.Check{i.NodeChecks, i.Checks} {
				for _, check := range list {
					say(&b, check)
				}
			}
			return true
		})
	case ofNode:
		var n *catalog.Node
		if n, at = c.ReadNode(q.name); n != nil {
			say(&b, n)
		}
		c.NodeServices(incumbent.DefaultNamespace, q.name, func(s *catalog.Service) bool { say(&b, s); return true })
		c.NodeChecks(incumbent.DefaultNamespace, q.name, func(k *catalog.Check) bool { say(&b, k); return true })
		c.NodeSessions(incumbent.DefaultNamespace, q.name, func(s *catalog.Session) bool { say(&b, s); return true })
	case ofServices:
		at = c.ReadServices(func(s *catalog.Service) bool { say(&b, s); return true })
	case ofChecks:
		at = c.ReadChecks(func(k *catalog.Check) bool { say(&b, k); return true })
	case ofNodes:
		at = c.ReadNodes(func(n *catalog.Node) bool { say(&b, n); return true })
	case ofSessions:
		at = c.ReadSessions(func(s *catalog.Session) bool { say(&b, s); return true })
	}
	said := b.String()
	return watch.Result{Value: said, Hash: hashOf(said), Modified: max(at, 1), Size: len(said)}
}

// say writes a record as answers have it.
func say(b *strings.Builder, r any) {
	id := recordOf(r)
	_, modified := dates(r)
	fmt.Fprintf(b, "%s %s %s %d\n", id.table, id.node, id.id, modified)
}

func hashOf(said string) (h watch.Hash) {
	f := fnv.New128a()
	_, _ = f.Write([]byte(said)) // a hash takes everything
	copy(h[:], f.Sum(nil))
	return h
}
