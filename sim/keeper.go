package sim

import (
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

// What goes on beside a flood, before and after it.
const (
	keepersNum  = 12
	herdNum     = 60                     // keepers where all come back at once
	keeperTTL   = 6 * time.Second        // extended each third of it
	steadyNum   = 8                      // clients that ask for what is done on an ordinary day
	steadyRests = 200 * time.Millisecond // between two requests of one, at most
	steadyWaits = time.Second            // served later is not served
)

// beside begins what goes on beside the flood.
func (f *flood) beside() {
	w, n := f.w, keepersNum
	if f.Reconnect {
		n = herdNum
	}
	for i := range n {
		k := &keeper{w: w, a: w.besides(w.nextID()), stream: f.Reconnect, critical: i%4 == 0}
		k.a.ttl, k.a.want = keeperTTL, incumbent.Name{Namespace: floodOf, Model: incumbent.DefaultModel, Lease: fmt.Sprintf("kept-%d", i)}
		w.clients = append(w.clients, k.a)
		f.keepers = append(f.keepers, k)
		switch i % 3 {
		case 1, 2:
			k.a.session = w.someSession()
			k.a.attached.wanted = i%3 == 2
			w.after(w.upTo(5*time.Second), k.open)
		default:
			w.after(w.upTo(5*time.Second), k.claim)
		}
	}
	for i := range steadyNum {
		s := &steady{w: w, a: w.besides(w.nextID()), n: i}
		w.clients = append(w.clients, s.a)
		w.after(w.upTo(2*time.Second), s.next)
	}
}

// besides returns a client of the flood, or of what goes on beside it.
func (w *world) besides(id int) *agent {
	a := newClient(w, id)
	a.beside = true
	return a
}

// keeper holds a lease of its own to the end of the run, whatever happens: it extends
// when a third of the ttl has passed, and asks again until there is an answer. Where it
// speaks over a stream, it has to open another first when that has ended.
type keeper struct {
	w        *world
	a        *agent
	critical bool
	stream   bool
	on       *process // with which the stream is open
	token    incumbent.Token
	asking   bool
}

func (k *keeper) open() {
	k.a.submit(core.OpenSessionCommand{ID: k.a.session, TTL: k.a.ttl}, func(r core.Result) {
		if r.Err != nil {
			k.a.later(k.w.upTo(returns), k.open)
			return
		}
		k.claim()
	}, k.open)
}

func (k *keeper) claim() {
	cmd := leases.ClaimCommand{Name: k.a.want, Holder: k.a.holder(), Session: k.a.session, TTL: k.a.ttl, Critical: k.critical}
	if !k.a.session.IsZero() {
		cmd.TTL = 0
	}
	k.a.submit(cmd, func(r core.Result) {
		if r.Err != nil {
			k.a.later(k.w.upTo(returns), k.claim)
			return
		}
		k.token = leases.AnswerOf(r).Lease.Token
		k.w.note("keeper %d holds %s, token %d", k.a.id, k.a.want.Lease, k.token)
		k.keep()
	}, k.claim)
}

func (k *keeper) keep() {
	k.a.later(k.a.ttl/3, k.keep)
	if !k.asking {
		k.asking = true
		k.extend()
	}
}

// extend asks until there is an answer.
func (k *keeper) extend() {
	if k.a.retired {
		return
	}
	if k.stream && (k.on == nil || k.on.gone) {
		k.reconnect()
		return
	}
	if k.stream {
		k.a.at = k.on.m
	}
	again := func(d time.Duration) { k.a.later(d, k.extend) }
	x := lease.Extension{Token: k.token, Session: k.a.session}
	if k.a.attaches() {
		x.Token = 0
	}
	k.a.call(func(p *process, reply func(func())) {
		p.extend(&lease.Batch{Items: []lease.Extension{x}, Done: func(b *lease.Batch) {
			kind, hint, leader := b.Items[0].Kind, b.RetryAfter, b.Leader
			reply(func() {
				switch {
				case kind == incumbent.OK:
					k.w.res.Floods.Kept++
					k.asking = false
				case kind == incumbent.Overloaded:
					k.w.res.Floods.Refused++
					if k.critical {
						k.w.violate("an extension of critical %s was refused by member %d (G40)", k.a.want.Lease, p.m.at)
					}
					k.a.moves()
					again(k.w.upTo(returns) + min(hint, returns))
				case kind.Transient():
					k.a.follows(leader)
					again(k.w.upTo(returns))
				default:
					k.w.violate("keeper %d was told %v for %s, token %d, which it has kept (G42)", k.a.id, kind, k.a.want.Lease, k.token)
				}
			})
		}})
	}, func() { k.on = nil; again(k.w.upTo(returns)) })
}

// reconnect opens the stream again, with any member.
func (k *keeper) reconnect() {
	w := k.w
	k.a.at = w.anyone()
	k.a.call(func(p *process, reply func(func())) {
		p.openStream(func() {
			reply(func() {
				w.res.Floods.Streams++
				k.on = p
				k.extend()
			})
		})
	}, func() { k.a.later(w.upTo(returns), k.extend) })
}

// steady is a client of an ordinary day. What it asks for is served within a second,
// whoever has to be asked again, or it is not.
type steady struct {
	w *world
	a *agent
	n int
}

func (s *steady) next() {
	if s.a.retired {
		return
	}
	s.w.after(s.w.upTo(steadyRests), s.next)
	s.n++
	s.w.check.load.wanted(s.w.now)
	s.ask(s.n, s.w.now)
}

func (s *steady) ask(n int, began time.Duration) {
	w := s.w
	s.a.at = w.anyone()
	s.a.callWithin(steadyWaits, func(p *process, reply func(func())) {
		then := func(err *incumbent.Error) {
			reply(func() {
				if err == nil || err.Kind == incumbent.Held || err.Kind == incumbent.NotHolder {
					w.check.load.served(began)
					return
				}
				s.again(n, began, err)
			})
		}
		x := flooder{f: w.check.load.flood, a: s.a, lane: [...]admit.Lane{admit.Small, admit.Reads, admit.Claims, admit.Transactions, admit.Releases, admit.Small}[n%6]}
		if x.lane == admit.Small && n%2 == 0 {
			x.submit(p, kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: floodOf, Name: "steady"}, Value: []byte("s")}, time.Time{}, then)
			return
		}
		x.send(p, then)
	}, func() { s.again(n, began, nil) })
}

// again asks again as long as it makes sense.
func (s *steady) again(n int, began time.Duration, err *incumbent.Error) {
	d := s.w.upTo(returns)
	if err != nil && err.Kind == incumbent.Overloaded {
		d = min(err.RetryAfter, steadyWaits)
	}
	if s.w.now+d-began < steadyWaits {
		s.a.later(d, func() { s.ask(n, began) })
	}
}
