package consul

import (
	"encoding/json"
	"fmt"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// txnKV is an operation on keys as it was sent.
type txnKV struct {
	Verb    string
	Key     string
	Value   []byte
	Flags   uint64
	Index   uint64
	Session string
}

// keyVerb is what a verb of a transaction means.
type keyVerb struct {
	verb    kv.Verb
	cond    kv.If
	whole   bool // all below a prefix
	locks   bool // it names a session that has to be one
	valued  bool // the answer has values
	quiet   bool // there is no answer
	stores  bool
	indexed bool // it is on the condition of an index
}

var keyVerbs = map[string]keyVerb{
	"set":              {verb: kv.Put, stores: true},
	"cas":              {verb: kv.Put, cond: kv.IfIndex, stores: true, indexed: true},
	"lock":             {verb: kv.Acquire, stores: true, locks: true},
	"unlock":           {verb: kv.Release, stores: true, locks: true},
	"get":              {verb: kv.Get, cond: kv.IfThere, valued: true},
	"get-or-empty":     {verb: kv.Get, valued: true},
	"get-tree":         {verb: kv.List, whole: true, valued: true},
	"delete":           {verb: kv.Remove, quiet: true},
	"delete-cas":       {verb: kv.Remove, cond: kv.IfStill, quiet: true, indexed: true},
	"delete-tree":      {verb: kv.RemoveTree, whole: true, quiet: true},
	"check-index":      {verb: kv.Get, cond: kv.IfIndex, indexed: true},
	"check-session":    {verb: kv.Get, cond: kv.IfLocked, locks: true},
	"check-not-exists": {verb: kv.Get, cond: kv.IfIndex, quiet: true},
}

// reads reports whether the verb changes nothing.
func (m *keyVerb) reads() bool { return m.verb == kv.Get || m.verb == kv.List }

// changesKeys reports whether an operation of this verb would change something.
func changesKeys(verb string) bool {
	m, known := keyVerbs[verb]
	return known && !m.reads()
}

// keyStep checks an operation on keys.
func (r *request) keyStep(op *txnKV) (s txnStep, err error) {
	m, known := keyVerbs[op.Verb]
	switch {
	case !known:
		return s, incumbent.Errorf(incumbent.Invalid, "unknown KV operation: %s", op.Verb)
	case len(op.Value) > kv.MaxValueBytes:
		return s, incumbent.Errorf(incumbent.Invalid, "Value for key %q is too large (%d > %d bytes)", op.Key, len(op.Value), kv.MaxValueBytes)
	case op.Key == "" && !m.whole:
		return s, incumbent.Errorf(incumbent.Invalid, "Must provide key")
	}
	c := kv.Command{Verb: m.verb, Key: r.door.key(op.Key), If: m.cond}
	if m.stores {
		c.Value, c.Flags, c.Lazy = op.Value, op.Flags, m.verb != kv.Release
	}
	if m.indexed {
		c.Index = incumbent.Index(op.Index)
	}
	if m.locks {
		if err := r.lockStep(&c, op.Session); err != nil {
			return s, err
		}
	}
	if err := c.Validate(); err != nil {
		return s, err
	}
	action := auth.KeyWrite
	if m.reads() {
		action = auth.KeyRead
	}
	if err := r.authorize(action, auth.Resource{Name: r.door.named(op.Key), Whole: m.whole}, op.Key); err != nil {
		return s, err
	}
	s = txnStep{command: c, writes: !m.reads(), frees: m.verb == kv.Remove || m.verb == kv.RemoveTree, action: action, name: op.Key}
	s.why = func(res core.Result) string { return whyKey(op, res) }
	if !m.quiet {
		s.result = func(res core.Result) []txnResult { return keyResults(op, &m, res) }
	}
	return s, nil
}

// noSession stands for what is the id of no session: it has locked nothing and can lock
// nothing, and the transaction says so of the operation that names it.
var noSession = incumbent.SessionID{0: 0xff, 15: 0xff}

// locksUnknown reports whether an operation locks, or unlocks, with a session that is not
// known here: see locking.
func (r *request) locksUnknown(op txnOp) bool {
	if op.KV == nil {
		return false
	}
	verb := keyVerbs[op.KV.T.Verb]
	id, err := incumbent.ParseSessionID(op.KV.T.Session)
	return verb.locks && verb.stores && err == nil && !id.IsZero() && r.door.view().Session(id) == nil
}

// lockStep finds the session of an operation.
func (r *request) lockStep(c *kv.Command, text string) (err error) {
	if text == "" && c.Verb == kv.Get {
		return nil // it asks whether nobody has locked the key
	}
	c.Session, err = incumbent.ParseSessionID(text)
	if c.Session.IsZero() && (text != "" || c.Verb != kv.Get) {
		c.Session = noSession
	}
	if c.Verb == kv.Get || err != nil || text == "" {
		return nil
	}
	v := r.door.view()
	if c.Verb == kv.Acquire {
		c.OnEnd, c.Delay = r.door.lockOf(v, c.Session)
	}
	if s := v.Session(c.Session); s != nil {
		return r.authorize(auth.SessionUse, auth.Resource{Owner: s.Origin.Principal}, text)
	}
	return nil
}

// keyResults are what an operation on keys answers.
func keyResults(op *txnKV, m *keyVerb, res core.Result) []txnResult {
	list := []*kv.Entry{}
	switch x := res.Record.(type) {
	case *kv.Entry:
		list = append(list, x)
	case *kv.Listing:
		list = x.Entries
	}
	out := make([]txnResult, 0, len(list))
	for _, e := range list {
		if e == nil {
			e = &kv.Entry{Key: kv.Key{Name: op.Key}}
		}
		out = append(out, txnResult{KV: json.RawMessage(appendEntry(nil, e, m.valued))})
	}
	return out
}

// underDelay reports whether an operation failed because a lock delay lasts.
func underDelay(res core.Result) bool {
	e, _ := res.Record.(*kv.Entry)
	return res.Err.Kind == incumbent.Held && (e == nil || e.Session.IsZero())
}

// whyKey says why an operation on keys failed.
func whyKey(op *txnKV, res core.Result) string {
	e, _ := res.Record.(*kv.Entry)
	if op.Session == "" && (op.Verb == "lock" || op.Verb == "unlock") {
		return textMissingSession
	}
	switch res.Err.Kind {
	case incumbent.Conflict:
		return whyNot(op, e)
	case incumbent.Held:
		if underDelay(res) {
			return fmt.Sprintf("failed to lock key %q due to lock delay", op.Key)
		}
		return fmt.Sprintf("failed to lock key %q, lock is already held", op.Key)
	case incumbent.NotHolder:
		return fmt.Sprintf("failed to unlock key %q, lock isn't held, or is held by another session", op.Key)
	case incumbent.Expired:
		return fmt.Sprintf(textNoSession, op.Session)
	}
	return res.Err.Message
}

// whyNot says why a condition does not hold of an entry; nil: it is not there.
func whyNot(op *txnKV, e *kv.Entry) string {
	switch op.Verb {
	case "cas":
		return fmt.Sprintf("failed to set key %q, index is stale", op.Key)
	case "delete-cas":
		return fmt.Sprintf("failed to delete key %q, index is stale", op.Key)
	case "check-not-exists":
		return fmt.Sprintf("key %q exists", op.Key)
	case "check-index":
		if e == nil {
			return fmt.Sprintf("failed to check index, key %q doesn't exist", op.Key)
		}
		return fmt.Sprintf("failed index check for key %q, current modify index %d != %d", op.Key, e.Modified, op.Index)
	case "check-session":
		if e == nil {
			return fmt.Sprintf("failed to check session, key %q doesn't exist", op.Key)
		}
		return fmt.Sprintf("failed session check for key %q, current session %q != %q", op.Key, e.Session, op.Session)
	}
	return fmt.Sprintf("key %q doesn't exist", op.Key)
}
