package settings

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Command sets one setting, or (Unset) gives it its default again.
type Command struct {
	Name  string
	Value int64 // in the setting's unit
	Unset bool
	// IfIndex, unless nil, is when the setting must have changed last, for the command
	// to do anything; 0: nobody has set it. Else it answers Conflict.
	IfIndex *incumbent.Index
}

// Encode implements [core.Command].
func (c Command) Encode(meta core.Meta) []byte {
	var w wire.Writer
	w.Text(1, c.Name)
	w.Uint(2, uint64(c.Value))
	w.Flag(3, c.Unset)
	w.Flag(4, c.IfIndex != nil)
	if c.IfIndex != nil {
		w.Uint(5, uint64(*c.IfIndex))
	}
	schema := Family{}.Schema()
	if d, ok := Declared(c.Name); ok {
		schema = d.Schema
	}
	return core.EncodeSince(schema, meta, Family{}, w.B)
}

func (c *Command) decode(b []byte) bool {
	var index incumbent.Index
	conditional := false
	ok := wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			return f.CopyString(&c.Name)
		case 2:
			var n uint64
			ok := f.Uint(&n) && n <= 1<<62
			c.Value = int64(n)
			return ok
		case 3:
			return f.Flag(&c.Unset)
		case 4:
			return f.Flag(&conditional)
		case 5:
			return f.Uint((*uint64)(&index))
		}
		return false
	})
	if conditional {
		c.IfIndex = &index
	}
	return ok && (conditional || index == 0)
}

// Validate returns a NotFound error for a name that is not declared, and an Invalid
// one for a value out of the setting's bounds.
func (c *Command) Validate() error {
	if err := c.validate(); err != nil {
		return err
	}
	return nil
}

func (c *Command) validate() *incumbent.Error {
	d, err := check(c.Name)
	switch {
	case err != nil:
		return err
	case !c.Unset:
		return d.checkValue(c.Value)
	case c.Value != 0:
		return incumbent.Errorf(incumbent.Invalid, "setting %s: either a value or none", d.Name)
	}
	return nil
}
