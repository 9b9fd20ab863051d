package core

import (
	"fmt"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
)

// Counted is a kind of thing that is counted for each principal and namespace.
type Counted uint8

// The kinds.
const (
	Sessions      Counted = iota // open; no namespace has any
	Leases                       // held, and of principals also places in queues: each may become one without being asked again
	Places                       // in queues of leases
	Keys                         // that have a value: its principal is who stored it last
	KeyBytes                     // that those cost
	Registrations                // nodes, services and checks: their principal is who registered them last
	TableBytes                   // of rows of tables: their principal is who defined the database
	NumCounted                   // how many there are
)

var countedNames = [NumCounted]string{"sessions", "leases", "places", "keys", "key-bytes", "registrations", "table-bytes"}

// String returns the kind's name, as used in settings and metrics.
func (c Counted) String() string { return countedNames[c] }

func (c Counted) words() string {
	return [NumCounted]string{"open sessions", "leases and places in queues", "places in queues", "keys", "bytes of keys and values", "nodes, services and checks", "bytes of rows"}[c]
}

// Usage is what principals and namespaces have: numbers that follow from the records,
// kept beside them. One goroutine changes them, that of the State, and any number
// reads them, who see those of its newest command: they are no part of a [View].
type Usage struct {
	principals, namespaces names
	over                   [NumScopes][NumCounted]atomic.Uint64
}

// names are the principals or the namespaces that have something.
type names struct {
	byName map[string]*Count                    // the writer's
	tree   *btree.BTreeG[*Count]                // the same, by name
	seen   atomic.Pointer[btree.BTreeG[*Count]] // a copy of it, for readers
	sweep  int                                  // names at which those that have nothing are dropped
}

// minSweep is how many names are kept at least before any is looked at.
const minSweep = 1024

// Count is what one of them has.
type Count struct {
	name string
	n    [NumCounted]atomic.Int64
}

// Name is whose it is.
func (c *Count) Name() string { return c.name }

// Of is how much it has of one kind; nil has nothing.
func (c *Count) Of(k Counted) int64 {
	if c == nil {
		return 0
	}
	return c.n[k].Load()
}

// Add counts more, or less, of one kind. It is for the one that writes: see [Usage].
func (c *Count) Add(k Counted, by int64) {
	// There is one writer: this is no more than an addition with a store that readers
	// see whole.
	c.n[k].Store(c.n[k].Load() + by)
}

func (c *Count) nothing() bool {
	for k := range c.n {
		if c.n[k].Load() != 0 {
			return false
		}
	}
	return true
}

func newUsage() *Usage {
	u := new(Usage)
	for s := range NumScopes {
		ns := u.names(s)
		ns.byName = map[string]*Count{}
		ns.tree = btree.NewBTreeGOptions(func(a, b *Count) bool { return a.name < b.name }, btree.Options{NoLocks: true, Degree: treeDegree})
		ns.publish()
	}
	return u
}

// publish shows readers which names there are: it is constant time.
func (ns *names) publish() { ns.seen.Store(ns.tree.Copy()) }

// get returns the count of a name, a new one if it has none.
func (ns *names) get(name string) *Count {
	c := ns.byName[name]
	if c == nil {
		if ns.sweep = max(ns.sweep, minSweep); len(ns.byName) >= ns.sweep {
			ns.drop()
		}
		c = &Count{name: name}
		ns.byName[name] = c
		ns.tree.Set(c)
		ns.publish()
	}
	return c
}

// drop forgets the names that have nothing. It is due when their number has doubled:
// a small part of what making them cost.
func (ns *names) drop() {
	ns.tree.Copy().Scan(func(c *Count) bool {
		if c.nothing() {
			delete(ns.byName, c.name)
			ns.tree.Delete(c)
		}
		return true
	})
	ns.sweep = 2 * len(ns.byName)
}

func (ns *names) find(name string) *Count {
	c, _ := ns.seen.Load().Get(&Count{name: name})
	return c
}

// Principal returns what a principal has, nil: nothing.
func (u *Usage) Principal(name string) *Count { return u.principals.find(name) }

// Namespace returns what a namespace has, nil: nothing.
func (u *Usage) Namespace(name string) *Count { return u.namespaces.find(name) }

func (u *Usage) names(s Scope) *names {
	if s == ScopeNamespace {
		return &u.namespaces
	}
	return &u.principals
}

// Count returns the count of a principal or namespace, a new one if it has nothing. It
// is for the one that writes. Who keeps it keeps it only while something is counted
// there.
func (u *Usage) Count(s Scope, name string) *Count { return u.names(s).get(name) }

// own finds a count for the goroutine that changes them, read for any other.
func (u *Usage) own(s Scope, name string) *Count  { return u.names(s).byName[name] }
func (u *Usage) read(s Scope, name string) *Count { return u.names(s).find(name) }

// Add counts what a family's record makes a principal and a namespace have, or no
// longer have.
func (u *Usage) Add(principal, namespace string, g *Growth) {
	p, n := u.principals.get(principal), u.namespaces.get(namespace)
	for k, by := range g {
		if by != 0 {
			p.Add(Counted(k), by)
			n.Add(Counted(k), by)
		}
	}
}

// Over is how much a quota has refused on this member, or let through that it would
// have refused: by the log, and by views.
func (u *Usage) Over(s Scope, k Counted) uint64 { return u.over[s][k].Load() }

// Fullest is who comes nearest to their quota of one kind. Without a name nobody has such a
// quota who has any.
type Fullest struct {
	Name      string
	Has, Most int64
}

func (f *Fullest) share() float64 {
	if f.Most == 0 {
		return 0
	}
	return float64(f.Has) / float64(f.Most)
}

// Fullest returns who comes nearest to each of their quotas. It looks at all names, once: most
// of them have nothing of most kinds.
func (u *Usage) Fullest(t *Terms, s Scope) (all [NumCounted]Fullest) {
	qs := t.quotas(s)
	u.names(s).seen.Load().Scan(func(c *Count) bool {
		for k := range all {
			is := c.n[k].Load()
			if is == 0 {
				continue
			}
			now := Fullest{c.name, is, qs[k].Of(c.name)}
			if now.share() > all[k].share() && !(s == ScopePrincipal && exempt(c.name)) {
				all[k] = now
			}
		}
		return true
	})
	return all
}

// Counting are tables whose records count against quotas.
type Counting interface {
	Tables
	// CountIn is called once, before there is a record, with where to count them. session
	// finds a session that is open, nil: it is not.
	CountIn(u *Usage, session func(incumbent.SessionID) *Session)
	// Recount counts all of them anew: for checks.
	Recount(u *Usage)
}

// recount counts everything anew.
func (s *State) recount() *Usage {
	u := newUsage()
	s.sessions.Scan(func(o *Session) bool {
		u.principals.get(o.Owner()).Add(Sessions, 1)
		return true
	})
	for _, f := range s.families {
		if c, ok := f.tables.(Counting); ok {
			c.Recount(u)
		}
	}
	return u
}

// checkUsage verifies that what is counted is what there is.
func (s *State) checkUsage() error {
	want := s.recount()
	if err := s.usage.principals.same(&want.principals); err != nil {
		return fmt.Errorf("principal %w", err)
	}
	if err := s.usage.namespaces.same(&want.namespaces); err != nil {
		return fmt.Errorf("namespace %w", err)
	}
	return nil
}

func (ns *names) same(want *names) error {
	for _, list := range []*names{ns, want} {
		for name := range list.byName {
			for k := range NumCounted {
				got, is := ns.byName[name].Of(k), want.byName[name].Of(k)
				if got != is {
					return fmt.Errorf("%q: %d %v are counted, there are %d", name, got, k, is)
				}
			}
			if seen := ns.find(name); seen != ns.byName[name] {
				return fmt.Errorf("%q: readers see another count", name)
			}
		}
	}
	return nil
}
