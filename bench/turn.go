package bench

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Candidates for the same leases, in closed loop: each claims without waiting,
// holds what it wins for a while, releases it and claims again; one that is
// refused pauses and claims again, and so does one that a server at its limit
// turns away. A winning claim is one such turn.

// Places of what a turn records among its operation's ops.
const (
	turnClaim = iota
	turnRelease
	turnRefused
	turnAway // early, as the server was at its limit: to be tried again
)

// rival is what a candidate has, between the requests of its turn.
type rival struct {
	token uint64
	sent  time.Duration
}

func candidateMessage(l *closedLoop, w *worker) ([]byte, error) {
	name, holder := l.contested(w), rivalName(w)
	w.rival.sent = l.now()
	return l.encode(w, func(int) *apiv1.Operation {
		if w.rival.token == 0 {
			return claimOp(name, holder, l.ttl)
		}
		l.check.Released(name.Name, w.rival.token)
		return &apiv1.Operation{Op: &apiv1.Operation_Release{Release: &apiv1.ReleaseRequest{Name: name, Holder: holder, Token: w.rival.token}}}
	})
}

// contested is the lease that a worker wants: candidates of one lease have their
// streams to different members.
func (l *closedLoop) contested(w *worker) *apiv1.LeaseName {
	return l.name("%d", w.id/max(1, l.sc.Closed.Candidates))
}

func rivalName(w *worker) string { return "candidate/" + strconv.Itoa(w.id) }

// judgeTurn takes the answer to a candidate's request and says what it was.
func (l *closedLoop) judgeTurn(w *worker, a *answer) (op int, right bool) {
	f, err := a.full()
	if err != nil {
		return turnClaim, false
	}
	failure := f.GetError()
	if failure == nil {
		failure = f.GetOperation().GetError()
	}
	releasing := w.rival.token != 0
	switch {
	case failure.GetKind() == incumbent.Overloaded.String():
		return turnAway, true
	case releasing && failure == nil:
		w.rival.token = 0
		return turnRelease, true
	case releasing:
		return turnRelease, false // it still counts as its holder, and releases again
	case failure.GetKind() == incumbent.Held.String():
		return turnRefused, true
	case failure != nil:
		return turnClaim, false
	}
	token := f.GetOperation().GetClaim().GetLease().GetToken()
	if token == 0 {
		return turnClaim, false
	}
	w.rival.token = token
	l.check.Granted(l.contested(w).Name, w.id, token, l.now(), w.rival.sent+holdFor(time.Duration(l.ttl)*time.Millisecond))
	return turnClaim, true
}

// turnPause is how long the candidate waits before its next request.
func (l *closedLoop) turnPause(op int, right bool) time.Duration {
	cfg := l.sc.Closed
	switch {
	case right && op == turnClaim:
		return time.Duration(cfg.Hold)
	case right && op == turnRelease:
		return 0
	}
	pause := time.Duration(cfg.Pause)
	if pause == 0 {
		return 0
	}
	return pause/2 + rand.N(pause) // candidates that were refused together come apart
}

// finishTurn records the candidate's request and has its next one sent in time.
func (l *closedLoop) finishTurn(w *worker, op int, right bool) error {
	now := l.now()
	if right {
		l.records[op].done(now, now-w.intended, 1)
	} else {
		l.records[op].failed(now, 1)
	}
	if l.stop.Load() {
		return errStopped
	}
	wait := l.turnPause(op, right)
	if wait == 0 {
		return l.next(w, now)
	}
	w.underWay.Store(0)
	time.AfterFunc(wait, func() {
		if !l.stop.Load() {
			_ = l.next(w, now+wait) // a broken stream ends its reader, which says so
		}
	})
	return nil
}
