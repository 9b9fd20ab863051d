package engine

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/watch"
)

// How policies are followed.
const (
	policyRetry  = 250 * time.Millisecond // until the hub is asked for a reader again
	policyEvents = 64                     // changes taken at once: what they say does not matter
	policyBytes  = 1 << 20
)

// FollowPolicies calls changed once at first and then behind every change of a policy, or
// of several, when views show it, until stop is closed or the hub is: doors look again at
// what is open then. It is called on this goroutine, also where a snapshot came in the
// place of the state, which may have brought other policies.
func (e *Engine) FollowPolicies(stop <-chan struct{}, changed func()) {
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	for {
		r, err := e.hub.Subscribe(e.hub.Index(), wake, watch.All(watch.Kind(policy.Number)))
		if err != nil {
			if incumbent.KindOf(err) == incumbent.Unavailable || !pause(stop) {
				return
			}
			continue
		}
		changed() // what changed before was not heard of
		err = drainPolicies(r, woken, stop, changed)
		r.Close()
		if incumbent.KindOf(err) != incumbent.Compacted {
			return
		}
	}
}

// pause waits until the hub may be asked for a reader again; false: stop was closed.
func pause(stop <-chan struct{}) bool {
	again := time.NewTimer(policyRetry)
	defer again.Stop()
	select {
	case <-again.C:
		return true
	case <-stop:
		return false
	}
}

// drainPolicies follows until stop is closed, then the error is nil, or until the reader
// cannot go on.
func drainPolicies(r *watch.Reader, woken, stop <-chan struct{}, changed func()) error {
	for {
		batch, err := r.Pull(nil, policyEvents, policyBytes)
		switch {
		case err != nil:
			return err
		case len(batch.Events) > 0:
			changed()
		}
		if batch.More {
			continue
		}
		select {
		case <-woken:
		case <-stop:
			return nil
		}
	}
}
