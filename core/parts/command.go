package parts

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Part is the next part of a command: [PartBytes] of it, or what is left.
type Part struct {
	Member uint64          // that proposes it; not 0
	Began  incumbent.Index // of the first part; 0: this is the first
	Whole  []byte          // the encoded command
	Offset int             // of the part in it
	// Commutes says that the whole commutes with extensions ([core.Commutes]), which the
	// last part does then.
	Commutes bool
}

// Drop discards what waits of a member, if Newest is its newest part.
type Drop struct {
	Member uint64
	Newest incumbent.Index
}

// End is the offset behind the part.
func (c Part) End() int { return min(c.Offset+PartBytes, len(c.Whole)) }

// Encode implements [core.Command]. The meta must have no key: that belongs to the
// whole.
func (c Part) Encode(meta core.Meta) []byte {
	p := part{member: c.Member, began: c.Began, total: len(c.Whole), offset: c.Offset, data: c.Whole[c.Offset:c.End()], commutes: c.Commutes}
	return p.encode(meta, core.RequiredSchema(c.Whole))
}

// Encode implements [core.Command].
func (c Drop) Encode(meta core.Meta) []byte {
	w := wire.Writer{}
	w.Fixed(1, c.Member)
	w.Uint(6, uint64(c.Newest))
	return core.EncodeFamily(meta, Family{}, w.B)
}

// part is one command of the family as the log has it: a part if it has data, or
// else the end of one.
type part struct {
	member uint64
	began  incumbent.Index
	total  int
	offset int
	data   []byte // aliases the log
	newest incumbent.Index

	commutes bool // the whole does
}

// last reports whether the part is the last one of its command.
func (p *part) last() bool { return p.offset+len(p.data) == p.total }

func (p *part) encode(meta core.Meta, needs uint32) []byte {
	w := wire.Writer{B: make([]byte, 0, 64+len(p.data))}
	w.Fixed(1, p.member)
	w.Uint(2, uint64(p.began))
	w.Uint(3, uint64(p.total))
	w.Uint(4, uint64(p.offset))
	w.Bytes(5, p.data)
	w.Flag(7, p.commutes)
	return core.EncodeFamily(meta, Family{carries: needs}, w.B)
}

// decode reads a command of the family, whatever the limits.
func (p *part) decode(b []byte) bool {
	if !wire.Fields(b, func(f wire.Field) bool { return p.set(&f) }) || p.member == 0 {
		return false
	}
	if len(p.data) == 0 {
		return p.newest != 0 && p.began == 0 && p.total == 0 && p.offset == 0 && !p.commutes
	}
	return p.newest == 0 && (p.offset == 0) == (p.began == 0)
}

func (p *part) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return f.Fixed(&p.member)
	case 2:
		return f.Uint((*uint64)(&p.began))
	case 3:
		return length(f, &p.total)
	case 4:
		return length(f, &p.offset)
	case 5:
		return f.Bytes(&p.data)
	case 6:
		return f.Uint((*uint64)(&p.newest))
	case 7:
		return f.Flag(&p.commutes)
	}
	return false
}

// length takes a number of bytes.
func length(f *wire.Field, to *int) bool {
	var n uint64
	ok := f.Uint(&n) && n <= MaxBytes
	*to = int(n)
	return ok
}
