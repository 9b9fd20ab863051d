package core

import (
	"hash/maphash"

	"github.com/incumbent-dev/incumbent"
)

// directory finds the row of a name by a number made of it. A table by the names
// themselves would hold as much as the names. Names that have the same number follow
// each other by [entry.after]. The numbers differ from member to member, and nothing
// depends on them.
type directory struct {
	seed  maphash.Seed
	mask  uint64            // of the numbers: fewer bits where a test wants names to meet
	first map[uint64]uint64 // row
	n     int               // names
}

func newDirectory() directory {
	return directory{seed: maphash.MakeSeed(), mask: ^uint64(0), first: make(map[uint64]uint64)}
}

func (d *directory) number(namespace, model, lease uint64) uint64 {
	const odd = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	return ((namespace*odd^model)*odd ^ lease) & d.mask
}

func (d *directory) of(n *incumbent.Name) uint64 {
	return d.number(maphash.String(d.seed, n.Namespace), maphash.String(d.seed, n.Model), maphash.String(d.seed, n.Lease))
}

// find returns the record of a name, nil if there is none.
func (t *tables) find(namespace, model, lease []byte) *Lease {
	d := &t.directory
	number := d.number(maphash.Bytes(d.seed, namespace), maphash.Bytes(d.seed, model), maphash.Bytes(d.seed, lease))
	for row := d.first[number]; row != 0; {
		l := t.rows.get(row)
		if n := &l.Name; n.Lease == string(lease) && n.Model == string(model) && n.Namespace == string(namespace) {
			return l
		}
		row = l.after
	}
	return nil
}

// enter adds an entry whose name is not there.
func (t *tables) enter(e *entry) {
	d := &t.directory
	number := d.of(&e.Name)
	e.after = d.first[number]
	d.first[number] = e.row
	d.n++
}

// strike takes an entry out, whose record is still there.
func (t *tables) strike(e *entry) {
	d := &t.directory
	number := d.of(&e.Name)
	d.n--
	if d.first[number] == e.row {
		d.first[number] = e.after
		if e.after == 0 {
			delete(d.first, number)
		}
		return
	}
	before := t.rows.get(d.first[number]).entry
	for before.after != e.row {
		before = t.rows.get(before.after).entry
	}
	before.after = e.after
}
