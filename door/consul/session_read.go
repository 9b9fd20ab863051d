package consul

import (
	"fmt"
	"net/http"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// sessionJSON is a session in answers.
type sessionJSON struct {
	ID            string
	Name          string
	Node          string
	LockDelay     time.Duration // nanoseconds
	Behavior      string
	TTL           string
	NodeChecks    []string
	ServiceChecks []serviceCheckJSON
	CreateIndex   uint64
	ModifyIndex   uint64
}

// sessionJSON is a session with what was said of it when it was opened here; nil: it was
// opened through another door, on the node that the agent is.
func (d *Door) sessionJSON(s *core.Session, said *catalog.Session) sessionJSON {
	if said == nil {
		return sessionJSON{
			ID: s.ID.String(), Node: d.cfg.Node, LockDelay: defaultLockDelay, Behavior: catalog.Release.String(), TTL: ttlText(s.TTL),
			NodeChecks: []string{}, CreateIndex: uint64(s.Opened), ModifyIndex: uint64(s.Opened),
		}
	}
	out := sessionJSON{
		ID: said.ID.String(), Name: said.Name, Node: said.Node, LockDelay: said.LockDelay, Behavior: said.Behavior.String(), TTL: ttlText(said.TTL),
		NodeChecks: append([]string{}, said.NodeChecks...), CreateIndex: uint64(said.Created), ModifyIndex: uint64(said.Modified),
	}
	for _, id := range said.ServiceChecks {
		out.ServiceChecks = append(out.ServiceChecks, serviceCheckJSON{ID: id})
	}
	return out
}

// ttlText writes a ttl as clients do: in seconds, if it can be.
func ttlText(ttl time.Duration) string {
	switch {
	case ttl == 0:
		return ""
	case ttl%time.Second == 0:
		return fmt.Sprintf("%ds", ttl/time.Second)
	}
	return ttl.String()
}

// sessionInfo shows a session, of whichever door, in a list that is empty if there is
// none.
func sessionInfo(d *Door, r *request) {
	if r.rest == "" {
		r.fail(http.StatusBadRequest, "Missing session")
		return
	}
	id, _ := incumbent.ParseSessionID(r.rest) // of what is none: that of no session
	sees := r.seesSessions()
	r.shared(sharedQuery{kind: "session", params: id.String(), rights: sees.key, eval: func(v *core.View, reads *watch.Reads) result {
		said, at := engine.ReadCatalog(v, reads, d.namespace).ReadSession(id)
		s := v.Session(id)
		switch {
		case s == nil || !sees.session(s):
			return result{index: max(at, 1), filtered: s != nil}.encoded([]sessionJSON{})
		case said != nil:
			at = said.Modified
		default:
			at = max(at, s.Opened)
		}
		return result{index: at}.encoded([]sessionJSON{d.sessionJSON(s, said)})
	}})
}

// sessionsOfNode lists the sessions that depend on a node.
func sessionsOfNode(d *Door, r *request) {
	if r.rest == "" {
		r.fail(http.StatusBadRequest, "Missing node name")
		return
	}
	node, sees := incumbent.Fold(r.rest), r.seesSessions()
	r.shared(sharedQuery{kind: "sessions of", params: node, rights: sees.key, eval: func(v *core.View, reads *watch.Reads) result {
		return d.sessions(v, reads, &sees, func(s *catalog.Session) bool { return incumbent.Alike(s.Node, node) })
	}})
}

// sessionList lists the sessions that depend on a node, whichever.
func sessionList(d *Door, r *request) {
	sees := r.seesSessions()
	r.shared(sharedQuery{kind: "sessions", rights: sees.key, eval: func(v *core.View, reads *watch.Reads) result {
		return d.sessions(v, reads, &sees, func(*catalog.Session) bool { return true })
	}})
}

func (d *Door) sessions(v *core.View, reads *watch.Reads, sees *sessionSight, wanted func(*catalog.Session) bool) result {
	list, filtered := []sessionJSON{}, false
	at := engine.ReadCatalog(v, reads, d.namespace).ReadSessions(func(said *catalog.Session) bool {
		if !wanted(said) {
			return true
		}
		if s := v.Session(said.ID); s == nil || !sees.session(s) {
			filtered = true
		} else {
			list = append(list, d.sessionJSON(s, said))
		}
		return true
	})
	return result{index: max(at, 1), filtered: filtered}.encoded(list)
}

// sessionSight is which sessions a caller may see.
type sessionSight struct {
	sight auth.Sight
	key   string // the same for whoever sees the same
}

func (s *sessionSight) session(o *core.Session) bool { return s.sight.SeesOf(o.Origin.Principal) }

// seesSessions is what the caller may see: an agent at least what it has opened.
func (r *request) seesSessions() sessionSight {
	s := sessionSight{sight: r.who.sight(auth.SessionRead)}
	if !s.sight.All() {
		s.key = s.sight.Key() + " " + r.who.principal.String()
	}
	return s
}
