package lease

import (
	"cmp"
	"strings"

	"github.com/incumbent-dev/incumbent/core"
)

// deadlineSlot is a deadline of a family. Only some are extended but by the log.
type deadlineSlot struct {
	timer
	of *core.Deadline // nil: the slot is free
}

// deadlineKey names the deadline of something of a family.
type deadlineKey struct {
	family int32
	id     string
}

func (k deadlineKey) compare(o deadlineKey) int {
	return cmp.Or(cmp.Compare(k.family, o.family), strings.Compare(k.id, o.id))
}

func keyOf(d *core.Deadline) deadlineKey { return deadlineKey{int32(d.Family), d.ID} }

// deadlineChanged takes in that a deadline begins, or is over.
func (b *Book) deadlineChanged(d *core.Deadline) {
	b.dropDeadline(keyOf(d))
	if d.After > 0 {
		b.putDeadline(d)
	}
}

// putDeadline takes a new deadline in.
func (b *Book) putDeadline(d *core.Deadline) int32 {
	i := takeSlot(&b.freeDeadlines, &b.deadlines)
	b.byDeadline[keyOf(d)] = i
	b.deadlines[i] = deadlineSlot{timer{deadline: b.now + b.hold(int64(d.After)), flags: used}, d}
	b.arm(deadlineRef(i))
	return i
}

// lasting returns the deadline that an extension names, if it has that generation and
// may be extended.
func (b *Book) lasting(l *Lasting) ref {
	i, ok := b.byDeadline[l.key()]
	if !ok {
		return none
	}
	if d := b.deadlines[i].of; d.Generation != l.Generation || !d.Extended {
		return none
	}
	return deadlineRef(i)
}

// extendDeadline has a deadline begin anew.
func (b *Book) extendDeadline(i int32) {
	d := &b.deadlines[i]
	d.deadline = max(d.deadline, b.now+b.hold(int64(d.of.After)))
}

func (b *Book) dropDeadline(k deadlineKey) {
	i, ok := b.byDeadline[k]
	if !ok {
		return
	}
	delete(b.byDeadline, k)
	b.deadlines[i] = deadlineSlot{}
	b.freeDeadlines = append(b.freeDeadlines, i)
}
