package table

import (
	"cmp"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// history is the newest changes of a database, as a value.
type history struct {
	of      *batch                 // that may change changes; nil: none
	changes *btree.BTreeG[*Change] // by index
	bytes   int64
	floor   ovs.UUID // of the newest change that is not there
	last    ovs.UUID
}

func newHistory(last ovs.UUID) history {
	return history{changes: newTree(func(a, b *Change) int { return cmp.Compare(a.Index, b.Index) }), floor: last, last: last}
}

// with returns the history with one more change; the oldest go beyond limit bytes. h is
// none any more if it is one of the same batch.
func (h history) with(b *batch, c *Change, limit int64) history {
	if b == nil || h.of != b {
		h.of, h.changes = b, fork(h.changes)
	}
	h.changes.Set(c)
	h.bytes += c.size
	h.last = c.TxnID
	for h.bytes > limit {
		oldest, _ := h.changes.PopMin()
		h.bytes -= oldest.size
		h.floor = oldest.TxnID
	}
	return h
}

func (h *history) since(id ovs.UUID) ([]*Change, bool) {
	if id == h.last {
		return nil, true
	}
	at := IndexOf(id)
	if id != h.floor {
		c, ok := h.changes.Get(&Change{Index: at})
		if !ok || c.TxnID != id {
			return nil, false
		}
	}
	return h.after(at)
}

// after returns the changes behind an index, oldest first; false: they are not all there.
func (h *history) after(at incumbent.Index) ([]*Change, bool) {
	if IndexOf(h.floor) > at {
		return nil, false
	}
	var list []*Change
	h.changes.Ascend(&Change{Index: at + 1}, func(c *Change) bool {
		list = append(list, c)
		return true
	})
	return list, true
}

// sizeOfChange is what keeping changes of rows costs.
func sizeOfChange(rows []RowChange) int64 {
	n := int64(changeBytes)
	for i := range rows {
		n += sizeOf(rows[i].Old) + sizeOf(rows[i].New)
	}
	return n
}
