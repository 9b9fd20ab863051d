package engine

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
)

// Call is what goes with a command of a family.
type Call struct {
	core.Meta
	Deadline time.Time // past it the command is not proposed, or its outcome Unknown; zero: none
	// Reserve lets the command use what is kept back when disk or memory run out.
	// It is for what makes room, or lets go: deletions, unlocks; and for the status of a
	// check that is there, which takes the place of the one before.
	Reserve bool
}

// Execute proposes a command of a family. It never blocks; neither must done,
// which is called once: with what the command did after it was applied here, so
// that the view is at least as new as the answer; or with an error of the node's
// ([node.Proposal]), which means that it certainly is not applied, now or ever,
// unless it is Unknown.
//
// A command of more than [core.MaxFamilyBytes] travels in parts, and takes effect
// with the last one: whatever else is proposed meanwhile goes before it.
//
// Commands of one caller take effect in the order of their calls only if each
// waits for the outcome of the one before.
func (e *Engine) Execute(c Call, cmd core.Command, done func(core.Result)) {
	b := cmd.Encode(c.Meta)
	if len(b) > core.MaxFamilyBytes {
		e.large.propose(c, b, done)
		return
	}
	e.raft.Propose(node.Proposal{
		Command: b, Deadline: c.Deadline, Reserve: c.Reserve,
		Done: func(result any, err error) { done(resultOf(result, err)) },
	})
}

// Await executes a command of a family and waits for its outcome, or for ctx. If ctx
// ends first the error is Unknown: the command may or may not take effect. What the
// state refused is an error, too.
func (e *Engine) Await(ctx context.Context, c Call, cmd core.Command) (core.Result, error) {
	if d, ok := ctx.Deadline(); ok && (c.Deadline.IsZero() || d.Before(c.Deadline)) {
		c.Deadline = d
	}
	got := make(chan core.Result, 1)
	e.Execute(c, cmd, func(r core.Result) { got <- r })
	select {
	case r := <-got:
		if r.Err != nil {
			return r, r.Err
		}
		return r, nil
	case <-ctx.Done():
		return core.Result{}, incumbent.Errorf(incumbent.Unknown, "the command was given up before its outcome was known: %w", context.Cause(ctx))
	}
}

func resultOf(result any, err error) core.Result {
	if err != nil {
		e, ok := err.(*incumbent.Error) //nolint:errorlint // an error that wraps one is not it
		if !ok {
			e = incumbent.Errorf(incumbent.KindOf(err), "%w", err)
		}
		return core.Result{Err: e}
	}
	if r, ok := result.(*core.Result); ok {
		return *r
	}
	return core.Result{Err: incumbent.Errorf(incumbent.Internal, "the outcome of a command is a %T", result)}
}
