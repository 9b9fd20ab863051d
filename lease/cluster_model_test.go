package lease

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// crowd is some holders who talk to whichever member chance wants.
type crowd struct {
	*cluster
	rt      *rapid.T
	holders []*holder
	open    int // requests without an answer

	// A release and what its client sends behind it are in order only by way of
	// one member.
	releasing map[*holder]int
	through   map[*holder]*peer
	releases  map[incumbent.Token]*holder
	late      map[*byte]*holder // whose release was answered Unknown, by its command: it may yet be appended
}

// unknown has a member's node answer Unknown to something it has proposed, which
// is appended later or (lost) never.
func (p *crowd) unknown(m *peer, i int, lost bool) {
	x := &m.proposed[i]
	if x.Ticket.call == nil && !x.Ticket.probe {
		return // bound to the term
	}
	ticket, h := x.Ticket, p.releaser(x.Ticket.call)
	if h != nil {
		p.late[&x.Command[0]] = h
	}
	x.Ticket = Ticket{}
	if lost {
		m.proposed = append(m.proposed[:i:i], m.proposed[i+1:]...)
	}
	m.step(func() { m.e.Proposed(ticket, core.Result{}, errUnknown()) })
}

// regret has a holder release a lease, hear that the outcome is unknown, and go
// on with it; what its member has proposed comes to the log only later.
func (p *crowd) regret(m *peer, h *holder, name string, again func()) {
	n := len(m.proposed)
	if p.release(m, h, name); len(m.proposed) == n {
		return
	}
	p.unknown(m, n, false)
	again()
	for range 10 {
		for len(p.packets) > 0 {
			p.deliver(0)
		}
		for _, o := range p.members {
			for o != m && o.appendAll() || o.applyOne() || o.confirm() {
			}
		}
	}
}

// releaser is the holder whose release a call is.
func (p *crowd) releaser(c *call) *holder {
	if c == nil {
		return nil
	}
	m, ok := c.cmd.(leases.ReleaseCommand)
	if !ok {
		return nil
	}
	return p.releases[m.Token]
}

// decided ends what was answered Unknown and is appended by now, or lost.
func (p *crowd) decided() {
	open := make(map[*byte]bool)
	for _, m := range p.members {
		for _, x := range m.proposed {
			open[&x.Command[0]] = true
		}
	}
	for cmd, h := range p.late {
		if !open[cmd] {
			delete(p.late, cmd)
			p.releasing[h]--
		}
	}
}

func (p *crowd) granted(of core.Change) {
	c, _ := leases.ChangeOf(&of)
	if c.What != leases.Granted && c.What != leases.Offered {
		return
	}
	name := c.Lease.Name.Lease
	for _, h := range p.holders {
		if h.name != c.Lease.Holder && (h.until[name] > p.now || h.owns(name) && h.alive > p.now) {
			p.rt.Fatalf("%s is granted to %s at %v, while %s counts on it until %v",
				name, c.Lease.Holder, time.Duration(p.now), h.name, time.Duration(max(h.until[name], h.alive)))
		}
	}
}

// once makes sure that something is answered once.
func (p *crowd) once() func() {
	p.open++
	answered := false
	return func() {
		if answered {
			p.rt.Fatal("answered twice")
		}
		answered = true
		p.open--
	}
}

func (p *crowd) claim(m *peer, h *holder, name string, wait bool) {
	sent, given, answered := p.now, h.given, p.once()
	cmd := leases.ClaimCommand{Name: leaseName(name), Holder: h.name, Session: h.session, Wait: wait && !h.session.IsZero()}
	if h.session.IsZero() {
		cmd.TTL = 3 * time.Second
	}
	q, err := newCall(Call{}, cmd, func(r core.Result) {
		answered()
		if r.Err != nil || leases.AnswerOf(r).Queued || given != h.given {
			return
		}
		if leases.Of(p.newest.View()).ByToken(leases.AnswerOf(r).Lease.Token) == nil && h.session.IsZero() && sent+rho(leases.AnswerOf(r).Lease.TTL) > p.now {
			p.rt.Fatalf("%s is told that it holds %s under token %d, which it does not", h.name, name, leases.AnswerOf(r).Lease.Token)
		}
		h.token[name] = leases.AnswerOf(r).Lease.Token
		if h.session.IsZero() {
			h.until[name] = max(h.until[name], sent+rho(leases.AnswerOf(r).Lease.TTL))
			return
		}
		if left := sent + rho(sessionTTL) - p.now; p.newest.View().Session(h.session) == nil && left > 0 {
			p.rt.Fatalf("%s is told that it holds %s for another %v, but its session has ended", h.name, name, time.Duration(left))
		}
		h.alive = max(h.alive, sent+rho(sessionTTL))
	})
	if err != nil {
		p.rt.Fatal(err)
	}
	m.turn(func() { m.e.Submit(q) })
}

func (p *crowd) extend(m *peer, h *holder, name string, ttl time.Duration) {
	sent, token, given := p.now, h.token[name], h.given
	if token == 0 {
		l := leases.Of(m.e.view).Lease(leaseName(name))
		if l.Free() || !l.Offered || l.Holder != h.name {
			return
		}
		token = l.Token
	}
	answered := p.once()
	b := &Batch{Items: []Extension{{Token: token, TTL: ttl}}, Done: func(b *Batch) {
		answered()
		it := &b.Items[0]
		l := leases.Of(p.newest.View()).ByToken(token)
		switch {
		case it.Kind == incumbent.OK && given != h.given:
			return
		case it.Kind == incumbent.OK && l == nil && sent+rho(it.Held) > p.now:
			p.rt.Fatalf("%s is told that it holds %s, but token %d is over", h.name, name, token)
		case it.Kind == incumbent.OK && h.session.IsZero():
			h.until[name] = max(h.until[name], sent+rho(it.Held))
		case it.Kind == incumbent.OK:
			h.token[name] = token
			h.alive = max(h.alive, sent+rho(it.Held))
		case it.Kind == incumbent.NotHolder && l != nil && !l.Revoking:
			p.rt.Fatalf("%s is told that it lost %s under token %d, which it holds", h.name, name, token)
		}
		if it.Kind == incumbent.NotHolder && h.token[name] == token {
			h.loses(name)
		}
	}}
	m.turn(func() { m.e.Extend(b) })
}

func (p *crowd) beat(m *peer, h *holder) {
	if h.session.IsZero() {
		return
	}
	sent, answered := p.now, p.once()
	b := &Batch{Items: []Extension{{Session: h.session}}, Done: func(b *Batch) {
		answered()
		it := &b.Items[0]
		over := p.newest.View().Session(h.session) == nil
		switch {
		case it.Kind == incumbent.OK && over && sent+rho(it.Held) > p.now:
			p.rt.Fatalf("the session of %s is extended, but over", h.name)
		case it.Kind == incumbent.OK:
			h.alive = max(h.alive, sent+rho(it.Held))
		case it.Kind == incumbent.Expired && !over:
			p.rt.Fatalf("%s is told that its session is over, which is not", h.name)
		}
	}}
	m.turn(func() { m.e.Extend(b) })
}

func (p *crowd) release(m *peer, h *holder, name string) {
	token := h.token[name]
	if token == 0 {
		return
	}
	until := h.until[name]
	h.given++
	h.loses(name)
	answered := p.once()
	p.releasing[h]++
	p.through[h] = m
	p.releases[token] = h
	q, _ := newCall(Call{}, leases.ReleaseCommand{Name: leaseName(name), Token: token}, func(r core.Result) {
		answered()
		if r.Err == nil || r.Err.Kind != incumbent.Unknown {
			p.releasing[h]--
		} else if p.now < until {
			h.token[name] = token // it thinks better of it
		}
	})
	m.turn(func() { m.e.Submit(q) })
}

// Whatever is lost, comes twice or late, and whoever leads: nobody counts on a
// lease that another is granted, nobody is told of a loss that is none, and
// everybody is answered once.
func TestG02_ClusterModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &crowd{
			cluster: newCluster(t, Config{}, 3), rt: t, releasing: make(map[*holder]int), through: make(map[*holder]*peer),
			releases: make(map[incumbent.Token]*holder), late: make(map[*byte]*holder),
		}
		p.cluster.watch = p.granted
		p.vouching = true
		p.lead(1)
		for i := range 4 {
			h := &holder{name: fmt.Sprint("h", i), token: make(map[string]incumbent.Token), until: make(map[string]int64)}
			if i >= 2 {
				h.session = sessionID(i)
				p.at(2).must(core.OpenSessionCommand{ID: h.session, TTL: sessionTTL})
			}
			p.holders = append(p.holders, h)
		}
		p.auto = false
		member := func(t *rapid.T) *peer { return p.members[rapid.IntRange(0, 2).Draw(t, "member")] }
		draw := func(t *rapid.T) (*peer, *holder, string) {
			m, h := member(t), rapid.SampledFrom(p.holders).Draw(t, "holder")
			if p.decided(); p.releasing[h] > 0 {
				m = p.through[h]
			}
			return m, h, rapid.SampledFrom(leaseNames[:]).Draw(t, "lease")
		}
		packetAt := func(t *rapid.T) int { return rapid.IntRange(0, min(len(p.packets), 4)-1).Draw(t, "packet") }
		deliver := func(t *rapid.T) {
			if len(p.packets) > 0 {
				p.deliver(packetAt(t))
			}
		}
		wait := func(t *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(t, "ticks") {
				p.now += int64(tickEvery)
				for _, m := range p.members {
					m.step(nil)
				}
			}
		}
		settle := func(*rapid.T) { p.settle() }
		extend := func(t *rapid.T) {
			m, h, name := draw(t)
			p.extend(m, h, name, rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second, 6 * time.Second}).Draw(t, "ttl"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				m, h, name := draw(t)
				p.claim(m, h, name, rapid.Bool().Draw(t, "wait"))
			},
			"extend":  extend,
			"extend2": extend,
			"beat":    func(t *rapid.T) { m, h, _ := draw(t); p.beat(m, h) },
			"release": func(t *rapid.T) { m, h, name := draw(t); p.release(m, h, name) },
			"unknown": func(t *rapid.T) {
				if m := member(t); len(m.proposed) > 0 {
					i := rapid.IntRange(0, min(len(m.proposed), 4)-1).Draw(t, "proposal")
					p.unknown(m, i, rapid.Bool().Draw(t, "lost"))
				}
			},
			"regret": func(t *rapid.T) {
				m, h, name := draw(t)
				claim := rapid.Bool().Draw(t, "claim")
				p.regret(m, h, name, func() {
					if claim {
						p.claim(m, h, name, false)
					} else {
						p.extend(m, h, name, 0)
					}
				})
			},
			"append":   func(t *rapid.T) { member(t).appendAll() },
			"apply":    func(t *rapid.T) { member(t).applyOne() },
			"confirm":  func(t *rapid.T) { member(t).confirm() },
			"vouched":  func(t *rapid.T) { member(t).confirmFor() },
			"barrier":  func(t *rapid.T) { member(t).barrier() },
			"deliver":  deliver,
			"deliver2": deliver,
			"deliver3": deliver,
			"settle":   settle,
			"lose": func(t *rapid.T) {
				if len(p.packets) > 0 {
					i := packetAt(t)
					p.packets = append(p.packets[:i:i], p.packets[i+1:]...)
				}
			},
			"twice": func(t *rapid.T) {
				if len(p.packets) > 0 {
					p.packets = append(p.packets, p.packets[packetAt(t)])
				}
			},
			"wait":   wait,
			"wait2":  wait,
			"stall":  func(t *rapid.T) { p.now += int64(rapid.IntRange(1, 10).Draw(t, "seconds")) * int64(time.Second) },
			"vouch":  func(*rapid.T) { p.vouching = !p.vouching },
			"full":   func(*rapid.T) { p.full = !p.full },
			"depose": func(*rapid.T) { p.depose() },
			"elect":  func(t *rapid.T) { p.elect(member(t).id) },
			"tell":   func(t *rapid.T) { p.tell(member(t).id) },
		})
		p.full = false
		p.lead(1)
		for range 5 {
			p.now += int64(time.Second)
			for _, m := range p.members {
				m.step(nil)
			}
			p.settle()
		}
		if p.open != 0 {
			t.Fatalf("%d requests are not answered", p.open)
		}
		for _, m := range p.members {
			if m.frames != (load{}) {
				t.Fatalf("member %d still counts %+v", m.id, m.frames)
			}
		}
	})
}
