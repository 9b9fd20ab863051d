package player

import (
	"fmt"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// expectation is what a call was made to be.
type expectation int

const (
	valid     expectation = iota
	mustFail              // invalid, whatever the state
	oddEnough             // perhaps invalid
)

// Kinds that any call may be answered with, at any time.
var passing = []incumbent.Kind{
	incumbent.Overloaded, incumbent.DeadlineExceeded, incumbent.NotLeader, incumbent.Unavailable, incumbent.Unknown,
}

// refused checks the kind of an error against those that the call may have.
func (c *call) refused(what string, e *pb.Error, want expectation, may ...incumbent.Kind) {
	kind, known := incumbent.ParseKind(e.Kind)
	switch {
	case !known || kind == incumbent.OK:
		c.fail("%s: an error of kind %q: %s", what, e.Kind, e.Message)
	case slices.Contains(passing, kind):
	case want == mustFail && kind != incumbent.Invalid:
		c.fail("%s must be invalid, it is %s: %s", what, e.Kind, e.Message)
	case want != valid && kind == incumbent.Invalid:
	case !slices.Contains(may, kind):
		c.fail("%s: kind %s: %s", what, e.Kind, e.Message)
	}
}

// kindOf is an error's kind behind what is counted.
func kindOf(e *pb.Error) string {
	if e == nil {
		return ""
	}
	return ": " + e.Kind
}

// Kinds that each operation may have besides.
func mayBe(op *pb.Operation) []incumbent.Kind {
	switch op.Op.(type) {
	case *pb.Operation_Claim:
		return []incumbent.Kind{incumbent.Held, incumbent.Expired, incumbent.TooLarge}
	case *pb.Operation_Release:
		return []incumbent.Kind{incumbent.NotHolder}
	case *pb.Operation_Revoke:
		return []incumbent.Kind{incumbent.NotFound, incumbent.Conflict}
	case *pb.Operation_Transfer: // invalid: to itself; to a session that stands in no queue, without a holder
		return []incumbent.Kind{incumbent.NotHolder, incumbent.NotFound, incumbent.Conflict, incumbent.TooLarge, incumbent.Invalid}
	case *pb.Operation_Pin:
		return []incumbent.Kind{incumbent.TooLarge}
	case *pb.Operation_OpenSession:
		return []incumbent.Kind{incumbent.Exists, incumbent.TooLarge}
	case *pb.Operation_Extend:
		return []incumbent.Kind{incumbent.NotHolder, incumbent.Expired, incumbent.Conflict}
	}
	return nil
}

// operation judges the answer of one operation; tab learns from it.
func (c *call) operation(tab *table, op *pb.Operation, r *pb.OperationResult, want expectation) {
	what := fmt.Sprintf("%v", op)
	if len(what) > 300 {
		what = what[:300] + "…"
	}
	e := r.GetError()
	if x := r.GetExtend(); x != nil && x.Error != nil {
		e = x.Error
	}
	c.b.count(strings.TrimPrefix(fmt.Sprintf("%T", op.Op), "*incumbentv1.Operation_") + kindOf(e))
	if e != nil {
		c.refused(what, e, want, mayBe(op)...)
		c.refusedRightly(what, op, e)
		return
	}
	if want == mustFail {
		c.fail("%s is invalid, and was done: %v", what, r)
		return
	}
	switch o := op.Op.(type) {
	case *pb.Operation_Claim:
		c.claimed(tab, what, o.Claim, r.GetClaim())
	case *pb.Operation_Release:
		c.released(what, o.Release, r.GetRelease())
	case *pb.Operation_Revoke:
		c.revoked(what, o.Revoke, r.GetRevoke())
	case *pb.Operation_Transfer:
		c.transferred(tab, what, o.Transfer, r.GetTransfer())
	case *pb.Operation_Pin:
		c.pinned(what, o.Pin.Name, o.Pin.Entity, r.GetPin().GetIndex(), true)
	case *pb.Operation_Unpin:
		c.pinned(what, o.Unpin.Name, o.Unpin.Entity, r.GetUnpin().GetIndex(), false)
	case *pb.Operation_LeaveQueue:
		c.at(r.GetLeaveQueue().GetIndex())
	case *pb.Operation_OpenSession:
		c.opened(what, o.OpenSession, r.GetOpenSession())
	case *pb.Operation_CloseSession:
		c.closed(what, o.CloseSession, r.GetCloseSession())
	case *pb.Operation_Extend:
		c.extended(what, o.Extend, r.GetExtend())
	}
}

func (c *call) claimed(tab *table, what string, in *pb.ClaimRequest, out *pb.ClaimResponse) {
	l := out.GetLease()
	if l == nil || out.Index == 0 || out.Granted && out.Queued || out.Queued != (out.Position > 0) || out.Queued && !in.Wait {
		c.fail("%s: answer %v", what, out)
		return
	}
	c.at(out.Index)
	p := placeOf(in.Name)
	tab.saw(l)
	if out.Queued {
		return
	}
	if l.Holder != in.Holder || l.Session != in.Session || l.Token == 0 {
		c.fail("%s: granted to another: %v", what, l)
	}
	c.held(l.Token, out.HeldMs)
	if !out.Granted {
		c.later(func(w window) string {
			if w.once(p, func(now *pb.Lease) bool {
				return now.Token == l.Token && now.Holder == in.Holder && now.Session == in.Session
			}) {
				return ""
			}
			return fmt.Sprintf("%s: extended under token %d, which it never held", what, l.Token)
		})
		return
	}
	if l.Token != out.Index || l.Token <= c.floor {
		c.fail("%s: granted at index %d under token %d; %d was known before", what, out.Index, l.Token, c.floor)
	}
	c.happened(what, p, out.Index, 0, "granted")
}

// happened has it checked that a lease was changed so at an index, and, unless it is
// 0, which token ended with it.
func (c *call) happened(what string, p place, index, ended uint64, changes ...string) {
	c.later(func(w window) string {
		t := w.lines[p.scope]
		if t == nil {
			return ""
		}
		if _, _, known := t.at(p.name, index); !known || index == t.since() {
			return ""
		}
		for _, m := range t.between(p.name, index-1, index) {
			if !slices.Contains(changes, m.what) {
				continue
			}
			if ended != 0 && m.ended != ended {
				return fmt.Sprintf("%s: at index %d it ended token %d", what, index, m.ended)
			}
			return ""
		}
		return fmt.Sprintf("%s: the watch did not tell of it at index %d", what, index)
	})
}

// truly has it checked that a lease was so at some index while the call was under
// way.
func (c *call) truly(what string, p place, is func(*pb.Lease) bool) {
	c.later(func(w window) string {
		if w.once(p, is) {
			return ""
		}
		l, _ := w.at(p, w.floor)
		return fmt.Sprintf("%s: it never was so; when it was sent the lease was %v", what, l)
	})
}

func (c *call) released(what string, in *pb.ReleaseRequest, out *pb.ReleaseResponse) {
	c.at(out.GetIndex())
	p := placeOf(in.Name)
	if out.Released {
		c.happened(what, p, out.Index, in.Token, "released")
		return
	}
	c.truly(what+" had nothing to release", p, func(l *pb.Lease) bool {
		return l.Token == 0 || in.Token != 0 && l.Token > in.Token
	})
}

func (c *call) revoked(what string, in *pb.RevokeRequest, out *pb.RevokeResponse) {
	c.at(out.GetIndex())
	if in.Force {
		c.happened(what, placeOf(in.Name), out.Index, in.Token, "revoked")
		return
	}
	c.truly(what, placeOf(in.Name), func(l *pb.Lease) bool { return l.Revoking })
}

func (c *call) transferred(tab *table, what string, in *pb.TransferRequest, out *pb.TransferResponse) {
	l := out.GetLease()
	c.at(out.GetIndex())
	tab.saw(l)
	if l.GetSession() != in.ToSession || !l.GetOffered() || in.ToHolder != "" && l.GetHolder() != in.ToHolder {
		c.fail("%s: went to %v", what, l)
	}
	c.happened(what, placeOf(in.Name), out.Index, in.Token, "transferred")
}

func (c *call) pinned(what string, n *pb.LeaseName, entity string, index uint64, want bool) {
	c.at(index)
	c.later(func(w window) string {
		l, ok := w.at(placeOf(n), index)
		if ok && slices.Contains(l.Pins, entity) != want {
			return fmt.Sprintf("%s: at index %d its pins are %q", what, index, l.Pins)
		}
		return ""
	})
}

func (c *call) opened(what string, in *pb.OpenSessionRequest, out *pb.OpenSessionResponse) {
	c.at(out.GetIndex())
	if out.GetSession().GetId() != in.Id || out.Session.TtlMs != in.TtlMs {
		c.fail("%s: opened %v", what, out.GetSession())
	}
}

// closed checks that the session owned nothing for a moment at least: it may have
// been opened again since.
func (c *call) closed(what string, in *pb.CloseSessionRequest, out *pb.CloseSessionResponse) {
	c.at(out.GetIndex())
	index := out.GetIndex()
	c.later(func(w window) string {
		owned, ok := w.owned(in.Id, max(index, w.ceil))
		if !ok {
			return ""
		}
		for p, l := range owned {
			if l.Token <= index && index <= w.ceil {
				return fmt.Sprintf("%s: at index %d it still holds %v under token %d", what, w.ceil, p, l.Token)
			}
		}
		return ""
	})
}

func (c *call) extended(what string, in *pb.Extension, out *pb.ExtensionResult) {
	if out.GetHeldMs() == 0 {
		if in.Session != "" && in.Token == 0 && in.Name == nil {
			return // a session without ttl
		}
	}
	if in.Token == 0 {
		if in.Name != nil {
			c.truly(what, placeOf(in.Name), func(l *pb.Lease) bool { return l.Holder == in.Holder && l.Session == in.Session })
		}
		return
	}
	c.held(in.Token, out.GetHeldMs())
	c.tokenHeld(what, in.Token)
}

// tokenHeld has it checked that a token was that of a holding.
func (c *call) tokenHeld(what string, token uint64) {
	c.later(func(w window) string {
		p, known := w.byToken(token)
		switch {
		case p == place{} && !known:
			return ""
		case p == place{}:
			return fmt.Sprintf("%s: token %d was never granted", what, token)
		case w.once(p, func(l *pb.Lease) bool { return l.Token == token }):
			return ""
		}
		return fmt.Sprintf("%s: token %d of %v was over", what, token, p)
	})
}

// tokenLost has it checked that a token was not that of a holding which may be
// extended.
func (c *call) tokenLost(what string, token uint64) {
	c.later(func(w window) string {
		p, _ := w.byToken(token)
		if p == (place{}) || w.once(p, func(l *pb.Lease) bool { return l.Token != token || l.Revoking }) {
			return ""
		}
		return fmt.Sprintf("%s: not held, though token %d of %v was all the time", what, token, p)
	})
}

// refusedRightly has it checked that a refusal for the state's sake was true.
func (c *call) refusedRightly(what string, op *pb.Operation, e *pb.Error) {
	switch o := op.Op.(type) {
	case *pb.Operation_Claim:
		if e.Kind != incumbent.Held.String() {
			return
		}
		if l := e.Lease; l.GetToken() != 0 {
			c.truly(what+fmt.Sprintf(": held by %q under %d", l.Holder, l.Token), placeOf(o.Claim.Name), func(now *pb.Lease) bool { return now.Token == l.Token })
		}
		c.truly(what+": held", placeOf(o.Claim.Name), func(l *pb.Lease) bool {
			return l.Token != 0 && (l.Holder != o.Claim.Holder || l.Session != o.Claim.Session || l.Revoking)
		})
	case *pb.Operation_Release:
		if e.Kind == incumbent.NotHolder.String() {
			c.truly(what+": not its holder", placeOf(o.Release.Name), func(l *pb.Lease) bool {
				return l.Token != 0 && (o.Release.Token != 0 && l.Token != o.Release.Token || l.Holder != o.Release.Holder || l.Session != o.Release.Session)
			})
		}
	case *pb.Operation_Revoke:
		if e.Kind == incumbent.NotFound.String() {
			c.truly(what+": nobody holds it", placeOf(o.Revoke.Name), func(l *pb.Lease) bool { return l.Token == 0 })
		}
	case *pb.Operation_Extend:
		x := o.Extend
		switch {
		case e.Kind != incumbent.NotHolder.String():
		case x.Token != 0 && x.Name == nil && x.Session == "":
			c.tokenLost(what, x.Token)
		case x.Token == 0 && x.Name != nil:
			c.truly(what+": not its holder", placeOf(x.Name), func(l *pb.Lease) bool {
				return l.Holder != x.Holder || l.Session != x.Session || l.Revoking
			})
		}
	}
}
