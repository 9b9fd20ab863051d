package consul

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/lease"
)

// What a session is that does not say.
const (
	defaultLockDelay = 15 * time.Second
	minSessionTTL    = 10 * time.Second
	maxSessionTTL    = 24 * time.Hour
)

// secondsBelow is the greatest number that a lock delay counts seconds with, and no
// nanoseconds.
const secondsBelow = 1000

// sessionRoutes are about sessions.
func sessionRoutes() []route {
	return []route{
		{"/v1/session/create", methods{"PUT": sessionCreate}},
		{"/v1/session/destroy/", methods{"PUT": sessionDestroy}},
		{"/v1/session/renew/", methods{"PUT": sessionRenew}},
		{"/v1/session/info/", methods{"GET": sessionInfo}},
		{"/v1/session/node/", methods{"GET": sessionsOfNode}},
		{"/v1/session/list", methods{"GET": sessionList}},
	}
}

// lockOf is what the end of a session means to a key that it locks, and for how long
// nobody can lock the key then.
func (d *Door) lockOf(v *core.View, id incumbent.SessionID) (kv.OnEnd, time.Duration) {
	s := catalog.Of(v).Session(id)
	switch {
	case s == nil:
		return kv.Keep, defaultLockDelay
	case s.Behavior == catalog.Delete:
		return kv.Delete, min(s.LockDelay, kv.MaxDelay)
	}
	return kv.Keep, min(s.LockDelay, kv.MaxDelay)
}

// newSession is a session as it is asked for.
type newSession struct {
	Node          string
	Name          string
	LockDelay     *lockDelay
	Behavior      string
	TTL           string
	Checks        []string // beside NodeChecks, of older clients
	NodeChecks    []string
	ServiceChecks []serviceCheckJSON
}

// serviceCheckJSON is a check of a service that a session depends on.
type serviceCheckJSON struct {
	ID        string
	Namespace string
}

// lockDelay is a text like "15s" or a number: of seconds, if it is small.
type lockDelay time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (l *lockDelay) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
	case string:
		d, err := time.ParseDuration(v)
		if err != nil {
			return err
		}
		*l = lockDelay(d)
	case float64:
		d := time.Duration(v)
		if d < secondsBelow {
			d *= time.Second
		}
		*l = lockDelay(d)
	default:
		return errors.New("invalid duration")
	}
	return nil
}

// sessionCreate opens a session.
func sessionCreate(d *Door, r *request) {
	in := newSession{Checks: []string{nodeHealth}, NodeChecks: []string{nodeHealth}} // where it says nothing of them
	if len(r.body) > 0 && !r.decode(&in) {
		return
	}
	s, text := in.session()
	if text != "" {
		r.fail(http.StatusInternalServerError, "%s", text)
		return
	}
	if s.Node == "" {
		s.Node = d.cfg.Node
	}
	err := r.authorize(auth.SessionOpen, auth.Resource{Owner: r.who.principal.String()}, s.Node)
	if err != nil {
		r.failFor(err)
		return
	}
	s.Namespace = d.namespace
	s.Leads = s.Name != "" && d.view().ActiveSchema() >= catalog.FollowSchema && r.may(auth.NodeWrite, s.Node)
	c := catalog.Command{Verb: catalog.OpenSession, Target: catalog.Target{Namespace: d.namespace, Node: s.Node}, Session: s}
	if err := c.Validate(); err != nil {
		r.failFor(err)
		return
	}
	r.onNode(s.Node, func() {
		r.propose(c, false, r.changing(auth.SessionOpen, audit.Session(s.ID)), func(res core.Result) {
			if res.Err != nil {
				r.sessionRefused(res)
				return
			}
			r.json(http.StatusOK, struct{ ID string }{s.ID.String()})
		})
	})
}

// onNode goes on once the node is registered, if it is the one that the agent is. Who
// wants a session on another one registers that.
func (r *request) onNode(name string, then func()) {
	d := r.door
	if !incumbent.Alike(name, d.cfg.Node) || catalog.Of(d.view()).Check(d.namespace, name, nodeHealth) != nil {
		then()
		return
	}
	c := &catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: d.namespace, Node: name}}
	r.withAgent(c)
	r.propose(c, false, r.changing(auth.NodeWrite, d.subject(name)), func(res core.Result) {
		if res.Err != nil {
			r.failFor(res.Err)
			return
		}
		then()
	})
}

// session checks what is asked for; text says what is wrong with it.
func (in *newSession) session() (s *catalog.Session, text string) {
	s = &catalog.Session{ID: incumbent.NewSessionID(), Node: in.Node, Name: in.Name, LockDelay: defaultLockDelay, NodeChecks: in.checks()}
	if in.LockDelay != nil {
		s.LockDelay = wholeMillis(min(max(time.Duration(*in.LockDelay), 0), catalog.MaxLockDelay))
	}
	for _, c := range in.ServiceChecks {
		s.ServiceChecks = append(s.ServiceChecks, c.ID)
	}
	switch in.Behavior {
	case "", catalog.Release.String():
	case catalog.Delete.String():
		s.Behavior = catalog.Delete
	default:
		return nil, "Invalid Behavior setting '" + in.Behavior + "'"
	}
	if in.TTL == "" {
		return s, ""
	}
	var err error
	if s.TTL, err = time.ParseDuration(in.TTL); err != nil {
		return nil, "Session TTL '" + in.TTL + "' invalid: " + err.Error()
	}
	if s.TTL != 0 && (s.TTL < minSessionTTL || s.TTL > maxSessionTTL) {
		return nil, "Invalid Session TTL '" + strconv.FormatInt(int64(s.TTL), 10) + "', must be between [10s=24h0m0s]"
	}
	s.TTL = wholeMillis(s.TTL)
	return s, ""
}

// checks are those of the node that the session depends on, each once, by Consul's rules for
// its two fields: no Checks are none at all, the default ones leave it to NodeChecks, and no
// NodeChecks are none at all; else it depends on all of either.
func (in *newSession) checks() []string {
	switch {
	case len(in.Checks) == 0 || len(in.NodeChecks) == 0:
		return nil
	case slices.Equal(in.Checks, []string{nodeHealth}):
		return in.NodeChecks
	}
	all := slices.Clone(in.NodeChecks)
	for _, id := range in.Checks {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}

// sessionRefused says what a session cannot depend on.
func (r *request) sessionRefused(res core.Result) {
	why, ok := res.Record.(*catalog.Refusal)
	if !ok {
		r.failFor(res.Err)
		return
	}
	switch why.Why {
	case catalog.NoNode:
		r.fail(http.StatusInternalServerError, "apply failed: Missing node registration")
	case catalog.NoCheck:
		r.fail(http.StatusInternalServerError, "apply failed: Missing check '%s' registration", why.Name)
	case catalog.CheckCritical:
		r.fail(http.StatusInternalServerError, "apply failed: Check '%s' is in critical state", why.Name)
	default:
		r.failFor(res.Err)
	}
}

// sessionID reads the session's id out of the path. If it is none it has been answered:
// no session has it.
func (r *request) sessionID(none func()) (id incumbent.SessionID, ok bool) {
	if r.rest == "" {
		r.fail(http.StatusBadRequest, "Missing session")
		return id, false
	}
	id, err := incumbent.ParseSessionID(r.rest)
	if err != nil {
		none()
	}
	return id, err == nil
}

// found goes on with a session that is open as far as this member knows, once it has
// applied what it had not, or answers that there is none.
func (r *request) found(id incumbent.SessionID, none func(), then func(*core.Session)) {
	if s := r.door.view().Session(id); s != nil {
		then(s)
		return
	}
	r.confirmed(func() {
		if s := r.door.view().Session(id); s != nil {
			then(s)
			return
		}
		none()
	})
}

// sessionDestroy ends a session. That it is gone is what was asked.
func sessionDestroy(d *Door, r *request) {
	gone := func() { r.json(http.StatusOK, true) }
	id, ok := r.sessionID(gone)
	if !ok {
		return
	}
	r.found(id, gone, func(s *core.Session) {
		if !r.allowSession(auth.SessionClose, id) {
			return
		}
		c := core.CloseSessionCommand{ID: id, Others: !s.UsableBy(r.who.principal.String())}
		closed := change{action: auth.SessionClose, subject: audit.Session(id), session: id}
		r.outcome(func(done func(core.Result)) {
			d.engine.Leases().CloseSession(lease.Call{Origin: r.origin(), Judged: r.who.judged, Deadline: r.deadline()}, c, done)
		}, func(res *core.Result) { r.settled(&closed, res, true) }, func(res core.Result) {
			if res.Err != nil {
				r.failFor(res.Err)
				return
			}
			gone()
		})
	})
}

// sessionRenew keeps a session: the leader's clock extends it, without the log.
func sessionRenew(d *Door, r *request) {
	none := func() { r.fail(http.StatusNotFound, "Session id '%s' not found", r.rest) }
	id, ok := r.sessionID(none)
	if !ok {
		return
	}
	r.found(id, none, func(s *core.Session) {
		if !r.allowSession(auth.SessionUse, id) {
			return
		}
		r.extend(id, none, func() {
			list := []sessionJSON{d.sessionJSON(s, catalog.Of(d.view()).Session(id))}
			r.json(http.StatusOK, list)
		})
	})
}

// extend keeps a session, or answers that there is none.
func (r *request) extend(id incumbent.SessionID, none, then func()) {
	r.attempt(func(done func(error, func()) bool) {
		r.door.engine.Leases().Extend(&lease.Batch{
			Items: []lease.Extension{{Session: id}},
			Done: func(b *lease.Batch) {
				switch err := b.Err(); {
				case err == nil:
					done(nil, then)
				case err.Kind == incumbent.Expired:
					done(nil, none)
				default:
					done(err, nil)
				}
			},
		})
	})
}
