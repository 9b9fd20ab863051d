package credential

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// recordBytes is what a change costs that is kept for watchers, about.
const recordBytes = 512

// Apply implements [core.Tables]. Its Record is the *Credential as the command left
// it, or (Conflict) as it found it; of Forget a nil one.
//
// It answers Invalid for what cannot be; Conflict to a Create of a token that there
// is already, or of the same password; TooLarge where there are too many; NotFound
// if there is no such record. To end what has ended, and to revoke what is revoked,
// changes nothing but that sessions are to be closed, if that is new, and that a
// certificate which was taken back stays so for longer, if it ends later than was said.
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	var c Command
	if !c.decode(b) {
		return failed(nil, incumbent.Invalid, "malformed command")
	}
	if err := c.Validate(); err != nil {
		return core.Result{Err: typed(err)}
	}
	switch c.Verb {
	case Create:
		return t.create(x, &c)
	case Revoke:
		return t.revoke(x, &c)
	}
	o := t.of(c.ID)
	if o == nil {
		return failed(nil, incumbent.NotFound, "there is no credential of this id")
	}
	switch c.Verb {
	case Settled:
		return t.settled(x, o)
	case Forget:
		return t.forget(x, o)
	default: // End: decode lets no other through
		return t.end(x, o, &c)
	}
}

func failed(c *Credential, k incumbent.Kind, message string) core.Result {
	return core.Result{Record: c, Err: &incumbent.Error{Kind: k, Message: message}}
}

func typed(err error) *incumbent.Error {
	var e *incumbent.Error
	if !errors.As(err, &e) {
		e = &incumbent.Error{Kind: incumbent.Invalid, Message: err.Error()}
	}
	return e
}

// create makes a record, in the place of the one that ended first if there are too
// many.
func (t *tables) create(x *core.Exec, c *Command) core.Result {
	n := c.described()
	if r, refused := t.there(n); refused {
		return r
	}
	if t.records.Len()-t.certificates >= t.limits.credentials {
		oldest, ok := t.ended.Min()
		if !ok {
			return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "credentials: limit MaxCredentials is %d", t.limits.credentials)}
		}
		t.change(x, oldest, nil)
	}
	return t.add(x, n)
}

// there refuses a record of what there is already.
func (t *tables) there(n *Credential) (r core.Result, refused bool) {
	count, key := 0, n.key()
	t.known.Ascend(known{by: key.by}, func(k known) bool {
		if k.by != key.by {
			return false
		}
		count++
		if refused = bytes.Equal(k.c.Secret, n.Secret); refused {
			r = failed(k.c, incumbent.Conflict, "there is this credential already")
		}
		return !refused
	})
	if !refused && count >= MaxPerAccount {
		return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "passwords of one tag: limit MaxPerAccount is %d", MaxPerAccount)}, true
	}
	return r, refused
}

// add stores a new record, with who made it, and when.
func (t *tables) add(x *core.Exec, n *Credential) core.Result {
	n.ID, n.Secret = x.Index(), bytes.Clone(n.Secret)
	n.Created, n.CreatedBy = MomentOf(x.Origin().At), x.Principal()
	t.change(x, nil, n)
	return core.Result{Record: n}
}

// end ends what lets somebody in.
func (t *tables) end(x *core.Exec, o *Credential, c *Command) core.Result {
	if c.EndSessions && (o.Method == Password || o.Principal == "") {
		return failed(o, incumbent.Invalid, "nobody is known whose sessions could end")
	}
	n := *o
	if o.Live() {
		n.endedBy(x)
		n.Expired, n.Closing = c.Expired, o.EndSessions || c.EndSessions
		n.Secret = nil
	}
	return t.closeAlso(x, o, &n, c.EndSessions)
}

func (c *Credential) endedBy(x *core.Exec) {
	c.Ended, c.EndedAt, c.EndedBy = x.Index(), MomentOf(x.Origin().At), x.Principal()
}

// closeAlso stores n in the place of o if it is another, or if sessions are to be
// closed of which that was not said before.
func (t *tables) closeAlso(x *core.Exec, o, n *Credential, sessions bool) core.Result {
	if sessions && !n.EndSessions {
		n.EndSessions, n.Closing = true, true
	}
	if n.Ended == o.Ended && n.Closing == o.Closing && n.Ends == o.Ends {
		return core.Result{Record: o}
	}
	t.change(x, o, n)
	return core.Result{Record: n}
}

// revoke takes a certificate back.
func (t *tables) revoke(x *core.Exec, c *Command) core.Result {
	n := c.described()
	if o := t.certificate(n.Secret); o != nil {
		m := *o
		if m.Principal == "" {
			m.Principal = n.Principal
		}
		// Two authorities may give one serial number, or somebody not know the end: a
		// record that goes too early would make a certificate good again.
		if x.ActiveSchema() >= laterSchema && later(n.Ends, o.Ends) {
			m.Ends = n.Ends
		}
		return t.closeAlso(x, o, &m, n.EndSessions)
	}
	if t.certificates >= t.limits.revocations {
		return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "revoked certificates: limit MaxRevocations is %d", t.limits.revocations)}
	}
	n.endedBy(x)
	n.Closing = n.EndSessions
	return t.add(x, n)
}

// later reports whether an end is behind another; 0 is none, behind all.
func later(a, b Moment) bool { return b != 0 && (a == 0 || a > b) }

// settled notes that nothing is left to do for a record.
func (t *tables) settled(x *core.Exec, o *Credential) core.Result {
	if !o.Closing {
		return core.Result{Record: o}
	}
	n := *o
	n.Closing = false
	t.change(x, o, &n)
	return core.Result{Record: &n}
}

// forget drops a record. One that lets somebody in, or has something left to do,
// stays.
func (t *tables) forget(x *core.Exec, o *Credential) core.Result {
	if o.Live() || o.Closing {
		return failed(o, incumbent.Conflict, "the credential has not ended, or its sessions have not")
	}
	t.change(x, o, nil)
	return core.Result{}
}

// change stores n in the place of o and tells of it; either may be nil.
func (t *tables) change(x *core.Exec, o, n *Credential) {
	t.put(o, n)
	c := core.FamilyChange{Size: recordBytes}
	if o != nil {
		c.Before, c.Topic = o, TopicOf(o.ID)
	}
	if n != nil {
		c.After, c.Topic = n, TopicOf(n.ID)
	}
	x.Tell(Family{}, c)
}

// TopicOf is the topic that changes of a credential are told under: Before and After
// of the change are a *Credential where there is one.
func TopicOf(id incumbent.Index) core.Topic {
	return core.Topic{Name: strconv.FormatUint(uint64(id), 10)}
}

// EndSession implements [core.Tables]: no credential belongs to a session.
func (*tables) EndSession(*core.Exec, *core.Ending) {}
