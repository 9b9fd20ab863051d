package consul

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
)

// kvRoutes are about keys, and what is done to several of them at once.
func kvRoutes() []route {
	return []route{
		{"/v1/kv/", methods{"GET": kvGet, "PUT": kvPut, "DELETE": kvDelete}},
		{"/v1/txn", methods{"PUT": txnPut}},
	}
}

func (d *Door) key(name string) kv.Key { return kv.Key{Namespace: d.namespace, Name: name} }

// keyed reports whether the path names a key. If not it has been answered.
func (r *request) keyed() bool {
	if r.rest == "" {
		r.fail(http.StatusBadRequest, "Missing key name")
	}
	return r.rest != ""
}

// conflicting reports whether more than one of the parameters is there, and then has
// answered so.
func (r *request) conflicting(names ...string) bool {
	n := 0
	for _, name := range names {
		if r.query.Has(name) {
			n++
		}
	}
	if n > 1 {
		r.fail(http.StatusBadRequest, "Conflicting flags: %s\n", r.query.Encode())
	}
	return n > 1
}

// number reads a parameter that is a number, if it is there. If it is none it has been
// answered.
func (r *request) number(name string, to *uint64) (there, ok bool) {
	if !r.query.Has(name) {
		return false, true
	}
	var err error
	if *to, err = strconv.ParseUint(r.query.Get(name), 10, 64); err != nil {
		r.fail(http.StatusInternalServerError, "%v", err)
	}
	return true, err == nil
}

// kvPut stores, locks or gives a lock up.
func kvPut(d *Door, r *request) {
	if !r.keyed() || r.conflicting("cas", "acquire", "release") {
		return
	}
	if n := len(r.body); n > kv.MaxValueBytes {
		r.fail(http.StatusRequestEntityTooLarge, "Request body(%d bytes) too large, max size: %d bytes", n, kv.MaxValueBytes)
		return
	}
	c := &kv.Command{Verb: kv.Put, Key: d.key(r.rest), Value: r.body, Lazy: true}
	if _, ok := r.number("flags", &c.Flags); !ok {
		return
	}
	cas, ok := r.number("cas", (*uint64)(&c.Index))
	if !ok {
		return
	}
	if cas {
		c.If = kv.IfIndex
	}
	r.locking(c, func() { r.writeKey(c, func(res core.Result) { r.answerKey(c, res) }) })
}

// laneOfWrite is that of a PUT of a key: a lock is a claim, unless its session has the key
// already as far as this member knows, and then a write as any other.
func (r *request) laneOfWrite() admit.Lane {
	switch {
	case r.query.Has("release"):
		return admit.Releases
	case r.query.Has("acquire") && !r.holds():
		return admit.Claims
	}
	return r.call.Lane()
}

// holds reports whether the session that is to lock the key has done so before.
func (r *request) holds() bool {
	id, err := incumbent.ParseSessionID(r.query.Get("acquire"))
	e := kv.Of(r.door.view()).Entry(r.door.key(r.rest))
	return err == nil && !id.IsZero() && e != nil && e.Session == id
}

// locking reads which session locks the key, or gives it up, if one does, and goes on. If
// that cannot be it has been answered.
func (r *request) locking(c *kv.Command, then func()) {
	name := "acquire"
	switch {
	case r.query.Has("acquire"):
		c.Verb = kv.Acquire
	case r.query.Has("release"):
		c.Verb, c.Lazy, name = kv.Release, false, "release"
	default:
		then()
		return
	}
	text := r.query.Get(name)
	id, err := incumbent.ParseSessionID(text)
	switch {
	case text == "":
		r.fail(http.StatusInternalServerError, "raft apply failed: "+textMissingSession)
	case err != nil && c.Verb == kv.Release: // no key is locked by what is no session
		r.json(http.StatusOK, false)
	case err != nil:
		r.fail(http.StatusInternalServerError, "raft apply failed: "+textNoSession, text)
	default:
		c.Session = id
		known := func() {
			if c.Verb == kv.Acquire {
				c.OnEnd, c.Delay = r.door.lockOf(r.door.view(), id)
			}
			then()
		}
		// One that is not known here may have been opened by another member a moment ago: the
		// lock takes from it what its end means.
		r.found(id, known, func(*core.Session) { known() })
	}
}

// Texts that refuse a lock.
const (
	textMissingSession = "missing session"
	textNoSession      = "invalid session %q"
)

// answerKey answers what a command about one key did: conditions that do not hold are no
// errors.
func (r *request) answerKey(c *kv.Command, res core.Result) {
	switch incumbent.KindOf(errOf(res)) {
	case incumbent.OK:
		r.json(http.StatusOK, true)
	case incumbent.Conflict, incumbent.Held, incumbent.NotHolder:
		r.json(http.StatusOK, false)
	case incumbent.Expired:
		if kv.Of(r.door.view()).Delayed(c.Key) { // which a session that has ended has left, mostly this one
			r.json(http.StatusOK, false)
			return
		}
		r.fail(http.StatusInternalServerError, "raft apply failed: "+textNoSession, c.Session)
	default:
		r.failFor(res.Err)
	}
}

func errOf(res core.Result) error {
	if res.Err == nil {
		return nil // not one that is there and nil
	}
	return res.Err
}

// kvDelete deletes a key, or all that begin with one.
func kvDelete(d *Door, r *request) {
	if r.conflicting("recurse", "cas") {
		return
	}
	if r.query.Has("recurse") {
		r.deleteTree(&kv.Command{Verb: kv.RemoveTree, Key: d.key(r.rest)})
		return
	}
	if !r.keyed() {
		return
	}
	c := &kv.Command{Verb: kv.Remove, Key: d.key(r.rest)}
	cas, ok := r.number("cas", (*uint64)(&c.Index))
	if !ok {
		return
	}
	if cas {
		c.If = kv.IfStill
	}
	r.writeKey(c, func(res core.Result) { r.answerKey(c, res) })
}

// deleteTree deletes all below a prefix: at once, as long as one command may delete so
// many, and else in steps, which others may see.
func (r *request) deleteTree(c *kv.Command) {
	r.writeKey(c, func(res core.Result) {
		if incumbent.KindOf(errOf(res)) != incumbent.TooLarge {
			r.answerKey(c, res)
			return
		}
		r.deleteSome(c, func() { r.deleteTree(c) })
	})
}

// deleteSome deletes as many keys below a prefix as one command may.
func (r *request) deleteSome(c *kv.Command, then func()) {
	var some core.TxnCommand
	kv.Of(r.door.view()).Ascend(c.Key, kv.Key{}, func(e *kv.Entry) bool {
		some.Then = append(some.Then, kv.Command{Verb: kv.Remove, Key: e.Key})
		return len(some.Then) < kv.MaxDeleted
	})
	r.propose(some, true, r.changing(auth.KeyWrite, r.door.subject(c.Key.Name)), func(res core.Result) {
		if res.Err != nil {
			r.failFor(res.Err)
			return
		}
		r.asked = r.door.now() // each step waits for a leader by itself: how long all take says nothing of one
		then()
	})
}

// writeKey checks a command about keys and executes it, unless a confirmed view says that
// it would change nothing. What cannot be, or may not be done, has been answered.
func (r *request) writeKey(c *kv.Command, then func(core.Result)) {
	if err := c.Validate(); err != nil {
		r.failFor(err)
		return
	}
	if !r.allow(auth.KeyWrite, c.Key.Name, c.Verb == kv.RemoveTree) || !r.allowSession(auth.SessionUse, c.Session) {
		return
	}
	told := func(res *core.Result) {
		r.settled(&change{action: auth.KeyWrite, subject: audit.In(c.Key.Namespace, c.Key.Name), session: c.Session}, res, kv.Changed(res))
	}
	r.execute(func(call engine.Call, done func(core.Result)) { r.door.writes.Key(call, c, true, done) }, told, then)
}

// allowSession reports whether the caller may do an action to a session. What is not open
// nobody is kept from: it is refused as what it is. If not it has been answered.
func (r *request) allowSession(a auth.Action, id incumbent.SessionID) bool {
	s := r.door.view().Session(id)
	if s == nil {
		return true
	}
	err := r.authorize(a, auth.Resource{Owner: s.Origin.Principal}, id.String())
	if err != nil {
		r.failFor(err)
	}
	return err == nil
}

// authorize returns nil if the caller may do an action, else Denied, which is counted.
func (r *request) authorize(a auth.Action, to auth.Resource, name string) error {
	err := auth.Authorize(r.who.rights, a, to)
	if err != nil {
		refused := to // so that what is permitted allocates nothing
		return r.refusal(a, &refused, name, err)
	}
	return nil
}

// groupOf is what a key has up to the end of the first separator behind a prefix; the
// whole key, if it has none.
func groupOf(key, prefix, separator string) (group string, cut bool) {
	if separator == "" {
		return key, false
	}
	i := strings.Index(key[len(prefix):], separator)
	if i < 0 {
		return key, false
	}
	return key[:len(prefix)+i+len(separator)], true
}
