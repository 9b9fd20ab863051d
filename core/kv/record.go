package kv

import (
	"bytes"

	"github.com/incumbent-dev/incumbent/core/wire"
)

// Kinds of records, in the order in which they stand in a section.
const (
	entryRecord uint8 = iota + 1
	tombstoneRecord
	delayRecord
	floorRecord // one, unless the floor is 0
)

// Records implements [core.FamilyView].
func (v *View) Records() int {
	n := v.entries.Len() + v.tombstones.Len() + v.delays.Len()
	if v.floor > 0 {
		n++
	}
	return n
}

// Write implements [core.FamilyView].
func (v *View) Write(record func([]byte) bool) {
	r, going := recordWriter{}, true
	v.entries.Scan(func(e *Entry) bool {
		going = record(r.write(entryRecord, e))
		return going
	})
	if going {
		v.tombstones.Scan(func(b tombstone) bool {
			going = record(r.write(tombstoneRecord, &Entry{Key: b.key, Modified: b.at}))
			return going
		})
	}
	if going {
		v.delays.Scan(func(d *Delay) bool {
			going = record(r.write(delayRecord, &Entry{Key: d.Key, Modified: d.Since, Delay: d.For, Owner: d.Owner}))
			return going
		})
	}
	if going && v.floor > 0 {
		record(r.write(floorRecord, &Entry{Modified: v.floor}))
	}
}

// recordWriter writes records, one after the other into the same bytes.
type recordWriter struct{ wire.Writer }

// write writes a record: the kinds other than entries have key, index, delay and owner,
// as far as they say something.
func (w *recordWriter) write(kind uint8, e *Entry) []byte {
	w.B = w.B[:0]
	w.Uint(1, uint64(kind))
	w.Text(2, e.Namespace)
	w.Text(3, e.Name)
	w.Uint(4, uint64(e.Modified))
	w.Bytes(5, e.Value)
	w.Uint(6, e.Flags)
	w.Uint(7, uint64(e.Created))
	w.Uint(8, e.LockIndex)
	w.Session(9, e.Session)
	w.Uint(10, uint64(e.OnEnd))
	w.Millis(11, e.Delay)
	w.Text(12, e.Owner)
	return w.B
}

// ReadRecord implements [core.Tables].
func (t *tables) ReadRecord(b []byte) bool {
	kind, e, ok := readRecord(b)
	if !ok || kind < t.part {
		return false
	}
	t.part = kind
	n := readAs(kind, e)
	// What is kept is written as it was read, or the bytes are refused: so states
	// that are equal have equal bytes, and damage shows.
	return n != nil && bytes.Equal(t.again.write(kind, n), b) && t.take(kind, n)
}

func readRecord(b []byte) (kind uint8, e *Entry, ok bool) {
	e = new(Entry)
	ok = wire.Fields(b, func(f wire.Field) bool {
		if f.Num == 1 {
			return wire.Small(&f, &kind)
		}
		return e.set(&f)
	})
	e.Value = bytes.Clone(e.Value)
	return kind, e, ok && e.Modified > 0
}

func (e *Entry) set(f *wire.Field) bool {
	switch f.Num {
	case 2:
		return f.CopyString(&e.Namespace)
	case 3:
		return f.CopyString(&e.Name)
	case 4:
		return f.Uint((*uint64)(&e.Modified))
	case 5:
		return f.Bytes(&e.Value)
	case 6:
		return f.Uint(&e.Flags)
	case 7:
		return f.Uint((*uint64)(&e.Created))
	case 8:
		return f.Uint(&e.LockIndex)
	case 9:
		return f.Session(&e.Session)
	case 10:
		return wire.Small(f, &e.OnEnd)
	case 11:
		return f.Millis(&e.Delay, MaxDelay)
	case 12:
		return f.CopyString(&e.Owner)
	}
	return false
}

// readAs leaves of a record what its kind keeps; nil: there is no such kind.
func readAs(kind uint8, e *Entry) *Entry {
	switch kind {
	case entryRecord:
		return e
	case tombstoneRecord:
		return &Entry{Key: e.Key, Modified: e.Modified}
	case delayRecord:
		return &Entry{Key: e.Key, Modified: e.Modified, Delay: e.Delay, Owner: e.Owner}
	case floorRecord:
		return &Entry{Modified: e.Modified}
	}
	return nil
}

// take stores a record that is read. Those of one kind come by key.
func (t *tables) take(kind uint8, e *Entry) bool {
	switch kind {
	case entryRecord:
		if last, ok := t.entries.Max(); ok && last.Key.Compare(e.Key) >= 0 {
			return false
		}
		t.put(0, nil, e)
		return true
	case tombstoneRecord:
		if last, ok := t.tombstones.Max(); ok && last.key.Compare(e.Key) >= 0 {
			return false
		}
		t.bury(tombstone{e.Key, e.Modified})
		return t.floor == 0 // else there were too many
	case delayRecord:
		if last, ok := t.delays.Max(); ok && last.Key.Compare(e.Key) >= 0 {
			return false
		}
		t.begin(&Delay{Key: e.Key, Owner: e.Owner, Since: e.Modified, For: e.Delay})
		return true
	case floorRecord:
		ok := t.floor == 0
		t.floor = e.Modified
		return ok
	}
	return false
}
