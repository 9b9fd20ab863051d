package juju

import (
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine/release"
)

// waiting is a call that waits for one holding to end, or for several.
type waiting struct {
	*call
	form   func(denied []*failure) []byte
	denied []*failure   // what was asked for and may not be waited for, in its place; each is its block's until that has ended
	left   atomic.Int32 // blocks that have not ended
}

// newWaiting returns a call that waits for n holdings, answered in the given form.
func (k *call) newWaiting(n int, form func(denied []*failure) []byte) *waiting {
	w := &waiting{call: k, form: form, denied: make([]*failure, n)}
	w.left.Store(int32(n))
	return w
}

// deny notes that one of them may not be waited for.
func (w *waiting) deny(at int) {
	w.denied[at] = errPermission
	w.count(errPermission)
}

// begin waits for the end of the holding of a lease, which is one of those that were
// asked for.
func (w *waiting) begin(at int, name incumbent.Name) {
	b := &block{waiting: w, at: at, name: name}
	w.c.door.counts.blocked.Add(1)
	if !w.c.addBlock(b) {
		b.drop()
		return
	}
	b.try()
}

// over is called when a block of the call has ended, in either way.
func (w *waiting) over(answer bool) {
	w.c.door.counts.blocked.Add(-1)
	switch {
	case w.left.Add(-1) > 0:
	case answer:
		w.reply(w.form(w.denied))
	default:
		w.drop()
	}
}

// block waits for the end of one holding, and waits on where that could not be
// known. It has no goroutine. It ends once: answered, or dropped with its
// connection.
type block struct {
	*waiting
	at    int // of the call's list
	name  incumbent.Name
	token incumbent.Token // that was seen
	tries int

	mu        sync.Mutex // guards the rest; held to change it
	wait      *release.Wait
	attempt   int // to tell a wait that ended at once from the one after it
	abandoned bool
}

// try waits, or begins to wait anew, if the policies of now let it.
func (b *block) try() {
	judged := b.c.door.judgements.Load()
	if !b.may() {
		b.refused()
		return
	}
	b.mu.Lock()
	b.attempt++
	attempt, abandoned := b.attempt, b.abandoned
	b.mu.Unlock()
	if abandoned {
		b.drop()
		return
	}
	source, ok := b.source()
	if !ok {
		b.later()
		return
	}
	wait := source.Begin(b.name, b.token, b.ended)
	b.mu.Lock()
	if b.attempt == attempt {
		b.wait = wait
	}
	abandoned = b.abandoned
	b.mu.Unlock()
	if abandoned && wait.Cancel() {
		b.drop()
	}
	if b.c.door.judgements.Load() != judged {
		b.rejudge() // it was not there yet to be looked at
	}
}

// may reports whether its agent may wait for the holding by the policies of now.
func (b *block) may() bool {
	if b.name.Namespace == singularNamespace {
		return b.c.allowed(b.row, b.name, b.c.who.principal.Name)
	}
	return b.c.mayFollow(b.row, b.name.Lease)
}

// refused ends a block that is at no other step: its agent may not wait any more.
func (b *block) refused() {
	if b.isAbandoned() {
		b.drop()
		return
	}
	b.deny(b.at)
	b.c.dropBlock(b)
	b.over(true)
}

// rejudge ends a block that waits and may not any more. If it is at another step, that
// will see it.
func (b *block) rejudge() {
	if b.may() {
		return
	}
	b.mu.Lock()
	wait := b.wait
	b.mu.Unlock()
	if wait != nil && wait.Cancel() {
		b.refused()
	}
}

// source is where to wait. Where this member's state shows a holding, there is
// nothing to confirm: its end is seen whenever it is applied here, and what is
// shown free after that was held when the call came. Most who wait have just been
// denied, and would have the leader confirm the same again; in a storm of them
// that is as much work as their claims. Only that a lease is free must be certain,
// and that is asked when the lane of waits admits it: false if it does not.
func (b *block) source() (*release.Source, bool) {
	d := b.c.door
	if !leases.Of(d.view()).Lease(b.name).Free() {
		return &d.endings, true
	}
	if d.lanes.Passes(b.c.who.work(), b.row.Lane()) != nil {
		return nil, false
	}
	return &d.releases, true
}

// ended is told that the holding has ended, or that nobody can tell.
func (b *block) ended(err error) {
	if err == nil {
		b.c.door.wakes.Put(b)
		return
	}
	b.later()
}

// later waits on after a while. It may run before Begin has returned; then the
// holding that was seen is not known here, and the next look is the first.
func (b *block) later() {
	b.mu.Lock()
	if b.wait != nil {
		b.token = b.wait.Token()
		b.wait = nil
	}
	b.mu.Unlock()
	b.c.door.counts.retries.Add(1)
	delay := backoff(b.tries)
	b.tries++ // before the next attempt may begin
	b.c.door.after(delay, b.try)
}

// answer is called at the pace of wake-ups.
func (b *block) answer() {
	if !b.may() {
		b.refused()
		return
	}
	b.c.dropBlock(b)
	b.over(!b.isAbandoned())
}

// abandon ends the block with its connection. If it is at another step, that will
// see it.
func (b *block) abandon() {
	b.mu.Lock()
	b.abandoned = true
	wait := b.wait
	b.mu.Unlock()
	if wait != nil && wait.Cancel() {
		b.drop()
	}
}

func (b *block) isAbandoned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.abandoned
}

func (b *block) drop() { b.over(false) }
