package core

import "github.com/incumbent-dev/incumbent"

// Judging are tables of what doors judge their callers by: those of the policies.
type Judging interface {
	Tables
	// Changed is the index of the newest change, 0: there never was one. See [Meta].
	Changed() incumbent.Index
}

// outlived refuses a command of a caller who was let do it by policies that have
// changed before the command came to its place in the log. Whether the new ones let
// him is for the door to say: the refusal is transient.
func (s *State) outlived(c *command) *incumbent.Error {
	if c.judged == 0 || s.judges == nil || s.judges.Changed() < incumbent.Index(c.judged) {
		return nil
	}
	return fail(incumbent.Unavailable, "a policy has changed since the request was allowed: it was not executed, and is judged anew if it is repeated")
}
