package kv

import (
	"time"
	"unicode/utf8"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Verb is what a command does.
type Verb uint8

// The verbs. The numbers are part of the log: append only.
const (
	Put        Verb = iota + 1 // stores value and flags; a lock stays
	Acquire                    // Put that locks the key for a session, or finds it locked by it
	Release                    // Put that gives the lock of a session up
	Remove                     // deletes the entry, if it is there
	RemoveTree                 // deletes all entries whose key begins with Key
	EndDelay                   // lets the key be locked again, if its delay is that of Index
	Get                        // reads the entry; of a transaction
	List                       // reads the entries whose key begins with Key; of a transaction
	numVerbs
)

// Command is one command of the family. Which fields mean something is up to the
// verb.
type Command struct {
	Verb  Verb
	Key   Key // of RemoveTree and List: a prefix, which may be empty
	Value []byte
	Flags uint64

	// If is what the entry must be like, for the command to do anything: else it
	// answers Conflict. Of Put, Remove and Get.
	If    If
	Index incumbent.Index // with IfIndex and IfStill; with the first, 0: it is not there; of EndDelay: since when
	Was   []byte          // with IfValue

	// Lazy leaves an entry as it is, with its Modified, that says what the command
	// says. Of Put and Acquire.
	Lazy bool

	Session incumbent.SessionID // of Acquire and Release; with IfLocked, zero: nobody has
	OnEnd   OnEnd               // of Acquire
	Delay   time.Duration       // of Acquire: 0 to MaxDelay

	Limit    uint64 // of List: entries; 0: all
	KeysOnly bool   // of Get and List: the values are not wanted, and do not count
}

// If is a condition.
type If uint8

// The conditions. The numbers are part of the log: append only.
const (
	Always   If = iota
	IfIndex     // it was modified at Index, or is not there
	IfValue     // its value is Was
	IfThere     // it is there
	IfLocked    // it is there and Session has locked it; of Get
	IfStill     // it was modified at Index, or is not there whatever that is
	numIfs
)

// Encode implements [core.Command].
func (c Command) Encode(meta core.Meta) []byte {
	w := wire.Writer{B: make([]byte, 0, 64+len(c.Key.Name)+len(c.Value)+len(c.Was))}
	w.Uint(1, uint64(c.Verb))
	w.Text(2, c.Key.Namespace)
	w.Text(3, c.Key.Name)
	w.Bytes(4, c.Value)
	w.Uint(5, c.Flags)
	w.Uint(6, uint64(c.If))
	w.Uint(7, uint64(c.Index))
	w.Bytes(8, c.Was)
	w.Session(9, c.Session)
	w.Uint(10, uint64(c.OnEnd))
	w.Millis(11, c.Delay)
	w.Uint(12, c.Limit)
	w.Flag(13, c.KeysOnly)
	w.Flag(14, c.Lazy)
	return core.EncodeFamily(meta, Family{}, w.B)
}

// read decodes and validates a command.
func (c *Command) read(b []byte) *incumbent.Error {
	if !c.decode(b) {
		return refused(incumbent.Invalid, "malformed command")
	}
	if err := c.Validate(); err != nil {
		return typed(err)
	}
	return nil
}

// decode reads a command. Its key, Value and Was alias the bytes.
func (c *Command) decode(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool { return c.set(&f) }) && c.Verb > 0 && c.Verb < numVerbs && c.If < numIfs && c.OnEnd <= Delete
}

func (c *Command) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return wire.Small(f, &c.Verb)
	case 2:
		return f.String(&c.Key.Namespace)
	case 3:
		return f.String(&c.Key.Name)
	case 4:
		return f.Bytes(&c.Value)
	case 5:
		return f.Uint(&c.Flags)
	case 6:
		return wire.Small(f, &c.If)
	case 7:
		return f.Uint((*uint64)(&c.Index))
	case 8:
		return f.Bytes(&c.Was)
	case 9:
		return f.Session(&c.Session)
	case 10:
		return wire.Small(f, &c.OnEnd)
	case 11:
		return f.Millis(&c.Delay, MaxDelay)
	case 12:
		return f.Uint(&c.Limit)
	case 13:
		return f.Flag(&c.KeysOnly)
	case 14:
		return f.Flag(&c.Lazy)
	}
	return false
}

// Validate returns an Invalid or TooLarge error for what no state could make right.
func (c *Command) Validate() error {
	if err := check(c.Key, c.Verb == RemoveTree || c.Verb == List); err != nil {
		return err
	}
	session := c.Verb == Acquire || c.Verb == Release || c.If == IfLocked && !c.Session.IsZero()
	switch {
	case len(c.Value) > MaxValueBytes || len(c.Was) > MaxValueBytes:
		return incumbent.Errorf(incumbent.TooLarge, "value: limit MaxValueBytes is %d", MaxValueBytes)
	case session == c.Session.IsZero():
		return incumbent.Errorf(incumbent.Invalid, "a session belongs to locking and to unlocking")
	case c.If != Always && c.Verb != Get && (c.If == IfLocked || c.Verb != Put && c.Verb != Remove):
		return incumbent.Errorf(incumbent.Invalid, "only put, remove and get have conditions, and only get that of a lock")
	case c.Lazy && c.Verb != Put && c.Verb != Acquire:
		return incumbent.Errorf(incumbent.Invalid, "only put and acquire leave an entry as it is")
	case c.Verb != Acquire && (c.OnEnd != Keep || c.Delay != 0):
		return incumbent.Errorf(incumbent.Invalid, "only locking says what the end of the session means")
	case c.Limit > 0 && c.Verb != List, c.KeysOnly && c.Verb != List && c.Verb != Get:
		return incumbent.Errorf(incumbent.Invalid, "only reads have a limit or leave values out")
	case c.Delay < 0 || c.Delay > MaxDelay:
		return incumbent.Errorf(incumbent.Invalid, "lock delay of %v is outside 0 to %v", c.Delay, MaxDelay)
	}
	return nil
}

func check(k Key, prefix bool) error {
	if err := incumbent.ValidateNamespace(k.Namespace); err != nil {
		return err
	}
	switch n := len(k.Name); {
	case n > MaxKeyBytes:
		return incumbent.Errorf(incumbent.Invalid, "key has %d bytes; 1 to %d are allowed", n, MaxKeyBytes)
	case n == 0 && !prefix:
		return incumbent.Errorf(incumbent.Invalid, "key is empty; 1 to %d bytes are allowed", MaxKeyBytes)
	case !utf8.ValidString(k.Name):
		return incumbent.Errorf(incumbent.Invalid, "key is not UTF-8")
	}
	return nil
}

// Changed reports whether a command about keys that has succeeded has changed one, by its
// result; of other commands it says that.
func Changed(r *core.Result) bool {
	switch of := r.Record.(type) {
	case *Entry:
		return of == nil || of.Modified == r.Index
	case int: // were deleted
		return of > 0
	}
	return true
}
