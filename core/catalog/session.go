package catalog

import (
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// lifeSchema is the [core.SchemaVersion] from which a session lives for ttls times its
// TTL; before that for one.
const (
	lifeSchema = 11
	ttls       = 2
)

// openSession opens a session of core's that depends on a node and checks. Of one that
// is open already it says what it says.
func (t *tables) openSession(x *core.Exec, s *Session) core.Result {
	if o := t.session(s.ID); o != nil {
		if !o.same(s) {
			return core.Result{Record: o, Err: refused(incumbent.Exists, "the session is open, and depends on something else")}
		}
		r := x.OpenSession(s.ID, t.life(x, s))
		r.Record = o
		return r
	}
	if r := t.dependable(s, true); r.Err != nil {
		return r
	}
	if x.Session(s.ID) != nil { // on what a session depends never changes: see MayFollow
		return core.Result{Err: refused(incumbent.Exists, "the session is open, and depends on nothing")}
	}
	r := x.OpenSession(s.ID, t.life(x, s))
	if r.Err != nil {
		return r
	}
	n := *s
	n.Node, n.Created, n.Modified = t.host(s.Namespace, s.Node).node.Name, x.Index(), x.Index()
	t.addSession(&n)
	t.tellSession(x, &n, nil, &n)
	t.lead(x, &n, Passing, "Session '"+n.ID.String()+"' in force")
	r.Record = &n
	return r
}

// life is for how long a session lives that nobody renews: one that is open for what it was
// opened with. Consul ends none before twice its ttl, and clients of it ask for half of what
// they count on.
func (*tables) life(x *core.Exec, s *Session) time.Duration {
	if x.ActiveSchema() < lifeSchema {
		return s.TTL
	}
	if o := x.Session(s.ID); o != nil {
		return o.TTL
	}
	return min(ttls*s.TTL, incumbent.MaxTTL)
}

// lead has the checks that follow a session become what its beginning or its end makes
// them. They are its node's own, of which few do; and one that is so already stays, for
// one command may end very many sessions.
func (t *tables) lead(x *core.Exec, s *Session, status Status, output string) {
	h := t.host(s.Namespace, s.Node)
	if h == nil {
		return
	}
	for _, c := range h.checks {
		if !c.follows(s) || c.Status == status {
			continue
		}
		n := *c
		n.Status, n.Output = status, output
		t.putCheck(x, c, &n)
	}
}

// follows reports whether a check of the session's node follows it.
func (c *Check) follows(s *Session) bool {
	return s.Leads && c.SessionName != "" && c.SessionName == s.Name
}

// dependable refuses a session that depends on what is not there or is critical; opens: but
// for what follows it, which no longer is once it is open.
func (t *shared) dependable(s *Session, opens bool) core.Result {
	h := t.host(s.Namespace, s.Node)
	if h == nil {
		return noNode(s.Node)
	}
	for _, id := range s.checks() {
		switch c := t.check(s.Namespace, s.Node, id); {
		case c == nil:
			return noCheck(id)
		case c.Status == Critical && !(opens && c.follows(s)):
			return refuse(incumbent.Conflict, &Refusal{Why: CheckCritical, Name: id}, "a check that the session is to depend on is critical")
		}
	}
	switch {
	case h.sessions >= t.limits.sessions:
		return crowd("sessions that depend on the node", "MaxSessionsPerNode", t.limits.sessions)
	case t.records() >= t.limits.records:
		return crowd("nodes, services, checks and sessions", "MaxRecords", t.limits.records)
	}
	return core.Result{}
}

// checks are the ids of all checks that a session depends on, each once.
func (s *Session) checks() []string {
	list := slices.Concat(s.NodeChecks, s.ServiceChecks)
	slices.Sort(list)
	return slices.Compact(list)
}

func (s *Session) same(o *Session) bool {
	return s.Namespace == o.Namespace && incumbent.Alike(s.Node, o.Node) && s.Name == o.Name && s.LockDelay == o.LockDelay && s.Behavior == o.Behavior &&
		s.TTL == o.TTL && s.Leads == o.Leads && slices.Equal(s.NodeChecks, o.NodeChecks) && slices.Equal(s.ServiceChecks, o.ServiceChecks)
}

// addSession stores a session whose node is there.
func (t *tables) addSession(n *Session) {
	t.sessions.Set(n)
	t.bonds.Set(bond{n.Namespace, n.Node, "", n.ID})
	for _, id := range n.checks() {
		t.bonds.Set(bond{n.Namespace, n.Node, id, n.ID})
	}
	t.countSession(n, 1)
}

// countSession counts a session with its node, if that is still there.
func (t *tables) countSession(s *Session, by int) {
	if h := t.host(s.Namespace, s.Node); h != nil {
		next := *h
		next.sessions += by
		t.setHost(h, &next)
	}
}

func (t *tables) tellSession(x *core.Exec, s *Session, before, after any) {
	gone := t.host(s.Namespace, s.Node) == nil
	c := core.FamilyChange{Topic: SessionTopic(s.Namespace, s.ID), Before: before, After: after, Size: recordBytes + len(s.Name) + len(s.Node)}
	t.tell(x, c, told{namespace: s.Namespace, table: Sessions, node: s.Node, gone: gone})
}

// EndSession implements [core.Tables]: what the session said goes; the checks that follow
// it become critical, which ends who else depends on them; and the services go that end
// with it, in the order of their nodes and ids.
func (t *tables) EndSession(x *core.Exec, ended *core.Ending) {
	if s := t.session(ended.ID); s != nil {
		t.sessions.Delete(s)
		t.bonds.Delete(bond{s.Namespace, s.Node, "", s.ID})
		for _, id := range s.checks() {
			t.bonds.Delete(bond{s.Namespace, s.Node, id, s.ID})
		}
		t.countSession(s, -1)
		t.tellSession(x, s, s, nil)
		t.lead(x, s, Critical, "Session '"+s.ID.String()+"' is invalid")
	}
	var services []*Service
	t.tenants.Ascend(tenancy{session: ended.ID}, func(l tenancy) bool {
		if l.session != ended.ID {
			return false
		}
		services = append(services, t.service(l.namespace, l.node, l.id))
		return true
	})
	for _, s := range services {
		t.removeService(x, s)
	}
}
