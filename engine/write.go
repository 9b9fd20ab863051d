package engine

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// Writes executes commands about keys, and transactions, for a door. What would
// change nothing (a lock that another session has, a condition that does not hold) is
// answered by a confirmed view, at no cost for the log.
type Writes struct {
	Engine *Engine
	View   func() *core.View // what the door shows
	// Confirm calls done when this member has applied everything that was committed
	// when it was called. It never blocks; neither does done.
	Confirm func(done func(err error))
	// Run runs a function soon, on a goroutine that may take a while.
	Run func(func())
}

// Key executes a command about keys, which is valid. first: it was never sent before
// with its idempotency key, so that what refuses it now is the answer. done is called
// once, at once or from a goroutine that must not wait, and must not block. What was
// refused before it was proposed, for what it makes larger, is told without an index;
// what a view answers is told as Idle.
func (w *Writes) Key(call Call, c *kv.Command, first bool, done func(core.Result)) {
	all := w.View()
	entry, _, idle := w.idling(c)
	if call.Reserve = Frees(c, kv.Of(all)); !call.Reserve && first && !idle {
		if err := kv.Of(all).Full(all, call.Origin.Principal, c, entry); err != nil {
			done(core.Result{Err: err})
			return
		}
	}
	w.unless(first && idle, call, c, func() (core.Result, bool) {
		_, r, idle := w.idling(c)
		return r, idle
	}, done)
}

// Frees reports whether a command makes room or lets go without taking more, so
// that it may use what is kept back for that, and no quota stops it. v has the entry as
// it is.
func Frees(c *kv.Command, v *kv.View) bool {
	switch c.Verb {
	case kv.Remove, kv.RemoveTree:
		return true
	case kv.Release:
		return c.Growth(v.Entry(c.Key)) <= 0
	}
	return false
}

// idling looks once at a key for all that is to be known before a command is proposed.
func (w *Writes) idling(c *kv.Command) (*kv.Entry, core.Result, bool) {
	all := w.View()
	entry, r, idle := kv.Of(all).Idling(c, all.Session(c.Session) != nil)
	r.Index = all.Index()
	return entry, r, idle
}

// Txn executes a transaction, as Key does a command. reads: it changes nothing,
// whatever the state is.
func (w *Writes) Txn(call Call, t core.Txn, first, reads bool, done func(core.Result)) {
	try := func() (core.Result, bool) { return w.View().Try(t) }
	idle := false
	if first || reads {
		_, idle = try()
	}
	w.unless(idle, call, t, try, done)
}

// unless answers by a confirmed view, if it still says that nothing changes, and else
// proposes.
func (w *Writes) unless(idle bool, call Call, cmd core.Command, try func() (core.Result, bool), done func(core.Result)) {
	if !idle {
		w.Engine.Execute(call, cmd, done)
		return
	}
	w.Confirm(func(err error) {
		w.Run(func() {
			if err != nil {
				done(core.Result{Err: errorOf(err)})
				return
			}
			switch r, idle := try(); {
			case !idle:
				w.Engine.Execute(call, cmd, done)
			case policy.Outlived(w.View(), call.Judged):
				done(core.Result{Err: incumbent.Errorf(incumbent.Unavailable, "a policy has changed since the request was allowed: it is judged anew if it is repeated")})
			default:
				r.Idle = true
				done(r)
			}
		})
	})
}

func errorOf(err error) *incumbent.Error {
	if e, ok := err.(*incumbent.Error); ok { //nolint:errorlint // an error that wraps one is not it
		return e
	}
	return incumbent.Errorf(incumbent.KindOf(err), "%w", err)
}
