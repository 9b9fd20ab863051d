package lease

// rows hold the record of each row: a tree of 32 branches at each node, copied where
// it changes. A record costs little more than its pointer, is found without comparing
// anything, and a path of the tree is copied for each that has changed since
// the last copy of the whole.
//
// Only the newest copy is written to.
type rows struct {
	root   *rowNode
	height uint   // levels of nodes above those with records
	edit   uint64 // nodes with this number belong to no copy
	n      int    // records
}

// rowNode has either records or nodes.
type rowNode struct {
	edit   uint64
	leases *[rowWidth]*Lease
	nodes  *[rowWidth]*rowNode
}

const (
	rowBits  = 5
	rowWidth = 1 << rowBits
)

// copy returns the rows as they are, which stay so.
func (t *rows) copy() rows {
	c := *t
	t.edit++
	return c
}

func (t *rows) len() int { return t.n }

// branch is which way leads to a row at a level above the records.
func branch(row uint64, level uint) uint64 { return row >> (rowBits * level) % rowWidth }

// holds reports whether the tree is high enough for a row.
func (t *rows) holds(row uint64) bool { return row>>(rowBits*(t.height+1)) == 0 }

// get returns the record of a row, nil if it has none.
func (t *rows) get(row uint64) *Lease {
	n := t.root
	if n == nil || !t.holds(row) {
		return nil
	}
	for level := t.height; level > 0; level-- {
		if n = n.nodes[branch(row, level)]; n == nil {
			return nil
		}
	}
	return n.leases[branch(row, 0)]
}

// set stores the record of a row; nil: none.
func (t *rows) set(row uint64, l *Lease) {
	for ; !t.holds(row); t.height++ {
		t.root = &rowNode{edit: t.edit, nodes: &[rowWidth]*rowNode{t.root}}
	}
	at := &t.root
	for level := t.height; level > 0; level-- {
		*at = t.own(*at, level)
		at = &(*at).nodes[branch(row, level)]
	}
	*at = t.own(*at, 0)
	place := &(*at).leases[branch(row, 0)]
	t.n += one(l != nil) - one(*place != nil)
	*place = l
}

// own returns a node that no copy has, in the place of n, which may be nil.
func (t *rows) own(n *rowNode, level uint) *rowNode {
	switch {
	case n != nil && n.edit == t.edit:
		return n
	case level > 0:
		c := &rowNode{edit: t.edit, nodes: new([rowWidth]*rowNode)}
		if n != nil {
			*c.nodes = *n.nodes
		}
		return c
	}
	c := &rowNode{edit: t.edit, leases: new([rowWidth]*Lease)}
	if n != nil {
		*c.leases = *n.leases
	}
	return c
}
