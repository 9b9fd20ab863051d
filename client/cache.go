package client

import (
	"maps"
	"slices"
	"sync"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// A cache is what was last heard of something that a session follows. Whoever is slow
// looks at it less often; what it takes up does not depend on him.

// cached is what all caches have.
type cached struct {
	mu      sync.Mutex // guards all of the cache; held for map operations only
	index   uint64     // all up to here is in it; 0: it has heard nothing yet
	err     error
	changed chan struct{}
	notify  func()
}

// Index is up to where the cache has heard everything; 0: it has heard nothing yet.
func (c *cached) Index() incumbent.Index {
	c.mu.Lock()
	defer c.mu.Unlock()
	return incumbent.Index(c.index)
}

// Err is why it is followed no more; nil: it is, or its session says why not.
func (c *cached) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Changed returns a channel that is closed when the cache is another one, or is followed
// no more. Take it before looking at the cache.
func (c *cached) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// Notify has f called whenever Changed would be closed, by the goroutine that reads the
// session's stream: it must not block, nor look at the cache. It is set before the
// cache is followed.
func (c *cached) Notify(f func()) { c.notify = f }

// tell closes the channel. Held: mu.
func (c *cached) tell() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	if c.notify != nil {
		c.notify()
	}
}

func (c *cached) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.tell()
}

// KeyCache is the entry of a key, or those below a prefix, as a session that follows it
// has last heard of them.
type KeyCache struct {
	cached
	namespace string
	opts      WatchKeysOptions
	entries   map[string]*apiv1.KeyValue
	snapshot  map[string]*apiv1.KeyValue // that is being received
	whole     WholeKeys
}

// NewKeyCache returns one that knows nothing. With fields, entries are as they were when
// one of those changed last. Values are the new ones, unless there are to be none.
func NewKeyCache(namespace string, opts WatchKeysOptions) *KeyCache {
	if opts.Values != apiv1.WatchedValues_WATCHED_VALUES_NONE {
		opts.Values = apiv1.WatchedValues_WATCHED_VALUES_NEW
	}
	return &KeyCache{namespace: namespace, opts: opts, entries: map[string]*apiv1.KeyValue{}}
}

// Get returns the entry of a key, nil: there is none. It is not to be changed.
func (k *KeyCache) Get(key string) *apiv1.KeyValue {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.entries[key]
}

// Entries returns all entries by the order of their keys. They are not to be changed.
func (k *KeyCache) Entries() []*apiv1.KeyValue {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]*apiv1.KeyValue, 0, len(k.entries))
	for _, key := range slices.Sorted(maps.Keys(k.entries)) {
		list = append(list, k.entries[key])
	}
	return list
}

func (k *KeyCache) request() *apiv1.ClientFrame {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.snapshot, k.whole, k.err = nil, WholeKeys{}, nil // what was not whole comes again
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_WatchKeys{WatchKeys: &apiv1.WatchKeysRequest{
		Namespace: k.namespace, Key: k.opts.Key, Prefix: k.opts.Prefix, Values: k.opts.Values, Fields: k.opts.Fields,
		AfterIndex: k.index, CatchUp: true,
	}}}
}

func (k *KeyCache) take(f *apiv1.ServerFrame) {
	m := f.GetWatchKeys()
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.GetSnapshot() {
		k.takeSnapshot(m)
		return
	}
	if w := k.whole.Add(m); w != nil && len(w.Events) > 0 {
		for _, e := range w.Events {
			k.change(e)
		}
		k.tell()
	}
	k.index = max(k.index, m.GetProgressIndex())
}

func (k *KeyCache) takeSnapshot(m *apiv1.WatchKeysResponse) {
	if m.GetFirst() || k.snapshot == nil {
		k.snapshot, k.whole = map[string]*apiv1.KeyValue{}, WholeKeys{}
	}
	for _, e := range m.GetEvents() {
		k.snapshot[e.GetEntry().GetKey()] = e.GetEntry()
	}
	if !m.GetMore() {
		k.entries, k.snapshot, k.index = k.snapshot, nil, m.GetProgressIndex()
		k.tell()
	}
}

func (k *KeyCache) change(e *apiv1.KeyEvent) {
	switch {
	case e.Entry != nil:
		k.entries[e.Entry.Key] = e.Entry
	case e.What != "lockable":
		delete(k.entries, e.GetPrevious().GetKey())
	}
}
