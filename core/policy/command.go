package policy

import (
	"errors"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Verb is what a command does.
type Verb uint8

// The verbs. The numbers are part of the log: append only.
const (
	Set    Verb = iota + 1 // stores the policy, in the place of the one of its name
	Remove                 // deletes the policy of the name, if it is there
	numVerbs
)

// Command is one command of the family.
type Command struct {
	Verb   Verb
	Policy auth.Policy // of Remove the name alone

	// IfIndex makes the command do something only if the policy was last modified at
	// Index, 0: if it is not there. Else it answers Conflict.
	IfIndex bool
	Index   incumbent.Index
}

// A policy is fields of the message it stands in:
//
//	2  name
//	3  principals, one behind the other, each with its length
//	4  rules, the same, each a message: 1 kind, 2 namespace, 3 model, 4 name, 5 verbs, 6 role

// Encode implements [core.Command].
func (c Command) Encode(meta core.Meta) []byte {
	w := wire.Writer{B: make([]byte, 0, 256)}
	w.Uint(1, uint64(c.Verb))
	appendPolicy(&w, &c.Policy)
	w.Flag(5, c.IfIndex)
	w.Uint(6, uint64(c.Index))
	return core.EncodeSince(c.schema(), meta, Family{}, w.B)
}

// schema is that of the members who know what the command says: to those before, a rule
// with a role is malformed.
func (c *Command) schema() uint32 {
	if slices.ContainsFunc(c.Policy.Rules, func(r auth.Rule) bool { return r.Role != "" || r.Verbs&auth.WriteInRole != 0 }) {
		return core.RoleSchema
	}
	return schema
}

func appendPolicy(w *wire.Writer, p *auth.Policy) {
	w.Text(2, p.Name)
	w.List(3, len(p.For), func(i int) []byte { return []byte(p.For[i]) })
	w.List(4, len(p.Rules), func(i int) []byte { return encodeRule(&p.Rules[i]) })
}

func encodeRule(r *auth.Rule) []byte {
	var w wire.Writer
	w.Uint(1, uint64(r.State))
	w.Text(2, r.Namespace)
	w.Text(3, r.Model)
	w.Text(4, r.Prefix)
	w.Uint(5, uint64(r.Verbs))
	w.Text(6, r.Role)
	return w.B
}

// read decodes and validates a command. Nothing of it aliases the bytes.
func (c *Command) read(b []byte) *incumbent.Error {
	if !c.decode(b) {
		return refused(incumbent.Invalid, "malformed command")
	}
	if err := c.Validate(); err != nil {
		return typed(err)
	}
	return nil
}

func (c *Command) decode(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			return wire.Small(&f, &c.Verb)
		case 2, 3, 4:
			return setPolicy(&f, &c.Policy)
		case 5:
			return f.Flag(&c.IfIndex)
		case 6:
			return f.Uint((*uint64)(&c.Index))
		}
		return false
	}) && c.Verb > 0 && c.Verb < numVerbs
}

func setPolicy(f *wire.Field, p *auth.Policy) bool {
	switch f.Num {
	case 2:
		return f.CopyString(&p.Name)
	case 3:
		return f.Each(auth.MaxPrincipals, func(b []byte) bool {
			p.For = append(p.For, string(b))
			return true
		})
	case 4:
		return f.Each(auth.MaxRules, func(b []byte) bool {
			r, ok := decodeRule(b)
			p.Rules = append(p.Rules, r)
			return ok
		})
	}
	return false
}

func decodeRule(b []byte) (rule auth.Rule, ok bool) {
	ok = wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			return wire.Small(&f, &rule.State)
		case 2:
			return f.CopyString(&rule.Namespace)
		case 3:
			return f.CopyString(&rule.Model)
		case 4:
			return f.CopyString(&rule.Prefix)
		case 5:
			return wire.Small(&f, &rule.Verbs)
		case 6:
			return f.CopyString(&rule.Role)
		}
		return false
	})
	return rule, ok
}

// Validate returns an Invalid or TooLarge error for what no state could make right.
func (c *Command) Validate() error {
	if c.Index != 0 && !c.IfIndex {
		return incumbent.Errorf(incumbent.Invalid, "an index belongs to a condition")
	}
	if c.Verb == Remove {
		if len(c.Policy.For)+len(c.Policy.Rules) > 0 {
			return incumbent.Errorf(incumbent.Invalid, "a policy is deleted by its name")
		}
		return auth.ValidatePolicyName(c.Policy.Name)
	}
	if err := c.Policy.Validate(); err != nil {
		return err
	}
	if n := (&Policy{Policy: c.Policy}).size(); n > MaxPolicyBytes {
		return incumbent.Errorf(incumbent.TooLarge, "policy has %d bytes, limit MaxPolicyBytes is %d", n, MaxPolicyBytes)
	}
	return nil
}

func refused(k incumbent.Kind, message string) *incumbent.Error {
	return &incumbent.Error{Kind: k, Message: message}
}

// typed is an error of Validate.
func typed(err error) *incumbent.Error {
	var e *incumbent.Error
	if !errors.As(err, &e) {
		e = refused(incumbent.Invalid, err.Error())
	}
	return e
}

// Apply implements [core.Tables]. Its Record is the *Policy as the command left it,
// or as it found it (Conflict, and deleted by Remove); a nil one if there is none.
//
// It answers Invalid and TooLarge for what cannot be or is too much, and Conflict
// where the condition does not hold. Removing what is not there does nothing.
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	if x.Reading() != nil {
		return core.Result{Err: refused(incumbent.Invalid, "policies are changed by themselves, not in a transaction")}
	}
	var c Command
	if err := c.read(b); err != nil {
		return core.Result{Err: err}
	}
	o, _ := t.policies.Get(named(c.Policy.Name))
	if c.IfIndex && (o == nil) != (c.Index == 0) || c.IfIndex && o != nil && o.Modified != c.Index {
		return core.Result{Record: o, Err: refused(incumbent.Conflict, "the policy is not as the condition says")}
	}
	if c.Verb == Remove {
		if o != nil {
			t.change(x, o, nil)
		}
		return core.Result{Record: o}
	}
	n := &Policy{Policy: c.Policy, Created: x.Index(), Modified: x.Index(), By: x.Principal(), At: x.Origin().At}
	grows := n.size()
	if o != nil {
		n.Created = o.Created
		grows = n.size() - o.size()
	}
	switch {
	case o == nil && t.policies.Len() >= t.limits.policies:
		return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "policies: limit MaxPolicies is %d", t.limits.policies)}
	case grows > 0 && t.bytes+grows > t.limits.bytes:
		return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "bytes of all policies: limit MaxBytes is %d", t.limits.bytes)}
	}
	t.change(x, o, n)
	return core.Result{Record: n}
}

// TopicOf is the topic that changes of a policy are told under: Before and After of
// the change are a *Policy where there is one.
func TopicOf(name string) core.Topic { return core.Topic{Name: name} }

// change stores n in the place of o and tells of it; either may be nil.
func (t *tables) change(x *core.Exec, o, n *Policy) {
	t.put(o, n)
	t.changed = x.Index()
	c := core.FamilyChange{}
	if o != nil {
		c.Topic, c.Before, c.Size = TopicOf(o.Name), o, o.size()
	}
	if n != nil {
		c.Topic, c.After, c.Size = TopicOf(n.Name), n, c.Size+n.size()
	}
	x.Tell(Family{}, c)
}
