package client

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// A cache is what was last heard of something that a session follows. Whoever is slow
// looks at it less often; what it takes up does not depend on him.

// cached is what all caches have: records by key, of which events tell.
type cached[K comparable, R any, E interface{ GetIndex() uint64 }] struct {
	mu       sync.Mutex // guards all of the cache; held for map operations, and due, only
	index    uint64     // all up to here is in it; 0: it has heard nothing yet
	records  map[K]R
	snapshot map[K]R // that is being received
	turn     uint64  // how often it was asked for: what answers an earlier turn is not taken
	pieces   pieces[E]
	err      error
	changed  chan struct{}
	notify   func()
}

// Index is up to where the cache has heard everything; 0: it has heard nothing yet.
func (c *cached[K, R, E]) Index() incumbent.Index {
	c.mu.Lock()
	defer c.mu.Unlock()
	return incumbent.Index(c.index)
}

// Err is why it is followed no more; nil: it is, or its session says why not.
func (c *cached[K, R, E]) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Changed returns a channel that is closed when the cache is another one, or is followed
// no more. Take it before looking at the cache.
func (c *cached[K, R, E]) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// Notify has f called whenever Changed would be closed, by the goroutine that reads the
// session's stream: it must not block, nor look at the cache, nor close or detach the session,
// which wait for it. It is set before the cache is followed.
func (c *cached[K, R, E]) Notify(f func()) { c.notify = f }

// tell closes the channel. Held: mu.
func (c *cached[K, R, E]) tell() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	if c.notify != nil {
		c.notify()
	}
}

func (c *cached[K, R, E]) fail(turn uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn != c.turn {
		return
	}
	c.err = err
	c.tell()
}

// begin returns from where it is to be followed anew, and begins a turn, unless it is not
// due. Both at once: who is late would end the turn of who was in time.
func (c *cached[K, R, E]) begin(due func() bool) (after, turn uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !due() {
		return 0, 0, false
	}
	c.turn++
	c.snapshot, c.pieces, c.err = nil, pieces[E]{}, nil // what was not whole comes again
	return c.index, c.turn, true
}

// sorted returns all records, in the order of their keys.
func (c *cached[K, R, E]) sorted(compare func(a, b K) int) []R {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]R, 0, len(c.records))
	for _, k := range slices.SortedFunc(maps.Keys(c.records), compare) {
		list = append(list, c.records[k])
	}
	return list
}

// hear takes a message of a turn with its events, of which change makes the records what
// they are.
func (c *cached[K, R, E]) hear(turn uint64, m watchMessage, events []E, change func(records map[K]R, e E)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn != c.turn {
		return
	}
	if m.GetSnapshot() {
		if m.GetFirst() || c.snapshot == nil {
			c.snapshot, c.pieces = map[K]R{}, pieces[E]{}
		}
		for _, e := range events {
			change(c.snapshot, e)
		}
		if !m.GetMore() {
			c.records, c.snapshot, c.index = c.snapshot, nil, m.GetProgressIndex()
			c.tell()
		}
		return
	}
	whole, _ := c.pieces.add(m, events)
	for _, e := range whole {
		change(c.records, e)
	}
	begun := c.index == 0 && m.GetProgressIndex() > 0 // the snapshot was of a state in which nothing had happened yet
	c.index = max(c.index, m.GetProgressIndex())
	if len(whole) > 0 || begun {
		c.tell()
	}
}

// KeyCache is the entry of a key, or those below a prefix, as a session that follows it
// has last heard of them.
type KeyCache struct {
	cached[string, *apiv1.KeyValue, *apiv1.KeyEvent]
	namespace string
	opts      WatchKeysOptions
}

// NewKeyCache returns one that knows nothing. With fields, entries are as they were when
// one of those changed last, or when they came: parts, of which there are at most 63 if they
// are all, are asked for with membership. Values are the new ones, unless there are to be
// none.
func NewKeyCache(namespace string, opts WatchKeysOptions) *KeyCache {
	if opts.Values != apiv1.WatchedValues_WATCHED_VALUES_NONE {
		opts.Values = apiv1.WatchedValues_WATCHED_VALUES_NEW
	}
	k := &KeyCache{namespace: namespace, opts: opts}
	k.records = map[string]*apiv1.KeyValue{}
	return k
}

// Get returns the entry of a key, nil: there is none. It is not to be changed.
func (k *KeyCache) Get(key string) *apiv1.KeyValue {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.records[key]
}

// Entries returns all entries by the order of their keys. They are not to be changed.
func (k *KeyCache) Entries() []*apiv1.KeyValue {
	return k.sorted(strings.Compare)
}

// cachedFields are the fields that a cache asks for: where they are parts alone, membership
// besides. A record that has none of the parts is shown at the beginning, too, and that it
// goes changes none of them: it would stay for ever.
func cachedFields(fields []string) []string {
	whole := func(field string) bool { return !strings.Contains(field, "/") }
	if len(fields) == 0 || slices.ContainsFunc(fields, whole) {
		return fields // what comes or goes changes in a whole field, whichever it is
	}
	return append(slices.Clone(fields), "membership")
}

func (k *KeyCache) request(after uint64) *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_WatchKeys{WatchKeys: &apiv1.WatchKeysRequest{
		Namespace: k.namespace, Key: k.opts.Key, Prefix: k.opts.Prefix, Values: k.opts.Values, Fields: cachedFields(k.opts.Fields),
		AfterIndex: after, CatchUp: true,
	}}}
}

func (k *KeyCache) take(turn uint64, f *apiv1.ServerFrame) {
	m := f.GetWatchKeys()
	k.hear(turn, m, m.GetEvents(), func(entries map[string]*apiv1.KeyValue, e *apiv1.KeyEvent) {
		switch {
		case e.Entry != nil:
			entries[e.Entry.Key] = e.Entry
		case e.What != "lockable":
			delete(entries, e.GetPrevious().GetKey())
		}
	})
}
