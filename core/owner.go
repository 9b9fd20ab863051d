package core

import "github.com/incumbent-dev/incumbent"

// Whose a session is says the principal of the command that opened it. Its id alone
// is no right: whoever else names it in a command is denied what it asks for, save
// for operators, and for what members do on their own account.

// operatorKind is the kind of principals that may use every session, and whom no
// share of what is scarce binds.
const operatorKind = "operator"

// Privileged reports whether a principal, as commands name it, is an operator or
// nobody: a member itself.
func Privileged[T string | []byte](principal T) bool {
	const prefix = operatorKind + ":"
	return len(principal) == 0 || string(principal) == operatorKind ||
		len(principal) > len(prefix) && string(principal[:len(prefix)]) == prefix
}

// Owner is the principal that opened the session, as commands name it; "": nobody.
func (s *Session) Owner() string { return s.Origin.Principal }

// UsableBy reports whether a principal may use the session: its owner, and operators.
func (s *Session) UsableBy(principal string) bool {
	return Privileged(principal) || principal == s.Owner()
}

// mayUse reports whether whoever sent the command may use a session.
func (c *command) mayUse(o *Session) bool {
	return Privileged(c.principal) || string(c.principal) == o.Owner()
}

// use returns an open session that a command names: Expired if it is not open,
// Denied if it is another's.
func (s *State) use(c *command, id incumbent.SessionID) (*Session, *incumbent.Error) {
	o := s.sessionOf(id)
	switch {
	case o == nil:
		return nil, incumbent.Errorf(incumbent.Expired, "session %v is not open", id)
	case !c.mayUse(o):
		return nil, notOwner()
	}
	return o, nil
}

// checkOwner refuses what is done with a session that another has opened. One that
// is not open, or not named, is nobody's.
func (s *State) checkOwner(c *command, id incumbent.SessionID) *incumbent.Error {
	if o := s.sessionOf(id); o != nil && !c.mayUse(o) {
		return notOwner()
	}
	return nil
}

func notOwner() *incumbent.Error {
	return fail(incumbent.Denied, "the session is another's").WithHint("use a session that the same principal has opened, or ask an operator")
}

// CheckOwner returns a Denied error if a session is open that whoever asked for the
// command may not use.
func (x *Exec) CheckOwner(id incumbent.SessionID) *incumbent.Error {
	return x.s.checkOwner(&x.s.cmd, id)
}
