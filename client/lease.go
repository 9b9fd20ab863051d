package client

import (
	"context"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Lease is one holding, kept alive by its session. It ends for good: one that
// was lost never comes back, a new claim makes a new Lease.
type Lease struct {
	session *Session
	name    incumbent.Name
	token   incumbent.Token
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu       sync.Mutex    // protects the rest; held for a few loads and stores
	deadline time.Duration // on the session's clock; the holding is over when it passes
	revoked  bool          // extended no more, and nobody else's before the deadline
	ended    bool
	timer    *time.Timer
}

// lookEvery is how often the clock is looked at, at the least, while a lease is held. Timers
// stand still in suspend: one that was set for all of the time that was left would go on for the
// rest of it on a machine that resumes behind the deadline.
const lookEvery = time.Second

func newLease(s *Session, name incumbent.Name, token incumbent.Token, deadline time.Duration) *Lease {
	l := &Lease{session: s, name: name, token: token, deadline: deadline}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(min(deadline-s.clock(), lookEvery), l.due)
	return l
}

// Name is what is held.
func (l *Lease) Name() incumbent.Name { return l.name }

// Token is the fencing token: greater than that of every earlier holding of the
// lease. Give it to whatever the lease protects, and let that refuse lower ones.
func (l *Lease) Token() incumbent.Token { return l.token }

// Held reports whether the lease is held at this moment, by this client's own
// clock, and not being revoked. Once false it stays false.
func (l *Lease) Held() bool {
	l.mu.Lock()
	lapsed := !l.ended && l.session.clock() >= l.deadline
	over := l.ended || l.revoked || lapsed
	l.mu.Unlock()
	if lapsed {
		l.lapse()
	}
	return !over
}

// Remaining is how long nobody else is granted the lease for certain if nothing
// more is acknowledged; 0 when it is over. What is being revoked has the time until
// its deadline left, to stop in: the one exception is a revocation by force.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0
	}
	return max(0, l.deadline-l.session.clock())
}

// Context is cancelled when the holding is over, or being revoked; its cause says
// why. Where the deadline has passed while the machine was suspended that is within a second
// of its resuming, whether a server can be reached or not: [Lease.Held] is false at once.
func (l *Lease) Context() context.Context { return l.ctx }

// Release gives the lease up at once and tells the server. The next in the queue
// is granted by the same step. If the server cannot be told before ctx ends,
// the session goes on trying.
func (l *Lease) Release(ctx context.Context) error {
	l.session.giveBack(l.name, l.token)
	l.end(incumbent.Errorf(incumbent.NotHolder, "%s was released by its holder", l.name.Lease))
	return l.session.release(ctx, l.name, l.token)
}

// extend moves the deadline on: never back, and never once it has passed. It
// reports whether the lease is held.
func (l *Lease) extend(deadline time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.session.clock()
	if l.ended || l.revoked || now >= l.deadline {
		return false
	}
	l.deadline = max(l.deadline, deadline) // the timer is due before, and finds it
	return true
}

// due is called by the timer. Timers run late and stand still in suspend, so
// the clock decides.
func (l *Lease) due() {
	l.mu.Lock()
	left, ended := l.deadline-l.session.clock(), l.ended
	if left > 0 && !ended {
		l.timer.Reset(min(left, lookEvery))
	}
	l.mu.Unlock()
	if left <= 0 && !ended { // one that has ended otherwise is not given back: see Detach
		l.lapse()
	}
}

// lapse ends a holding whose deadline has passed. The server may know of it for
// longer, and would keep it for as long as the session lives: it is given back.
func (l *Lease) lapse() {
	l.session.giveBack(l.name, l.token)
	l.end(incumbent.Errorf(incumbent.Expired, "no extension of %s was acknowledged before its deadline", l.name.Lease))
}

// revoke ends a holding for its holder, whom the server grants the time until the
// deadline to stop in. The session knows it until then, and does not give it back:
// somebody else would have it at once.
func (l *Lease) revoke() {
	l.mu.Lock()
	l.revoked = true
	l.mu.Unlock()
	l.cancel(incumbent.Errorf(incumbent.NotHolder, "%s is being revoked", l.name.Lease))
}

func (l *Lease) beingRevoked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revoked
}

func (l *Lease) end(cause error) {
	l.mu.Lock()
	first := !l.ended
	l.ended = true
	l.timer.Stop()
	l.mu.Unlock()
	if first {
		l.cancel(cause)
		l.session.forget(l)
	}
}

func apiName(n incumbent.Name) *apiv1.LeaseName {
	return &apiv1.LeaseName{Namespace: n.Namespace, Model: n.Model, Name: n.Lease}
}

func nameOf(n *apiv1.LeaseName) incumbent.Name {
	return incumbent.Name{Namespace: n.GetNamespace(), Model: n.GetModel(), Lease: n.GetName()}
}
