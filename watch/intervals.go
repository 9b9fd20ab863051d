package watch

import "cmp"

// intervals finds the nodes whose range of names has a name in it: a treap by the
// beginnings of the ranges, of which each part knows the farthest end in it. With n
// ranges of which k have the name it takes about log n + k steps.
type intervals struct{ root *interval }

type interval struct {
	node        *node
	from, to    string // names from on, before to; "": without end
	weight      uint64 // none below has a greater one: it decides the shape
	left, right *interval
	farthest    string // the greatest to in this part; "": without end
}

func (s *intervals) add(n *node) {
	from, to := n.more.sel.bounds()
	s.root = s.root.insert(&interval{node: n, from: from, to: to, weight: scatter(n.id), farthest: to})
}

func (s *intervals) remove(n *node) {
	from, _ := n.more.sel.bounds()
	s.root = s.root.remove(from, n.id)
}

// each calls f with the nodes that have the name.
func (s *intervals) each(name string, f func(*node)) { s.root.each(name, f) }

// scatter makes weights that look random of numbers in a row: splitmix64, by Steele,
// Lea and Flood.
func scatter(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (t *interval) compare(from string, id uint64) int {
	return cmp.Or(cmp.Compare(from, t.from), cmp.Compare(id, t.node.id))
}

func (t *interval) insert(x *interval) *interval {
	if t == nil {
		return x
	}
	if t.compare(x.from, x.node.id) < 0 {
		t.left = t.left.insert(x)
		if t.left.weight > t.weight {
			l := t.left
			t.left, l.right = l.right, t
			t.sum()
			t = l
		}
	} else {
		t.right = t.right.insert(x)
		if t.right.weight > t.weight {
			r := t.right
			t.right, r.left = r.left, t
			t.sum()
			t = r
		}
	}
	t.sum()
	return t
}

// remove takes out one that is there.
func (t *interval) remove(from string, id uint64) *interval {
	switch c := t.compare(from, id); {
	case c < 0:
		t.left = t.left.remove(from, id)
	case c > 0:
		t.right = t.right.remove(from, id)
	default:
		return join(t.left, t.right)
	}
	t.sum()
	return t
}

// join makes one of two, of which one lies before the other.
func join(a, b *interval) *interval {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.weight > b.weight:
		a.right = join(a.right, b)
		a.sum()
		return a
	}
	b.left = join(a, b.left)
	b.sum()
	return b
}

// sum finds the farthest end anew.
func (t *interval) sum() {
	t.farthest = t.to
	for _, part := range [...]*interval{t.left, t.right} {
		if part != nil && t.farthest != "" && (part.farthest == "" || part.farthest > t.farthest) {
			t.farthest = part.farthest
		}
	}
}

func (t *interval) each(name string, f func(*node)) {
	for t != nil && (t.farthest == "" || name < t.farthest) {
		t.left.each(name, f)
		if name < t.from {
			return
		}
		if t.to == "" || name < t.to {
			f(t.node)
		}
		t = t.right
	}
}
