package kv

import (
	"bytes"

	"github.com/incumbent-dev/incumbent"
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
	w := wire.Writer{}
	write := func(kind uint8, k Key, at incumbent.Index, more func()) bool {
		w.B = w.B[:0]
		w.Uint(1, uint64(kind))
		w.Text(2, k.Namespace)
		w.Text(3, k.Name)
		w.Uint(4, uint64(at))
		if more != nil {
			more()
		}
		return record(w.B)
	}
	going := true
	v.entries.Scan(func(e *Entry) bool {
		going = write(entryRecord, e.Key, e.Modified, func() {
			w.Bytes(5, e.Value)
			w.Uint(6, e.Flags)
			w.Uint(7, uint64(e.Created))
			w.Uint(8, e.LockIndex)
			w.Session(9, e.Session)
			w.Uint(10, uint64(e.OnEnd))
			w.Millis(11, e.Delay)
		})
		return going
	})
	if going {
		v.tombstones.Scan(func(b tombstone) bool {
			going = write(tombstoneRecord, b.key, b.at, nil)
			return going
		})
	}
	if going {
		v.delays.Scan(func(d *Delay) bool {
			going = write(delayRecord, d.Key, d.Since, func() { w.Millis(11, d.For) })
			return going
		})
	}
	if going && v.floor > 0 {
		write(floorRecord, Key{}, v.floor, nil)
	}
}

// ReadRecord implements [core.Tables].
func (t *tables) ReadRecord(b []byte) bool {
	var kind uint8
	var e Entry
	var value []byte
	r := wire.Read(b)
	for {
		f, more := r.Next()
		if !more {
			break
		}
		ok := false
		switch f.Num {
		case 1:
			ok = small(&f, &kind)
		case 2:
			ok = text(&f, &e.Namespace)
		case 3:
			ok = text(&f, &e.Name)
		case 4:
			ok = f.Uint((*uint64)(&e.Modified))
		case 5:
			ok = f.Bytes(&value)
		case 6:
			ok = f.Uint(&e.Flags)
		case 7:
			ok = f.Uint((*uint64)(&e.Created))
		case 8:
			ok = f.Uint(&e.LockIndex)
		case 9:
			ok = f.Session(&e.Session)
		case 10:
			ok = small(&f, &e.OnEnd)
		case 11:
			ok = f.Millis(&e.Delay, MaxDelay)
		}
		if !ok {
			return false
		}
	}
	if r.Bad() || kind < t.part || e.OnEnd > Delete || e.Modified == 0 {
		return false
	}
	e.Value = bytes.Clone(value)
	t.part = kind
	return t.take(kind, &e)
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
		return true
	case delayRecord:
		if last, ok := t.delays.Max(); ok && last.Key.Compare(e.Key) >= 0 {
			return false
		}
		t.delays.Set(&Delay{Key: e.Key, Since: e.Modified, For: e.Delay})
		return true
	case floorRecord:
		ok := t.floor == 0
		t.floor = e.Modified
		return ok
	}
	return false
}
