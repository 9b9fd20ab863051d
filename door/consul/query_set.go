package consul

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/prepared"
)

// queryCreate stores a new query.
func queryCreate(_ *Door, r *request) {
	q, ok := r.definition()
	if !ok {
		return
	}
	if q.ID != "" {
		r.fail(http.StatusInternalServerError, "ID must be empty when creating a new prepared query")
		return
	}
	q.ID = incumbent.NewSessionID().String()
	r.setQuery(q, nil, func() { r.json(http.StatusOK, struct{ ID string }{q.ID}) })
}

// definition reads a query from the body. If it is none it has been answered.
func (r *request) definition() (q *prepared.Query, ok bool) {
	q = new(prepared.Query)
	if n := len(r.body); n > prepared.MaxBytes {
		r.fail(http.StatusRequestEntityTooLarge, "Request body(%d bytes) too large, max size: %d bytes", n, prepared.MaxBytes)
		return nil, false
	}
	return q, r.decode(q)
}

// existing goes on with the query whose id the path names, which is to be changed. If
// there is none it has been answered.
func (r *request) existing(then func(*prepared.Found)) {
	d := r.door
	if strings.HasSuffix(r.rest, toExecute) || strings.HasSuffix(r.rest, toExplain) {
		r.setHeader("Allow", http.MethodGet)
		r.fail(http.StatusMethodNotAllowed, "method %s not allowed", r.method)
		return
	}
	if len(r.rest) != idLength {
		r.fail(http.StatusInternalServerError, "Prepared Query lookup failed: "+textNoID)
		return
	}
	r.confirmed(func() {
		was := prepared.ByID(d.view(), d.namespace, r.rest)
		if was == nil {
			r.fail(http.StatusInternalServerError, "Cannot modify non-existent prepared query: '%s'", r.rest)
			return
		}
		then(was)
	})
}

// queryUpdate stores a query anew.
func queryUpdate(_ *Door, r *request) {
	r.existing(func(was *prepared.Found) {
		q, ok := r.definition()
		if !ok {
			return
		}
		q.ID = was.ID
		r.setQuery(q, was, r.nothing)
	})
}

// queryDelete deletes one.
func queryDelete(_ *Door, r *request) {
	r.existing(func(was *prepared.Found) { r.changeQuery(&prepared.Change{Was: was}, r.nothing) })
}

// setQuery stores a query that is whole, or says what is wrong with it.
func (r *request) setQuery(q *prepared.Query, was *prepared.Found, then func()) {
	c := &prepared.Change{Will: q, Was: was}
	if err := q.Validate(); err != nil {
		r.fail(http.StatusInternalServerError, "%s", textOf(err))
		return
	}
	if err := q.Compile(); err != nil {
		r.fail(http.StatusInternalServerError, "raft apply failed: %s", textOf(err))
		return
	}
	id, err := incumbent.ParseSessionID(q.Session)
	if err != nil {
		r.fail(http.StatusInternalServerError, "raft apply failed: "+textNoSession, q.Session)
		return
	}
	if !r.allowSession(auth.SessionUse, id) || !r.actsAs(c) {
		return
	}
	r.changeQuery(c, then)
}

// actsAs finds out as whom a query is to be executed: it is kept, and the token is not.
// Who it is nobody's is told so.
func (r *request) actsAs(c *prepared.Change) bool {
	token := c.Will.Token
	c.Will.Token = ""
	switch {
	case token == "":
		return true
	}
	peer := r.conn.peer
	peer.Bearer = token
	p, err := r.door.cfg.Guard.Identify(peer)
	switch {
	case err == nil:
		c.As = &p
	case r.door.defaultPolicy() == "allow": // tokens mean nothing yet
	default:
		r.door.noteUnknown(r.who, err)
		r.fail(http.StatusForbidden, textUnknownUser)
		return false
	}
	return true
}

// changeQuery does what is to be done, unless something has changed meanwhile: then it
// looks again.
func (r *request) changeQuery(c *prepared.Change, then func()) {
	d := r.door
	c.Of = d.namespace
	for _, q := range []*prepared.Query{c.Will, c.Was.Definition()} {
		if q == nil {
			continue
		}
		name := cmp.Or(q.Name, q.ID)
		if err := r.authorize(auth.KeyWrite, auth.Resource{Name: incumbent.Name{Namespace: prepared.Namespace(d.namespace), Lease: name}, Door: doorName}, name); err != nil {
			r.failFor(err)
			return
		}
	}
	r.confirmed(func() { r.tryQuery(c, then) })
}

func (r *request) tryQuery(c *prepared.Change, then func()) {
	d := r.door
	t, err := c.Command(d.view())
	if err != nil {
		r.fail(http.StatusInternalServerError, "raft apply failed: %s", textOf(err))
		return
	}
	q := cmp.Or(c.Will, c.Was.Definition())
	of := change{action: auth.KeyWrite, subject: audit.In(prepared.Namespace(d.namespace), cmp.Or(q.Name, q.ID))}
	told := func(res *core.Result) { r.settled(&of, res, res.Txn != nil && res.Txn.Unmet == 0) }
	r.propose(t, c.Will == nil, told, func(res core.Result) {
		switch kind := incumbent.KindOf(errOf(res)); {
		case kind == incumbent.OK && res.Txn != nil && res.Txn.Unmet == 0:
			then()
		case kind == incumbent.OK: // somebody was faster
			r.againQuery(c, then)
		case kind == incumbent.Expired && c.Will != nil:
			r.fail(http.StatusInternalServerError, "raft apply failed: "+textNoSession, c.Will.Session)
		default:
			r.failFor(res.Err)
		}
	})
}

// againQuery looks at a query again that is not what it was.
func (r *request) againQuery(c *prepared.Change, then func()) {
	if c.Was == nil {
		r.tryQuery(c, then)
		return
	}
	r.existing(func(was *prepared.Found) {
		c.Was = was
		r.changeQuery(c, then)
	})
}
