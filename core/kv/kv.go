// Package kv is the family of keys and values: a copy-on-write tree of entries,
// each with the index of its last change, flags, and perhaps a session that has
// locked it.
//
// A command does one thing to one key, or deletes all below a prefix, if what it
// says of the entry is so: its index (0: it is not there) or its value. A lock
// ends with its session: the entry is kept without it or deleted, as the lock
// said, and for the lock's delay nobody can lock the key. How long that is the
// leader's clock judges, as it judges the ttl of leases: see [core.Deadline].
//
// # Invariants
//
//   - An entry that a session has locked is listed under that session, which is
//     open, and the other way round.
//   - A deleted key leaves a tombstone with the index of its deletion, so that the
//     index of a list moves with it. Of more than [MaxTombstones] the oldest goes
//     and raises the floor, below which no list's index falls: it never goes back.
//   - A key under a delay is not locked. Locks and delays are bounded together, so
//     that there is room for the delay of every lock: none is ever left out.
//   - Bytes is what all entries cost: their texts, their values, and [EntryBytes] each.
//
// # Concurrency
//
// As in package core: tables belong to one goroutine, a [View] to nobody.
package kv

import (
	"bytes"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family.
const Number wire.Number = 40

// Limits of the family. They decide what a command does: changing one is a new
// schema version.
const (
	MaxKeyBytes        = 1024        // of a key or prefix
	MaxValueBytes      = 512 << 10   // of a value
	MaxLocksPerSession = 10_000      // keys that one session has locked
	MaxDeleted         = 10_000      // keys that one command deletes
	MaxTombstones      = 200_000     // of deleted keys
	MaxDelay           = time.Minute // lock delay
	MaxLocks           = 1_000_000   // keys that a session has locked or that are under a lock delay
	EntryBytes         = 160         // what an entry costs besides its texts and its value, about
	treeDegree         = 16
)

// Key names an entry.
type Key struct{ Namespace, Name string }

// Compare orders keys by namespace, then by bytes.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

func (k Key) clone() Key { return Key{strings.Clone(k.Namespace), strings.Clone(k.Name)} }

// Validate returns an Invalid error unless the namespace is one, and the key has 1
// to MaxKeyBytes bytes of UTF-8.
func (k Key) Validate() error { return check(k, false) }

// ValidatePrefix is Validate of a prefix, which may be empty.
func (k Key) ValidatePrefix() error { return check(k, true) }

// Entry is one key and what it stands for. An *Entry reached through a View never
// changes.
type Entry struct {
	Key
	Value     []byte // not to be changed
	Flags     uint64
	Owner     string // the principal that stored it last, whose quota it counts against
	Created   incumbent.Index
	Modified  incumbent.Index
	LockIndex uint64              // how often it was locked
	Session   incumbent.SessionID // that has locked it; zero: none has
	OnEnd     OnEnd               // of the lock
	Delay     time.Duration       // of the lock
}

// OnEnd is what the end of its session means to an entry that is locked.
type OnEnd uint8

// Both give the lock up.
const (
	Keep   OnEnd = iota // the entry
	Delete              // the entry, too
)

// Family is the family.
type Family struct{}

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family].
func (Family) Schema() uint32 { return 3 }

// Commutes implements [core.Commuting]: keys and values are nothing that extensions
// depend on, nor are their delays, which nothing extends.
func (Family) Commutes([]byte) bool { return true }

// Name implements [core.Family].
func (Family) Name() string { return "kv" }

// New implements [core.Family].
func (Family) New() core.Tables { return newTables() }

// shared are the tables that a View sees.
type shared struct {
	entries    *btree.BTreeG[*Entry]
	tombstones *btree.BTreeG[tombstone] // by key
	byAge      *btree.BTreeG[tombstone] // the same, oldest first
	delays     *btree.BTreeG[*Delay]
	floor      incumbent.Index // no list's index is below it
	bytes      int64           // that entries cost
	locks      int
	limits     limits
}

// copied returns the tables as they are, in constant time.
func (t *shared) copied() shared {
	c := *t
	c.entries, c.tombstones, c.byAge, c.delays = t.entries.Copy(), t.tombstones.Copy(), t.byAge.Copy(), t.delays.Copy()
	return c
}

type tombstone struct {
	key Key
	at  incumbent.Index
}

// lock says that a session has locked a key.
type lock struct {
	session incumbent.SessionID
	key     Key
}

type tables struct {
	shared
	owned  *btree.BTreeG[lock]         // the keys that sessions have locked
	counts map[incumbent.SessionID]int // how many those are
	marked *marked                     // nil: there is no transaction under way that may have to be taken back
	probe  Entry                       // what is looked for: see find
	hint   btree.PathHint              // where the last one was
	part   uint8                       // of the section that is being restored
	again  recordWriter                // of its records
	usage  *core.Usage                 // where the entries are counted; nil: nowhere
}

// limits are those that a test needs smaller.
type limits struct{ perSession, locks, deleted, tombstones int }

func newTables() *tables {
	o := btree.Options{NoLocks: true, Degree: treeDegree}
	return &tables{
		shared: shared{
			entries:    btree.NewBTreeGOptions(func(a, b *Entry) bool { return a.Key.Compare(b.Key) < 0 }, o),
			tombstones: btree.NewBTreeGOptions(func(a, b tombstone) bool { return a.key.Compare(b.key) < 0 }, o),
			byAge: btree.NewBTreeGOptions(func(a, b tombstone) bool {
				return a.at < b.at || a.at == b.at && a.key.Compare(b.key) < 0
			}, o),
			delays: btree.NewBTreeGOptions(func(a, b *Delay) bool { return a.Key.Compare(b.Key) < 0 }, o),
			limits: limits{MaxLocksPerSession, MaxLocks, MaxDeleted, MaxTombstones},
		},
		owned: btree.NewBTreeGOptions(func(a, b lock) bool {
			c := bytes.Compare(a.session[:], b.session[:])
			return c < 0 || c == 0 && a.key.Compare(b.key) < 0
		}, o),
		counts: map[incumbent.SessionID]int{},
	}
}

func (t *shared) entry(k Key) *Entry {
	e, _ := t.entries.Get(&Entry{Key: k})
	return e
}

// find is entry for who owns the tables: it makes nothing, and begins where the last
// one was found, for keys that come together mostly lie together.
func (t *tables) find(k Key) *Entry {
	t.probe.Key = k
	e, _ := t.entries.GetHint(&t.probe, &t.hint)
	return e
}

// put stores n in the place of o; either may be nil.
func (t *tables) put(at incumbent.Index, o, n *Entry) {
	k := keyOf(o, n)
	t.charge(o, n)
	if o != nil {
		t.bytes -= o.size()
		t.unlock(o)
	}
	if n == nil {
		t.entries.Delete(o)
		t.bury(tombstone{k, at})
		return
	}
	t.entries.SetHint(n, &t.hint)
	t.bytes += n.size()
	if !n.Session.IsZero() {
		t.locks++
		t.count(n.Session, 1)
		t.owned.Set(lock{n.Session, k})
	}
	if o != nil || t.tombstones.Len() == 0 {
		return // what is there has none
	}
	if old, ok := t.tombstones.Delete(tombstone{key: k}); ok {
		t.byAge.Delete(old) // the entry's index is greater
	}
}

func keyOf(o, n *Entry) Key {
	if n != nil {
		return n.Key
	}
	return o.Key
}

func (e *Entry) size() int64 { return costOf(e.Key, e.Value) }

func costOf(k Key, value []byte) int64 {
	return int64(len(k.Namespace) + len(k.Name) + len(value) + EntryBytes)
}

// Growth is by how much a command that stores raises what keys and values cost; o
// is the entry as it is, nil: there is none.
func (c *Command) Growth(o *Entry) int64 {
	grows := costOf(c.Key, c.Value)
	if o != nil {
		grows -= o.size()
	}
	return grows
}

func (t *tables) unlock(o *Entry) {
	if o.Session.IsZero() {
		return
	}
	t.locks--
	t.owned.Delete(lock{o.Session, o.Key})
	t.count(o.Session, -1)
}

// bury leaves a tombstone; of too many the oldest goes.
func (t *tables) bury(b tombstone) {
	t.tombstones.Set(b)
	t.byAge.Set(b)
	for t.byAge.Len() > t.limits.tombstones {
		oldest, _ := t.byAge.PopMin()
		t.tombstones.Delete(oldest)
		t.floor = max(t.floor, oldest.at)
	}
}
