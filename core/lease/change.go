package lease

import (
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// What says how a lease changed.
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
	Queued    // somebody waits
	Dequeued  // somebody no longer waits
	Revoking  // extensions stopped; free at the deadline
	Declined  // an offer was not accepted in time
	Forgotten // the record of a free lease was dropped to make room
	numWhats
)

var whatNames = [numWhats]string{
	"none", "granted", "extended", "offered", "accepted", "released", "expired", "revoked", "session_gone",
	"transferred", "pinned", "unpinned", "queued", "dequeued", "revoking", "declined", "forgotten",
}

// String returns the change's name in snake case, as used in JSON and metrics.
func (w What) String() string {
	if w < numWhats {
		return whatNames[w]
	}
	return fmt.Sprintf("what_%d", uint8(w))
}

// Whats returns all kinds of change, for tables that must cover them all.
func Whats() []What {
	ws := make([]What, 0, numWhats-1)
	for w := Granted; w < numWhats; w++ {
		ws = append(ws, w)
	}
	return ws
}

// Change is what one command did to one lease: nil is "no record". All changes of one
// command stand together.
//
// A command that hands a lease over makes two changes of it: one that frees it
// and one that offers it, both under the index of the offer. The record between the two (Token 0) is never in a
// View: a hand-over is never free.
//
// What a session's client does to a lease (a claim granted, extended or queued,
// an offer accepted), and pin and unpin of a lease that it owns, change the session, too.
type Change struct {
	*core.Change
	What        What
	Lease       *Lease // after the change; a freed lease is there with Token 0
	LeaseBefore *Lease
}

// ChangeOf returns what a change did to a lease; false: it was about none.
func ChangeOf(c *core.Change) (Change, bool) {
	f := c.Family
	if f == nil || f.Family != Number {
		return Change{}, false
	}
	n, _ := f.After.(*Lease)
	o, _ := f.Before.(*Lease)
	return Change{c, What(f.What), n, o}, true
}

// Late is how long after its deadline a lease expired, to the millisecond; By is who
// revoked it, the entity that pins it or no longer does, or why its session was closed.
// Neither says anything of other changes.
func (c *Change) Late() time.Duration { return c.remembered().Late }

// By is as [Change.Late] says.
func (c *Change) By() string { return c.remembered().By }

// remembered is the change as the lease's history has it; the zero value: it has not.
func (c *Change) remembered() LeaseChange {
	if c.Lease == nil || c.Lease.granted != 0 {
		return LeaseChange{} // forgotten, or granted just now, or not remembered at all
	}
	var newest []byte
	for b := c.Lease.past; len(b) > 0; {
		newest, b = nextChange(b)
	}
	last := readChange(newest)
	if last.what != c.What || last.index != c.Index {
		return LeaseChange{}
	}
	return last.unpack()
}

// LeaseChange is one entry of a lease's history.
type LeaseChange struct {
	Index  incumbent.Index
	What   What
	Holder string
	Token  incumbent.Token
	Origin *core.Origin
	Late   time.Duration // expiry: after the deadline
	By     string        // revocation: by whom; pin: the entity; session gone: why
}

// TopicOf is the topic that changes of a lease are told under.
func TopicOf(n incumbent.Name) core.Topic {
	return core.Topic{Scope: [2]string{n.Namespace, n.Model}, Name: n.Lease}
}

// size is what keeping a change costs besides what every change does.
func (l *Lease) size() int {
	n := len(l.Name.Lease) + len(l.Holder) + len(l.Origin.Address)
	for _, p := range l.Pins {
		n += len(p)
	}
	return n
}

// tell tells of a change of a record that is stored, or that comes between two that are.
// client is the session whose client is shown alive by it, if there is one.
func (s *exec) tell(what What, o, n *Lease, client incumbent.SessionID) {
	c := core.FamilyChange{What: uint8(what)}
	if o != nil {
		c.Before = o
	}
	if n == nil { // forgotten: it is free for everybody before and after
		c.Quiet = true
	} else {
		if n.Modified != s.x.Index() {
			panic(fmt.Sprintf("lease: change %v has index %d, its lease %d", what, s.x.Index(), n.Modified))
		}
		c.Topic, c.After, c.Size = TopicOf(n.Name), n, n.size()
	}
	s.x.TellAlive(Family{}, client, c)
}

// put stores a changed lease and tells of it: o is the record so far (nil: none), n its
// successor.
func (s *exec) put(what What, o, n *Lease) { s.putAlive(what, o, n, incumbent.SessionID{}) }

// putAlive is put for what only a living client does. An expiry of its session
// that was proposed before becomes void: the client counts on its ttl from here
// on.
func (s *exec) putAlive(what What, o, n *Lease, client incumbent.SessionID) {
	n.Modified = s.x.Index()
	s.replace(o, n)
	s.tell(what, o, n, client)
}
