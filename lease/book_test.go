package lease

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// bookModel says, by the plainest means, when leases and sessions run out. Its
// clock is the time for which loop and quorum were not silent.
type bookModel struct {
	state    *core.State
	book     *Book
	mono     int64
	now      int64
	leases   map[incumbent.Token]int64 // deadlines of those that have one
	sessions map[incumbent.SessionID]int64
	offered  map[incumbent.Token]bool  // offers that nobody has accepted
	watched  map[incumbent.Token]int64 // since when leases that were pinned can run out again
	out      []Due
}

func (m *bookModel) do(cmd core.Command) core.Result {
	results := make([]core.Result, 1)
	changes := m.state.Apply([][]byte{cmd.Encode(core.Meta{})}, results)
	m.book.Applied(changes)
	for _, c := range changes {
		m.changed(c)
	}
	return results[0]
}

func (m *bookModel) changed(c core.Change) {
	switch {
	case c.What == core.SessionOpen, c.What == core.SessionTTL:
		m.restartSession(c.Session.ID)
	case c.Session == nil && c.SessionBefore != nil:
		delete(m.sessions, c.SessionBefore.ID)
	}
	if of, ok := leases.ChangeOf(&c); ok {
		m.leaseChanged(&of)
	}
}

func (m *bookModel) leaseChanged(c *leases.Change) {
	if c.LeaseBefore != nil && (c.Lease == nil || c.Lease.Token != c.LeaseBefore.Token) {
		delete(m.leases, c.LeaseBefore.Token)
		if len(c.LeaseBefore.Pins) > 0 && c.LeaseBefore.Token != 0 && !c.LeaseBefore.Revoking && !m.offered[c.LeaseBefore.Token] {
			m.unpinned(c.LeaseBefore)
		}
	}
	l := c.Lease
	if l.Free() {
		return
	}
	switch c.What {
	case leases.Offered:
		m.leases[l.Token], m.offered[l.Token] = m.now+int64(DefaultOfferWindow), true
	case leases.Accepted:
		m.accepted(l)
		if c.Session != nil { // else nobody was heard
			m.restart(l)
		}
	case leases.Granted, leases.Extended:
		m.restart(l)
	case leases.Unpinned:
		if len(l.Pins) == 0 && !l.Revoking && !m.offered[l.Token] { // nor did the pin keep it
			m.unpinned(l)
		}
	case leases.Revoking:
		if !m.offered[l.Token] && !l.Session.IsZero() {
			m.leases[l.Token] = max(m.sessions[l.Session], m.now)
			if m.state.View().Session(l.Session).TTL == 0 {
				m.leases[l.Token] = m.now + int64(hold(incumbent.MaxTTL))
			}
		}
		if len(l.Pins) > 0 { // the pin does not keep it any more
			if !m.offered[l.Token] {
				m.unpinned(l)
			}
			m.watched[l.Token] = m.now // it may have run out meanwhile
		}
	}
}

// accepted: from here on the session's deadline counts.
func (m *bookModel) accepted(l *leases.Lease) {
	if m.offered[l.Token] {
		delete(m.offered, l.Token)
		delete(m.leases, l.Token)
	}
}

// unpinned starts clocks anew: the lease's, and its session's, which counts once no other pin
// holds it.
func (m *bookModel) unpinned(l *leases.Lease) {
	switch {
	case l.Revoking: // was not kept by the pin
	case l.Session.IsZero():
		if _, ok := m.leases[l.Token]; ok {
			m.restart(l)
		}
	}
	if !l.Session.IsZero() {
		m.restartSession(l.Session)
	}
}

func (m *bookModel) pinned(id incumbent.SessionID) (any bool) {
	leases.Of(m.state.View()).OfSession(id, func(l *leases.Lease) bool {
		any = len(l.Pins) > 0 && !l.Revoking
		return !any
	})
	return any
}

func (m *bookModel) restart(l *leases.Lease) {
	if l.Session.IsZero() {
		m.leases[l.Token] = max(m.leases[l.Token], m.now+int64(hold(l.TTL)))
		return
	}
	m.restartSession(l.Session)
}

func (m *bookModel) restartSession(id incumbent.SessionID) {
	if s := m.state.View().Session(id); s != nil && s.TTL != 0 {
		m.sessions[id] = max(m.sessions[id], m.now+int64(hold(s.TTL)))
	}
}

func (m *bookModel) extend(l *leases.Lease) {
	slot, _ := m.book.byToken.get(l.Token)
	m.book.extend(leaseRef(slot), 0)
	if !l.Revoking {
		m.accepted(l)
		m.restart(l)
	}
}

// running returns the model's deadline of a due one that can pass, or false.
func (m *bookModel) running(d Due) (int64, bool) {
	if d.Token == 0 {
		at, ok := m.sessions[d.Session]
		return at, ok && !m.pinned(d.Session)
	}
	l := leases.Of(m.state.View()).ByToken(d.Token)
	at, ok := m.leases[d.Token]
	return at, ok && l != nil && (len(l.Pins) == 0 || m.offered[d.Token] || l.Revoking)
}

func (m *bookModel) check(t *rapid.T) {
	m.book.Advance(m.mono)
	if m.book.now != m.now {
		t.Fatalf("book time is %v, model time %v", time.Duration(m.book.now), time.Duration(m.now))
	}
	was := len(m.out)
	m.out = m.book.Due(m.out)
	for _, d := range m.out[was:] {
		if at, ok := m.running(d); !ok || at >= m.now {
			t.Fatalf("%+v is due at %v, %v after %v", d, m.now, ok, at)
		}
	}
	kept := m.out[:0]
	for _, d := range m.out {
		if _, due := m.book.Check(d); due {
			kept = append(kept, d)
			if at, ok := m.running(d); !ok || at >= m.now {
				t.Fatalf("%+v is still due at %v, %v after %v", d, m.now, ok, at)
			}
		}
	}
	m.out = kept
	m.all(t)
}

// all verifies that whatever is past its deadline has been handed out.
func (m *bookModel) all(t *rapid.T) {
	v := m.state.View()
	if m.book.byToken.len() != leases.Of(v).HeldCount() || len(m.book.byID) != v.SessionCount() {
		t.Fatalf("book has %d leases, %d sessions; state %d, %d", m.book.byToken.len(), len(m.book.byID), leases.Of(v).HeldCount(), v.SessionCount())
	}
	handed := make(map[Due]bool)
	for _, d := range m.out {
		handed[Due{Token: d.Token, Session: d.Session}] = true
	}
	overdue := func(d Due) {
		if at, ok := m.running(d); ok && max(at, m.watched[d.Token])+int64(Bucket) < m.now && !handed[d] {
			t.Fatalf("%+v is not due at %v, %v after its deadline", d, m.now, time.Duration(m.now-at))
		}
	}
	for token := range m.leases {
		overdue(Due{Token: token})
	}
	for id := range m.sessions {
		overdue(Due{Session: id})
	}
}

func TestBookModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &bookModel{
			state: core.New(leases.Family{}), book: NewBook(Config{}),
			leases: make(map[incumbent.Token]int64), sessions: make(map[incumbent.SessionID]int64),
			offered: make(map[incumbent.Token]bool), watched: make(map[incumbent.Token]int64),
		}
		m.book.Advance(0)
		m.book.Lead(m.state.View())
		name := rapid.Custom(func(t *rapid.T) incumbent.Name {
			return leaseName(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "lease")))
		})
		session := rapid.Custom(func(t *rapid.T) incumbent.SessionID { return sessionID(rapid.IntRange(1, 3).Draw(t, "session")) })
		ttls := rapid.SampledFrom([]time.Duration{time.Second, 2 * time.Second, 5 * time.Second})
		actions := map[string]func(*rapid.T){
			"": m.check,
			"claim": func(t *rapid.T) {
				m.do(leases.ClaimCommand{Name: name.Draw(t, "name"), Holder: "h", TTL: ttls.Draw(t, "ttl")})
			},
			"own": func(t *rapid.T) {
				m.do(leases.ClaimCommand{Name: name.Draw(t, "name"), Holder: "h", Session: session.Draw(t, "id"), Wait: true})
			},
			"open": func(t *rapid.T) {
				ttl := ttls.Draw(t, "ttl")
				m.do(core.OpenSessionCommand{ID: session.Draw(t, "id"), TTL: rapid.SampledFrom([]time.Duration{0, ttl, ttl}).Draw(t, "none")})
			},
			"raise": func(t *rapid.T) {
				m.do(core.ExtendSessionCommand{ID: session.Draw(t, "id"), TTL: ttls.Draw(t, "ttl")})
			},
			"close": func(t *rapid.T) { m.do(core.CloseSessionCommand{ID: session.Draw(t, "id")}) },
			"release": func(t *rapid.T) {
				if l := leases.Of(m.state.View()).Lease(name.Draw(t, "name")); !l.Free() {
					m.do(leases.ReleaseCommand{Name: l.Name, Token: l.Token})
				}
			},
			"transfer": func(t *rapid.T) {
				if l := leases.Of(m.state.View()).Lease(name.Draw(t, "name")); !l.Free() {
					m.do(leases.TransferCommand{Name: l.Name, Holder: l.Holder, Session: l.Session, ToSession: session.Draw(t, "id"), ToHolder: "k"})
				}
			},
			"accept": func(t *rapid.T) {
				if l := leases.Of(m.state.View()).Lease(name.Draw(t, "name")); !l.Free() {
					m.do(leases.AcceptCommand{Token: l.Token})
				}
			},
			"revoke": func(t *rapid.T) { m.do(leases.RevokeCommand{Name: name.Draw(t, "name"), AtDeadline: true}) },
			"pin":    func(t *rapid.T) { m.do(leases.PinCommand{Name: name.Draw(t, "name"), Entity: "e"}) },
			"unpin":  func(t *rapid.T) { m.do(leases.UnpinCommand{Name: name.Draw(t, "name"), Entity: "e"}) },
			"extend": func(t *rapid.T) {
				if l := leases.Of(m.state.View()).Lease(name.Draw(t, "name")); !l.Free() {
					m.extend(l)
				}
			},
			"beat": func(t *rapid.T) {
				id := session.Draw(t, "id")
				if i, ok := m.book.byID[id]; ok {
					m.book.extend(sessionRef(i), 0)
					m.restartSession(id)
				}
			},
			"tick": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "ticks") {
					d := int64(rapid.IntRange(1, 100).Draw(t, "ms")) * int64(time.Millisecond)
					m.mono, m.now = m.mono+d, m.now+d
					m.check(t)
				}
			},
			"stall": func(t *rapid.T) {
				m.mono += m.book.tolerated + int64(rapid.IntRange(1, 20_000).Draw(t, "ms"))*int64(time.Millisecond)
				m.now += m.book.tolerated
			},
			"quorum": func(t *rapid.T) {
				m.book.Advance(m.mono) // takes the stall before, if there was one
				d := min(int64(rapid.IntRange(1, 3000).Draw(t, "ms"))*int64(time.Millisecond), m.now)
				m.now -= d
				m.book.Stall(time.Duration(d + m.book.tolerated))
			},
			"expire": func(t *rapid.T) {
				if len(m.out) == 0 {
					return
				}
				d := m.out[0]
				m.out = m.out[1:]
				x, ok := m.book.Check(d)
				if !ok {
					return
				}
				m.book.MarkExpiring(d)
				var r core.Result
				if d.Token != 0 {
					r = m.do(leases.ExpireCommand{Token: d.Token, Renewal: x.Renewal, Late: x.Late})
				} else {
					r = m.do(core.ExpireSessionCommand{ID: d.Session, Renewal: x.Renewal, Late: x.Late})
				}
				if r.Err != nil {
					t.Fatalf("the expiry of %+v is void: %v", d, r.Err)
				}
			},
		}
		t.Repeat(actions)
	})
}

func TestLeaseSlotFillsALine(t *testing.T) {
	if got := unsafe.Sizeof(leaseSlot{}); got != 64 {
		t.Errorf("a lease's slot has %d bytes", got)
	}
	if got := unsafe.Sizeof(sessionSlot{}); got > 72 {
		t.Errorf("a session's slot has %d bytes", got)
	}
}
