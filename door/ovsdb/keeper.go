package ovsdb

import (
	"maps"
	"slices"
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/lease"
)

// keeper keeps the sessions of connections that have locks alive, for as long as the
// connections are open: it extends them all together.
type keeper struct {
	door *Door

	mu       sync.Mutex // guards sessions; held to change it or to copy it
	sessions map[incumbent.SessionID]*conn
}

func (k *keeper) init(d *Door) { k.door, k.sessions = d, map[incumbent.SessionID]*conn{} }

func (k *keeper) add(id incumbent.SessionID, c *conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sessions[id] = c
}

func (k *keeper) remove(id incumbent.SessionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sessions, id)
}

// conns are those that have sessions.
func (k *keeper) conns() []*conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.sessions))
}

// beat extends all sessions. It does not wait.
func (k *keeper) beat() {
	var items []lease.Extension
	k.mu.Lock()
	for id := range k.sessions {
		items = append(items, lease.Extension{Session: id})
	}
	k.mu.Unlock()
	for len(items) > 0 {
		n := min(len(items), lease.MaxBatchItems)
		k.door.engine.Leases().Extend(&lease.Batch{Items: items[:n:n], Done: k.beaten})
		items = items[n:]
	}
}

// beaten ends the connections whose sessions are over: their clients connect anew, and
// ask for their locks again.
func (k *keeper) beaten(b *lease.Batch) {
	for _, x := range b.Items {
		if x.Kind != incumbent.Expired {
			continue
		}
		k.mu.Lock()
		c := k.sessions[x.Session]
		k.mu.Unlock()
		if c != nil {
			c.cut(errLocksLost)
		}
	}
}
