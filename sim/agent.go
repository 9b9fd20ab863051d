package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
)

// Times and bounds of agents.
const (
	drift        = 0.01
	minTTL       = time.Second
	maxTTL       = 4 * time.Second
	patience     = time.Second // an agent gives up waiting for an answer
	returns      = 100 * time.Millisecond
	thinks       = 2 * time.Second
	silentFor    = 3 * maxTTL
	beatPatience = 100 * time.Millisecond // of one that may wait for company, at most
	holdsLong    = 30 * time.Second
	keyRetries   = 3 // attempts of one call under one idempotency key

	napsOver    = 1500 * time.Millisecond // after the deadline, at most
	napsOneIn   = 15                      // extensions in whose place the agent naps
	asksOneIn   = 8                       // extensions that ask for another ttl
	givesOneIn  = 3                       // ends of a holding that are no release
	leavesOneIn = 4                       // waits that are given up, and holdings whose place is given up late
)

// agent is a client with a clock of its own rate. It wants one lease after
// another, with or without a session, and holds each for a while. It talks to
// one member and, when that does not answer or cannot, to another.
type agent struct {
	w       *world
	id      int
	at      *member
	rate    float64
	session incumbent.SessionID // zero: an agent without
	ttl     time.Duration
	people  bool          // the administrator's
	beside  bool          // goes on beside a flood
	quiet   time.Duration // says and hears nothing until then
	retired bool
	leaving bool // has sent a release and waits for its answer

	want      incumbent.Name
	token     incumbent.Token // what it holds, as it believes
	until     time.Duration   // on its own clock
	extending bool            // an extension is under way
	fading    bool            // it is not extended any more, and held until then
	revoked   bool            // taken by force: the agent does not know, but nothing counts any more
	turn      int             // raised when plans made before are void

	attached attachment

	reader reader
}

func newAgent(w *world, id int) *agent {
	a := newClient(w, id)
	a.reader.watcher.a = a
	a.reader.watcher.of = w.someSelection()
	a.reader.begin()
	return a
}

// newClient returns an agent that reads and watches only what it is told to.
func newClient(w *world, id int) *agent {
	a := &agent{w: w, id: id, at: w.anyone(), rate: 1 + (w.rng.Float64()*2-1)*drift}
	a.ttl = w.someTTL()
	a.reader.a = a
	return a
}

// someTTL draws a ttl.
func (w *world) someTTL() time.Duration {
	return minTTL + time.Duration(w.rng.Int64N(int64(maxTTL-minTTL)))/time.Millisecond*time.Millisecond
}

func (a *agent) clock() time.Duration { return time.Duration(float64(a.w.now) * a.rate) }
func (a *agent) holder() string       { return fmt.Sprintf("agent-%d", a.id) }

// principal is one of a few, so that quotas stop somebody; the administrator is none
// of them, nor are those that quotas are not for (see besideFloods).
func (a *agent) principal() string {
	switch {
	case a.people:
		return "operator:people"
	case a.beside:
		return fmt.Sprintf("%s:%d", floodOf, a.id)
	}
	return fmt.Sprintf("agent:%d", a.id%3)
}

// byName reports whether the agent extends the lease by its name, as clients do
// that know no tokens: what it holds is then whatever is granted to its holder.
func (a *agent) byName() bool { return a.session.IsZero() && a.id%3 == 0 }

// onlyBeats reports whether the agent extends its session and never names its lease,
// though nothing attaches it.
func (a *agent) onlyBeats() bool { return !a.session.IsZero() && a.id%3 == 1 }

// holds reports what the agent believes now, and may.
func (a *agent) holds() bool { return a.token != 0 && !a.revoked && a.clock() < a.until }

// begin starts a cycle: open a session or not, claim, hold, release.
func (a *agent) begin() {
	if a.retired {
		return
	}
	a.turn++
	a.token = 0
	a.leaving, a.extending, a.fading = false, false, false
	a.detach()
	a.want = leaseName(a.w.rng.IntN(a.w.cfg.Leases))
	if a.w.chance(2) {
		a.session = incumbent.SessionID{}
		a.claim(false)
		return
	}
	binary.BigEndian.PutUint64(a.session[:8], a.w.rng.Uint64())
	a.session[15] = 1
	a.attached.wanted = a.w.chance(2)
	a.open()
}

// later does something if no new cycle has begun by then.
func (a *agent) later(d time.Duration, do func()) {
	turn := a.turn
	a.w.after(time.Duration(float64(d)/a.rate)+1, func() {
		if a.turn == turn {
			a.awake(do)
		}
	})
}

// awake does something now, or when the agent's silence ends.
func (a *agent) awake(do func()) {
	if a.w.now < a.quiet {
		turn := a.turn
		a.w.after(a.quiet-a.w.now, func() {
			if a.turn == turn {
				a.awake(do)
			}
		})
		return
	}
	do()
}

// moves lets the agent talk to another member from now on.
func (a *agent) moves() { a.at = a.w.anyone() }

// follows lets the agent talk to whom it was told to.
func (a *agent) follows(leader uint64) {
	if m := a.w.member(leader); m != nil {
		a.at = m
		return
	}
	a.moves()
}

// call sends a request and hands on what comes back: once, the answer or after a
// while nothing (the outcome is not known).
func (a *agent) call(send func(p *process, reply func(do func())), nothing func()) {
	a.callWithin(patience, send, nothing)
}

// callWithin is call, with another patience.
func (a *agent) callWithin(patience time.Duration, send func(p *process, reply func(do func())), nothing func()) {
	m := a.at
	turn, answered := a.turn, false
	fail := func() {
		if answered || a.turn != turn {
			return
		}
		answered = true
		if a.at == m {
			a.moves()
		}
		nothing()
	}
	a.later(patience, fail)
	m.receive(a, func(p *process) {
		send(p, func(do func()) {
			p.reply(func() {
				if answered || a.turn != turn {
					return
				}
				answered = true
				a.awake(do)
			})
		})
	}, func() { a.awake(fail) })
}

// submit makes one call on leases or keys. Half of the calls carry an idempotency
// key, under which they are repeated. It returns the call's number.
func (a *agent) submit(cmd core.Command, then func(core.Result), nothing func()) uint64 {
	a.w.calls++
	c := &submission{number: a.w.calls, cmd: cmd, then: then, nothing: nothing, keyed: a.w.chance(2), base: a.reader.seen}
	a.attempt(c)
	return c.number
}

// submission is one call with all its attempts.
type submission struct {
	number   uint64
	cmd      core.Command
	keyed    bool
	base     incumbent.Index
	attempts int
	then     func(core.Result)
	nothing  func()
}

// mark is how the call can be found in the log. It is as long as any other.
func (c *submission) mark() string { return fmt.Sprintf("%s%08d", markPrefix, c.number) }

func (a *agent) attempt(c *submission) {
	c.attempts++
	first, again := c.attempts == 1, c.nothing
	if c.keyed && c.attempts < keyRetries {
		again = func() { a.attempt(c) }
	}
	a.call(func(p *process, reply func(func())) {
		call := lease.Call{Origin: core.Origin{Address: c.mark(), Principal: a.principal()}}
		if c.keyed {
			call.KeyID, call.KeyBase = binary.BigEndian.AppendUint64(nil, c.number), c.base
		}
		bound := a.w.check.acked
		p.submit(call, c.cmd, first, func(r core.Result) {
			a.w.check.answered(p, c, r, bound)
			reply(func() {
				a.reader.hears(r.Index)
				if r.Err != nil && (r.Err.Kind.Transient() || r.Err.Kind == incumbent.Unknown) {
					a.moves()
					a.later(a.w.upTo(returns), again)
					return
				}
				c.then(r)
			})
		})
	}, again)
}

func (a *agent) open() {
	a.submit(core.OpenSessionCommand{ID: a.session, TTL: a.ttl}, func(r core.Result) {
		if r.Err != nil {
			a.later(a.w.upTo(thinks), a.begin)
			return
		}
		a.beat()
		a.claim(true)
	}, a.open) // the id is ours: opening it twice is the same as once
}

// beat keeps a session that waits.
func (a *agent) beat() {
	a.later(a.ttl/3, a.beat)
	if a.token != 0 {
		return // extensions keep it
	}
	if a.attached.wanted && !a.attaches() {
		return // to attach is to extend
	}
	a.extend(lease.Extension{Session: a.session, Beat: a.attached.wanted}, func(lease.Extension) {}, func() {})
}

func (a *agent) extend(x lease.Extension, then func(lease.Extension), nothing func()) {
	a.call(func(p *process, reply func(func())) {
		b := &lease.Batch{Items: []lease.Extension{x}}
		if x.Token == 0 { // a beat
			b.Patience = a.w.upTo(beatPatience)
		}
		b.Done = func(b *lease.Batch) {
			got, leader := b.Items[0], b.Leader
			reply(func() {
				if got.Kind.Transient() {
					a.follows(leader)
				}
				then(got)
			})
		}
		p.extend(b)
	}, nothing)
}

// fallSilent is a pause of the client: it neither sends nor hears for a while,
// and afterwards goes on as if nothing had been.
func (a *agent) fallSilent() {
	a.quiet = a.w.now + a.w.upTo(silentFor)
	a.w.note("agent %d silent until %v", a.id, a.quiet)
}

// retire ends the agent: it does nothing any more, as if it had died.
func (a *agent) retire() {
	a.retired = true
	a.turn++
	a.w.check.released(a)
	a.token = 0
}
