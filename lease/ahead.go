package lease

import (
	"hash/maphash"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// ahead is what the leader knows of commands that are committed and that this member has
// not applied, as far as confirmations have told of them. Most are claims and releases of
// leases that nobody extends meanwhile: with it, extensions need not wait until all of
// them are applied. It may have more than is ahead, for an entry is forgotten with the
// first confirmation after it was applied, and names are told apart by a hash. It outlives a
// lost leadership: the node tells of an entry once.
type ahead struct {
	seed     maphash.Seed
	scratch  []byte
	entries  []aheadEntry // by index: those with a command that does not commute with extensions
	names    map[uint64]int
	keys     map[key]int
	sessions int // of keys: ends of sessions
	anything int // entries that may end anything
}

type aheadEntry struct {
	index    uint64
	names    []uint64
	keys     []key
	anything bool
}

func newAhead() ahead {
	return ahead{seed: maphash.MakeSeed(), names: make(map[uint64]int), keys: make(map[key]int)}
}

// learn takes in what a confirmation says.
func (a *ahead) learn(v *core.View, news *node.Ahead) {
	a.forget(news.Applied)
	for i := range news.Entries {
		a.add(v, &news.Entries[i])
	}
}

func (a *ahead) add(v *core.View, c *node.Unapplied) {
	x := aheadEntry{index: c.Index, anything: c.Commands == nil}
	most := core.Nothing
	for _, cmd := range c.Commands {
		most = max(most, v.Effect(cmd, func(end *core.End) { a.mayEnd(&x, end) }))
	}
	if x.anything = x.anything || most == core.Anything; x.anything {
		a.anything++
	}
	if x.anything || most > core.Nothing {
		a.entries = append(a.entries, x)
	}
}

func (a *ahead) mayEnd(x *aheadEntry, end *core.End) {
	if end.Lease == nil {
		k := key{end.Token, end.Session}
		x.keys = append(x.keys, k)
		a.count(k, 1)
		return
	}
	h := nameHash(a, end.Namespace, end.Model, end.Lease)
	x.names = append(x.names, h)
	a.names[h]++
}

func nameHash[T string | []byte](a *ahead, namespace, model, lease T) uint64 {
	b := append(append(a.scratch[:0], namespace...), 0)
	b = append(append(b, model...), 0)
	a.scratch = append(b, lease...)
	return maphash.Bytes(a.seed, a.scratch)
}

// forget drops what is applied.
func (a *ahead) forget(applied uint64) {
	n := 0
	for ; n < len(a.entries) && a.entries[n].index <= applied; n++ {
		x := &a.entries[n]
		for _, h := range x.names {
			if a.names[h]--; a.names[h] == 0 {
				delete(a.names, h)
			}
		}
		for _, k := range x.keys {
			a.count(k, -1)
		}
		if x.anything {
			a.anything--
		}
	}
	clear(a.entries[:n])
	if a.entries = a.entries[n:]; len(a.entries) == 0 {
		a.entries = nil
	}
}

// count counts what a command may end.
func (a *ahead) count(k key, by int) {
	if !k.session.IsZero() {
		a.sessions += by
	}
	if a.keys[k] += by; a.keys[k] == 0 {
		delete(a.keys, k)
	}
}

// any reports whether something is there that does not commute with extensions.
func (a *ahead) any() bool { return len(a.entries) > 0 }

// ends reports whether something may end a lease.
func (a *ahead) ends(v *core.View, l *leases.Lease) bool {
	if a.keys[key{token: l.Token}] > 0 || a.endsSession(v, l.Session) {
		return true
	}
	return len(a.names) > 0 && a.names[nameHash(a, l.Name.Namespace, l.Name.Model, l.Name.Lease)] > 0
}

// endsSession reports whether something may end a session, if need be through others.
func (a *ahead) endsSession(v *core.View, id incumbent.SessionID) bool {
	return a.anything > 0 || !id.IsZero() && (a.keys[key{session: id}] > 0 || a.sessions > 0 && v.MayFollow(id))
}

// behind is a round that was confirmed before everything up to its read index was applied
// here: what of it waits for that.
type behind struct {
	id      uint64
	waiters []waiter
	reads   []*call
	due     bool // so does its confirmation of what is due
}

// Ahead tells that what was asked to be confirmed is, and what is committed that is not
// applied here. Confirmed follows, once it is. Extensions are judged now, if none of that
// concerns them: those by a token, name or session that this member knows, and of which
// nothing is shown but that they hold.
func (e *Engine) Ahead(id uint64, news *node.Ahead) {
	e.ahead.learn(e.view, news)
	if !e.leading || news.Term != e.term {
		return
	}
	b := behind{id: id}
	var batches []*Batch
	var again []waiter
	if v := e.voucherUnder(id); v != nil {
		v.active = false
		batches, v.batches = v.batches, nil
		e.stats.Vouched++
		e.quorumHeard()
	} else {
		r := &e.round
		if !r.active || r.id != id {
			panic("lease: a confirmation that nobody asked for")
		}
		batches, again, b.reads, b.due = r.batches, r.again, r.reads, r.due
		r.batches, r.again, r.reads = nil, nil, nil
		e.roundEnded()
		e.quorumHeard()
		if b.due && !e.ahead.any() {
			b.due = false
			e.expiry.heard()
		}
	}
	for _, batch := range batches {
		for i := range batch.Items {
			e.judgeAhead(&b, waiter{batch, i})
		}
	}
	for _, w := range again {
		e.judgeAhead(&b, w)
	}
	e.behind = append(e.behind, b)
}

// judgeAhead judges an extension, or lets it wait until what is ahead is applied.
func (e *Engine) judgeAhead(b *behind, w waiter) {
	if w.batch.shows() || !e.untouched(&w.batch.Items[w.item]) {
		b.waiters = append(b.waiters, w)
		return
	}
	e.judgeItem(w.batch, w.item)
}

// untouched reports whether an extension is judged alike before and after what is ahead is
// applied.
func (e *Engine) untouched(it *Extension) bool {
	switch {
	case !e.ahead.any():
		return true
	case e.ahead.anything > 0 || it.Lasting != nil || !it.valid() || !e.find(it) || it.alien:
		return false
	case it.ref.session():
		return !e.ahead.endsSession(e.view, it.Session)
	}
	l := leases.Of(e.view).ByToken(it.found)
	return l != nil && !e.ahead.ends(e.view, l)
}

// caughtUp judges what waited for the state to catch up with a confirmation, if it is one
// of those.
func (e *Engine) caughtUp(id, term uint64, err error) bool {
	i := slices.IndexFunc(e.behind, func(b behind) bool { return b.id == id })
	if i < 0 {
		return false
	}
	b := e.behind[i]
	e.behind = slices.Delete(e.behind, i, i+1)
	switch {
	case !e.leading: // their end was that of the term
	case err != nil || term != e.term:
		if b.due {
			e.expiry.back()
		}
		e.roundFailed(nil, b.waiters, err)
	default:
		if b.due {
			e.expiry.heard()
		}
		for _, w := range b.waiters {
			e.judgeItem(w.batch, w.item)
		}
	}
	for _, c := range b.reads {
		e.judgeRead(c, term, err)
	}
	return true
}
