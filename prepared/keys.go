package prepared

import (
	"encoding/json"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// Namespace is that of the keys of the queries of a namespace.
func Namespace(of string) string { return auth.QueriesOf + of }

// What keys begin with.
const (
	byID   = "id/"
	byName = "name/"
)

// definition is the value of a query's key.
type definition struct {
	Query
	As *executor `json:",omitempty"` // with whose rights it is executed; nil: those of who asks
}

// executor is whose token a query was given, and how that is found again: without it
// nobody would notice that the token was taken back.
type executor struct {
	Who   string // KIND:NAME
	Proof []byte
	Ends  int64 `json:",omitempty"` // see [auth.Proof]
}

// UnmarshalJSON implements [json.Unmarshaler]. Earlier versions kept a name alone, by
// which nobody is found any more.
func (e *executor) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &e.Who)
	}
	type plain executor
	return json.Unmarshal(b, (*plain)(e))
}

// Found is a query with what is not said of it.
type Found struct {
	Query
	// As is the principal with whose rights it is executed, by the token that it was given;
	// nil: who asks.
	As *auth.Principal
}

// executorOf is what is kept of a principal.
func executorOf(p *auth.Principal) *executor {
	if p == nil {
		return nil
	}
	return &executor{p.String(), []byte(p.Proof.ID), p.Proof.Ends}
}

// principal is the one of whom that was kept. It is nobody that is known if what was kept
// names nobody.
func (e *executor) principal() *auth.Principal {
	if e == nil {
		return nil
	}
	p, err := auth.ParsePrincipal(e.Who)
	if err != nil {
		p = auth.Principal{}
	}
	p.Via, p.Proof = auth.Credential, auth.Proof{ID: string(e.Proof), Ends: e.Ends}
	return &p
}

// Hidden stands for a token that is not shown.
const Hidden = "<hidden>"

// Definition is the query as it is told; nil of nil.
func (f *Found) Definition() *Query {
	if f == nil {
		return nil
	}
	return &f.Query
}

// Prefix is that of the keys of all queries of a namespace: see [Read].
func Prefix(of string) kv.Key { return kv.Key{Namespace: Namespace(of), Name: byID} }

// Key is that of the query with an id.
func Key(of, id string) kv.Key {
	return kv.Key{Namespace: Namespace(of), Name: byID + strings.ToLower(id)}
}

func nameKey(of, name string) kv.Key {
	return kv.Key{Namespace: Namespace(of), Name: byName + strings.ToLower(name)}
}

// Read is the query of a key; nil: somebody else has put there what is none.
func Read(e *kv.Entry) *Found {
	var d definition
	if e == nil || json.Unmarshal(e.Value, &d) != nil {
		return nil
	}
	f := &Found{Query: d.Query, As: d.As.principal()}
	f.CreateIndex, f.ModifyIndex = uint64(e.Created), uint64(e.Modified)
	if f.Token = ""; f.As != nil {
		f.Token = Hidden
	}
	return f
}

// IsID reports whether a text is an id.
func IsID(text string) bool {
	_, err := incumbent.ParseSessionID(text)
	return err == nil && len(text) == 36
}

// ByID returns the query with an id; nil: there is none.
func ByID(v *core.View, of, id string) *Found { return Read(kv.Of(v).Entry(Key(of, id))) }

// ErrTemplate says that a template cannot be executed without a name.
var ErrTemplate = incumbent.Errorf(incumbent.Invalid, "prepared query templates can only be resolved up by name, not by ID")

// Resolve returns what an id or a name stands for: the query of that name, else the
// template with the longest prefix of it, filled in. nil: nothing does.
func Resolve(v *core.View, of, idOrName string) (*Found, error) {
	if IsID(idOrName) {
		if f := ByID(v, of, idOrName); f != nil {
			if f.isTemplate() {
				return nil, ErrTemplate
			}
			return f, nil
		}
	}
	keys, key := kv.Of(v), nameKey(of, idOrName)
	whole := len(key.Name)
	for n := min(whole, kv.MaxKeyBytes); n >= len(byName); n-- { // no query has a longer name
		key.Name = key.Name[:n]
		e := keys.Entry(key)
		if e == nil {
			continue
		}
		f := ByID(v, of, string(e.Value))
		switch {
		case f == nil:
		case f.isTemplate():
			q, err := f.render(idOrName)
			if err != nil {
				return nil, err
			}
			f.Query = *q
			return f, nil
		case n == whole:
			return f, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// Change is what is to be done to the queries of a namespace.
type Change struct {
	Of   string          // the namespace
	Was  *Found          // as it is; nil: it is not there
	Will *Query          // as it is to be; nil: it is deleted
	As   *auth.Principal // see Found
}

// Command is the transaction that does it, or why it cannot be done in this state. It
// changes nothing if another state is found, or if the query is not as it was.
func (c *Change) Command(v *core.View) (core.TxnCommand, error) {
	var t core.TxnCommand
	id := c.id()
	there := func(k kv.Key) incumbent.Index {
		if e := kv.Of(v).Entry(k); e != nil {
			return e.Modified
		}
		return 0
	}
	is := func(k kv.Key, since incumbent.Index) {
		t.If = append(t.If, kv.Condition{Test: kv.Modified, Key: k, Index: since})
	}
	var since incumbent.Index // 0: it is not there
	if c.Was != nil {
		since = incumbent.Index(c.Was.ModifyIndex) // by this state it may have another name, which would stay
	}
	is(Key(c.Of, id), since)
	if c.Was != nil && c.Was.named() && (c.Will == nil || nameKey(c.Of, c.Will.Name) != nameKey(c.Of, c.Was.Name) || !c.Will.named()) {
		t.Then = append(t.Then, kv.Command{Verb: kv.Remove, Key: nameKey(c.Of, c.Was.Name)})
	}
	if c.Will == nil {
		t.Then = append(t.Then, kv.Command{Verb: kv.Remove, Key: Key(c.Of, id)})
		return t, nil
	}
	value, err := json.Marshal(definition{*c.Will, executorOf(c.As)})
	if err != nil {
		return t, incumbent.Errorf(incumbent.Internal, "encode a query: %w", err)
	}
	if c.Will.named() {
		name := nameKey(c.Of, c.Will.Name)
		is(name, there(name))
		if err := c.free(v, name); err != nil {
			return t, err
		}
		t.Then = append(t.Then, c.store(v, name, []byte(id))...)
	}
	t.Then = append(t.Then, c.store(v, Key(c.Of, id), value)...)
	return t, nil
}

func (c *Change) id() string {
	if c.Will != nil {
		return c.Will.ID
	}
	return c.Was.ID
}

// named reports whether a query is found by its name: a template for all names has the
// empty one.
func (q *Query) named() bool { return q.Name != "" || q.isTemplate() }

// free returns an error if somebody else has the name.
func (c *Change) free(v *core.View, name kv.Key) error {
	e := kv.Of(v).Entry(name)
	switch {
	case e == nil || string(e.Value) == c.Will.ID:
	case c.Will.Name == "":
		return incumbent.Errorf(incumbent.Exists, "a query template with an empty name already exists")
	default:
		return aliases(c.Will.Name, "name")
	}
	if IsID(c.Will.Name) && ByID(v, c.Of, c.Will.Name) != nil {
		return aliases(c.Will.Name, "ID")
	}
	return nil
}

// store stores a key, which ends with the query's session.
func (c *Change) store(v *core.View, k kv.Key, value []byte) (list []core.Command) {
	id, _ := incumbent.ParseSessionID(c.Will.Session) // zero: it is bound to none
	put := kv.Command{Verb: kv.Put, Key: k, Value: value}
	if e := kv.Of(v).Entry(k); e != nil && !e.Session.IsZero() && e.Session != id {
		list = append(list, kv.Command{Verb: kv.Release, Key: k, Value: value, Session: e.Session})
	}
	if !id.IsZero() {
		put.Verb, put.Session, put.OnEnd = kv.Acquire, id, kv.Delete
	}
	return append(list, put)
}
