package kv

import (
	"bytes"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Condition is what a transaction asks about keys.
type Condition struct {
	Test    Test
	Key     Key     // of None and Unchanged: a prefix, which may be empty
	Compare Compare // of Modified and HasValue, which knows only the first two
	Index   incumbent.Index
	Value   []byte              // of HasValue
	Session incumbent.SessionID // of LockedBy
}

// Test is what a condition asks.
type Test uint8

// The tests. The numbers are part of the log: append only.
const (
	Modified  Test = iota + 1 // how the entry's Modified, 0 if it is not there, compares to Index
	HasValue                  // whether the entry is there and its value is Value
	LockedBy                  // whether the entry is locked by Session
	None                      // whether there is nothing below the prefix
	Unchanged                 // whether nothing below the prefix was stored or deleted after Index
	numTests
)

// Compare is how two things compare.
type Compare uint8

// The comparisons: the entry's stands first. The numbers are part of the log.
const (
	Equal Compare = iota
	NotEqual
	Less
	Greater
	numCompares
)

// Condition implements [core.Condition].
func (c Condition) Condition() (wire.Number, uint32, []byte) {
	w := wire.Writer{B: make([]byte, 0, 32+len(c.Key.Name)+len(c.Value))}
	w.Uint(1, uint64(c.Test))
	w.Text(2, c.Key.Namespace)
	w.Text(3, c.Key.Name)
	w.Uint(4, uint64(c.Compare))
	w.Uint(5, uint64(c.Index))
	w.Bytes(6, c.Value)
	w.Session(7, c.Session)
	return Number, Family{}.Schema(), w.B
}

func (c *Condition) decode(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			return wire.Small(&f, &c.Test)
		case 2:
			return f.CopyString(&c.Key.Namespace)
		case 3:
			return f.CopyString(&c.Key.Name)
		case 4:
			return wire.Small(&f, &c.Compare)
		case 5:
			return f.Uint((*uint64)(&c.Index))
		case 6:
			return f.Bytes(&c.Value)
		case 7:
			return f.Session(&c.Session)
		}
		return false
	})
}

// Validate returns an Invalid or TooLarge error for what no state could make right.
func (c *Condition) Validate() error {
	switch {
	case c.Test == 0 || c.Test >= numTests:
		return incumbent.Errorf(incumbent.Invalid, "the condition is of no kind")
	case c.Compare >= numCompares, c.Compare > NotEqual && c.Test != Modified, c.Compare != Equal && c.Test > HasValue:
		return incumbent.Errorf(incumbent.Invalid, "the condition does not compare like that")
	case len(c.Value) > MaxValueBytes:
		return incumbent.Errorf(incumbent.TooLarge, "value: limit MaxValueBytes is %d", MaxValueBytes)
	case c.Session.IsZero() == (c.Test == LockedBy):
		return incumbent.Errorf(incumbent.Invalid, "a session belongs to the condition that it has locked the key")
	}
	return check(c.Key, c.Test == None || c.Test == Unchanged)
}

// Holds implements [core.Transacted].
func (t *shared) Holds(r *core.Reading, b []byte) core.Verdict {
	var c Condition
	if !c.decode(b) {
		return core.Verdict{Err: refused(incumbent.Invalid, "malformed condition")}
	}
	if err := c.Validate(); err != nil {
		return core.Verdict{Err: typed(err)}
	}
	switch c.Test {
	case None:
		return t.none(&c)
	case Unchanged:
		return t.unchanged(r, &c)
	}
	return core.Verdict{Holds: c.is(t.entry(c.Key))}
}

// is judges a condition about one key.
func (c *Condition) is(e *Entry) bool {
	switch c.Test {
	case HasValue:
		return (e != nil && bytes.Equal(e.Value, c.Value)) == (c.Compare == Equal)
	case LockedBy:
		return e != nil && e.Session == c.Session
	}
	at := incumbent.Index(0)
	if e != nil {
		at = e.Modified
	}
	switch c.Compare {
	case NotEqual:
		return at != c.Index
	case Less:
		return at < c.Index
	case Greater:
		return at > c.Index
	default:
		return at == c.Index
	}
}

func (t *shared) none(c *Condition) core.Verdict {
	v := core.Verdict{Holds: true}
	t.ascend(c.Key, Key{}, func(*Entry) bool {
		v = core.Verdict{}
		return false
	})
	return v
}

func (t *shared) unchanged(r *core.Reading, c *Condition) core.Verdict {
	at, err := t.deletedBelow(r, c.Key)
	t.ascend(c.Key, Key{}, func(e *Entry) bool {
		if err == nil {
			err = r.Record(0)
		}
		at = max(at, e.Modified)
		return err == nil
	})
	return core.Verdict{Holds: at <= c.Index, Err: err}
}

// deletedBelow is the index of the newest deletion below a prefix, or of one that
// may have been.
func (t *shared) deletedBelow(r *core.Reading, prefix Key) (at incumbent.Index, err *incumbent.Error) {
	at = t.floor
	t.deletedFrom(prefix, func(b tombstone) bool {
		at, err = max(at, b.at), r.Record(0)
		return err == nil
	})
	return at, err
}

// deletedFrom calls fn with the tombstones below a prefix, until it returns false.
func (t *shared) deletedFrom(prefix Key, fn func(tombstone) bool) {
	t.tombstones.Ascend(tombstone{key: prefix}, func(b tombstone) bool {
		return b.key.below(prefix) && fn(b)
	})
}

func (k Key) below(prefix Key) bool {
	return k.Namespace == prefix.Namespace && strings.HasPrefix(k.Name, prefix.Name)
}
