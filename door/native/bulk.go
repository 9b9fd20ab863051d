package native

import (
	"context"

	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
)

// bulk is a list of operations in one call. What stands together and is of one
// sort (commands, or extensions) is handed on together, before the first answer
// is waited for: so commands share entries of the log, in their order. Between
// the sorts all answers are waited for, since an extension looks at memory and
// a command at the log. One that fails does not touch the others.
type bulk struct {
	d       *Door
	who     *caller
	ctx     context.Context
	order   *lease.Sequence
	results []*pb.OperationResult
	got     chan func()  // completions; room for all, so that nobody waits to say one
	pending int          // completions still to come
	run     *lease.Batch // extensions that stand one after the other
	places  []int        // and where their results go
}

// step is a checked operation of a bulk call.
type step struct {
	op        *operation // nil: an extension
	extension lease.Extension
	err       error
}

func (d *Door) batch(ctx context.Context, in *pb.BatchRequest) (*pb.BatchResponse, error) {
	n, lane := outlineOfBatch(in)
	if n > MaxOperations {
		return nil, d.callError(invalid("operations", "are %d, limit is %d", n, MaxOperations))
	}
	who := callerOf(ctx)
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	if lane == admit.Extensions { // critical leases are looked for
		if err := decode(in); err != nil {
			return nil, err
		}
	}
	done, refused, err := d.admitSteps(ctx, who, lane, n, in)
	if err != nil {
		return nil, d.callError(err)
	}
	defer done()
	if err := decode(in); err != nil {
		return nil, err
	}
	ops := in.Operations
	steps := d.checkSteps(who, ops)
	for i, err := range refused {
		if err != nil && steps[i].err == nil {
			steps[i].err = err
		}
	}
	b := &bulk{d: d, who: who, ctx: ctx, order: new(lease.Sequence), results: make([]*pb.OperationResult, len(ops)), got: make(chan func(), len(ops))}
	for i := range steps {
		if ctx.Err() != nil {
			b.results[i] = d.failed(context.Cause(ctx)) // certainly not tried
			continue
		}
		b.start(i, &steps[i])
	}
	b.flush()
	Heard(ctx)
	b.settle()
	b.giveUp()
	return &pb.BatchResponse{Results: b.results}, nil
}

// fieldOperations is the field of a BatchRequest that has them.
const fieldOperations = 1

// outlineOfBatch says how many operations there are, and the lane of that which is
// refused first.
func outlineOfBatch(in *pb.BatchRequest) (n int, lowest admit.Lane) {
	lowest = admit.Extensions
	count := func(c calls.Call) { lowest = min(lowest, c.Lane()) }
	for _, op := range in.Operations {
		count(callOf(op))
	}
	n = len(in.Operations)
	for field, c := range outline(in, callsOfOperations) {
		if field == fieldOperations {
			n++
			count(c)
		}
	}
	return n, lowest
}

// admitSteps admits a call of so many operations by the lane of that which is refused
// first. It is decoded if all are extensions; some of these may be refused alone, as
// admitExtensions says.
func (d *Door) admitSteps(ctx context.Context, who *caller, lowest admit.Lane, n int, in *pb.BatchRequest) (done func(), refused []error, err error) {
	if lowest != admit.Extensions {
		done, err = d.admit(ctx, lowest, n)
		return done, nil, err
	}
	return d.admitExtensions(ctx, n, func(i int) bool { return d.keepsCritical(who, in.Operations[i].GetExtend()) })
}

// checkSteps checks every operation.
func (d *Door) checkSteps(who *caller, ops []*pb.Operation) []step {
	steps := make([]step, len(ops))
	for i, in := range ops {
		s := &steps[i]
		if s.op, s.err = operationOf(who.principal, in); s.err != nil {
			continue
		}
		if s.op == nil {
			s.extension, s.err = d.extensionOf(who, in.GetExtend())
			_ = d.deniedExtension(who, &s.extension, s.err)
			continue
		}
		s.err = d.deniedOp(who, s.op, d.allow(who, s.op))
	}
	return steps
}

func (b *bulk) start(i int, s *step) {
	switch {
	case s.err != nil:
		b.results[i] = b.d.failed(s.err)
	case s.op == nil:
		if b.run == nil {
			b.settle()
			b.run = &lease.Batch{}
		}
		b.run.Items = append(b.run.Items, s.extension)
		b.places = append(b.places, i)
	default:
		if b.run != nil {
			b.flush()
			b.settle()
		}
		b.pending++
		call := b.d.callOf(b.ctx, b.who, s.op)
		call.Sequence = b.order
		place := placeOf(b.ctx).keep()
		b.d.submit(call, s.op, func(r core.Result) {
			place.leave()
			b.got <- func() {
				b.d.settledOp(b.who, s.op, &r)
				b.results[i] = b.d.former(b.who).result(s.op, r)
			}
		})
	}
}

// flush hands the gathered extensions on.
func (b *bulk) flush() {
	if b.run == nil {
		return
	}
	places, place := b.places, placeOf(b.ctx).keep()
	b.run.Done = func(done *lease.Batch) {
		place.leave()
		b.got <- func() {
			for k, i := range places {
				r := b.d.extensionResult(done, k)
				b.results[i] = &pb.OperationResult{Result: &pb.OperationResult_Extend{Extend: r}}
			}
		}
	}
	b.pending++
	b.d.leases.Extend(b.run)
	b.run, b.places = nil, nil
}

// settle waits for all that was handed on.
func (b *bulk) settle() {
	for b.pending > 0 {
		select {
		case complete := <-b.got:
			complete()
			b.pending--
		case <-b.ctx.Done():
			return
		}
	}
}

// giveUp answers for what did not come in time: whether it was tried is not
// told apart.
func (b *bulk) giveUp() {
	for i := range b.results {
		if b.results[i] == nil {
			b.results[i] = b.d.failed(outcomeUnknown(b.ctx, "lease"))
		}
	}
}
