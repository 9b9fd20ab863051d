package credential

import (
	"bytes"

	"github.com/incumbent-dev/incumbent/core/wire"
)

// Records implements [core.FamilyView].
func (v *View) Records() int { return v.records.Len() }

// Write implements [core.FamilyView]: by id.
func (v *View) Write(record func([]byte) bool) {
	var w wire.Writer
	v.records.Scan(func(c *Credential) bool { return record(c.write(&w)) })
}

// write writes the record into the writer's bytes, in the place of what was there.
func (c *Credential) write(w *wire.Writer) []byte {
	w.B = w.B[:0]
	w.Uint(1, uint64(c.ID))
	w.Uint(2, uint64(c.Method))
	w.Text(3, c.Principal)
	w.Text(4, c.Scope)
	w.Bytes(5, c.Secret)
	w.Uint(6, c.Grants)
	w.Uint(7, uint64(c.Ends))
	w.Flag(8, c.EndSessions)
	w.Uint(9, uint64(c.Created))
	w.Text(10, c.CreatedBy)
	w.Uint(11, uint64(c.Ended))
	w.Uint(12, uint64(c.EndedAt))
	w.Text(13, c.EndedBy)
	w.Flag(14, c.Expired)
	w.Flag(15, c.Closing)
	return w.B
}

// ReadRecord implements [core.Tables].
func (t *tables) ReadRecord(b []byte) bool {
	c := new(Credential)
	ok := wire.Fields(b, func(f wire.Field) bool { return c.set(&f) })
	c.Secret = bytes.Clone(c.Secret)
	// What is kept is written as it was read, or the bytes are refused: so states
	// that are equal have equal bytes, and damage shows.
	if !ok || !bytes.Equal(c.write(&t.again), b) || c.checkRecord() != nil {
		return false
	}
	if last, ok := t.records.Max(); ok && last.ID >= c.ID {
		return false
	}
	t.put(nil, c)
	return true
}

func (c *Credential) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return f.Uint((*uint64)(&c.ID))
	case 2:
		return wire.Small(f, &c.Method)
	case 3:
		return f.CopyText(&c.Principal)
	case 4:
		return f.CopyText(&c.Scope)
	case 5:
		return f.Bytes(&c.Secret)
	case 6:
		return f.Uint(&c.Grants)
	case 7:
		return moment(f, &c.Ends)
	case 8:
		return f.Flag(&c.EndSessions)
	case 9:
		return moment(f, &c.Created)
	case 10:
		return f.CopyText(&c.CreatedBy)
	case 11:
		return f.Uint((*uint64)(&c.Ended))
	case 12:
		return moment(f, &c.EndedAt)
	case 13:
		return f.CopyText(&c.EndedBy)
	case 14:
		return f.Flag(&c.Expired)
	case 15:
		return f.Flag(&c.Closing)
	}
	return false
}
