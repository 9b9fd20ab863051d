package ovs

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Datum is the value of a column: a set or a map, whose keys are sorted and
// unique. A single value is a set of one. It never changes once shared.
type Datum struct {
	Keys   []Atom
	Values []Atom // as many as Keys for a map; nil for a set
}

// Equal reports whether both say the same.
func (d Datum) Equal(o Datum) bool {
	return slices.Equal(d.Keys, o.Keys) && slices.Equal(d.Values, o.Values)
}

// CompareDatums orders datums of one type: by how many elements they have, then
// by keys, then by values.
func CompareDatums(a, b Datum) int {
	return cmp.Or(
		cmp.Compare(len(a.Keys), len(b.Keys)),
		slices.CompareFunc(a.Keys, b.Keys, Compare),
		slices.CompareFunc(a.Values, b.Values, Compare))
}

// Find returns the place of a key, or where it would be.
func (d Datum) Find(key Atom) (int, bool) {
	return slices.BinarySearchFunc(d.Keys, key, Compare)
}

// Has reports whether there is the key, for a map with the value.
func (d Datum) Has(key, value Atom) bool {
	i, ok := d.Find(key)
	return ok && (d.Values == nil || d.Values[i] == value)
}

// value returns that of the key at i; the zero Atom in a set.
func (d Datum) value(i int) Atom {
	if d.Values == nil {
		return Atom{}
	}
	return d.Values[i]
}

// Includes reports whether d has all elements of o.
func (d Datum) Includes(o Datum) bool {
	if len(o.Keys) > len(d.Keys) {
		return false
	}
	for i, k := range o.Keys {
		if !d.Has(k, o.value(i)) {
			return false
		}
	}
	return true
}

// Excludes reports whether d has no element of o.
func (d Datum) Excludes(o Datum) bool {
	if len(o.Keys) > len(d.Keys) {
		d, o = o, d // so that rows cost no more than they have, however much a client asks for
	}
	for i, k := range o.Keys {
		if d.Has(k, o.value(i)) {
			return false
		}
	}
	return true
}

// add appends an element.
func (d *Datum) add(from Datum, i int) {
	d.Keys = append(d.Keys, from.Keys[i])
	if from.Values != nil {
		d.Values = append(d.Values, from.Values[i])
	}
}

// addAll appends the elements from i on.
func (d *Datum) addAll(from Datum, i int) {
	d.Keys = append(d.Keys, from.Keys[i:]...)
	if from.Values != nil {
		d.Values = append(d.Values, from.Values[i:]...)
	}
}

// room returns an empty datum with room for n elements like those of d.
func (d Datum) room(n int) Datum {
	r := Datum{Keys: make([]Atom, 0, n)}
	if d.Values != nil {
		r.Values = make([]Atom, 0, n)
	}
	return r
}

// Clone returns d with atoms and texts of its own: the texts of one that was parsed alias
// the whole of what was parsed, which is kept as long as they are.
func (d Datum) Clone() Datum { return Datum{cloneAtoms(d.Keys), cloneAtoms(d.Values)} }

func cloneAtoms(list []Atom) []Atom {
	list = slices.Clone(list)
	for i := range list {
		list[i].s = strings.Clone(list[i].s)
	}
	return list
}

// Converted returns d for a column of type t of another schema: integers become reals
// where t has these, and reals that are integers of 64 bits become such. What t can not
// have stays what it is, for [Datum.Check] to say so. The error says that what were
// different keys are none any more.
func (d Datum) Converted(t *Type) (Datum, *Error) {
	keys, some := convertAtoms(d.Keys, t.Key.Kind)
	values, others := convertAtoms(d.Values, t.Value.Kind)
	if !some && !others {
		return d, nil
	}
	d = Datum{slices.Clone(keys), slices.Clone(values)} // sorting moves both, and rows share what they were made of
	return d, d.sort()
}

// convertAtoms returns atoms as those of a kind where they are such numbers, and reports
// whether one is another.
func convertAtoms(list []Atom, k Kind) (_ []Atom, some bool) {
	if len(list) == 0 || list[0].kind == k || k != Integer && k != Real {
		return list, false
	}
	out := slices.Clone(list)
	for i, a := range list {
		f := a.Float()
		switch {
		case k == Real && a.kind == Integer:
			out[i], some = RealAtom(float64(a.Int())), true
		case k == Integer && a.kind == Real && f == math.Trunc(f) && f >= math.MinInt64 && f < -math.MinInt64:
			out[i], some = IntegerAtom(int64(f)), true
		}
	}
	return out, some
}

// tidy makes empty datums alike.
func (d Datum) tidy() Datum {
	if len(d.Keys) == 0 {
		return Datum{}
	}
	return d
}

// Union returns the elements of both; of a key that both have, d's value stays.
func (d Datum) Union(o Datum) Datum {
	if len(d.Keys) == 0 {
		return o
	}
	if len(o.Keys) == 0 {
		return d
	}
	r := d.room(len(d.Keys) + len(o.Keys))
	i := 0
	for j, k := range o.Keys {
		for i < len(d.Keys) && Compare(d.Keys[i], k) < 0 {
			r.add(d, i)
			i++
		}
		if i == len(d.Keys) || d.Keys[i] != k {
			r.add(o, j)
		}
	}
	r.addAll(d, i)
	return r
}

// Without returns d without the elements of o: if o has only keys, of a map, pairs
// go whatever their values are.
func (d Datum) Without(o Datum) Datum {
	return d.filter(func(i int) bool {
		j, ok := o.Find(d.Keys[i])
		return !ok || o.Values != nil && o.Values[j] != d.value(i)
	})
}

// filter returns the elements that keep says yes to: d itself if it are all.
func (d Datum) filter(keep func(i int) bool) Datum {
	for i := range d.Keys {
		if keep(i) {
			continue
		}
		r := d.room(len(d.Keys) - 1)
		r.Keys = append(r.Keys, d.Keys[:i]...)
		if d.Values != nil {
			r.Values = append(r.Values, d.Values[:i]...)
		}
		for i++; i < len(d.Keys); i++ {
			if keep(i) {
				r.add(d, i)
			}
		}
		return r.tidy()
	}
	return d
}

// Diff returns what changes old into new, as the modify of update2 has it: for
// types of at most one element new itself, else the symmetric difference, for maps
// the pairs that were added or changed, and those that were removed.
func Diff(old, new Datum, t *Type) Datum {
	if t.Max <= 1 {
		return new
	}
	of := old
	if old.Values == nil {
		of = new
	}
	r, i, j := of.room(0), 0, 0
	for i < len(old.Keys) && j < len(new.Keys) {
		switch c := Compare(old.Keys[i], new.Keys[j]); {
		case c < 0:
			r.add(old, i)
			i++
		case c > 0:
			r.add(new, j)
			j++
		default:
			if old.value(i) != new.value(j) {
				r.add(new, j)
			}
			i++
			j++
		}
	}
	r.addAll(old, i)
	r.addAll(new, j)
	return r.tidy()
}

// ApplyDiff returns what a difference makes of old; Diff's inverse. It fails where
// the result cannot be of type t.
func ApplyDiff(old, diff Datum, t *Type) (Datum, *Error) {
	if t.Max <= 1 {
		return diff, diff.checkCount(t)
	}
	of := old
	if old.Values == nil {
		of = diff
	}
	r, i := of.room(len(old.Keys)+len(diff.Keys)), 0
	for j, k := range diff.Keys {
		for i < len(old.Keys) && Compare(old.Keys[i], k) < 0 {
			r.add(old, i)
			i++
		}
		there := i < len(old.Keys) && old.Keys[i] == k
		if !there || old.value(i) != diff.value(j) {
			r.add(diff, j)
		}
		if there {
			i++
		}
	}
	r.addAll(old, i)
	r = r.tidy()
	return r, r.checkCount(t)
}

// checkCount reports whether t allows as many elements.
func (d Datum) checkCount(t *Type) *Error {
	if n := len(d.Keys); n < t.Min || n > t.Max {
		return Errorf(ConstraintError, "Attempted to store %d elements in %s.", n, t.English())
	}
	return nil
}

// fits reports whether d has the kinds of t and is in order: what others rely on,
// without the constraints.
func (d Datum) fits(t *Type) bool {
	if len(d.Keys) == 0 {
		return len(d.Values) == 0
	}
	if t.IsMap() != (d.Values != nil) || t.IsMap() && len(d.Values) != len(d.Keys) {
		return false
	}
	for i, k := range d.Keys {
		if k.kind != t.Key.Kind || i > 0 && Compare(d.Keys[i-1], k) >= 0 || d.value(i).kind != t.Value.Kind {
			return false
		}
	}
	return true
}

// Check reports whether d is of type t: kinds, order, number and constraints.
func (d Datum) Check(t *Type) *Error {
	if !d.fits(t) {
		return Errorf(InternalError, "a datum is not of type %s", t.English())
	}
	if err := d.checkCount(t); err != nil {
		return err
	}
	return d.checkConstraints(t)
}

func (d Datum) checkConstraints(t *Type) *Error {
	for i, k := range d.Keys {
		if err := t.Key.check(k); err != nil {
			return err
		}
		if d.Values != nil {
			if err := t.Value.check(d.Values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// IsDefault reports whether d is the default of a column of type t.
func (d Datum) IsDefault(t *Type) bool {
	if t.Min == 0 {
		return len(d.Keys) == 0
	}
	return len(d.Keys) == 1 && d.Keys[0] == zeroAtom(t.Key.Kind) &&
		(d.Values == nil || d.Values[0] == zeroAtom(t.Value.Kind))
}

// Default returns the value of columns that nothing was stored in: none where that
// is allowed, else one element that is 0, false, empty or the uuid of zeros.
func Default(t *Type) Datum {
	if t.Min == 0 {
		return Datum{}
	}
	d := Datum{Keys: []Atom{zeroAtom(t.Key.Kind)}}
	if t.IsMap() {
		d.Values = []Atom{zeroAtom(t.Value.Kind)}
	}
	return d
}

// sort sorts, and returns an error if a key comes twice.
func (d *Datum) sort() *Error {
	switch {
	case slices.IsSortedFunc(d.Keys, Compare):
	case d.Values == nil:
		slices.SortFunc(d.Keys, Compare)
	default:
		d.sortPairs()
	}
	for i := 1; i < len(d.Keys); i++ {
		if d.Keys[i] != d.Keys[i-1] {
			continue
		}
		if d.Values == nil {
			return Errorf("ovsdb error", "set contains duplicate")
		}
		return Errorf("ovsdb error", "map contains duplicate key")
	}
	return nil
}

func (d *Datum) sortPairs() {
	type pair struct{ key, value Atom }
	pairs := make([]pair, len(d.Keys))
	for i, k := range d.Keys {
		pairs[i] = pair{k, d.Values[i]}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return Compare(a.key, b.key) })
	for i, p := range pairs {
		d.Keys[i], d.Values[i] = p.key, p.value
	}
}
