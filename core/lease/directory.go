package lease

import (
	"hash/maphash"

	"github.com/incumbent-dev/incumbent"
)

// directory finds the row of a name by a number made of it. A table by the names
// themselves would hold as much as the names. The rows of names that have the same
// number follow each other. The numbers differ from member to member, and nothing
// depends on them.
type directory struct {
	seed  maphash.Seed
	mask  uint64                // of the numbers: fewer bits where a test wants names to meet
	first *book[uint64, uint64] // row
	after *book[uint64, uint64] // row behind a row: of hardly any
	n     int                   // names
}

func newDirectory() directory {
	return directory{seed: maphash.MakeSeed(), mask: ^uint64(0), first: newBook[uint64, uint64](), after: newBook[uint64, uint64]()}
}

func (d *directory) mark() {
	d.first.mark()
	d.after.mark()
}

func (d *directory) settle(back bool) {
	d.first.settle(back)
	d.after.settle(back)
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
	for row := d.first.now[number]; row != 0; row = d.after.now[row] {
		l := t.rows.get(row)
		if n := &l.Name; n.Lease == string(lease) && n.Model == string(model) && n.Namespace == string(namespace) {
			return l
		}
	}
	return nil
}

// enter adds an entry whose name is not there.
func (t *tables) enter(e *entry) {
	d := &t.directory
	number := d.of(&e.Name)
	if first := d.first.now[number]; first != 0 {
		d.after.set(e.row, first)
	}
	d.first.set(number, e.row)
	d.n++
}

// strike takes an entry out.
func (t *tables) strike(e *entry) {
	d := &t.directory
	number := d.of(&e.Name)
	d.n--
	after := d.after.now[e.row]
	if after != 0 {
		d.after.drop(e.row)
	}
	switch before := d.first.now[number]; {
	case before != e.row:
		for d.after.now[before] != e.row {
			before = d.after.now[before]
		}
		if after == 0 {
			d.after.drop(before)
		} else {
			d.after.set(before, after)
		}
	case after == 0:
		d.first.drop(number)
	default:
		d.first.set(number, after)
	}
}
