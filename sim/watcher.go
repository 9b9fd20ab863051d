package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

const (
	watchAnswer    = 10 * time.Second // an agent gives a subscription up that says nothing for so long
	watchPull      = 4                // events asked for at a time
	watchPullBytes = 4 << 10          // of them
	turnsOneIn     = 20               // looks in whose place the agent watches something else
)

// watcher is the part of an agent that watches, from one member to the next: it
// subscribes behind what it knows, and asks for the next changes when it has got
// the last ones.
type watcher struct {
	a       *agent
	of      selection
	watched incumbent.Index // it knows all changes up to here
	open    *subscription
	asked   time.Duration // when it asked last, and has no answer; 0: it waits for none
}

// selection is what a watcher watches.
type selection struct {
	selectors []watch.Selector
	picks     func(*changed) bool // says the same in another way
}

// someSelection draws one: everything, one kind, one record, keys below a prefix, or of
// these only changes of some field, or of what a holder has.
func (w *world) someSelection() selection {
	lease, key := engine.FamilyTopic(leases.Number, leases.TopicOf(leaseName(w.rng.IntN(w.cfg.Leases)))), keyTopic(w.someKey())
	keys, prefix := watch.Kind(kv.Number), prefixOf(key.Name)
	one := func(s watch.Selector, picks func(watch.Topic) bool) selection {
		return selection{[]watch.Selector{s}, func(x *changed) bool { return picks(x.topic) }}
	}
	allLeases := one(watch.All(watch.Kind(leases.Number)), func(t watch.Topic) bool { return t.Kind == watch.Kind(leases.Number) })
	below := one(watch.Prefix(keys, key.Scope, prefix), func(t watch.Topic) bool {
		return t.Kind == keys && t.Scope == key.Scope && strings.HasPrefix(t.Name, prefix)
	})
	catalogs := watch.Kind(catalog.Number)
	switch w.rng.IntN(12) {
	case 0, 1:
		return allLeases
	case 2:
		return one(watch.Exact(lease), func(t watch.Topic) bool { return t == lease })
	case 3:
		return one(watch.All(keys), func(t watch.Topic) bool { return t.Kind == keys })
	case 4:
		return one(watch.Exact(key), func(t watch.Topic) bool { return t == key })
	case 5:
		return below
	case 6:
		return allLeases.changing(w, "holder", "pins", "queue")
	case 7:
		return one(watch.Exact(lease), func(t watch.Topic) bool { return t == lease }).changing(w, "holder", "offered")
	case 8:
		return below.changing(w, "value", "flags", "lock")
	case 9:
		return one(watch.All(catalogs), func(t watch.Topic) bool { return t.Kind == catalogs })
	case 10:
		if len(w.agents) > 0 {
			return allLeases.heldBy(w.agents[w.rng.IntN(len(w.agents))].holder())
		}
	}
	policies := watch.Kind(policy.Number)
	all := func(x *changed) bool {
		return x.topic.Kind == watch.Kind(leases.Number) || x.topic.Kind == keys || x.topic.Kind == policies
	}
	return selection{[]watch.Selector{watch.All(watch.Kind(leases.Number)), watch.All(keys), watch.All(policies)}, all}
}

// changing picks those changes of one selector in which one field changed.
func (s selection) changing(w *world, fields ...string) selection {
	field := fields[w.rng.IntN(len(fields))]
	kind := watch.Kind(leases.Number)
	if slices.Contains(keyFields, field) {
		kind = watch.Kind(kv.Number)
	}
	named, err := engine.Changing(s.selectors[0], kind, []string{field})
	if err != nil {
		panic(err)
	}
	return selection{
		[]watch.Selector{named},
		func(x *changed) bool { return s.picks(x) && strings.Contains(x.fields, field+" ") },
	}
}

// heldBy picks those changes of leases before or after which a holder has them.
func (s selection) heldBy(holder string) selection {
	return selection{
		[]watch.Selector{s.selectors[0].Where(leases.FieldHolder, holder)},
		func(x *changed) bool { return s.picks(x) && (x.was == holder || x.is == holder) },
	}
}

// subscription is what a member keeps for a watcher.
type subscription struct {
	a       *agent
	p       *process
	reader  *watch.Reader
	sent    incumbent.Index // everything up to here has left
	waiting bool            // the agent has asked, and there was nothing
	woken   bool
}

// look asks for what is next, or looks for another member.
func (r *watcher) look() {
	w := r.a.w
	switch s := r.open; {
	case s != nil && r.asked != 0 && w.now-r.asked < watchAnswer && (s.p == nil || !s.p.gone):
		return // waits
	case s != nil && r.asked == 0 && !s.p.gone && s.p.m == r.a.at && !w.chance(turnsOneIn):
		r.ask(func(p *process) {
			if p == s.p {
				s.next()
			}
		})
		return
	case s != nil && w.chance(turnsOneIn):
		r.watched, r.of = 0, w.someSelection() // what it knows of one lease says nothing of all
	}
	r.subscribe()
}

func (r *watcher) ask(what func(*process)) {
	r.asked = r.a.w.now
	r.a.at.receive(r.a, what, func() { r.open = nil })
}

// subscribe begins behind what the agent knows.
func (r *watcher) subscribe() {
	if r.open != nil {
		r.leave()
	}
	s := &subscription{a: r.a, sent: r.watched}
	r.open = s
	selectors := r.of.selectors
	r.ask(func(p *process) {
		s.p = p
		reader, err := p.group.Hub().Subscribe(s.sent, func() { s.woken = true }, selectors...)
		if err != nil {
			s.refused(err)
			return
		}
		s.reader = reader
		p.subscriptions = append(p.subscriptions, s)
		s.next()
	})
}

// leave tells the member that nobody listens any more, which it may not hear.
func (r *watcher) leave() {
	s := r.open
	r.open, r.asked = nil, 0
	if s.p == nil || s.p.gone {
		return
	}
	s.p.m.receive(r.a, func(p *process) {
		if p == s.p && s.reader != nil {
			s.close()
		}
	}, func() {})
}

func (s *subscription) close() {
	s.reader.Close()
	s.reader, s.waiting = nil, false
	kept := s.p.subscriptions[:0]
	for _, o := range s.p.subscriptions {
		if o != s {
			kept = append(kept, o)
		}
	}
	s.p.subscriptions = kept
}

// next sends what is next, or waits for it.
func (s *subscription) next() {
	if s.reader == nil {
		return
	}
	b, err := s.pull()
	if err != nil {
		s.close()
		s.refused(err)
		return
	}
	from, to := s.sent, b.Progress
	if to == from && len(b.Events) == 0 && !b.More {
		s.waiting = true
		return
	}
	s.waiting, s.sent = false, to
	got := make([]changed, 0, len(b.Events))
	for _, e := range b.Events {
		got = append(got, sum(e.Payload.(*core.Change))) //nolint:forcetypeassert // what topics carry
	}
	r := &s.a.reader.watcher
	s.p.reply(func() {
		if r.open != s || r.watched != from {
			return // an answer to an earlier question
		}
		s.a.w.check.watched(s.a, &r.of, from, to, got)
		r.watched, r.asked = to, 0
	})
}

// pull takes what is next, up to the end of an index.
func (s *subscription) pull() (b watch.Batch, err error) {
	for whole := false; !whole && err == nil; whole = b.Whole() {
		b, err = s.reader.Pull(b.Events, watchPull, watchPullBytes)
	}
	return b, err
}

// refused says why there is no subscription (any more). Whoever was too slow
// reads everything and goes on from there.
func (s *subscription) refused(err error) {
	w, at := s.a.w, s.p.group.View().Index()
	if incumbent.KindOf(err) != incumbent.Compacted {
		w.violate("member %d refuses to be watched: %v (G16)", s.p.m.at, err)
		return
	}
	w.res.CutOff++
	r := &s.a.reader.watcher
	s.p.reply(func() {
		if r.open == s {
			r.open, r.asked, r.watched = nil, 0, max(r.watched, at)
		}
	})
}

// tellWatchers goes on with those who wait and were woken. Nobody may wait for
// what is there already: that would be silence (G16).
func (p *process) tellWatchers() {
	index := p.group.Hub().Index()
	for _, s := range append([]*subscription(nil), p.subscriptions...) {
		if !s.waiting {
			continue
		}
		if s.woken {
			s.woken = false
			s.next()
			continue
		}
		if at := s.reader.Progress(); at < index && at >= s.sent {
			p.w.violate("member %d has changes after index %d for agent %d, and does not wake it (G16)", p.m.at, at, s.a.id)
		}
	}
}
