package policy

import (
	"bytes"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// A snapshot has a record for each policy, in the order of their names, and one with
// the index of the newest change, if there ever was one.
const (
	policyRecord uint8 = iota + 1
	changedRecord
)

// Records implements [core.FamilyView].
func (v *View) Records() int {
	n := v.policies.Len()
	if v.changed > 0 {
		n++
	}
	return n
}

// Write implements [core.FamilyView].
func (v *View) Write(record func([]byte) bool) {
	var w recordWriter
	going := true
	v.policies.Scan(func(p *Policy) bool {
		going = record(w.policy(p))
		return going
	})
	if going && v.changed > 0 {
		record(w.changed(v.changed))
	}
}

// recordWriter writes records, one after the other into the same bytes.
type recordWriter struct{ wire.Writer }

func (w *recordWriter) policy(p *Policy) []byte {
	w.B = w.B[:0]
	w.Uint(1, uint64(policyRecord))
	appendPolicy(&w.Writer, &p.Policy)
	w.Uint(5, uint64(p.Created))
	w.Uint(6, uint64(p.Modified))
	w.Text(7, p.By)
	w.Uint(8, atMillis(p.At))
	return w.B
}

func (w *recordWriter) changed(at incumbent.Index) []byte {
	w.B = w.B[:0]
	w.Uint(1, uint64(changedRecord))
	w.Uint(6, uint64(at))
	return w.B
}

func atMillis(t time.Time) uint64 {
	if t.IsZero() || t.UnixMilli() < 0 {
		return 0
	}
	return uint64(t.UnixMilli())
}

// ReadRecord implements [core.Tables]. What is kept is written as it was read, or
// the bytes are refused: so states that are equal have equal bytes.
func (t *tables) ReadRecord(b []byte) bool {
	kind, p, ok := readRecord(b)
	if !ok || t.changed > 0 {
		return false
	}
	var again recordWriter
	if kind == changedRecord {
		t.changed, t.view = p.Modified, nil
		return p.Modified > 0 && bytes.Equal(again.changed(p.Modified), b)
	}
	if last, there := t.policies.Max(); kind != policyRecord || there && last.Name >= p.Name || !bytes.Equal(again.policy(p), b) {
		return false
	}
	t.put(nil, p)
	return true
}

func readRecord(b []byte) (kind uint8, p *Policy, ok bool) {
	p = new(Policy)
	ok = wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			return wire.Small(&f, &kind)
		case 2, 3, 4:
			return setPolicy(&f, &p.Policy)
		case 5:
			return f.Uint((*uint64)(&p.Created))
		case 6:
			return f.Uint((*uint64)(&p.Modified))
		case 7:
			return f.CopyString(&p.By)
		case 8:
			var at uint64
			ok := f.Uint(&at) && at <= maxAtMillis
			p.At = time.UnixMilli(int64(at)).UTC()
			return ok
		}
		return false
	})
	return kind, p, ok
}

// maxAtMillis is the last millisecond of the year 9999: JSON has no later one.
const maxAtMillis = 253402300799999
