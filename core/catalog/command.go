package catalog

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Verb is what a command does.
type Verb uint8

// The verbs. The numbers are part of the log: append only.
const (
	Register    Verb = iota + 1 // a node, a service on it, checks: as far as the command has them
	Deregister                  // a node with all it has, a service with its checks, or a check
	UpdateCheck                 // says how a check is
	OpenSession                 // opens a session that depends on a node and checks; of no transaction
	Lapse                       // ends the deadline of a check that began at Index: one that is not critical becomes so, of one that is the service goes; of no transaction
	Get                         // reads a node, a service or a check; of a transaction
	numVerbs
)

// Kind is the kind of a record.
type Kind uint8

// The kinds. The numbers are part of the log: append only.
const (
	NodeKind Kind = iota + 1
	ServiceKind
	CheckKind
	numKinds
)

// Target names a record.
type Target struct {
	Kind      Kind
	Namespace string
	Node      string
	ID        string // of a service or a check
}

// Command is one command of the family. Which fields mean something is up to the
// verb.
//
// Of the records that it has, Owner, Created, Modified, Since and Further are the state's
// to say, as are a check's ServiceName and ServiceTags. All are of Target's namespace and
// node, which they need not repeat.
type Command struct {
	Verb   Verb
	Target Target // of Register only its namespace and node; of OpenSession too

	Node    *Node    // of Register: nil: the node is there, and stays as it is
	Service *Service // of Register
	Checks  []*Check // of Register: their ServiceID may be that of Service

	// KeepOutput leaves the status and the output of a check as they are that Register
	// finds there.
	KeepOutput bool

	// If has the command do nothing and answer Conflict unless the record that it names
	// was modified at Index, 0: is not there. Of Deregister, and of a Register that has
	// one record. Of Get: refuses what is not there.
	If    bool
	Index incumbent.Index // of Lapse: since when

	Status Status // of UpdateCheck
	Output string // of UpdateCheck
	// StatusOnly leaves a check as it is that has the status, whatever its output. Of
	// UpdateCheck.
	StatusOnly bool

	Session *Session // of OpenSession
}

// Why is the reason of a refusal.
type Why uint8

// The reasons.
const (
	NoNode        Why = iota + 1 // the node is not registered
	NoService                    // the service is not registered on the node
	NoCheck                      // the check is not registered on the node
	CheckCritical                // a session cannot depend on the check: it is critical
	NameTaken                    // the name is that of a node with another id, whose own check does not say that it is gone
	NotAsSaid                    // the record was not modified at Index
)

// Refusal is the Record of a command that is refused for what it finds.
type Refusal struct {
	Why  Why
	Name string // of the node, service or check
	Node *Node  // of NameTaken: the one that has it
}

// Encode implements [core.Command].
func (c Command) Encode(meta core.Meta) []byte {
	var w writer
	w.Uint(1, uint64(c.Verb))
	w.Uint(2, uint64(c.Target.Kind))
	w.Text(3, c.Target.Namespace)
	w.Text(4, c.Target.Node)
	w.Text(5, c.Target.ID)
	if c.Node != nil {
		m := w.Begin(6)
		n := *c.Node
		n.Namespace, n.Name = "", ""
		w.node(&n)
		w.End(m)
	}
	if c.Service != nil {
		m := w.Begin(7)
		s := *c.Service
		s.Namespace, s.Node = "", ""
		w.service(&s)
		w.End(m)
	}
	w.List(8, len(c.Checks), func(i int) []byte {
		var one writer
		k := *c.Checks[i]
		k.Namespace, k.Node = "", ""
		one.check(&k)
		return one.B
	})
	w.Flag(9, c.KeepOutput)
	w.Flag(10, c.If)
	w.Uint(11, uint64(c.Index))
	w.Uint(12, uint64(c.Status))
	w.Text(13, c.Output)
	w.Flag(14, c.StatusOnly)
	if c.Session != nil {
		m := w.Begin(15)
		s := *c.Session
		s.Namespace, s.Node = "", ""
		w.session(&s)
		w.End(m)
	}
	return core.EncodeFamily(meta, Family{}, w.B)
}

// read decodes and validates a command. Nothing of it aliases the bytes.
func (c *Command) read(b []byte) *incumbent.Error {
	if !readInto(b, c) {
		return refused(incumbent.Invalid, "malformed command")
	}
	if err := c.Validate(); err != nil {
		return typed(err)
	}
	if c.Session != nil {
		c.Session.Namespace, c.Session.Node = c.Target.Namespace, c.Target.Node
	}
	return nil
}

func (c *Command) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return wire.Small(f, &c.Verb)
	case 2:
		return wire.Small(f, &c.Target.Kind)
	case 3:
		return f.CopyString(&c.Target.Namespace)
	case 4:
		return f.CopyString(&c.Target.Node)
	case 5:
		return f.CopyString(&c.Target.ID)
	case 6:
		c.Node = new(Node)
		return nested(f, c.Node)
	case 7:
		c.Service = new(Service)
		return nested(f, c.Service)
	case 8:
		return f.Each(MaxChecksInCommand, func(b []byte) bool {
			k := new(Check)
			c.Checks = append(c.Checks, k)
			return readInto(b, k)
		})
	case 9:
		return f.Flag(&c.KeepOutput)
	case 10:
		return f.Flag(&c.If)
	case 11:
		return f.Uint((*uint64)(&c.Index))
	case 12:
		return wire.Small(f, &c.Status)
	case 13:
		return f.CopyString(&c.Output)
	case 14:
		return f.Flag(&c.StatusOnly)
	case 15:
		c.Session = new(Session)
		return nested(f, c.Session)
	}
	return false
}
