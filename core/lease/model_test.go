package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// model is the state as one would first think of it: maps, no indexes, nothing
// shared, every rule written out once more. It has no limits and no keys.
type model struct {
	index    uint64
	used     bool // the command's index is a token
	at       uint64
	leases   map[incumbent.Name]*mLease
	sessions map[incumbent.SessionID]*mSession
	greatest map[incumbent.Name]uint64 // token ever seen
}

type mSession struct {
	ttl     time.Duration
	renewal uint64
}

type mParty struct {
	holder  string
	session incumbent.SessionID
}

type mLease struct {
	by                *mParty // nil: free
	token, renewal    uint64
	ttl               time.Duration
	offered, revoking bool
	pins              map[string]bool
	queue             []mParty
}

func newModel() *model {
	return &model{
		leases: make(map[incumbent.Name]*mLease), sessions: make(map[incumbent.SessionID]*mSession),
		greatest: make(map[incumbent.Name]uint64),
	}
}

func (m *model) grant(l *mLease, to mParty, ttl time.Duration, offered bool) {
	if m.used {
		m.index++
		l.token = m.index
	} else {
		m.used, l.token = true, m.at
	}
	l.by, l.ttl, l.offered, l.revoking = &to, ttl, offered, false
	l.renewal++
}

func (m *model) end(l *mLease, preferred incumbent.SessionID, absent []incumbent.SessionID) {
	l.by, l.token, l.ttl, l.offered, l.revoking = nil, 0, 0, false, false
	if len(l.queue) == 0 {
		return
	}
	i := slices.IndexFunc(l.queue, func(p mParty) bool { return p.session == preferred })
	if i < 0 {
		i = slices.IndexFunc(l.queue, func(p mParty) bool { return !slices.Contains(absent, p.session) })
	}
	i = max(i, 0)
	next := l.queue[i]
	l.queue = slices.Delete(slices.Clone(l.queue), i, i+1)
	m.grant(l, next, 0, true)
}

func (m *model) touch(l *mLease) {
	if l.by != nil {
		l.renewal++
		m.alive(*l.by)
	}
}

// alive: the client of a session shows itself.
func (m *model) alive(p mParty) {
	if s := m.sessions[p.session]; s != nil {
		s.renewal++
	}
}

func (m *model) byToken(token uint64) *mLease {
	for _, l := range m.leases {
		if l.by != nil && l.token == token {
			return l
		}
	}
	return nil
}

func (m *model) apply(c core.Command) incumbent.Kind {
	m.index++
	m.at, m.used = m.index, false
	switch c := c.(type) {
	case ClaimCommand:
		return m.claim(c)
	case AcceptCommand:
		l := m.byToken(uint64(c.Token))
		if l == nil || l.revoking {
			return incumbent.NotHolder
		}
		if l.offered {
			l.offered = false
			l.renewal++ // the session is left alone: nobody was heard
		}
	case ReleaseCommand:
		return m.release(c)
	case RevokeCommand:
		return m.revoke(c)
	case TransferCommand:
		return m.transfer(c)
	case ExpireCommand:
		l := m.byToken(uint64(c.Token))
		if l == nil || l.renewal != c.Renewal || len(l.pins) > 0 && !l.offered && !l.revoking {
			return incumbent.Conflict
		}
		if l.offered && !l.revoking {
			l.queue = slices.DeleteFunc(slices.Clone(l.queue), func(p mParty) bool { return p.session == l.by.session })
		}
		m.end(l, c.Next, c.Absent)
	case PinCommand:
		l := m.lease(c.Name)
		if !l.pins[c.Entity] {
			l.pins[c.Entity] = true
			m.touch(l)
		}
	case UnpinCommand:
		if l := m.leases[c.Name]; l != nil && l.pins[c.Entity] {
			delete(l.pins, c.Entity)
			m.touch(l)
		}
	case LeaveQueueCommand:
		m.leave(c)
	case core.OpenSessionCommand:
		if s := m.sessions[c.ID]; s != nil && s.ttl != c.TTL {
			return incumbent.Exists
		} else if s == nil {
			m.sessions[c.ID] = &mSession{ttl: c.TTL, renewal: m.at}
		} else {
			s.renewal++
		}
	case core.CloseSessionCommand:
		m.close(c.ID, c.Absent)
	case core.ExpireSessionCommand:
		s := m.sessions[c.ID]
		if s == nil || s.renewal != c.Renewal || m.ownsPinned(c.ID) {
			return incumbent.Conflict
		}
		m.close(c.ID, c.Absent)
	case core.ExtendSessionCommand:
		s := m.sessions[c.ID]
		if s == nil {
			return incumbent.Expired
		}
		s.renewal++
		s.ttl = max(s.ttl, c.TTL)
	}
	return incumbent.OK
}

func (m *model) lease(name incumbent.Name) *mLease {
	if m.leases[name] == nil {
		m.leases[name] = &mLease{pins: make(map[string]bool)}
	}
	return m.leases[name]
}

func (m *model) claim(c ClaimCommand) incumbent.Kind {
	me := mParty{c.Holder, c.Session}
	if c.Session.IsZero() {
		if c.Wait {
			return incumbent.Invalid
		}
	} else if m.sessions[c.Session] == nil {
		return incumbent.Expired
	}
	l := m.lease(c.Name)
	if c.Token != 0 && (l.by == nil || *l.by != me || l.token != uint64(c.Token)) {
		return incumbent.NotHolder
	}
	switch {
	case l.by == nil:
		m.grant(l, me, c.TTL, false)
		m.alive(me)
	case *l.by == me && l.revoking:
		return incumbent.Held
	case *l.by == me && l.offered:
		m.touch(l)
		l.offered = false
		l.ttl = max(l.ttl, c.TTL)
	case *l.by == me:
		m.touch(l)
		l.ttl = max(l.ttl, c.TTL)
	case !c.Wait:
		return incumbent.Held
	case !slices.Contains(l.queue, me):
		l.queue = append(l.queue, me)
		m.alive(me)
	}
	return incumbent.OK
}

func (m *model) release(c ReleaseCommand) incumbent.Kind {
	l := m.leases[c.Name]
	if l == nil || l.by == nil || c.Token != 0 && uint64(c.Token) < l.token {
		return incumbent.OK
	}
	if c.Token != 0 && uint64(c.Token) != l.token || *l.by != (mParty{c.Holder, c.Session}) {
		return incumbent.NotHolder
	}
	m.end(l, c.Next, c.Absent)
	return incumbent.OK
}

func (m *model) revoke(c RevokeCommand) incumbent.Kind {
	l := m.leases[c.Name]
	switch {
	case c.Token == 0 && (l == nil || l.by == nil):
		return incumbent.NotFound
	case c.Token != 0 && (l == nil || l.by == nil || l.token != uint64(c.Token)):
		return incumbent.Conflict
	case !c.AtDeadline:
		m.end(l, c.Next, c.Absent)
	case !l.revoking:
		l.revoking = true
		l.renewal++
	}
	return incumbent.OK
}

func (m *model) transfer(c TransferCommand) incumbent.Kind {
	l := m.leases[c.Name]
	if l == nil || l.by == nil || *l.by != (mParty{c.Holder, c.Session}) || c.Token != 0 && l.token != uint64(c.Token) {
		return incumbent.NotHolder
	}
	if l.revoking {
		return incumbent.Conflict
	}
	if m.sessions[c.ToSession] == nil {
		return incumbent.NotFound
	}
	to := mParty{c.ToHolder, c.ToSession}
	if to.holder == "" {
		i := slices.IndexFunc(l.queue, func(p mParty) bool { return p.session == to.session })
		if i < 0 {
			return incumbent.Invalid
		}
		to = l.queue[i]
	}
	if to == *l.by {
		return incumbent.Invalid
	}
	l.queue = slices.DeleteFunc(slices.Clone(l.queue), func(p mParty) bool { return p == to })
	m.grant(l, to, 0, true)
	return incumbent.OK
}

func (m *model) leave(c LeaveQueueCommand) {
	l := m.leases[c.Name]
	if l == nil {
		return
	}
	meant := func(p mParty) bool { return p.session == c.Session && (c.Holder == "" || p.holder == c.Holder) }
	l.queue = slices.DeleteFunc(slices.Clone(l.queue), meant)
}

func (m *model) ownsPinned(id incumbent.SessionID) bool {
	for _, l := range m.leases {
		if l.by != nil && l.by.session == id && len(l.pins) > 0 && !l.revoking {
			return true
		}
	}
	return false
}

func (m *model) close(id incumbent.SessionID, absent []incumbent.SessionID) {
	if m.sessions[id] == nil {
		return
	}
	delete(m.sessions, id)
	for _, l := range m.leases {
		l.queue = slices.DeleteFunc(slices.Clone(l.queue), func(p mParty) bool { return p.session == id })
	}
	for _, name := range m.names() {
		if l := m.leases[name]; l.by != nil && l.by.session == id {
			m.end(l, incumbent.SessionID{}, absent)
		}
	}
}

func (m *model) names() []incumbent.Name {
	var names []incumbent.Name
	for n := range m.leases {
		names = append(names, n)
	}
	slices.SortFunc(names, incumbent.Name.Compare)
	return names
}

// text is what of a state can be compared: both sides write the same.
func (m *model) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "index %d\n", m.index)
	for _, n := range m.names() {
		l := m.leases[n]
		p := mParty{}
		if l.by != nil {
			p = *l.by
		}
		var pins []string
		for e := range l.pins {
			pins = append(pins, e)
		}
		slices.Sort(pins)
		writeModelLease(&b, n, p, l.token, l.renewal, l.ttl, l.offered, l.revoking, pins, l.queue)
	}
	for _, id := range someSessions {
		if s := m.sessions[id]; s != nil {
			fmt.Fprintf(&b, "session %v %v %d\n", id, s.ttl, s.renewal)
		}
	}
	return b.String()
}

func writeModelLease(b *strings.Builder, n incumbent.Name, p mParty, token, renewal uint64, ttl time.Duration, offered, revoking bool, pins []string, queue []mParty) {
	if token == 0 && renewal == 0 && len(pins) == 0 {
		return // never held: the one remembers that it was pinned, the other that it was looked for
	}
	fmt.Fprintf(b, "%v: %v token=%d renewal=%d ttl=%v %v %v pins=%v queue=%v\n", n, p, token, renewal, ttl, offered, revoking, pins, queue)
}

func viewText(v *core.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "index %d\n", v.Index())
	Of(v).All(func(l *Lease) bool {
		var queue []mParty
		for w := range Of(v).Queue(l.Name) {
			queue = append(queue, mParty{w.Holder, w.Session})
		}
		writeModelLease(&b, l.Name, mParty{l.Holder, l.Session}, uint64(l.Token), l.Renewal, l.TTL, l.Offered, l.Revoking, l.Pins, queue)
		return true
	})
	for _, id := range someSessions {
		if s := v.Session(id); s != nil {
			fmt.Fprintf(&b, "session %v %v %d\n", id, s.TTL, s.Renewal)
		}
	}
	return b.String()
}

// checkModel runs drawn commands through the state and the model, and asks of
// each step what the guarantees say.
func checkModel(t *testing.T, each func(t *rapid.T, c core.Command, before, after *core.View, changes []core.Change)) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := New(), newModel()
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			before := s.View()
			c := drawCommand(t, before)
			results := make([]core.Result, 1)
			changes := s.Apply([][]byte{c.Encode(core.Meta{})}, results)
			after := s.View()
			want := m.apply(c)
			got := incumbent.OK
			if results[0].Err != nil {
				got = results[0].Err.Kind
			}
			if got != want {
				t.Fatalf("%#v: got %v, want %v", c, got, want)
			}
			if g, w := viewText(after), m.text(); g != w {
				t.Fatalf("%#v:\ngot\n%swant\n%s", c, g, w)
			}
			if err := s.Check(); err != nil {
				t.Fatalf("%#v: %v", c, err)
			}
			each(t, c, before, after, changes)
		}
	})
}

// At most one holder per lease at any index: holdings follow one another, each
// change beginning where the one before ended, and a grant begins at free.
func TestG01_OneHolderAtAnyIndex(t *testing.T) {
	checkModel(t, func(t *rapid.T, c core.Command, before, after *core.View, changes []core.Change) {
		last := make(map[incumbent.Name]*Lease)
		for i := range changes {
			ch, _ := ChangeOf(&changes[i])
			if ch.Lease == nil {
				continue
			}
			name := ch.Lease.Name
			if _, ok := last[name]; !ok {
				last[name] = Of(before).Lease(name)
			}
			if ch.LeaseBefore != last[name] {
				t.Fatalf("%#v: change %v does not begin where the one before ended", c, ch.What)
			}
			begins := ch.Lease.Token != 0 && (ch.LeaseBefore.Free() || ch.LeaseBefore.Token != ch.Lease.Token)
			if begins && !ch.LeaseBefore.Free() {
				t.Fatalf("%#v: granted while held: %s", c, formatLease(ch.LeaseBefore))
			}
			last[name] = ch.Lease
		}
		for name, l := range last {
			if Of(after).Lease(name) != l {
				t.Fatalf("%#v: the changes of %v do not end where the view is", c, name)
			}
		}
	})
}

// Every token is greater than every token granted before, of any lease.
func TestG03_TokensGrow(t *testing.T) {
	checkModel(t, func(t *rapid.T, c core.Command, before, after *core.View, changes []core.Change) {
		greatest := incumbent.Token(0)
		Of(before).All(func(l *Lease) bool { greatest = max(greatest, l.LastToken); return true })
		for i := range changes {
			ch, _ := ChangeOf(&changes[i])
			if ch.What != Granted && ch.What != Offered {
				continue
			}
			if ch.Lease.Token <= greatest || ch.Lease.LastToken != ch.Lease.Token {
				t.Fatalf("%#v: token %d after %d", c, ch.Lease.Token, greatest)
			}
			greatest = ch.Lease.Token
		}
		if incumbent.Index(greatest) > after.Index() {
			t.Fatalf("%#v: token %d is ahead of index %d", c, greatest, after.Index())
		}
	})
}

// A release said again, now that its holding is over, succeeds and does nothing.
func TestG09_ReleaseIsIdempotent(t *testing.T) {
	checkModel(t, func(t *rapid.T, c core.Command, before, after *core.View, changes []core.Change) {
		r, ok := c.(ReleaseCommand)
		l := Of(before).Lease(r.Name)
		if !ok || len(changes) == 0 {
			return
		}
		if Of(after).Lease(r.Name).Token == l.Token {
			t.Fatalf("%#v: still held under token %d", c, l.Token)
		}
		again := reload(t, after)
		r.Token = l.Token
		results := make([]core.Result, 1)
		if ch := again.Apply([][]byte{r.Encode(core.Meta{})}, results); len(ch) != 0 || results[0].Err != nil {
			t.Fatalf("%#v: again: %v, %d changes", c, results[0].Err, len(ch))
		}
	})
}

// What frees a lease hands it over in the same command: never is a lease free
// while somebody waits, and whoever is offered it stood in its queue or was
// named by the holder.
func TestG01_QueueHandOver(t *testing.T) {
	checkModel(t, func(t *rapid.T, c core.Command, before, after *core.View, changes []core.Change) {
		Of(after).All(func(l *Lease) bool {
			if l.Free() && l.Waiting > 0 {
				t.Fatalf("%#v: %s", c, formatLease(l))
			}
			return true
		})
		_, transfer := c.(TransferCommand)
		for i := range changes {
			ch, _ := ChangeOf(&changes[i])
			if ch.What != Offered || transfer {
				continue
			}
			l := ch.Lease
			waits := func(w Waiter) bool { return w.Session == l.Session && w.Holder == l.Holder }
			if !slices.ContainsFunc(slices.Collect(Of(before).Queue(l.Name)), waits) {
				t.Fatalf("%#v: offered to %s who did not wait", c, l.Holder)
			}
		}
	})
}

// A pinned lease that is held does not expire, nor does its session.
func TestG13_PinnedDoesNotExpire(t *testing.T) {
	checkModel(t, func(t *rapid.T, c core.Command, before, after *core.View, changes []core.Change) {
		for i := range changes {
			ch, _ := ChangeOf(&changes[i])
			if ch.What == Expired && ch.LeaseBefore.keptByPin() {
				t.Fatalf("%#v: expired: %s", c, formatLease(ch.LeaseBefore))
			}
		}
		// Unpinning makes void what was proposed before it.
		if u, ok := c.(UnpinCommand); ok && len(changes) > 0 && !Of(after).Lease(u.Name).Free() {
			if Of(after).Lease(u.Name).Renewal == Of(before).Lease(u.Name).Renewal {
				t.Fatalf("%#v: renewal is still %d", c, Of(after).Lease(u.Name).Renewal)
			}
		}
	})
}

// A session that has the id of one that ended begins beyond every renewal of that
// one, so that an expiry proposed for the one never hits the other.
func TestG07_ExpiryNeverHitsALaterSession(t *testing.T) {
	seen := make(map[incumbent.SessionID]uint64)
	checkModel(t, func(t *rapid.T, c core.Command, before, after *core.View, changes []core.Change) {
		if before.Index() == 0 {
			clear(seen)
		}
		for _, ch := range changes { // of sessions
			if ch.Session == nil {
				continue
			}
			id := ch.Session.ID
			if ch.Session.Renewal <= seen[id] {
				t.Fatalf("%#v: %s, after renewal %d", c, formatSession(ch.Session), seen[id])
			}
			seen[id] = ch.Session.Renewal
		}
	})
}

// A claim that names a token grants nothing and queues nobody.
func TestG04_ClaimWithTokenOnlyExtends(t *testing.T) {
	checkModel(t, func(t *rapid.T, c core.Command, before, after *core.View, changes []core.Change) {
		claim, ok := c.(ClaimCommand)
		if !ok || claim.Token == 0 {
			return
		}
		for i := range changes {
			ch, _ := ChangeOf(&changes[i])
			if (ch.What != Extended && ch.What != Accepted) || ch.Lease.Token != claim.Token || ch.LeaseBefore.Token != claim.Token {
				t.Fatalf("%#v: %v", c, formatEvent(*ch.Change))
			}
		}
	})
}
