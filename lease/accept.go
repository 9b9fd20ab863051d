package lease

import (
	"github.com/incumbent-dev/incumbent"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// A lease that is handed over is an offer until its holder's first extension, which
// is stored, judged and acknowledged like any other: the hand-over takes no second
// command. What makes that safe is that nobody takes an offer for lapsed while its
// holder may count on it. The leader under which it began knows whether it was
// accepted. Any other does not, takes each offer that it finds for a holding and
// gives it its session's full ttl. Whatever else may end it (a release, a revocation,
// the end of its session) treats an offer as a holding.
//
// The log is told of what was accepted a while later, for those who read and watch:
// nothing waits for that.

// acceptance is an offer that was accepted.
type acceptance struct {
	token incumbent.Token
	at    int64 // book time
}

// accept makes an offer a holding.
func (b *Book) accept(i int32) {
	l := &b.leases[i]
	l.flags &^= offered
	b.accepted = append(b.accepted, acceptance{l.token, b.now})
}

// takeAccepted takes out the first one that was accepted long enough ago.
func (b *Book) takeAccepted() (incumbent.Token, bool) {
	if len(b.accepted) == 0 || b.now-b.accepted[0].at < int64(acceptanceLoggedAfter) {
		return 0, false
	}
	a := b.accepted[0]
	b.accepted = b.accepted[1:]
	return a.token, true
}

// logAcceptances tells the log of holdings that it still has as offers.
func (e *Engine) logAcceptances() {
	for range maxAcceptances {
		token, ok := e.book.takeAccepted()
		if !ok {
			return
		}
		if l := leases.Of(e.view).ByToken(token); l != nil && l.Offered && !l.Revoking {
			e.out.Proposals = append(e.out.Proposals, Proposal{
				Command: leases.AcceptCommand{Token: token}.Encode(e.own()), Term: e.term, Ticket: Ticket{accepted: token},
			})
		}
	}
}

// acceptanceDone takes the outcome of telling the log: it is told again if it was
// not.
func (e *Engine) acceptanceDone(token incumbent.Token, err error) {
	if err != nil && e.leading {
		e.book.accepted = append(e.book.accepted, acceptance{token, e.book.now})
	}
}
