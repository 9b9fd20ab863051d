package consul

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/engine"
)

// propose executes a command of a family and goes on with its result, as outcome does.
// reserve: it makes room or lets go.
func (r *request) propose(cmd core.Command, reserve bool, told func(*core.Result), then func(core.Result)) {
	r.execute(func(call engine.Call, done func(core.Result)) {
		call.Reserve = reserve
		r.door.engine.Execute(call, cmd, done)
	}, told, then)
}

// execute has something executed for the request, and goes on with its result as outcome
// does.
func (r *request) execute(do func(engine.Call, func(core.Result)), told func(*core.Result), then func(core.Result)) {
	r.outcome(func(done func(core.Result)) {
		do(engine.Call{Meta: core.Meta{Origin: r.origin(), Judged: r.who.judged}, Deadline: r.deadline()}, done)
	}, told, then)
}

// outcome has something done and goes on with its result, on a goroutine of the door's.
// What finds no leader is tried again until Patience is over; that, and what never came
// about, has then been answered, and then is not called. told is called with what was done,
// or may have been, whoever still waits for it: before then, if that is called.
func (r *request) outcome(do func(done func(core.Result)), told func(*core.Result), then func(core.Result)) {
	r.attempt(func(done func(error, func()) bool) {
		do(func(res core.Result) {
			var err error
			if res.Err != nil && !isAnswer(res.Err) {
				err = res.Err
			}
			goesOn := done(err, func() { told(&res); then(res) })
			if !goesOn && (err == nil || incumbent.KindOf(err) == incumbent.Unknown) {
				r.later(func() { told(&res) })
			}
		})
	})
}

// isAnswer reports whether an error is what a command was answered with: it is then for
// the endpoint to say.
func isAnswer(err *incumbent.Error) bool {
	switch err.Kind {
	case incumbent.NotLeader, incumbent.Unavailable, incumbent.Overloaded, incumbent.Unknown, incumbent.DeadlineExceeded:
		return false
	}
	return true
}

// confirmed goes on once this member has applied everything that was committed when it
// was called. Where there is no leader it has been answered. An empty state counts as no
// leader: what is not there is told under index 1, and nothing may begin under that.
func (r *request) confirmed(then func()) {
	r.attempt(func(done func(error, func()) bool) {
		r.door.engine.Confirm(func(err error) {
			if err == nil && r.door.view().Index() == 0 {
				err = errNoLeader
			}
			done(err, then)
		})
	})
}

// fresh goes on once what this member shows is as new as was asked for.
func (r *request) fresh(then func()) {
	if r.ownWillDo() {
		then()
		return
	}
	r.confirmed(then)
}

// ownWillDo reports whether the member's own view will do, without asking anybody.
func (r *request) ownWillDo() bool {
	return r.opts.own(r.door.cfg.Cluster.Age()) && r.door.view().Index() > 0
}

// deadline is when the request has waited long enough for a leader.
func (r *request) deadline() time.Time { return r.asked.Add(r.door.limits.Load().Patience) }

// attempt tries something until it succeeds, or Patience is over. try calls done once,
// on any goroutine; what done is given goes on, on a goroutine of the door's, if done
// returns true: else it has been answered, or is tried again.
func (r *request) attempt(try func(done func(err error, then func()) bool)) {
	a := &attempt{r: r, try: try, delay: firstRetry}
	a.late = time.AfterFunc(math.MaxInt64, func() { a.end(errNoLeader) }) // it may end at once, and then looks at late
	a.late.Reset(r.deadline().Sub(r.door.now()))
	a.run()
}

var errNoLeader = incumbent.Errorf(incumbent.Unavailable, "no leader is known")

// attempt is what a request waits for of the node.
type attempt struct {
	r     *request
	try   func(done func(err error, then func()) bool)
	delay time.Duration
	late  *time.Timer
	over  atomic.Bool
}

func (a *attempt) run() {
	a.try(func(err error, then func()) bool {
		switch {
		case err == nil:
			if a.settle() {
				a.r.later(then)
				return true
			}
		case !retried(err), policy.Outlived(a.r.door.view(), a.r.who.judged): // it would be void each time
			a.end(err)
		case a.over.Load():
		default:
			a.delay = min(2*a.delay, maxRetry)
			a.r.door.after(a.delay, a.again)
		}
		return false
	})
}

func (a *attempt) again() {
	if !a.over.Load() {
		a.run()
	}
}

// settle reports whether this is the attempt's only end.
func (a *attempt) settle() bool {
	if a.over.Swap(true) {
		return false
	}
	a.late.Stop()
	return true
}

// end answers with an error.
func (a *attempt) end(err error) {
	if a.settle() {
		a.r.later(func() { a.r.failFor(err) })
	}
}
