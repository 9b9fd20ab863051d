package table

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// verb is what a command does. The numbers are part of the log.
type verb uint8

const (
	verbDefine verb = iota + 1
	verbConvert
	verbDrop
	verbTransact
	verbBegin
	verbLoad
	verbFinish
	verbAbandon
	numVerbs
)

var (
	_ core.Command = (*Define)(nil)
	_ core.Command = (*Convert)(nil)
	_ core.Command = (*Drop)(nil)
	_ core.Command = (*Transact)(nil)
)

// Define makes an empty database of a schema, whose name is its own. There being one
// of the same schema it does nothing; of another it is refused as Conflict.
type Define struct {
	Namespace string
	Schema    []byte // JSON
}

// Convert gives a database another schema: what its rows have in columns that both
// schemas have stays, the rest goes or is at its default. What does not fit the new
// schema fails it: see [Outcome]. So does what makes the database larger by more than
// MaxGrowthBytes, and indexes that take more than MaxWork beyond one row for each
// keptAsRow bytes of the database.
type Convert struct {
	Namespace, Database string
	Schema              []byte // JSON
}

// Drop removes a database with all its rows.
type Drop struct{ Namespace, Database string }

// Transact executes a transaction. Schema is the SchemaIndex of the database that its
// operations were parsed against: it is refused as Conflict if that has another now.
type Transact struct {
	Namespace, Database string
	Schema              incumbent.Index
	Operations          []ovs.Operation
	Locks               []Lock // that whoever asks says to have
	// Role is that of a client whom the database restricts, and Client its name: only
	// what the rows of tables RBAC_Role and RBAC_Permission grant may be changed.
	// [RootRole]: everything may.
	Role, Client string
	// Roles are those that policies give the client: besides, each operation that changes
	// something has to be within what one of them grants, which is nothing in a database
	// without these tables. None: policies do not restrict it.
	Roles []string
	// Kept has a failure of an operation or of the commit be an error of the result, too,
	// Conflict where a wait may hold later and else Invalid: so that it is known with the
	// command's key that nothing was changed.
	Kept bool
}

// Lock says by what lease a lock is held that an operation asserts.
type Lock struct {
	Name  string // as the operation has it
	Lease incumbent.Name
	Token incumbent.Token
}

// command is what is common to all, decoded: bytes alias the log.
type command struct {
	verb      verb
	namespace string
	name      string
	schema    []byte
	at        incumbent.Index
	ops       [][]byte
	locks     []Lock
	role      string
	client    string
	roles     []string
	rows      [][]byte // of a load
	flag      bool     // Transact.Kept, Finish.Replace
}

// Encode implements [core.Command].
func (c *Define) Encode(m core.Meta) []byte {
	return (&command{verb: verbDefine, namespace: c.Namespace, schema: c.Schema}).encode(m, nil)
}

// Encode implements [core.Command].
func (c *Convert) Encode(m core.Meta) []byte {
	return (&command{verb: verbConvert, namespace: c.Namespace, name: c.Database, schema: c.Schema}).encode(m, nil)
}

// Encode implements [core.Command].
func (c *Drop) Encode(m core.Meta) []byte {
	return (&command{verb: verbDrop, namespace: c.Namespace, name: c.Database}).encode(m, nil)
}

// Encode implements [core.Command]. Operations that can only fail have no encoding:
// a transaction with one is answered by [View.Idling].
func (c *Transact) Encode(m core.Meta) []byte {
	return (&command{verb: verbTransact, namespace: c.Namespace, name: c.Database, at: c.Schema, locks: c.Locks, role: c.Role, client: c.Client, roles: c.Roles, flag: c.Kept}).encode(m, c.Operations)
}

func (c *command) encode(m core.Meta, ops []ovs.Operation) []byte {
	schema := Family{}.Schema()
	if len(c.roles) > 0 {
		schema = core.RoleSchema
	}
	return core.EncodeSince(schema, m, Family{}, c.encodeBody(ops))
}

func (c *command) encodeBody(ops []ovs.Operation) []byte {
	var w wire.Writer
	w.Uint(1, uint64(c.verb))
	w.Text(2, c.namespace)
	w.Text(3, c.name)
	w.Bytes(4, c.schema)
	w.Uint(5, uint64(c.at))
	var b []byte
	w.List(6, len(ops), func(i int) []byte {
		b = ops[i].AppendBinary(b[:0])
		return b
	})
	var l wire.Writer
	w.List(7, len(c.locks), func(i int) []byte {
		l.B = l.B[:0]
		c.locks[i].write(&l)
		return l.B
	})
	w.Text(8, c.role)
	w.Text(9, c.client)
	w.List(10, len(c.rows), func(i int) []byte { return c.rows[i] })
	w.Flag(11, c.flag)
	w.List(12, len(c.roles), func(i int) []byte { return []byte(c.roles[i]) })
	return w.B
}

func (l *Lock) write(w *wire.Writer) {
	w.Text(1, l.Name)
	w.Text(2, l.Lease.Namespace)
	w.Text(3, l.Lease.Model)
	w.Text(4, l.Lease.Lease)
	w.Uint(5, uint64(l.Token))
}

func (l *Lock) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return f.CopyString(&l.Name)
	case 2:
		return f.CopyString(&l.Lease.Namespace)
	case 3:
		return f.CopyString(&l.Lease.Model)
	case 4:
		return f.CopyString(&l.Lease.Lease)
	case 5:
		return f.Uint((*uint64)(&l.Token))
	}
	return false
}

func (c *command) read(b []byte) *incumbent.Error {
	if !wire.Fields(b, func(f wire.Field) bool { return c.set(&f) }) || c.verb == 0 || c.verb >= numVerbs {
		return malformed("malformed command")
	}
	if err := incumbent.ValidateNamespace(c.namespace); err != nil {
		return malformed(err.Error())
	}
	if c.verb != verbDefine && c.verb != verbBegin && (len(c.name) > MaxNameBytes || !ovs.IsID(c.name)) {
		return malformed("no name of a database")
	}
	if len(c.role) > MaxNameBytes || len(c.client) > MaxNameBytes ||
		slices.ContainsFunc(c.roles, func(role string) bool { return role == RootRole || len(role) > MaxNameBytes }) {
		return malformed("no name of a role, or of a client")
	}
	if len(c.schema) > MaxSchemaBytes {
		return incumbent.Errorf(incumbent.TooLarge, "schema has %d bytes: limit MaxSchemaBytes is %d", len(c.schema), MaxSchemaBytes)
	}
	return nil
}

func (c *command) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return wire.Small(f, &c.verb)
	case 2:
		return f.CopyString(&c.namespace)
	case 3:
		return f.CopyString(&c.name)
	case 4:
		return f.Bytes(&c.schema)
	case 5:
		return f.Uint((*uint64)(&c.at))
	case 6:
		return f.Each(ovs.MaxOperations, func(b []byte) bool {
			c.ops = append(c.ops, b)
			return true
		})
	case 7:
		return f.Each(MaxLocks, func(b []byte) bool {
			var l Lock
			c.locks = append(c.locks, l)
			return wire.Fields(b, func(f wire.Field) bool { return c.locks[len(c.locks)-1].set(&f) })
		})
	case 8:
		return f.CopyString(&c.role)
	case 9:
		return f.CopyString(&c.client)
	case 10:
		return f.Each(MaxLoadRows, func(b []byte) bool {
			c.rows = append(c.rows, b)
			return true
		})
	case 11:
		return f.Flag(&c.flag)
	case 12:
		return f.Each(MaxRoles, func(b []byte) bool {
			c.roles = append(c.roles, string(b))
			return true
		})
	}
	return false
}

func malformed(message string) *incumbent.Error {
	return &incumbent.Error{Kind: incumbent.Invalid, Message: message}
}
