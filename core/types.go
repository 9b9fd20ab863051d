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

// What says how a session or member changed, or that it is a family's change.
type What uint8

// The changes.
const (
	SessionOpen   What = iota + 1
	SessionClose       // closed
	SessionEnd         // expired
	SessionTTL         // its life was extended, and perhaps its ttl
	MemberPut          // added or described anew
	MemberGone         // removed
	FamilyChanged      // of a family: see FamilyChange.What
	numWhats
)

var whatNames = [numWhats]string{
	"none", "session_open", "session_close", "session_end", "session_ttl", "member_put", "member_gone", "family_changed",
}

// String returns the change's name in snake case, as used in JSON and metrics.
func (w What) String() string {
	if w < numWhats {
		return whatNames[w]
	}
	return fmt.Sprintf("what_%d", uint8(w))
}

// Session is the replicated owner of leases.
type Session struct {
	ID      incumbent.SessionID
	TTL     time.Duration // 0: none, lives until closed
	Renewal uint64        // from Opened on, raised by every command that shows its client alive or touches a pin
	Opened  incumbent.Index
	Origin  *Origin
}

// Change is what one command did to one session, member or record of a family: nil is
// "no record". All changes of one command stand together.
//
// What shows the client of a session alive changes the session, too, as a part of the
// same change: see [Exec.TellAlive].
type Change struct {
	Index         incumbent.Index // of the command, or the newest further one that it had taken; of a grant, its token
	What          What
	Late          time.Duration // expiry of a session: after the deadline
	By            string        // close of a session: why
	Origin        *Origin
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
	Session  *Session
	Member   *Member // PutMember: as it is now, or (refused) as it was
	Record   any     // of a command of a family: as its package says. With a key it is kept only as far as [Remembering] says
	Txn      *TxnResult
	View     *View // Checkpoint: the state as it left it, whatever else was in its batch
	Replayed bool  // the key was known: the first attempt's result, its error in general words, no member and no view
	Idle     bool  // nothing was proposed: a confirmed view answers what would change nothing. Never of a command that was applied
}

// Whats returns all kinds of change, for tables that must cover them all.
func Whats() []What {
	ws := make([]What, 0, numWhats-1)
	for w := SessionOpen; w < numWhats; w++ {
		ws = append(ws, w)
	}
	return ws
}
