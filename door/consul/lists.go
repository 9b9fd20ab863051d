package consul

import (
	"encoding/json"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// Lists of the catalog are kept from one evaluation to the next: what has not changed
// is neither written nor compressed again. All queries of one list (an endpoint and a
// name) share it, whatever they select of it: a selection picks among the fragments of
// the whole list, and looks only at runs that it has not seen.

// kind is one kind of list: of rows R of the catalog, shown as J.
type kind[R comparable, J any] struct {
	name string
	// index notes one list as read, and returns the index by which it is blocked: no
	// change of its rows leaves that as it is.
	index func(c engine.CatalogReading, of string) incumbent.Index
	// rows calls fn with the rows of one list in the order of their keys. Equal rows of
	// two views are ==.
	rows  func(c engine.CatalogReading, namespace, of string, fn func(R))
	key   func(R) string // where it stands
	shape func(d *Door, row R) *J
	sees  func(s *sights, row R) bool // nil: everything
	// hidden: rows are selected by what is not shown of them. Other rows then make another
	// list for whoever selects, though it says the same.
	hidden bool
}

// listing is one version of a list, or of what is selected of it. It never changes.
type listing struct {
	index incumbent.Index // since when it says this; not before the list was first looked at
	rows  incumbent.Index // since when its rows are these, as far as that is another list: not before index
	hash  watch.Hash
	hides bool // something was left out that the caller may not see
	body  *spliced
}

func newListing(index incumbent.Index, runs []*run, hides bool) *listing {
	body := &spliced{runs: runs}
	return &listing{index: index, rows: index, hash: body.hash(), hides: hides, body: body}
}

// result is the listing as shared queries have it.
func (l *listing) result() result {
	return result{index: max(l.index, 1), hash: l.hash, body: l.body, filtered: l.hides, size: 2 * l.body.size()}
}

// board is a list that is kept.
type board[R comparable, J any] struct {
	door *Door
	kind *kind[R, J]
	of   string

	mu   sync.Mutex      // protects what follows; held while a version is made
	seen incumbent.Index // the list's own index when it was last looked at
	now  *listing        // nil: it was not yet
}

// list is the list in a view. Views may come in any order.
func (b *board[R, J]) list(v *core.View, notes *watch.Reads) *listing {
	c := engine.ReadCatalog(v, notes, b.door.namespace)
	index := b.kind.index(c, b.of)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now != nil && index == b.seen {
		return b.now
	}
	var was []*run
	if b.now != nil {
		was = b.now.body.runs
	}
	l := newListing(index, reruns(was, b.fragments(c, was)), false)
	switch {
	case b.now != nil && index < b.seen: // an older view: the newer list stays
		return l
	case b.now != nil && l.hash == b.now.hash: // something moved that is not shown
		if b.kind.hidden && !slices.Equal(l.body.runs, b.now.body.runs) {
			l.index, b.now = b.now.index, l
		}
		b.seen = index
	default:
		b.seen, b.now = index, l
	}
	return b.now
}

// fragments are those of the list in a view, where runs are of the list before.
func (b *board[R, J]) fragments(c engine.CatalogReading, was []*run) []*fragment {
	var fs []*fragment
	old := eachFragment(was)
	f, more := old()
	is := func(row R) bool { return more && f.of.(R) == row } //nolint:forcetypeassert // of this board
	b.kind.rows(c, b.door.namespace, b.of, func(row R) {
		if !is(row) {
			for key := b.kind.key(row); more && f.key < key; {
				f, more = old()
			}
		}
		if is(row) {
			fs = append(fs, f)
			f, more = old()
			return
		}
		fs = append(fs, newFragment(b.kind.key(row), row, encodeJSON(b.kind.shape(b.door, row))))
	})
	return fs
}

// eachFragment returns the fragments of runs one by one, and whether there was one.
func eachFragment(runs []*run) func() (*fragment, bool) {
	i := 0
	return func() (*fragment, bool) {
		for len(runs) > 0 && i == len(runs[0].fragments) {
			runs, i = runs[1:], 0
		}
		if len(runs) == 0 {
			return nil, false
		}
		i++
		return runs[0].fragments[i-1], true
	}
}

// encodeJSON writes what is made of records.
func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "encode an answer: %w", err))
	}
	return b
}

// selection is what one query shows of a board: evaluations of it never overlap.
type selection[R comparable, J any] struct {
	board *board[R, J]
	picks func(row R) bool // nil: all
	sees  *sights          // what the caller may see; nil: all

	last *listing // of the board
	kept map[*run]selected
	now  *listing
}

// selected is what is shown of one run.
type selected struct {
	fragments []*fragment
	hides     bool
}

// list is the selection in a view.
func (s *selection[R, J]) list(v *core.View, notes *watch.Reads) *listing {
	all := s.board.list(v, notes)
	if s.picks == nil && s.sees == nil {
		return all
	}
	if all == s.last {
		return s.now
	}
	kept := make(map[*run]selected, len(all.body.runs))
	var fs []*fragment
	hides := false
	for _, r := range all.body.runs {
		p, known := s.kept[r]
		if !known {
			p = s.pick(r)
		}
		kept[r] = p
		fs = append(fs, p.fragments...)
		hides = hides || p.hides
	}
	var was []*run
	if s.now != nil {
		was = s.now.body.runs
	}
	l := newListing(all.rows, reruns(was, fs), hides)
	if s.last, s.kept = all, kept; s.now == nil || l.hash != s.now.hash || l.hides != s.now.hides {
		s.now = l
	}
	return s.now
}

func (s *selection[R, J]) pick(r *run) (p selected) {
	for _, f := range r.fragments {
		row := f.of.(R) //nolint:forcetypeassert // of this kind of board
		switch {
		case s.sees != nil && s.board.kind.sees != nil && !s.board.kind.sees(s.sees, row):
			p.hides = true
		case s.picks == nil || s.picks(row):
			p.fragments = append(p.fragments, f)
		}
	}
	p.fragments = slices.Clip(p.fragments)
	return p
}

// boards finds those that are in use: queries hold theirs, and when the last one has
// been forgotten so is the board.
type boards struct {
	mu sync.Mutex // protects byKey
	// byKey has a weak.Pointer[board[R, J]] for each kind with its name.
	byKey map[string]any
}

// boardOf returns the board of a list.
func boardOf[R comparable, J any](d *Door, k *kind[R, J], of string) *board[R, J] {
	all, key := &d.boards, k.name+"\x00"+of
	all.mu.Lock()
	defer all.mu.Unlock()
	if p, ok := all.byKey[key].(weak.Pointer[board[R, J]]); ok {
		if b := p.Value(); b != nil {
			return b
		}
	}
	if all.byKey == nil {
		all.byKey = map[string]any{}
	}
	b := &board[R, J]{door: d, kind: k, of: of}
	p := weak.Make(b)
	all.byKey[key] = p
	runtime.AddCleanup(b, func(key string) {
		all.mu.Lock()
		defer all.mu.Unlock()
		if all.byKey[key] == any(p) { // nobody has made it anew
			delete(all.byKey, key)
		}
	}, key)
	return b
}
