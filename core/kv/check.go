package kv

import (
	"fmt"
	"maps"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Check implements [core.Tables].
func (t *tables) Check(open func(incumbent.SessionID) bool, index incumbent.Index) error {
	if err := t.checkEntries(open, index); err != nil {
		return err
	}
	if err := t.checkTombstones(index); err != nil {
		return err
	}
	return t.checkDelays(index)
}

func (t *tables) checkEntries(open func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	var bytes int64
	locks, counts := 0, map[incumbent.SessionID]int{}
	t.entries.Scan(func(e *Entry) bool {
		bytes += e.size()
		if err = e.check(index); err == nil {
			err = t.checkLock(e, open)
		}
		if !e.Session.IsZero() {
			locks++
			counts[e.Session]++
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if bytes != t.bytes || locks != t.locks || locks != t.owned.Len() || !maps.Equal(counts, t.counts) {
		return fmt.Errorf("%d bytes and %d locks are counted, there are %d and %d", t.bytes, t.locks, bytes, locks)
	}
	if n := locks + t.delays.Len(); n > t.limits.locks {
		return fmt.Errorf("%d locks and delays: limit MaxLocks is %d", n, t.limits.locks)
	}
	return nil
}

// check verifies what an entry says.
func (e *Entry) check(index incumbent.Index) error {
	switch locked := !e.Session.IsZero(); {
	case check(e.Key, false) != nil, len(e.Value) > MaxValueBytes, len(e.Owner) > core.MaxOriginBytes:
		return fmt.Errorf("key %.80q: it cannot be", e.Name)
	case e.Created == 0 || e.Created > e.Modified || e.Modified > index:
		return fmt.Errorf("key %.80q: created at %d and modified at %d, the state's index is %d", e.Name, e.Created, e.Modified, index)
	case locked && (e.LockIndex == 0 || e.OnEnd > Delete || e.Delay < 0 || e.Delay > MaxDelay),
		!locked && (e.OnEnd != Keep || e.Delay != 0):
		return fmt.Errorf("key %.80q: its lock cannot be", e.Name)
	}
	return nil
}

// checkLock verifies that the tables agree about an entry.
func (t *tables) checkLock(e *Entry, open func(incumbent.SessionID) bool) error {
	if _, dead := t.tombstones.Get(tombstone{key: e.Key}); dead {
		return fmt.Errorf("key %.80q: it is there and has a tombstone", e.Name)
	}
	if e.Session.IsZero() {
		return nil
	}
	_, owned := t.owned.Get(lock{e.Session, e.Key})
	switch {
	case !open(e.Session):
		return fmt.Errorf("key %.80q: session %v has locked it and is not open", e.Name, e.Session)
	case !owned:
		return fmt.Errorf("key %.80q: it is not in the table of locks", e.Name)
	case t.counts[e.Session] > t.limits.perSession:
		return fmt.Errorf("session %v has locked %d keys: limit MaxLocksPerSession is %d", e.Session, t.counts[e.Session], t.limits.perSession)
	case t.delayed(e.Key):
		return fmt.Errorf("key %.80q: it is locked under a delay", e.Name)
	}
	return nil
}

func (t *tables) checkTombstones(index incumbent.Index) (err error) {
	if n := t.tombstones.Len(); n != t.byAge.Len() || n > t.limits.tombstones || t.floor > index {
		return fmt.Errorf("%d tombstones, %d by age, their floor is %d: limit MaxTombstones is %d", n, t.byAge.Len(), t.floor, t.limits.tombstones)
	}
	t.tombstones.Scan(func(b tombstone) bool {
		_, aged := t.byAge.Get(b)
		if !aged || check(b.key, false) != nil || b.at < t.floor || b.at == 0 || b.at > index {
			err = fmt.Errorf("tombstone of key %.80q: of index %d, the floor is %d, the state's index is %d", b.key.Name, b.at, t.floor, index)
		}
		return err == nil
	})
	return err
}

func (t *tables) checkDelays(index incumbent.Index) (err error) {
	t.delays.Scan(func(d *Delay) bool {
		if check(d.Key, false) != nil || d.Since == 0 || d.Since > index || d.For <= 0 || d.For > MaxDelay || len(d.Owner) > core.MaxOriginBytes {
			err = fmt.Errorf("delay of key %.80q: %v since %d, the state's index is %d", d.Name, d.For, d.Since, index)
		}
		return err == nil
	})
	return err
}
