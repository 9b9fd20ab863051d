package core

import (
	"cmp"
	"encoding/binary"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
)

// shared are the tables that a View sees, besides those of families: copy-on-write
// trees of immutable records. Copying the struct with copyTrees is O(1).
type shared struct {
	index     incumbent.Index // of the newest command
	keysFloor incumbent.Index // every key chosen at or after it has its result kept

	sessions *btree.BTreeG[*Session] // open sessions, by id
	kept     *btree.BTreeG[kept]     // results of keyed commands, by index

	members     []*Member             // of the cluster, by id; never changed in place
	goneMembers *btree.BTreeG[uint64] // ids of removed ones
}

// tables adds what only apply needs; all of it follows from shared.
type tables struct {
	shared
	keptByID map[string]incumbent.Index
	open     map[incumbent.SessionID]opened // every open session: searching the tree costs more
	usage    *Usage                         // of principals and namespaces
	steps    uint64                         // results forgotten: a part of what a command's cost is bounded by
}

// opened is an open session, with where it is counted.
type opened struct {
	session *Session
	owner   *Count
}

// kept is the result of a command with a key, in the form that snapshots have it in: the
// garbage collector goes through all that are kept, and finds one piece of text for each.
type kept struct {
	at     incumbent.Index // of the command
	record string          // the fields of a KeptResult
}

// id is the key. It is the first field, and has less than 128 bytes.
func (k kept) id() string { return k.record[2 : 2+int(k.record[1])] }

func newTables() tables {
	o := btree.Options{NoLocks: true, Degree: treeDegree}
	return tables{
		shared: shared{
			sessions: btree.NewBTreeGOptions(func(a, b *Session) bool { return compareID(&a.ID, &b.ID) < 0 }, o),
			kept:     btree.NewBTreeGOptions(func(a, b kept) bool { return a.at < b.at }, o),

			goneMembers: btree.NewBTreeGOptions(func(a, b uint64) bool { return a < b }, o),
		},
		keptByID: make(map[string]incumbent.Index),
		open:     make(map[incumbent.SessionID]opened),
		usage:    newUsage(),
	}
}

func (t *shared) copyTrees() shared {
	c := *t
	c.sessions = t.sessions.Copy()
	c.kept = t.kept.Copy()
	c.goneMembers = t.goneMembers.Copy()
	return c
}

func compareID(a, b *incumbent.SessionID) int {
	if c := cmp.Compare(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8])); c != 0 {
		return c
	}
	return cmp.Compare(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:]))
}

func (t *shared) session(id incumbent.SessionID) *Session {
	s, _ := t.sessions.Get(&Session{ID: id})
	return s
}

// putSession stores a session, a new one or the successor of one.
func (t *tables) putSession(n *Session) {
	c := t.open[n.ID]
	if c.session == nil {
		c.owner = t.usage.Count(ScopePrincipal, n.Owner())
		c.owner.Add(Sessions, 1)
	}
	c.session = n
	t.open[n.ID] = c
	t.sessions.Set(n)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
