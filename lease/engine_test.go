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

// holder is a client as the guarantees see it: it counts on what it was told,
// from when it sent.
type holder struct {
	name    string
	session incumbent.SessionID // zero: without one
	token   map[string]incumbent.Token
	until   map[string]int64 // by lease: its own deadline
	alive   int64            // its session's
	given   int              // how often it gave something up: answers to what it sent before do not count
}

// players are some holders around an engine whose log, confirmations and
// barriers come when chance lets them, and fail when chance wants.
type players struct {
	*world
	rt      *rapid.T
	holders []*holder
}

// sessionTTL is every session's.
const sessionTTL = 4 * time.Second

var leaseNames = [...]string{"a", "b"}

// rho is what a holder takes off for its clock.
func rho(d time.Duration) int64 { return int64(d - d/100) }

func (p *players) granted(of core.Change) {
	c, _ := leases.ChangeOf(&of)
	switch c.What {
	case leases.Granted, leases.Offered:
	default:
		return
	}
	name := c.Lease.Name.Lease
	for _, h := range p.holders {
		if h.name == c.Lease.Holder {
			continue
		}
		if h.until[name] > p.now || h.owns(name) && h.alive > p.now {
			p.rt.Fatalf("%s is granted to %s at %v, while %s counts on it until %v",
				name, c.Lease.Holder, time.Duration(p.now), h.name, time.Duration(max(h.until[name], h.alive)))
		}
	}
}

func (h *holder) owns(name string) bool { return !h.session.IsZero() && h.token[name] != 0 }

// loses is called when a holder gives up a lease itself, or is told.
func (h *holder) loses(name string) {
	delete(h.until, name)
	delete(h.token, name)
}

func (p *players) claim(h *holder, name string, wait bool) {
	sent, given := p.now, h.given
	cmd := leases.ClaimCommand{Name: leaseName(name), Holder: h.name, Session: h.session, Wait: wait && !h.session.IsZero()}
	if h.session.IsZero() {
		cmd.TTL = 3 * time.Second
	}
	q, err := newCall(Call{}, cmd, func(r core.Result) {
		if r.Err != nil || leases.AnswerOf(r).Queued || given != h.given {
			return
		}
		h.token[name] = leases.AnswerOf(r).Lease.Token
		if h.session.IsZero() {
			h.until[name] = max(h.until[name], sent+rho(leases.AnswerOf(r).Lease.TTL))
			return
		}
		s := p.e.view.Session(h.session)
		if s == nil {
			// The log took longer than the ttl: by the time it is told, the holder no
			// longer counts on what it sent so long ago.
			if left := sent + rho(sessionTTL) - p.now; left > 0 {
				p.rt.Fatalf("%s is told that it holds %s for another %v, but its session has ended", h.name, name, time.Duration(left))
			}
			h.loses(name)
			return
		}
		h.alive = max(h.alive, sent+rho(s.TTL))
	})
	if err != nil {
		p.rt.Fatal(err)
	}
	p.turn(func() { p.e.Submit(q) })
}

func (p *players) extend(h *holder, name string, ttl time.Duration) {
	sent, token, given := p.now, h.token[name], h.given
	if token == 0 {
		if l := p.lease(name); l != nil && l.Offered && l.Holder == h.name {
			token = l.Token
		} else {
			return
		}
	}
	b := &Batch{Items: []Extension{{Token: token, TTL: ttl}}, Done: func(b *Batch) {
		it := &b.Items[0]
		l := leases.Of(p.state.View()).ByToken(token)
		switch {
		case it.Kind == incumbent.OK && given != h.given:
			return
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
	p.turn(func() { p.e.Extend(b) })
}

// beat extends a session, and with it whatever its holder was told that it holds.
func (p *players) beat(h *holder) {
	if h.session.IsZero() {
		return
	}
	sent := p.now
	b := &Batch{Items: []Extension{{Session: h.session}}, Done: func(b *Batch) {
		if it := &b.Items[0]; it.Kind == incumbent.OK {
			h.alive = max(h.alive, sent+rho(it.Held))
		}
	}}
	p.turn(func() { p.e.Extend(b) })
}

func (p *players) release(h *holder, name string) {
	token := h.token[name]
	if token == 0 {
		return
	}
	h.given++
	h.loses(name)
	q, _ := newCall(Call{}, leases.ReleaseCommand{Name: leaseName(name), Token: token}, func(core.Result) {})
	p.turn(func() { p.e.Submit(q) })
}

// drop loses what was on its way, as a change of leader may.
func (p *players) drop() {
	p.confirms, p.barriers = nil, nil
	if p.e.round.active {
		id := p.e.round.id
		p.step(func() { p.e.Confirmed(id, 0, incumbent.Errorf(incumbent.Unavailable, "stepped down")) })
		p.confirms = nil
	}
}

func TestG02_EngineModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &players{world: newWorld(t, Config{}), rt: t}
		p.auto = true
		p.watch = p.granted
		p.lead()
		for i := range 4 {
			h := &holder{name: fmt.Sprint("h", i), token: make(map[string]incumbent.Token), until: make(map[string]int64)}
			if i >= 2 {
				h.session = sessionID(i)
				p.call(core.OpenSessionCommand{ID: h.session, TTL: sessionTTL})
			}
			p.holders = append(p.holders, h)
		}
		p.auto = false
		draw := func(t *rapid.T) (*holder, string) {
			return rapid.SampledFrom(p.holders).Draw(t, "holder"), rapid.SampledFrom(leaseNames[:]).Draw(t, "lease")
		}
		confirm := func(t *rapid.T) {
			if len(p.confirms) > 0 {
				p.confirm(nil)
			}
		}
		pass := func(t *rapid.T) {
			if len(p.barriers) > 0 {
				p.pass()
			}
		}
		apply := func(t *rapid.T) {
			if len(p.log) > 0 {
				p.apply()
			}
		}
		wait := func(t *rapid.T) {
			for range rapid.IntRange(1, 40).Draw(t, "ticks") {
				p.now += int64(tickEvery)
				p.step(nil)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				h, name := draw(t)
				p.claim(h, name, rapid.Bool().Draw(t, "wait"))
			},
			"extend": func(t *rapid.T) {
				h, name := draw(t)
				p.extend(h, name, rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second, 6 * time.Second}).Draw(t, "ttl"))
			},
			"beat": func(t *rapid.T) {
				h, _ := draw(t)
				p.beat(h)
			},
			"release":  func(t *rapid.T) { p.release(draw(t)) },
			"confirm":  confirm,
			"confirm2": confirm,
			"fail": func(t *rapid.T) {
				if len(p.confirms) > 0 {
					p.confirm(incumbent.Errorf(incumbent.Unavailable, "no quorum"))
				}
			},
			"pass":   pass,
			"pass2":  pass,
			"apply":  apply,
			"apply2": apply,
			"wait":   wait,
			"wait2":  wait,
			"stall":  func(t *rapid.T) { p.now += int64(rapid.IntRange(1, 20).Draw(t, "seconds")) * int64(time.Second) },
			"revoke": func(t *rapid.T) {
				_, name := draw(t)
				if l := p.lease(name); l.Free() || !l.Session.IsZero() {
					return // a session's beats are not told of a revocation: see the package's comment
				}
				q, _ := newCall(Call{}, leases.RevokeCommand{Name: leaseName(name), AtDeadline: true}, func(core.Result) {})
				p.turn(func() { p.e.Submit(q) })
			},
			"lead": func(t *rapid.T) {
				p.step(func() { p.e.Follow(0, p.term) })
				p.drop()
				p.now += int64(rapid.IntRange(0, 10).Draw(t, "seconds")) * int64(time.Second)
				if rapid.Bool().Draw(t, "lost") {
					p.lose()
				}
				for len(p.log) > 0 { // before the first entry of the new term
					p.apply()
				}
				p.term++
				p.step(func() { p.e.Lead(p.term, p.state.View()) })
			},
		})
	})
}

// lose refuses what was proposed and never entered the log.
func (p *players) lose() {
	ps := p.log
	p.log = nil
	for _, x := range ps {
		p.step(func() { p.e.Proposed(x.Ticket, core.Result{}, incumbent.Errorf(incumbent.Unavailable, "lost")) })
	}
}
