package core

import (
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// View is the state after one batch of commands. It never changes and any
// number of goroutines may read it. It keeps the records it shows in memory,
// so hold the newest one only.
type View struct {
	shared
	families []namedView // by number
	terms    *Terms
	usage    *Usage
}

// Terms are what the settings of the cluster say in this state; never nil.
func (v *View) Terms() *Terms { return v.holding(v.terms) }

// Usage is what principals and namespaces have: by the newest command, not by the
// one of the view.
func (v *View) Usage() *Usage { return v.usage }

// Index is that of the newest command.
func (v *View) Index() incumbent.Index { return v.index }

// KeysFloor is the index below which a key's base is refused: results of
// commands up to it may have been forgotten.
func (v *View) KeysFloor() incumbent.Index { return v.keysFloor }

// HeldCount is the number of leases held, offers included.
func (v *View) HeldCount() int { return v.held }

// LeaseCount is the number of lease records, free ones included.
func (v *View) LeaseCount() int { return v.names.Len() }

// PinnedCount is the number of lease records with pins.
func (v *View) PinnedCount() int { return v.pinned }

// SessionCount is the number of open sessions.
func (v *View) SessionCount() int { return v.sessions.Len() }

// WaiterCount is the number of places taken in all queues.
func (v *View) WaiterCount() int { return v.waits.Len() }

// KeptCount is the number of results kept for idempotency keys.
func (v *View) KeptCount() int { return v.kept.Len() }

// Keeps reports whether the result of a command with a key is kept. It looks at all
// that are, newest first: [MaxKeptResults] at most.
func (v *View) Keeps(key []byte) (found bool) {
	v.kept.Reverse(func(k *kept) bool {
		found = k.id == string(key)
		return !found
	})
	return found
}

// Lease returns the record of a name, nil if there is none. A record may be
// of a free lease.
func (v *View) Lease(name incumbent.Name) *Lease {
	e, ok := v.names.Get(&entry{Name: name})
	if !ok {
		return nil
	}
	return v.lease(e)
}

// LeaseByToken returns the lease held under a token, nil if none is.
func (v *View) LeaseByToken(token incumbent.Token) *Lease { return v.leaseByToken(token) }

// Session returns an open session, nil if it is not open.
func (v *View) Session(id incumbent.SessionID) *Session { return v.session(id) }

// SessionLeases calls fn with the leases a session owns, by name, until it
// returns false.
func (v *View) SessionLeases(id incumbent.SessionID, fn func(*Lease) bool) {
	for _, l := range v.leasesOf(id) {
		if !fn(l) {
			return
		}
	}
}

// SessionCritical reports whether a session owns a critical lease. It costs one
// look, however many leases it owns.
func (v *View) SessionCritical(id incumbent.SessionID) (critical bool) {
	v.owned.Ascend(byOwner{session: id}, func(o byOwner) bool {
		critical = o.session == id && !o.ordinary
		return false
	})
	return critical
}

// SessionWaits calls fn with the leases in whose queues a session stands, by
// name and each once, until it returns false.
func (v *View) SessionWaits(id incumbent.SessionID, fn func(*Lease) bool) {
	for _, e := range v.waitedFor(id) {
		if !fn(v.lease(e)) {
			return
		}
	}
}

// Leases calls fn, by name, with the lease records of a namespace ("": all), a
// model ("": all) and a prefix of the lease name that come behind a name, until
// fn returns false. A range is read, not the whole table, as far as namespace,
// model and prefix are given in this order.
func (v *View) Leases(namespace, model, prefix string, after incumbent.Name, fn func(*Lease) bool) {
	from := incumbent.Name{Namespace: namespace}
	if namespace != "" {
		from.Model = model
	}
	if from.Model != "" {
		from.Lease = prefix
	}
	if nameLess(&from, &after) {
		from = after
	}
	v.names.Ascend(&entry{Name: from}, func(e *entry) bool {
		n := &e.Name
		switch {
		case *n == after:
			return true
		case namespace != "" && n.Namespace != namespace:
			return false
		case model != "" && n.Model != model:
			return namespace == ""
		case !strings.HasPrefix(n.Lease, prefix):
			return namespace == "" || model == ""
		}
		return fn(v.lease(e))
	})
}

// AllLeases calls fn with all lease records, by name, until it returns false.
func (v *View) AllLeases(fn func(*Lease) bool) { v.scan(incumbent.Name{}, fn) }

// Sessions calls fn with the open sessions that come behind an id, by id, until
// it returns false.
func (v *View) Sessions(after incumbent.SessionID, fn func(*Session) bool) {
	v.sessions.Ascend(&Session{ID: after}, func(s *Session) bool {
		return s.ID == after || fn(s)
	})
}
