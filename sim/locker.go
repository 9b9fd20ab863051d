package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/lease"
)

// What lockers do.
const (
	triesOneIn = 8               // refusals after which another key is wanted
	maxDelay   = 3 * time.Second // of a lock
)

// locker is a client that locks one key after another by sessions of its own, and
// counts on a lock for as long as it may count on the session.
type locker struct {
	w *world
	a *agent // its session is the locker's

	key     kv.Key
	until   time.Duration // the session lives so long, on its own clock
	locked  bool          // as it believes
	removed bool          // somebody has deleted the entry: the lock is no more
	entry   *kv.Entry     // as it was told of it last
}

func newLocker(w *world, id int) *locker { return &locker{w: w, a: newAgent(w, id)} }

// holds reports whether the locker counts on its lock now, and may.
func (l *locker) holds() bool { return l.locked && !l.removed && l.a.clock() < l.until }

// begin opens a session and locks a key by it.
func (l *locker) begin() {
	a, w := l.a, l.w
	a.turn++
	l.locked, l.removed, l.entry = false, false, nil
	l.key = keyNamed(fmt.Sprintf("%s%d", lockDir, w.rng.IntN(lockNum)))
	binary.BigEndian.PutUint64(a.session[:8], w.rng.Uint64())
	a.session[15] = 2
	l.until = a.clock() + time.Duration(float64(a.ttl)*(1-drift))
	l.open()
}

func (l *locker) open() {
	l.a.submit(core.OpenSessionCommand{ID: l.a.session, TTL: l.a.ttl}, func(r core.Result) {
		if r.Err != nil {
			l.again()
			return
		}
		l.beat()
		l.lock()
	}, l.open)
}

// again begins anew after a rest.
func (l *locker) again() { l.a.later(l.w.upTo(thinks), l.begin) }

// beat keeps the session.
func (l *locker) beat() {
	a := l.a
	a.later(a.ttl/3, l.beat)
	sent := a.clock()
	a.extend(lease.Extension{Session: a.session}, func(x lease.Extension) {
		switch x.Kind {
		case incumbent.OK:
			l.until = max(l.until, sent+time.Duration(float64(x.Held)*(1-drift)))
		case incumbent.NotHolder, incumbent.Expired, incumbent.NotFound:
			l.w.check.keys.sessionLost(l)
			l.locked = false
			l.again()
		}
	}, func() {})
}

// lock locks the key, or finds it locked by the same session.
func (l *locker) lock() {
	w := l.w
	c := kv.Command{Verb: kv.Acquire, Key: l.key, Session: l.a.session, Value: w.someValue(), OnEnd: kv.OnEnd(w.rng.IntN(2))}
	if w.chance(2) {
		c.Delay = w.upTo(maxDelay).Truncate(time.Millisecond)
	}
	retry := func() { l.a.later(w.upTo(returns), l.lock) }
	w.submitKeys(l.a, c, func(r core.Result) {
		switch {
		case r.Err == nil:
			l.granted(&r)
		case l.locked: // it is not what it was; the session says the rest
		case r.Err.Kind == incumbent.Expired || w.chance(triesOneIn):
			l.end([]core.Command{core.CloseSessionCommand{ID: l.a.session, Reason: "done"}})
		default:
			l.a.later(w.upTo(thinks), l.lock)
		}
	}, retry)
}

// granted: the key is locked for as long as the session lives.
func (l *locker) granted(r *core.Result) {
	w := l.w
	l.entry, _ = r.Record.(*kv.Entry)
	if l.locked {
		return // by it already
	}
	l.locked = true
	w.res.Locks++
	w.note("locker %d has locked %s at %d", l.a.id, l.key.Name, r.Index)
	w.check.keys.granted(l)
	l.a.later(w.upTo(maxTTL), l.use)
	l.a.later(w.upTo(3*maxTTL), l.leave)
}

// use does something to the key while it is locked, or falls silent for about as
// long as the session lives.
func (l *locker) use() {
	if !l.locked {
		return
	}
	w := l.w
	l.a.later(w.upTo(maxTTL), l.use)
	switch w.rng.IntN(4) {
	case 0:
		l.lock()
	case 1:
		if !w.healed {
			l.a.quiet = w.now + max(0, l.until-l.a.clock()) + w.upTo(napsOver)
			w.note("locker %d naps until %v", l.a.id, l.a.quiet)
		}
	default:
		c := kv.Command{Verb: kv.Put, Key: l.key, Value: w.someValue()}
		w.submitKeys(l.a, c, func(r core.Result) {
			if e, is := r.Record.(*kv.Entry); is && r.Err == nil {
				l.entry = e
			}
		}, func() {})
	}
}

// leave gives the lock up, deletes what it has locked, closes the session, or dies
// without a word.
func (l *locker) leave() {
	if !l.locked {
		return
	}
	w := l.w
	gone := core.CloseSessionCommand{ID: l.a.session, Reason: "done"}
	switch n := w.rng.IntN(6); {
	case n == 0:
		w.note("locker %d forgets %s", l.a.id, l.key.Name)
		l.begin()
	case n == 1 && l.entry != nil:
		c := kv.Command{Verb: kv.Remove, Key: l.key, If: kv.IfIndex, Index: l.entry.Modified}
		l.end([]core.Command{c, gone})
	case n <= 3:
		l.end([]core.Command{kv.Command{Verb: kv.Release, Key: l.key, Session: l.a.session, Value: w.someValue()}, gone})
	default:
		l.end([]core.Command{gone})
	}
}

// end sends commands, each until it is answered, and begins anew. From the first
// send on the locker does not count on its lock.
func (l *locker) end(cmds []core.Command) {
	l.locked = false
	if len(cmds) == 0 {
		l.again()
		return
	}
	retry := func() { l.end(cmds) }
	then := func(core.Result) { l.end(cmds[1:]) }
	l.a.turn++ // what was planned while the lock was held is void
	if c, is := cmds[0].(kv.Command); is {
		l.w.submitKeys(l.a, c, then, retry)
		return
	}
	l.a.submit(cmds[0], then, retry)
}
