package native

import (
	"cmp"
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/engine/release"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/watch"
)

// changeOf is the change that an event carries.
func changeOf(e *watch.Event) *core.Change {
	c, ok := e.Payload.(*core.Change)
	if !ok {
		panic(incumbent.Errorf(incumbent.Internal, "an event carries %T", e.Payload))
	}
	return c
}

// waiting is one wait for the end of a holding, for a time; see package release.
// It ends exactly once.
type waiting struct {
	done func(released bool, err error)
	name incumbent.Name
	open tally.Place // given back by whoever ends it

	mu    sync.Mutex // guards the rest; never held while done or the hub is called
	over  bool
	timer *time.Timer
	wait  *release.Wait
}

// waitReleased begins a wait. done is called once, on any goroutine, and must
// not block; never after cancel has returned true.
func (d *Door) waitReleased(who *caller, r *pb.WaitReleasedRequest, done func(released bool, err error)) (*waiting, error) {
	name, err := leaseName(r.Name)
	if err != nil {
		return nil, err
	}
	if err := d.allowRead(who, auth.Watch, name); err != nil {
		return nil, err
	}
	wait := cmp.Or(time.Duration(r.WaitMs)*time.Millisecond, DefaultWait)
	if wait > MaxWait {
		return nil, invalid("wait_ms", "%d is over %d", r.WaitMs, MaxWait.Milliseconds())
	}
	open, err := d.tally.Take(settings.OpenWatches, who.principal, "")
	if err != nil {
		return nil, err
	}
	w := &waiting{done: done, name: name, open: open}
	w.mu.Lock() // a short wait may end before its timer is known
	w.timer = time.AfterFunc(wait, func() { w.end(false, nil) })
	w.mu.Unlock()
	w.begun(d.releases.Begin(name, incumbent.Token(r.AfterToken), func(err error) {
		if incumbent.KindOf(err) == incumbent.Invalid {
			err = inField("after_token", err)
		}
		w.end(err == nil, err)
	}))
	return w, nil
}

// begun remembers what to cancel; the end may have come before.
func (w *waiting) begun(wait *release.Wait) {
	w.mu.Lock()
	w.wait = wait
	over := w.over
	w.mu.Unlock()
	if over {
		wait.Cancel()
	}
}

func (w *waiting) end(released bool, err error) {
	if w.cancel() {
		w.done(released, err)
	}
}

// cancel ends the wait without a word and reports whether it did.
func (w *waiting) cancel() bool {
	w.mu.Lock()
	was, wait, timer := w.over, w.wait, w.timer
	w.over = true
	w.mu.Unlock()
	if was {
		return false
	}
	timer.Stop()
	w.open.Give()
	if wait != nil {
		wait.Cancel()
	}
	return true
}

// isEnded reports whether it has ended.
func (w *waiting) isEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// released answers a wait that has ended.
func (f *former) released(name *pb.LeaseName, released bool) *pb.WaitReleasedResponse {
	n := inScope(name)
	n.Lease = name.GetName()
	return &pb.WaitReleasedResponse{Released: released, Index: uint64(f.view.Index()), Lease: f.lease(leases.Of(f.view).Lease(n))}
}

// WaitReleased blocks until the holding has ended, or the wait has.
func (s leaseService) WaitReleased(ctx context.Context, r *connect.Request[pb.WaitReleasedRequest]) (*connect.Response[pb.WaitReleasedResponse], error) {
	ctx, stop := s.d.untilDrained(ctx)
	defer stop()
	admitted, err := s.d.admit(ctx, calls.WaitReleased.Lane(), 1)
	if err != nil {
		return nil, s.d.callError(err)
	}
	admitted() // a wait that waits holds no place in a lane
	type end struct {
		released bool
		err      error
	}
	got := make(chan end, 1)
	w, err := s.d.waitReleased(callerOf(ctx), r.Msg, func(released bool, err error) { got <- end{released, err} })
	if err != nil {
		return nil, s.d.callError(err)
	}
	for {
		changed := s.d.rulesChanged()
		if err := s.d.allowRead(callerOf(ctx), auth.Watch, w.name); err != nil {
			w.cancel()
			return nil, s.d.callError(err)
		}
		select {
		case <-changed:
		case e := <-got:
			if e.err != nil {
				return nil, s.d.callError(e.err)
			}
			f := s.d.former(callerOf(ctx))
			if err := s.d.allowRead(callerOf(ctx), auth.Watch, w.name); err != nil { // that a policy has changed may not have been heard yet
				return nil, s.d.callError(err)
			}
			return connect.NewResponse(f.released(r.Msg.Name, e.released)), nil
		case <-ctx.Done():
			w.cancel()
			return nil, s.d.callError(context.Cause(ctx))
		}
	}
}
