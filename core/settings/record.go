package settings

import (
	"bytes"
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Kinds of records, in the order in which they stand in a section.
const (
	entryRecord  uint8 = iota + 1
	changeRecord       // oldest first
)

// Records implements [core.FamilyView].
func (v *View) Records() int { return len(v.entries) + len(v.history) }

// Write implements [core.FamilyView].
func (v *View) Write(record func([]byte) bool) {
	for _, e := range v.entries {
		if !record(e.record()) {
			return
		}
	}
	for _, c := range v.history {
		if !record(c.record()) {
			return
		}
	}
}

func (e *Entry) record() []byte {
	var w wire.Writer
	w.Uint(1, uint64(entryRecord))
	w.Text(2, e.Name)
	w.Uint(3, uint64(e.Modified))
	w.Uint(4, uint64(e.Value))
	return w.B
}

// record writes a change. What is 0 is told from what is not there by a flag.
func (c *Change) record() []byte {
	var w wire.Writer
	w.Uint(1, uint64(changeRecord))
	w.Text(2, c.Name)
	w.Uint(3, uint64(c.Index))
	value := func(num wire.Number, v *int64) {
		w.Flag(num, v != nil)
		if v != nil {
			w.Uint(num+1, uint64(*v))
		}
	}
	value(5, c.Before)
	value(7, c.After)
	if !c.Origin.At.IsZero() {
		w.Uint(9, uint64(c.Origin.At.UnixMilli()))
	}
	w.Text(10, c.Origin.Door)
	w.Text(11, c.Origin.Address)
	w.Text(12, c.Origin.Principal)
	return w.B
}

// fields are those that records of both kinds have.
type fields struct {
	kind          uint64
	name          string
	index         uint64
	value         uint64
	has           [2]bool
	values        [2]uint64
	at            uint64
	door, address string
	principal     string
}

func (r *fields) read(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool { return r.set(&f) })
}

func (r *fields) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return f.Uint(&r.kind)
	case 2:
		return f.CopyString(&r.name)
	case 3:
		return f.Uint(&r.index)
	case 4:
		return f.Uint(&r.value)
	case 5:
		return f.Flag(&r.has[0])
	case 6:
		return f.Uint(&r.values[0])
	case 7:
		return f.Flag(&r.has[1])
	case 8:
		return f.Uint(&r.values[1])
	case 9:
		return f.Uint(&r.at)
	case 10:
		return f.CopyString(&r.door)
	case 11:
		return f.CopyString(&r.address)
	case 12:
		return f.CopyString(&r.principal)
	}
	return false
}

func (r *fields) number(i int) *int64 {
	if !r.has[i] {
		return nil
	}
	v := int64(r.values[i])
	return &v
}

// maxAt is the last millisecond of the year 9999, as of all origins.
const maxAt = 253402300799999

func (r *fields) change() *Change {
	o := &core.Origin{Door: r.door, Address: r.address, Principal: r.principal}
	if r.at > 0 && r.at <= maxAt {
		o.At = time.UnixMilli(int64(r.at)).UTC()
	}
	return &Change{Index: incumbent.Index(r.index), Name: r.name, Before: r.number(0), After: r.number(1), Origin: o}
}

// ReadRecord implements [core.Tables]. What is kept is written as it was read, or the
// bytes are refused: so states that are equal have equal bytes, and damage shows.
func (t *tables) ReadRecord(b []byte) bool {
	var r fields
	if !r.read(b) || r.kind > 1<<7 || uint8(r.kind) < t.part {
		return false
	}
	t.part = uint8(r.kind)
	switch t.part {
	case entryRecord:
		e := &Entry{Name: r.name, Value: int64(r.value), Modified: incumbent.Index(r.index)}
		if n := len(t.entries); n > 0 && t.entries[n-1].Name >= e.Name || !bytes.Equal(e.record(), b) {
			return false
		}
		t.entries = append(t.entries, e)
		t.values = valuesOf(t.entries)
		return true
	case changeRecord:
		c := r.change()
		t.history = append(t.history, c)
		return bytes.Equal(c.record(), b)
	}
	return false
}

// Check implements [core.Tables].
func (t *tables) Check(_ func(incumbent.SessionID) bool, index incumbent.Index) error {
	if len(t.entries) > MaxSet || len(t.history) > MaxHistory {
		return fmt.Errorf("%d settings and %d changes of them: limits are %d and %d", len(t.entries), len(t.history), MaxSet, MaxHistory)
	}
	for i, e := range t.entries {
		d, err := check(e.Name)
		switch {
		case err != nil:
			return err
		case d.checkValue(e.Value) != nil:
			return d.checkValue(e.Value)
		case e.Modified == 0 || e.Modified > index:
			return fmt.Errorf("setting %s was set at %d, the state's index is %d", e.Name, e.Modified, index)
		case i > 0 && t.entries[i-1].Name >= e.Name:
			return fmt.Errorf("setting %s is out of order", e.Name)
		}
	}
	last := incumbent.Index(0)
	for _, c := range t.history {
		if c.Index <= last || c.Index > index {
			return fmt.Errorf("change of %s at %d, behind %d; the state's index is %d", c.Name, c.Index, last, index)
		}
		last = c.Index
	}
	return nil
}
