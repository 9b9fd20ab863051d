package kv

import (
	"bytes"
	"errors"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Apply implements [core.Tables]. Its Record is the *Entry as the command left it,
// or (Held, NotHolder, Conflict) as it found it, a nil one if there is none; of
// Remove and RemoveTree that did so it is how many entries went, an int; of List a
// *Listing. Get and List are parts of transactions only, EndDelay is none.
//
// It answers Invalid and TooLarge for what cannot be, and TooLarge for what would give
// keys and values more bytes than the settings allow, or whoever stores it or the
// namespace more than their quotas; Conflict where the condition
// does not hold; of Acquire Held where another session has locked the key, or its
// delay lasts, and Expired where the session is not open; of Release NotHolder
// where the session has not locked it.
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	var c Command
	if err := c.read(b); err != nil {
		return core.Result{Err: err}
	}
	switch alone := x.Reading() == nil; {
	case alone && (c.Verb == Get || c.Verb == List):
		return failed(nil, incumbent.Invalid, "only a transaction reads")
	case !alone && c.Verb == EndDelay:
		return core.Result{Err: errAlone()}
	case c.Verb == EndDelay:
		return t.endDelay(x, &c)
	case c.Verb == List:
		return t.list(x.Reading(), &c)
	case c.Verb == RemoveTree:
		if r, idle := t.idleTree(x.Reading(), &c); idle {
			return r
		}
		return t.removeTree(x, &c)
	}
	if c.Verb != Get { // which uses no session
		if err := x.CheckOwner(c.Session); err != nil {
			return core.Result{Err: err}
		}
	}
	o := t.find(c.Key)
	if r, idle := t.idleAt(x.Reading(), &c, o, !c.Session.IsZero() && x.Session(c.Session) != nil); idle {
		return r
	}
	if err := t.full(x, &c, o); err != nil {
		return core.Result{Record: o, Err: err}
	}
	switch c.Verb {
	case Remove:
		t.change(x, o, nil)
		return core.Result{Record: 1}
	case Acquire:
		return t.acquire(x, &c, o)
	case Release:
		n := c.next(x, o)
		n.Session, n.OnEnd, n.Delay = incumbent.SessionID{}, Keep, 0
		return t.change(x, o, n)
	default: // Put: decode lets no other through
		return t.change(x, o, c.next(x, o))
	}
}

// refusal is why a command on one key does nothing to the entry o, nil: it is not
// there, for what that entry is. open: its session is.
func (t *shared) refusal(c *Command, o *Entry, open bool) *incumbent.Error {
	mine := o != nil && o.Session == c.Session
	switch {
	case !c.holds(o):
		return refused(incumbent.Conflict, "the entry is not as the condition says")
	case c.Verb == Release && !mine:
		return refused(incumbent.NotHolder, "the session has not locked the key")
	case c.Verb != Acquire || mine && open:
		return nil
	case !open:
		return refused(incumbent.Expired, "the session is not open")
	case o != nil && !o.Session.IsZero():
		return refused(incumbent.Held, "another session has locked the key")
	case t.delayed(c.Key):
		return refused(incumbent.Held, "the delay of the last lock lasts")
	}
	return nil
}

// full is why a command does nothing that would give keys and values more bytes than
// they may have: all together, those of who stores it, or those of the namespace.
func (t *shared) full(x *core.Exec, c *Command, o *Entry) *incumbent.Error {
	if c.Verb == Remove || c.Verb == RemoveTree {
		return nil
	}
	if err := t.noRoom(x.Terms(), c, o); err != nil {
		return err
	}
	owner := c.owner(o, x.Principal())
	owners, namespaces := c.growths(o, owner)
	return x.OverQuota(owner, c.Key.Namespace, owners, namespaces)
}

// noRoom is why a command does nothing that would give all keys and values more bytes
// than they may have.
func (t *shared) noRoom(terms *core.Terms, c *Command, o *Entry) *incumbent.Error {
	grows, most := c.Growth(o), terms.KeyBytes
	if most == 0 || grows <= 0 || t.bytes+grows <= most {
		return nil
	}
	return incumbent.Errorf(incumbent.TooLarge, "keys and values have %d bytes, and may have %d", t.bytes, most).
		WithHint("delete what is not needed, which always works, or an operator raises it: incumbent config set kv.quota-bytes BYTES")
}

// owner is whose an entry will be that a command stores: who asks, but for one who
// gives a lock up and makes nothing larger, which no quota is to stop.
func (c *Command) owner(o *Entry, asks string) string {
	if c.Verb == Release && o != nil && c.Growth(o) <= 0 {
		return o.Owner
	}
	return asks
}

// growths are by how much a command that stores raises what the owner has, and what
// the namespace has.
func (c *Command) growths(o *Entry, owner string) (owners, namespaces core.Growth) {
	owners[core.KeyBytes], namespaces[core.KeyBytes] = c.Growth(o), c.Growth(o)
	if o == nil {
		owners[core.Keys], namespaces[core.Keys] = 1, 1
	} else if o.Owner != owner {
		owners[core.Keys], owners[core.KeyBytes] = 1, costOf(c.Key, c.Value)
	}
	return owners, namespaces
}

func refused(k incumbent.Kind, message string) *incumbent.Error {
	return &incumbent.Error{Kind: k, Message: message}
}

func errTooManyDeleted(limit int) *incumbent.Error {
	return incumbent.Errorf(incumbent.TooLarge, "keys with the prefix: limit MaxDeleted is %d; delete below longer prefixes", limit)
}

// typed is an error of Validate.
func typed(err error) *incumbent.Error {
	var e *incumbent.Error
	if !errors.As(err, &e) {
		e = &incumbent.Error{Kind: incumbent.Invalid, Message: err.Error()}
	}
	return e
}

func failed(e *Entry, k incumbent.Kind, message string) core.Result {
	return core.Result{Record: e, Err: refused(k, message)}
}

func (c *Command) holds(o *Entry) bool {
	switch c.If {
	case IfIndex:
		return o == nil && c.Index == 0 || o != nil && o.Modified == c.Index
	case IfValue:
		return o != nil && bytes.Equal(o.Value, c.Was)
	case IfThere:
		return o != nil
	case IfLocked:
		return o != nil && o.Session == c.Session
	case IfStill:
		return o == nil || o.Modified == c.Index
	}
	return true
}

// said reports whether a command leaves an entry as it is, for it says the same.
func (c *Command) said(o *Entry) bool {
	if !c.Lazy || o == nil || o.Flags != c.Flags || !bytes.Equal(o.Value, c.Value) {
		return false
	}
	return c.Verb == Put || o.Session == c.Session && o.OnEnd == c.OnEnd && o.Delay == c.Delay
}

// next is what becomes of an entry, nil: none, that gets the command's value. Neither the
// key nor the value is the command's own, which aliases the log.
func (c *Command) next(x *core.Exec, o *Entry) *Entry {
	n := new(Entry)
	if o != nil {
		*n = *o
	} else {
		n.Key, n.Created = c.Key.clone(), x.Index()
	}
	n.Owner = c.owner(o, x.Principal())
	n.Value, n.Flags, n.Modified = bytes.Clone(c.Value), c.Flags, x.Index()
	return n
}

// change stores n in the place of o and tells of it; either may be nil.
func (t *tables) change(x *core.Exec, o, n *Entry) core.Result {
	return t.changeWith(x, o, n, nil)
}

// changeWith does so, and tells of a deadline that begins with it unless it is nil.
func (t *tables) changeWith(x *core.Exec, o, n *Entry, d *core.Deadline) core.Result {
	t.put(x.Index(), o, n)
	k := keyOf(o, n)
	c := core.FamilyChange{Topic: TopicOf(k), Size: EntryBytes + len(k.Name), Deadline: d}
	if o != nil {
		c.Before = o
		c.Size += len(o.Value)
	}
	if n != nil {
		c.After = n
		c.Size += len(n.Value)
	}
	x.Tell(Family{}, c)
	return core.Result{Record: n}
}

// TopicOf is the topic that changes of a key are told under: Before and After of
// the change are an *Entry where there is one. Where they are the same, or nothing,
// the delay of the last lock is over, and nothing else has changed.
func TopicOf(k Key) core.Topic { return core.Topic{Scope: [2]string{k.Namespace}, Name: k.Name} }

// acquire locks an entry that nobody else has locked.
func (t *tables) acquire(x *core.Exec, c *Command, o *Entry) core.Result {
	held := o != nil && !o.Session.IsZero()
	switch {
	case held:
	case t.counts[c.Session] >= t.limits.perSession:
		return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "keys locked by the session: limit MaxLocksPerSession is %d", t.limits.perSession)}
	case t.locks+t.delays.Len() >= t.limits.locks:
		return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "keys locked or under a delay: limit MaxLocks is %d", t.limits.locks)}
	}
	n := c.next(x, o)
	n.Session, n.OnEnd, n.Delay = c.Session, c.OnEnd, c.Delay
	if !held {
		n.LockIndex++
	}
	return t.change(x, o, n)
}

// begin has a delay begin.
func (t *tables) begin(d *Delay) {
	t.delays.Set(d)
	t.charge(nil, d.counted())
}

func (t *shared) delayed(k Key) bool {
	_, ok := t.delays.Get(&Delay{Key: k})
	return ok
}

// removeTree deletes what idle has found to be not too much.
func (t *tables) removeTree(x *core.Exec, c *Command) core.Result {
	var list []*Entry
	t.ascend(c.Key, Key{}, func(e *Entry) bool {
		list = append(list, e)
		return true
	})
	for _, e := range list {
		t.change(x, e, nil)
	}
	return core.Result{Record: len(list)}
}

// endDelay is void if the delay is over or another one.
func (t *tables) endDelay(x *core.Exec, c *Command) core.Result {
	d, _ := t.delays.Get(&Delay{Key: c.Key})
	if d == nil || d.Since != c.Index {
		return failed(nil, incumbent.Conflict, "the end of the delay is void")
	}
	t.delays.Delete(d)
	t.charge(d.counted(), nil)
	over := core.FamilyChange{Topic: TopicOf(d.Key), Size: EntryBytes + len(d.Name), Deadline: &core.Deadline{Family: Number, ID: d.id()}}
	if o := t.entry(d.Key); o != nil {
		over.Before, over.After = o, o
	}
	x.Tell(Family{}, over)
	return core.Result{}
}

// EndSession implements [core.Tables]: locks are given up, in the order of their
// keys.
func (t *tables) EndSession(x *core.Exec, s *core.Ending) {
	var list []*Entry
	t.owned.Ascend(lock{session: s.ID}, func(l lock) bool {
		if l.session != s.ID {
			return false
		}
		list = append(list, t.entry(l.key))
		return true
	})
	for _, o := range list {
		var begins *core.Deadline
		if o.Delay > 0 {
			d := &Delay{Key: o.Key, Since: x.Index(), For: o.Delay}
			if x.ActiveSchema() >= core.CountSchema {
				d.Owner = o.Owner
			}
			t.begin(d)
			begins = d.deadline()
		}
		if o.OnEnd == Delete {
			t.changeWith(x, o, nil, begins)
			continue
		}
		n := *o
		n.Session, n.OnEnd, n.Delay, n.Modified = incumbent.SessionID{}, Keep, 0, x.Index()
		t.changeWith(x, o, &n, begins)
	}
}

// ascend calls fn with the entries whose key begins with that of prefix and comes
// behind after, in their order, until it returns false.
func (t *shared) ascend(prefix, after Key, fn func(*Entry) bool) {
	from := prefix
	if after.Namespace == prefix.Namespace && after.Name > from.Name {
		from = after
	}
	t.entries.Ascend(&Entry{Key: from}, func(e *Entry) bool {
		if !e.below(prefix) {
			return false
		}
		return e.Key == after || fn(e)
	})
}
