package client

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// How long the server may take to answer that a claim no longer waits: the first
// time, for which the caller of the claim waits, and at most later, when each
// attempt has twice as long as the one before.
const (
	leaveTimeout    = 2 * time.Second
	maxLeaveTimeout = 30 * time.Second
)

// undoing is a claim that is being undone.
type undoing struct {
	name   incumbent.Name
	holder string
	// key is that of all attempts; nil: there is none yet. A copy of the first that a member
	// which stood still executes later is a repetition then: it would take its place from the
	// next claim.
	key    *apiv1.Idempotency
	undone chan struct{} // closed when it is
}

// abandon undoes a claim that was sent and whose caller has gone. If the server does not say soon
// that it is undone, that goes on without the caller, until it does or the session
// ends. Until then no other claim on the name begins. Called before expectNoMore.
func (s *Session) abandon(name incumbent.Name, holder string) {
	u := &undoing{name: name, holder: holder, undone: make(chan struct{})}
	if s.leave(u, leaveTimeout) {
		return
	}
	s.mu.Lock()
	s.leaving[name] = u
	s.mu.Unlock()
	go func() {
		s.leaveAtLast(u)
		s.mu.Lock()
		delete(s.leaving, name)
		s.mu.Unlock()
		close(u.undone)
	}()
}

// leaveAtLast calls leave until it is done or the session ends.
func (s *Session) leaveAtLast(u *undoing) {
	for timeout, pause := 2*leaveTimeout, minPause; ; timeout, pause = min(2*timeout, maxLeaveTimeout), min(2*pause, maxPause) {
		if sleep(s.stop, jitter(pause, nil)) != nil || s.leave(u, timeout) {
			return
		}
	}
}

// leave leaves the queue and gives back what a claim may have been granted or
// offered; false if it is not known whether that was done, and may be with another
// attempt. The server answers after the claim, so that what it then lists is all
// that the claim brought. What is not released here, the beats release.
func (s *Session) leave(u *undoing, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(s.stop, timeout)
	defer cancel()
	if u.key == nil {
		key, err := s.key(ctx)
		if err != nil {
			return !retryable(err)
		}
		u.key = key
	}
	_, err := s.operateIf(ctx, rebased(u.key, s.again), func() *apiv1.Operation {
		return &apiv1.Operation{Op: &apiv1.Operation_LeaveQueue{LeaveQueue: &apiv1.LeaveQueueRequest{
			Name: apiName(u.name), Session: s.id.String(), Holder: u.holder, Idempotency: u.key,
		}}}
	})
	if newBase(err) != 0 {
		u.key = nil // what comes late of it is refused as this attempt was
	}
	if err != nil && retryable(err) {
		return false
	}
	for next, more := (*apiv1.LeaseName)(nil), true; more; more = next != nil {
		a, err := s.request(ctx, func() *apiv1.ClientFrame { return s.lookup(next, 0) })
		if err != nil {
			return !retryable(err)
		}
		for _, b := range s.giveBackGrants(a.GetGetSession().GetLeases(), u) {
			if err := s.release(ctx, b.name, b.token); err != nil {
				break
			}
		}
		next = a.GetGetSession().GetNext()
	}
	return true
}

// giveBackGrants gives back what the server lists that an abandoned claim may have been granted,
// and nobody here knows of. What another run held is not given back here.
func (s *Session) giveBackGrants(listed []*apiv1.Lease, u *undoing) (given []holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range listed {
		name, token := nameOf(l.GetName()), incumbent.Token(l.GetToken())
		if name == u.name && grants(u.holder, l) && s.leases[token] == nil && !s.isFormer(name, token) {
			s.back[token] = name
			given = append(given, holding{name, token})
		}
	}
	return given
}
