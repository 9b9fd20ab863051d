package lease

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Call goes with each request of a door.
type Call struct {
	Deadline time.Time // the request is dropped unserved afterwards; zero: none
	Origin   core.Origin
	KeyID    []byte          // applies at most once; none: nil
	KeyBase  incumbent.Index // an index known when the key was chosen
	Judged   incumbent.Index // says by which policies the caller may ask for it: see [core.Meta]
	// Sequence, unless nil, is shared by calls that take effect in the order in which
	// they are handed in, whoever's they are. Without it that holds for the calls of
	// one client on one lease.
	Sequence *Sequence
}

// Sequence tells calls that belong together from all others.
type Sequence struct{ _ byte } // has a size, so that no two have one address

// Meta is what goes with the command.
func (c *Call) Meta() core.Meta {
	return core.Meta{Origin: c.Origin, KeyID: c.KeyID, KeyBase: c.KeyBase, Judged: c.Judged}
}

// Op is one operation of a bulk call: a command, or an extension.
type Op struct {
	Command core.Command // one of those that Submit takes; nil: Extend
	Extend  Extension
	KeyID   []byte // of this operation; the call's does not count
	KeyBase incumbent.Index

	Result core.Result // the answer to Command
}

// call is a request under way. It belongs to the loop once it was handed in.
type call struct {
	Call
	cmd      core.Command
	done     func(core.Result)
	deadline int64 // of the monotonic clock; 0: none

	client  client
	named   bool
	name    incumbent.Name // of the lease, if the command names one
	read    bool           // waits for a confirmation, or for the leader
	next    *call          // of the same client, among those that do
	order   uint64
	mark    key             // what it touches while it is on its way through the log
	decided bool            // was answered Unknown, and has been applied since or never will be
	token   incumbent.Token // that the leader was asked to extend
}

// client is who sent a command, as far as the command says.
type client struct {
	holder  string
	session incumbent.SessionID
}

// sameAs reports whether two commands may come from one client. One that does
// not say who it is may be anybody.
func (c client) sameAs(o client) bool {
	return c == o || c == client{} || o == client{}
}

// newCall checks what can be checked without the state.
func newCall(c Call, cmd core.Command, done func(core.Result)) (*call, error) {
	q := &call{Call: c, cmd: cmd, done: done}
	if len(c.KeyID) > core.MaxKeyBytes {
		return nil, incumbent.Errorf(incumbent.TooLarge, "key has %d bytes, limit is %d", len(c.KeyID), core.MaxKeyBytes)
	}
	var err error
	switch m := cmd.(type) {
	case leases.ClaimCommand:
		q.name, q.client, err = m.Name, client{m.Holder, m.Session}, checkClaim(m)
	case leases.ReleaseCommand:
		q.name, q.client = m.Name, client{m.Holder, m.Session}
		if m.Holder == "" && m.Token == 0 {
			err = incumbent.Errorf(incumbent.Invalid, "name the holder or the token")
		}
	case leases.RevokeCommand:
		q.name = m.Name
	case leases.TransferCommand:
		q.name, q.client = m.Name, client{m.Holder, m.Session}
	case leases.PinCommand:
		q.name, err = m.Name, incumbent.ValidatePin(m.Entity)
	case leases.UnpinCommand:
		q.name, err = m.Name, incumbent.ValidatePin(m.Entity)
	case leases.LeaveQueueCommand:
		q.name, q.client = m.Name, client{m.Holder, m.Session}
	case core.OpenSessionCommand:
		q.client.session, err = m.ID, checkOpen(m)
	case core.CloseSessionCommand:
		q.client.session, err = m.ID, checkSessionID(m.ID)
	default:
		err = incumbent.Errorf(incumbent.Invalid, "no such call")
	}
	switch cmd.(type) {
	case core.OpenSessionCommand, core.CloseSessionCommand:
	default:
		q.named = true
		if err == nil {
			err = q.name.Validate()
		}
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

func checkClaim(m leases.ClaimCommand) error {
	if err := m.Name.Validate(); err != nil {
		return err
	}
	if err := incumbent.ValidateHolder(m.Holder); err != nil {
		return err
	}
	switch {
	case m.Session.IsZero() && m.Wait:
		return incumbent.Errorf(incumbent.Invalid, "waiting needs a session")
	case m.Session.IsZero():
		return incumbent.ValidateTTL(m.TTL)
	case m.TTL != 0:
		return incumbent.Errorf(incumbent.Invalid, "a lease owned by a session lives by the session's ttl; leave ttl out")
	}
	return nil
}

func checkOpen(m core.OpenSessionCommand) error {
	if m.TTL != 0 {
		if err := incumbent.ValidateTTL(m.TTL); err != nil {
			return err
		}
	}
	return checkSessionID(m.ID)
}

func checkSessionID(id incumbent.SessionID) error {
	if id.IsZero() {
		return incumbent.Errorf(incumbent.Invalid, "a session needs an id")
	}
	return nil
}

// reserve reports whether a command may use what is kept for those that make
// room: it ends something.
func reserve(cmd core.Command) bool {
	switch cmd.(type) {
	case leases.ReleaseCommand, core.CloseSessionCommand, leases.LeaveQueueCommand, leases.RevokeCommand,
		leases.ExpireCommand, core.ExpireSessionCommand, core.TrimKeysCommand:
		return true
	}
	return false
}

// errorOf makes an error of the module's type of any.
func errorOf(err error) *incumbent.Error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*incumbent.Error); ok { //nolint:errorlint // an error that wraps one is not it
		return e
	}
	return incumbent.Errorf(incumbent.KindOf(err), "%w", err)
}

// Claim asks for a lease. See [Service.Submit].
func (s *Service) Claim(c Call, m leases.ClaimCommand, done func(core.Result)) { s.Submit(c, m, done) }

// Release frees a lease. Next is chosen by the service.
func (s *Service) Release(c Call, m leases.ReleaseCommand, done func(core.Result)) {
	s.Submit(c, m, done)
}

// Revoke takes a lease from whoever holds it, now or at its deadline.
func (s *Service) Revoke(c Call, m leases.RevokeCommand, done func(core.Result)) {
	s.Submit(c, m, done)
}

// Transfer offers a lease to a session.
func (s *Service) Transfer(c Call, m leases.TransferCommand, done func(core.Result)) {
	s.Submit(c, m, done)
}

// Pin keeps a lease from expiring.
func (s *Service) Pin(c Call, m leases.PinCommand, done func(core.Result)) { s.Submit(c, m, done) }

// Unpin takes a pin away; the lease's clock starts anew.
func (s *Service) Unpin(c Call, m leases.UnpinCommand, done func(core.Result)) { s.Submit(c, m, done) }

// LeaveQueue gives up a place in a queue.
func (s *Service) LeaveQueue(c Call, m leases.LeaveQueueCommand, done func(core.Result)) {
	s.Submit(c, m, done)
}

// OpenSession opens a session.
func (s *Service) OpenSession(c Call, m core.OpenSessionCommand, done func(core.Result)) {
	s.Submit(c, m, done)
}

// CloseSession ends a session and frees its leases.
func (s *Service) CloseSession(c Call, m core.CloseSessionCommand, done func(core.Result)) {
	s.Submit(c, m, done)
}

// Await submits a command and waits for its result, or for ctx. If ctx ends
// first the error is Unknown: the command may or may not take effect. The
// result's own error is returned too.
func (s *Service) Await(ctx context.Context, c Call, cmd core.Command) (core.Result, error) {
	if d, ok := ctx.Deadline(); ok && (c.Deadline.IsZero() || d.Before(c.Deadline)) {
		c.Deadline = d
	}
	got := make(chan core.Result, 1)
	s.Submit(c, cmd, func(r core.Result) { got <- r })
	select {
	case r := <-got:
		if r.Err != nil {
			return r, r.Err
		}
		return r, nil
	case <-ctx.Done():
		return core.Result{}, &incumbent.Error{
			Kind: incumbent.Unknown, Message: "the call was given up before its outcome was known", Err: ctx.Err(),
		}
	}
}
