package native

import (
	"context"
	"net/http"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
)

// change is a command of a family whose caller may execute it: one by which an
// operator changes how the cluster is run, for which the gate has let nobody else in,
// or one that was allowed for what it names.
type change struct {
	call    calls.Call
	name    string // of what is changed
	command core.Command
	key     *pb.Idempotency
	header  http.Header     // may have the key; nil: it may not
	judged  incumbent.Index // says by which policies it was allowed: see [core.Meta]
	reserve bool            // it may use what is kept back where there is no room
	about   string          // to be read where the outcome is unknown
}

// change executes a change for a caller who waits. The error is the module's; what
// the state refused comes with its result.
func (d *Door) change(ctx context.Context, c change) (core.Result, error) {
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	done, err := d.admit(ctx, c.call.Lane(), 1)
	if err != nil {
		return core.Result{}, err
	}
	defer done()
	o := &operation{action: c.call.Action(), name: incumbent.Name{Lease: c.name}, command: c.command, judged: c.judged}
	if err := d.setKey(o, c.key, c.header); err != nil {
		return core.Result{}, err
	}
	call := familyCall(d.callOf(ctx, callerOf(ctx), o), c.reserve)
	r, err := outcomeOf(ctx, c.about, func(done func(core.Result)) {
		if is, ok := c.command.(catalog.Command); ok && is.Verb == catalog.UpdateCheck {
			d.engine.Pass(call, is, done) // where nothing else changes, no command
			Heard(ctx)
			return
		}
		d.engine.Execute(call, c.command, done)
	})
	if err == nil && r.Err != nil {
		err = r.Err
	}
	return r, err
}

// familyCall is what goes with a command of a family.
func familyCall(c lease.Call, reserve bool) engine.Call {
	return engine.Call{Meta: c.Meta(), Deadline: c.Deadline, Reserve: reserve}
}

// outcomeOf is what becomes of what begin hands on, for a caller who waits for as long
// as ctx says: about is what to read afterwards if it was not long enough. The call's place
// is taken until done is called, whoever still waits. begin must not block, and calls done
// once.
func outcomeOf(ctx context.Context, about string, begin func(done func(core.Result))) (core.Result, error) {
	place := placeOf(ctx).keep()
	got := make(chan core.Result, 1)
	begin(func(r core.Result) {
		place.leave()
		got <- r
	})
	select {
	case r := <-got:
		return r, nil
	case <-ctx.Done():
		return core.Result{}, outcomeUnknown(ctx, about)
	}
}
