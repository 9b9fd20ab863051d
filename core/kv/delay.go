package kv

import (
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Delay keeps a key from being locked, since its lock ended with its session.
type Delay struct {
	Key
	// Owner is whose the entry was: the delay counts as a key against its quota and that of
	// the namespace. "": against none, since nobody owned the entry, or the delay began
	// before all members counted delays.
	Owner string
	Since incumbent.Index // of that end
	For   time.Duration
}

// counted is what the delay counts as for quotas, nil: nothing. Else whoever locks keys,
// and has them deleted with the session, would keep any number of delays beside what it
// may have.
func (d *Delay) counted() *Entry {
	if d.Owner == "" {
		return nil
	}
	return &Entry{Key: d.Key, Owner: d.Owner}
}

var _ core.Timed = (*View)(nil)

// deadline is when the delay is over.
func (d *Delay) deadline() *core.Deadline {
	return &core.Deadline{Family: Number, ID: d.id(), Generation: d.Since, After: d.For}
}

// id names the deadline of a key's delay: a namespace has no control character.
func (k Key) id() string { return k.Namespace + "\x00" + k.Name }

// Deadlines implements [core.Timed]: one for each delay.
func (v *View) Deadlines(fn func(*core.Deadline) bool) {
	v.delays.Scan(func(d *Delay) bool { return fn(d.deadline()) })
}

// EndDeadline implements [core.Timed].
func (v *View) EndDeadline(d *core.Deadline) core.Command {
	namespace, name, _ := strings.Cut(d.ID, "\x00")
	return Command{Verb: EndDelay, Key: Key{namespace, name}, Index: d.Generation}
}
