// Package watch is the hub between what the replicated state does and whoever
// waits for it. Each applied batch is published once; the hub keeps a bounded
// history of events, knows who is interested in which topic, and wakes them.
//
// It knows no leases, catalogs or tables. An [Event] carries an index, the
// topics it touches and an opaque payload. Three kinds of reader share the one
// history:
//
//   - a [Reader] follows a set of selectors from an index on, event by event;
//   - a [Waiter] fires once, at the first event that satisfies a condition;
//   - a [Query] is evaluated once per change of what it has read, however many wait
//     for it.
//
// Selectors name topics, ranges of them, fields of which one has to change, and a
// value that a field had or has. Who selects what is found by an index in each case:
// a change costs those whom it concerns, not those who are there.
//
// A reader is a cursor into the history, never a queue of its own. Every
// selector in use has a *node*; the events of the history that match a node
// form a chain, so that a reader finds what is next for it without looking at
// what is not. A publish appends to the chains and puts the touched nodes on
// a list; goroutines behind it go through the readers of those nodes, in
// bounded slices and at a bounded pace. So a publish costs the same whether
// nobody or ten thousand watch.
//
// Events that have very many topics in common share them ([Shared]): these are looked
// through once for all, and only the chains of those that somebody has listened to get
// such an event.
//
//	history   … [41 a] [42 a b] [42 c] [43 b] …          tail → head
//	node a        └──────┘                               chain of positions
//	node b                └───────────────┘  ← readers with (seen, next)
//
// # Invariants
//
// Events are delivered in order, once, and progress says which indexes are whole
// (G15): one index may have more changes than a pull should hold. A reader
// gets everything after the index it came with, or Compacted, never a gap
// (G16, G18). Progress i is said only when everything up to i was pulled
// (G17). What a reader sees never goes backwards: one that comes with an index
// this member has not applied yet waits for it (G14).
//
// # Concurrency
//
// Publish and Reset are called by one goroutine, the one that applies. All
// else may be called from anywhere, except that one Reader's Pull, Progress
// and Close are called by one goroutine at a time. Callbacks run on the hub's
// goroutines without any lock held, may call the hub, and must not block.
package watch

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Defaults of [Limits], and slices of work under the hub's lock.
const (
	DefaultHistoryBytes   = 16 << 20
	DefaultMaxListeners   = 1 << 20
	DefaultQueryInterval  = 20 * time.Millisecond
	DefaultIdleQueryBytes = 8 << 20
	DefaultQueryBytes     = 256 << 20

	notifiers  = 2        // goroutines that wake readers; two, so that one slow callback stalls half
	evaluators = 2        // goroutines that evaluate shared queries
	walkSlice  = 2048     // chain positions walked per hold of the lock: well under 100 µs
	walkBytes  = 64 << 10 // of the events of those that a filter looks into, one of which may be larger: decoding them takes 1 ms
	keepValues = 1024     // values of an event that room is kept for
	wakeSlice  = 64       // listeners looked at per hold of the lock, and woken before yielding
)

// What keeping things costs, in bytes, with what Go's allocator adds. They
// only need to be honest: TestHistoryBytesAreHonest compares them to the heap.
const (
	eventBytes  = 184 // Event, its pointer in the ring, slice headers
	topicBytes  = 168 // Topic, its node and its place in a map
	sharedBytes = 56  // Topic, of those that are shared
	linkBytes   = 24
)

// Limits of the hub. Zero means the default. All can be changed while running.
type Limits struct {
	HistoryBytes   int64         // what the events kept for resuming may cost together
	MaxListeners   int           // readers, waiters and waits for queries and indexes together
	QueryInterval  time.Duration // a query that is waited for is evaluated at most once in this
	IdleQueryBytes int64         // results kept of queries nobody holds
	QueryBytes     int64         // results of all queries, and those encoded: beyond, no other query is begun
}

func (l Limits) withDefaults() Limits {
	l.HistoryBytes = cmp.Or(l.HistoryBytes, DefaultHistoryBytes)
	l.MaxListeners = cmp.Or(l.MaxListeners, DefaultMaxListeners)
	l.QueryInterval = cmp.Or(l.QueryInterval, DefaultQueryInterval)
	l.IdleQueryBytes = cmp.Or(l.IdleQueryBytes, DefaultIdleQueryBytes)
	l.QueryBytes = cmp.Or(l.QueryBytes, DefaultQueryBytes)
	return l
}

// Validate returns an Invalid error if a limit is negative.
func (l Limits) Validate() error {
	if l.HistoryBytes < 0 || l.MaxListeners < 0 || l.QueryInterval < 0 || l.IdleQueryBytes < 0 || l.QueryBytes < 0 {
		return incumbent.Errorf(incumbent.Invalid, "a limit of the watch hub is negative: %+v", l)
	}
	return nil
}

// Config of a hub. The zero value is usable.
type Config struct {
	Limits
	Now       func() time.Time                               // monotonic; time.Now if nil
	AfterFunc func(time.Duration, func()) (stop func() bool) // calls a function later; time.AfterFunc if nil
	Random    func(n int64) int64                            // from 0 to n-1; of math/rand/v2 if nil
	Manual    bool                                           // the hub has no goroutines: its driver calls Turn. For simulation

	// Differences is asked about events where somebody selects by field or value; nil:
	// no event satisfies that.
	Differences Differences
}

// Hub holds the history and everybody who waits for it.
type Hub struct {
	now         func() time.Time
	after       func(time.Duration, func()) (stop func() bool)
	random      func(int64) int64
	differences Differences

	limits atomic.Pointer[Limits]
	count  counters
	bytes  atomic.Int64 // what the history costs

	// mu protects what follows. Publish holds it for one batch; everyone else
	// for a bounded slice. Pulls hold it shared, so that a publish waits for at
	// most the slices that are under way.
	mu      sync.RWMutex
	index   incumbent.Index // applied and published
	floor   incumbent.Index // events up to here are gone
	hist    history
	reg     registry
	reached indexWaits
	closed  bool
	batch   uint64   // number of the publish, to list a node once
	touched []*node  // of the current publish; reused
	values  []string // room for those of the event that is being published; reused

	jobs    *queue[job]
	evals   *queue[evaluation]
	ended   []func() // told when the hub has closed; under mu
	workers sync.WaitGroup
}

// New returns a hub whose history begins after index.
// Close it to end its goroutines. It panics if cfg does not validate.
func New(cfg Config, index incumbent.Index) *Hub {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.AfterFunc == nil {
		cfg.AfterFunc = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	if cfg.Random == nil {
		cfg.Random = rand.Int64N
	}
	h := &Hub{
		now: cfg.Now, after: cfg.AfterFunc, random: cfg.Random, differences: cfg.Differences,
		index: index, floor: index, jobs: newQueue[job](), evals: newQueue[evaluation](),
	}
	h.SetLimits(cfg.Limits)
	h.hist.init()
	h.reg.init()
	if cfg.Manual {
		return h
	}
	for range notifiers {
		h.workers.Go(h.notify)
	}
	for range evaluators {
		h.workers.Go(h.evaluate)
	}
	return h
}

// SetLimits changes the limits. A smaller history takes effect with the next
// publish.
func (h *Hub) SetLimits(l Limits) {
	l = l.withDefaults()
	h.limits.Store(&l)
}

// Limits returns the limits as they are.
func (h *Hub) Limits() Limits { return *h.limits.Load() }

// Publish appends what one applied batch did. index is the index it reached, which
// the views of its queries have reached by then; events are in order, each with an index above
// what was published before and up to index. The hub keeps the events: the
// caller must not touch them again. Publish never waits for a reader; its
// work is bounded by the batch. It panics if the order is broken, since
// readers would then be told something false.
func (h *Hub) Publish(index incumbent.Index, events []*Event) {
	h.mustFollow(index, events)
	h.mu.Lock()
	h.index = index
	h.batch++
	spreads := h.spreads(events)
	for _, e := range events {
		h.append(e, spreads[e.Shared])
	}
	h.trim()
	nodes := h.touched
	due := h.reached.upTo(index)
	h.mu.Unlock()

	h.count.events.Add(uint64(len(events)))
	h.schedule(nodes)
	clear(nodes)
	h.touched = nodes[:0] // only Publish and Reset use it, on one goroutine
	h.ready(due...)
}

// mustFollow reads index without mu: only its caller's goroutine writes it.
func (h *Hub) mustFollow(index incumbent.Index, events []*Event) {
	last := h.index
	for i, e := range events {
		if e.Index < last || e.Index == h.index || e.Index > index {
			panic(incumbent.Errorf(incumbent.Internal, "event %d of the batch up to %d has index %d, after %d", i, index, e.Index, last))
		}
		last = e.Index
	}
	if index < h.index {
		panic(incumbent.Errorf(incumbent.Internal, "published index %d after %d", index, h.index))
	}
}

// Reset says that the state jumped to index without the events in
// between, as when a snapshot is installed. Readers that wanted those get
// Compacted; waiters fire and look again; queries are evaluated anew.
func (h *Hub) Reset(index incumbent.Index) {
	h.mustFollow(index, nil)
	h.mu.Lock()
	h.index = index
	for h.hist.tail <= h.hist.head {
		h.drop()
	}
	h.floor = index
	// One position that nobody saw: whoever is behind it has missed something.
	h.hist.head++
	h.hist.tail = h.hist.head + 1
	nodes := h.reg.listening()
	for _, n := range nodes {
		n.last, n.more.lost, n.more.changed, n.more.edge = h.hist.head, index, index, 0
	}
	due := h.reached.upTo(index)
	h.mu.Unlock()
	h.schedule(nodes)
	h.ready(due...)
}

// Index returns what has been published.
func (h *Hub) Index() incumbent.Index {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.index
}

// Close tells every reader and waiter Unavailable and returns when the last
// callback has run and the hub's goroutines have ended. Nothing may be
// published after it.
func (h *Hub) Close() {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.closed = true
	nodes := h.reg.listening()
	due := h.reached.upTo(^incumbent.Index(0))
	ended := h.ended
	h.mu.Unlock()
	h.schedule(nodes)
	h.ready(due...)
	for _, tell := range ended {
		tell()
	}
	h.evals.close()
	h.jobs.close()
	h.workers.Wait()
}

func (h *Hub) isClosed() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.closed
}

func errClosed() error {
	return incumbent.Errorf(incumbent.Unavailable, "the watch hub is closed")
}
