package lease

import "github.com/incumbent-dev/incumbent/core"

// deadlineSlot is a deadline of a family. Nothing extends one but the log.
type deadlineSlot struct {
	timer
	of *core.Deadline // nil: the slot is free
}

// deadlineKey names the deadline of something of a family.
type deadlineKey struct {
	family int32
	id     string
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
func (b *Book) putDeadline(d *core.Deadline) {
	i := takeSlot(&b.freeDeadlines, &b.deadlines)
	b.byDeadline[keyOf(d)] = i
	b.deadlines[i] = deadlineSlot{timer{deadline: b.now + b.hold(int64(d.After)), flags: used}, d}
	b.arm(deadlineRef(i))
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
