package core

import (
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Origin says where a command came from; for people, never for decisions, save for
// Principal: see [Exec.Principal]. Records share it: one that a record points to is
// never nil and never changes.
type Origin struct {
	At        time.Time // the proposer's wall clock in UTC, millisecond resolution
	Door      string
	Address   string
	Principal string // who asked, by kind and name; "": a member, on its own account
}

// noOrigin is that of what came from nowhere.
var noOrigin = new(Origin)

// What says how a lease or session changed.
type What uint8

// The changes. The numbers are part of snapshots: append only.
const (
	Granted     What = iota + 1 // to a caller that claimed it free
	Extended                    // by a logged claim of its holder
	Offered                     // handed to a waiter or by transfer
	Accepted                    // the offer has been extended: told a while after its holder was
	Released                    // by its holder
	Expired                     // its deadline, or its session's, passed
	Revoked                     // by an operator
	SessionGone                 // its session was closed
	Transferred                 // its holder gave it away
	Pinned
	Unpinned
	Queued        // somebody waits
	Dequeued      // somebody no longer waits
	Revoking      // extensions stopped; free at the deadline
	Declined      // an offer was not accepted in time
	SessionOpen   // sessions only
	SessionClose  // sessions only
	SessionEnd    // sessions only: expired
	SessionTTL    // sessions only: its life was extended, and perhaps its ttl
	Forgotten     // the record of a free lease was dropped to make room
	MemberPut     // members only: added or described anew
	MemberGone    // members only: removed
	FamilyChanged // of a family only
	numWhats
)

var whatNames = [numWhats]string{
	"none", "granted", "extended", "offered", "accepted", "released", "expired", "revoked", "session_gone",
	"transferred", "pinned", "unpinned", "queued", "dequeued", "revoking", "declined",
	"session_open", "session_close", "session_end", "session_ttl", "forgotten",
	"member_put", "member_gone", "family_changed",
}

// String returns the change's name in snake case, as used in JSON and metrics.
func (w What) String() string {
	if w < numWhats {
		return whatNames[w]
	}
	return fmt.Sprintf("what_%d", uint8(w))
}

// Lease is one lease. A *Lease reached through a View never changes.
//
// There are millions of them, most of them granted once: what all share, what few
// have, and what follows from the rest is not in the record. It fills 112 bytes,
// which is a size that the allocator has.
type Lease struct {
	*entry                        // its Name
	*seldom                       // its Pins and PreviousHolder; see also Lease.History
	Holder    string              // "" when free
	Session   incumbent.SessionID // zero: held without one
	Token     incumbent.Token     // of this holding; 0 when free
	LastToken incumbent.Token     // greatest ever granted
	TTL       time.Duration       // logged ttl; 0 when a session owns it
	Renewal   uint64              // raised by every command that touches the holding
	Modified  incumbent.Index     // under which its last change was told
	Origin    *Origin             // of the grant; empty when free
	granted   incumbent.Index     // of the grant, while that is the newest of its history: 0 if it is not
	Waiting   int32               // places in its queue: see View.Queue
	Offered   bool                // handed over; whether it was accepted the leader knows, and says so with Accepted
	Critical  bool                // its extensions are refused last
	Revoking  bool                // extensions are refused; free at the deadline
}

// entry is what the records of one lease have in common. It lives as long as there
// is one.
type entry struct {
	Name  incumbent.Name
	row   uint64 // where the record is; 0: nowhere yet
	after uint64 // row of the next name that has the same number: see directory. The apply goroutine's
}

// seldom is what few leases have. It never changes: records share it.
type seldom struct {
	Pins           []string // sorted; while any is there it does not expire
	PreviousHolder string   // whoever held it last before; an offer that was Declined does not count
	past           []byte   // see history.go
}

// nothingSeldom is that of what has none of it.
var nothingSeldom = new(seldom)

// Since is when the present holding was granted, as its proposer's wall clock had it.
func (l *Lease) Since() time.Time { return l.Origin.At }

// Free reports whether nobody holds the lease.
func (l *Lease) Free() bool { return l == nil || l.Token == 0 }

// LeaseChange is one entry of a lease's history.
type LeaseChange struct {
	Index  incumbent.Index
	What   What
	Holder string
	Token  incumbent.Token
	Origin *Origin
	Late   time.Duration // expiry: after the deadline
	By     string        // revocation: by whom; pin: the entity; session gone: why
}

// Session is the replicated owner of leases.
type Session struct {
	ID      incumbent.SessionID
	TTL     time.Duration // 0: none, lives until closed
	Renewal uint64        // from Opened on, raised by every command that shows its client alive or touches a pin
	Opened  incumbent.Index
	Origin  *Origin
}

// Change is what one command did to one lease, session or member: nil is "no
// record". All changes of one command stand together.
//
// A command that hands a lease over makes two changes of it: one that frees it
// and one that offers it, both under the index of the offer. The record between the two (Token 0) is never in a
// View: a hand-over is never free.
//
// What a session's client does to a lease (a claim granted, extended or queued,
// an offer accepted), and pin and unpin of a lease that it owns, change both.
type Change struct {
	Index         incumbent.Index // of the command, or the newest further one that it had taken; of a grant, its token
	What          What
	Late          time.Duration // expiry: after the deadline
	By            string        // revocation: by whom; pin: the entity; session close: why
	Origin        *Origin
	Lease         *Lease // after the change; a freed lease is there with Token 0
	LeaseBefore   *Lease
	Session       *Session
	SessionBefore *Session
	Member        *Member
	MemberBefore  *Member // removed without ever being recorded: nothing but its id
	Family        *FamilyChange
}

// Result is what one command answers.
type Result struct {
	Index    incumbent.Index // of this command
	Err      *incumbent.Error
	Lease    *Lease // as the command left it, or (Held, NotHolder, Conflict) as it found it
	Session  *Session
	Member   *Member // PutMember: as it is now, or (refused) as it was
	Record   any     // of a command of a family: as its package says; not kept with a key
	Txn      *TxnResult
	View     *View // Checkpoint: the state as it left it, whatever else was in its batch
	Granted  bool  // Claim: a new holding began
	Queued   bool  // Claim with wait: took or kept a place
	Position int   // Claim with wait: place in the queue, from 1
	Replayed bool  // the key was known: the first attempt's result, its lease without history, queue and pins, its error in general words, no member and no view
}

// Whats returns all kinds of change, for tables that must cover them all.
func Whats() []What {
	ws := make([]What, 0, numWhats-1)
	for w := Granted; w < numWhats; w++ {
		ws = append(ws, w)
	}
	return ws
}
