package engine

import (
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/overload"
)

// maxLargeBytes bounds the commands in parts that wait here for their turn, the one
// under way included: at least one of the largest.
const maxLargeBytes = parts.MaxBytes

// largeCommands proposes commands that are larger than an entry may be, in parts:
// one command after another, and of each one part at a time. So whatever else is
// proposed goes between the parts, and of one member no more than
// [parts.PartBytes] of them are on their way. Who has much waiting here is refused
// before who has little: see [admit.Room].
//
// The part that leadership is lost over is proposed again by the node, as any
// command is, and the rest follows. Where the node gives a part up, the command is
// over: the last part was not proposed, so that it certainly is not applied.
type largeCommands struct {
	e    *Engine
	room admit.Room // bytes of queue

	mu    sync.Mutex // held for moments, never while something is proposed or answered
	queue []*largeCommand
}

// largeCommand is one of them. Once it is in front of the queue it belongs to
// whoever answers its part.
type largeCommand struct {
	call   Call
	who    admit.Who // has its bytes of the room
	next   parts.Part
	newest incumbent.Index // of the last part that is known to be applied; 0: none is
	done   func(core.Result)
}

// LargeBytes is what the commands cost that are larger than an entry and wait for
// their turn.
func (e *Engine) LargeBytes() int64 { return e.large.room.Taken() }

// propose takes a command; done is called once, as [Engine.Execute] says.
func (l *largeCommands) propose(c Call, cmd []byte, done func(core.Result)) {
	n := len(cmd)
	if n > parts.MaxBytes {
		done(core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "command has %d bytes, limit is %d", n, parts.MaxBytes)})
		return
	}
	p := &largeCommand{call: c, who: whoOf(&c.Origin), next: parts.Part{Member: l.e.self, Whole: cmd, Commutes: commutes(cmd)}, done: done}
	if !l.room.Take(p.who, int64(n), maxLargeBytes) {
		done(core.Result{Err: errLargeWait()})
		return
	}
	l.mu.Lock()
	l.queue = append(l.queue, p)
	first := len(l.queue) == 1
	l.mu.Unlock()
	if first {
		l.send(p)
	}
}

// whoOf says for whom a command is proposed, told apart as in lanes: by name, or, of a
// principal without one, by address. What a member does on its own account is nobody's.
func whoOf(o *core.Origin) admit.Who {
	if o.Principal == "" {
		return admit.Who{}
	}
	_, name, _ := strings.Cut(o.Principal, ":") // behind its kind
	return admit.Who{Client: admit.ClientOf(name, o.Address)}
}

func errLargeWait() *incumbent.Error {
	return overload.Errorf("large commands wait, together of at most %d bytes, of which each client leaves some to others", maxLargeBytes).
		WithHint("come back after the given time, and send one large command after another")
}

// send proposes the next part.
func (l *largeCommands) send(p *largeCommand) {
	l.e.raft.Propose(node.Proposal{
		Command: p.next.Encode(core.Meta{Origin: p.call.Origin}), Deadline: p.call.Deadline, Reserve: p.call.Reserve,
		Done: func(result any, err error) { l.sent(p, resultOf(result, err), err) },
	})
}

// sent takes what became of a part: r, and err if the node says it.
func (l *largeCommands) sent(p *largeCommand, r core.Result, err error) {
	last := p.next.End() == len(p.next.Whole)
	switch {
	case last:
	case r.Err == nil:
		if p.newest = r.Index; p.next.Began == 0 {
			p.next.Began = r.Index
		}
		p.next.Offset = p.next.End()
		l.send(p)
		return
	case r.Err.Kind == incumbent.Unknown:
		r.Err = incumbent.Errorf(incumbent.Unavailable, "a part of the command was not seen applied: the command is not complete, and never will be")
	}
	if err != nil && incumbent.KindOf(err) != incumbent.Unknown {
		l.drop(p)
	}
	p.done(r)
	l.over(p)
}

// drop discards the parts that are applied. If this does not reach the log, the
// leader's clock does it.
func (l *largeCommands) drop(p *largeCommand) {
	if p.newest == 0 {
		return
	}
	cmd := parts.Drop{Member: p.next.Member, Newest: p.newest}
	l.e.raft.Propose(node.Proposal{Command: cmd.Encode(core.Meta{}), Reserve: true})
}

// over goes on with the next command.
func (l *largeCommands) over(p *largeCommand) {
	l.room.Give(p.who, int64(len(p.next.Whole)))
	l.mu.Lock()
	l.queue[0] = nil
	l.queue = l.queue[1:]
	var next *largeCommand
	if len(l.queue) > 0 {
		next = l.queue[0]
	}
	l.mu.Unlock()
	if next != nil {
		l.send(next)
	}
}
