package lease

import (
	"cmp"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	corewire "github.com/incumbent-dev/incumbent/core/wire"
)

// Extension asks to keep one thing alive: the lease held under Token, or the
// lease that Named names, or (alone) Session, or (alone) Lasting. Extending a lease
// that a session owns extends the session.
type Extension struct {
	Token   incumbent.Token
	Named   *Named              // with Token: must be its lease and holder
	Session incumbent.SessionID // with Token or Named: must own the lease
	Lasting *Lasting            // a deadline of a family: begins anew. Without a TTL
	TTL     time.Duration       // 0: as logged; else 1 s to 24 h. Shorter shortens nothing; longer is logged first
	Refused incumbent.Kind      // not OK: it is not extended, and so answered
	Beat    bool                // with Session alone, from the connection that it is attached to: Conflict if another has it by now

	Kind     incumbent.Kind // the answer: OK, or why not
	Held     time.Duration  // if OK: counted from when the holder sent
	Revoking bool           // of a session: one of its leases is being revoked
	// RevokingTokens are the leases of the session that are being revoked: at
	// most [MaxRevokingTokens] of them, by name; if there are more, Held of a session is 0. It
	// is not to be changed.
	RevokingTokens []incumbent.Token

	stored bool // its deadline has been stored
	alien  bool // what was found is not the caller's
	ref    ref  // where it was found
	found  incumbent.Token
}

// valid reports whether an extension is not refused, and names something, and a ttl in bounds.
func (x *Extension) valid() bool {
	if x.Refused != incumbent.OK {
		return false
	}
	if x.Lasting != nil {
		return x.Token == 0 && x.Named == nil && x.Session.IsZero() && x.TTL == 0 && x.Lasting.fits()
	}
	return (x.Token != 0 || x.Named != nil || !x.Session.IsZero()) &&
		(x.TTL == 0 || x.TTL >= incumbent.MinTTL && x.TTL <= incumbent.MaxTTL) && x.Named.fits()
}

// invalid is the answer to what is not valid.
func (x *Extension) invalid() incumbent.Kind { return cmp.Or(x.Refused, incumbent.Invalid) }

// Named says which lease by name, and who holds it. The session of the
// Extension, none included, must be the lease's.
type Named struct {
	Name   incumbent.Name
	Holder string
}

// fits reports whether the texts are no longer than those of any lease.
func (n *Named) fits() bool {
	return n == nil || len(n.Name.Namespace) <= incumbent.MaxNamespaceBytes && len(n.Name.Model) <= incumbent.MaxNamespaceBytes &&
		len(n.Name.Lease) <= incumbent.MaxNameBytes && len(n.Holder) <= incumbent.MaxHolderBytes
}

// Lasting names a deadline of a family that may be extended: see [core.Deadline].
type Lasting struct {
	Family     corewire.Number
	ID         string
	Generation incumbent.Index
}

func (l *Lasting) key() deadlineKey { return deadlineKey{int32(l.Family), l.ID} }

func (l *Lasting) fits() bool {
	return l.Family > 0 && l.Generation > 0 && len(l.ID) > 0 && len(l.ID) <= MaxDeadlineIDBytes
}

// Batch is a list of extensions that are answered together. It belongs to the
// caller, who may use it again once Done was called.
type Batch struct {
	Items []Extension
	// Patience is how long it may wait for company on its way to another member that
	// leads, but no longer than a part of a session's ttl; 0: it leaves at once.
	Patience time.Duration
	// Done is called once, on the lease loop.
	Done func(*Batch)

	RetryAfter time.Duration // when to come back, where an item's kind is transient
	Leader     uint64        // who leads, if this member does not and knows

	left    int   // items without an answer
	arrived int64 // when the loop read it

	// Whose it is, if not a door's: at most one is set.
	attach *attach
	call   *call
	served *served
}

// Err returns the answer of the batch as a whole where all items share an
// error, as they do when this member does not lead.
func (b *Batch) Err() *incumbent.Error {
	if len(b.Items) == 0 || b.Items[0].Kind == incumbent.OK {
		return nil
	}
	k := b.Items[0].Kind
	for i := range b.Items {
		if b.Items[i].Kind != k {
			return nil
		}
	}
	return &incumbent.Error{Kind: k, Message: explain(k), RetryAfter: b.RetryAfter}
}

// explain says in words what the kind of an unsuccessful extension means.
func explain(k incumbent.Kind) string {
	switch k {
	case incumbent.NotHolder:
		return "the lease is not held under this token or name, or is being revoked"
	case incumbent.Invalid:
		return "the extension names nothing, or its name or ttl is out of bounds"
	case incumbent.Expired:
		return "the session is not open"
	case incumbent.NotFound:
		return "nothing lasts under that name since then, or it may not be extended"
	case incumbent.NotLeader:
		return "only the leader extends"
	case incumbent.Unavailable:
		return "leadership was not confirmed"
	case incumbent.Conflict:
		return "the session was attached elsewhere or detached meanwhile"
	case incumbent.Overloaded:
		return "too many extensions wait"
	default:
		return "the extension is refused"
	}
}

// KeepsCritical reports whether an extension keeps a critical lease, which is never
// refused for the load. By session it costs one look-up whatever the session owns. One that is
// refused anyway keeps none.
func KeepsCritical(view *core.View, e *Extension) bool {
	if e.Refused != incumbent.OK {
		return false
	}
	var l *leases.Lease
	switch {
	case e.Token != 0:
		l = leases.Of(view).ByToken(e.Token)
	case e.Named != nil:
		l = leases.Of(view).Lease(e.Named.Name)
	}
	if l != nil {
		return l.Critical
	}
	return leases.Of(view).Critical(e.Session)
}
