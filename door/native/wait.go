package native

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/watch"
)

// LeaseTopic is the topic that changes of a lease are published under.
func LeaseTopic(kind watch.Kind, n incumbent.Name) watch.Topic {
	return watch.Topic{Kind: kind, Scope: [2]string{n.Namespace, n.Model}, Name: n.Lease}
}

// changeOf is the change that an event of a lease topic carries.
func changeOf(e *watch.Event) *core.Change {
	c, ok := e.Payload.(*core.Change)
	if !ok {
		panic(incumbent.Errorf(incumbent.Internal, "an event of a lease carries %T", e.Payload))
	}
	return c
}

// waiting is one wait for the end of a holding. It looks at a confirmed state
// and then waits for a change after that state's index, so nothing that is
// committed in between is missed (G10); what it waits for is another token,
// never "free", for a hand-over is never free. It ends exactly once.
//
//	confirm ─▶ look: over? ── yes ──▶ done
//	             │ no
//	             ▼
//	          wait for a change after the index looked at ─▶ look again
type waiting struct {
	d     *Door
	name  incumbent.Name
	token incumbent.Token // 0: whatever the first look finds
	done  func(released bool, err error)
	timer *time.Timer

	mu     sync.Mutex // guards the rest; never held while done or the hub is called
	over   bool
	waiter *watch.Waiter
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
	wait := or(time.Duration(r.WaitMs)*time.Millisecond, DefaultWait)
	if wait > MaxWait {
		return nil, invalid("wait_ms", "%d is over %d", r.WaitMs, MaxWait.Milliseconds())
	}
	w := &waiting{d: d, name: name, token: incumbent.Token(r.AfterToken), done: done}
	w.mu.Lock() // a short wait may end before its timer is known
	w.timer = time.AfterFunc(wait, func() { w.end(false, nil) })
	w.mu.Unlock()
	d.confirm(func(err error) {
		if err != nil {
			w.end(false, err)
			return
		}
		d.work.put(w.look)
	})
	return w, nil
}

// look decides on the present state, or waits for the next change.
func (w *waiting) look() {
	view := w.d.view()
	l := view.Lease(w.name)
	switch {
	case l.Free():
		w.end(true, nil)
		return
	case w.token == 0:
		w.token = l.Token
	case w.token > l.LastToken:
		w.end(false, invalid("after_token", "%v was never granted; the greatest is %v", w.token, l.LastToken))
		return
	case w.token != l.Token:
		w.end(true, nil)
		return
	}
	topic := watch.Exact(LeaseTopic(w.d.leaseKind, w.name))
	waiter, err := w.d.hub.Wait(topic, view.Index(), w.isOver, w.fired)
	if err != nil {
		w.end(false, err)
		return
	}
	w.mu.Lock()
	w.waiter = waiter
	over := w.over
	w.mu.Unlock()
	if over {
		waiter.Cancel()
	}
}

// isOver reports whether an event ends the holding.
func (w *waiting) isOver(e *watch.Event) bool {
	c := changeOf(e)
	return c.Lease == nil || c.Lease.Token != w.token
}

// fired goes on after the hub: events may have been lost there, then only the
// state can tell.
func (w *waiting) fired(f watch.Fired) {
	switch incumbent.KindOf(f.Err) {
	case incumbent.OK:
		w.end(true, nil)
	case incumbent.Compacted:
		w.d.work.put(w.look)
	default:
		w.end(false, f.Err)
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
	was, waiter, timer := w.over, w.waiter, w.timer
	w.over = true
	w.mu.Unlock()
	if was {
		return false
	}
	timer.Stop()
	if waiter != nil {
		waiter.Cancel()
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
	return &pb.WaitReleasedResponse{Released: released, Index: uint64(f.view.Index()), Lease: f.lease(f.view.Lease(n))}
}

// WaitReleased blocks until the holding has ended, or the wait has.
func (s leaseService) WaitReleased(ctx context.Context, r *connect.Request[pb.WaitReleasedRequest]) (*connect.Response[pb.WaitReleasedResponse], error) {
	ctx, stop := s.d.untilDrained(ctx)
	defer stop()
	admitted, err := s.d.admit(ctx, admit.Watches, 1)
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
	select {
	case e := <-got:
		if e.err != nil {
			return nil, s.d.callError(e.err)
		}
		return connect.NewResponse(s.d.former().released(r.Msg.Name, e.released)), nil
	case <-ctx.Done():
		w.cancel()
		return nil, s.d.callError(context.Cause(ctx))
	}
}
