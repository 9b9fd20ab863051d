package credential

import (
	"strings"
	"unicode/utf8"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Verb is what a command does.
type Verb uint8

// The verbs. The numbers are part of the log: append only.
const (
	Create  Verb = iota + 1 // makes the record of a token or password
	End                     // ends one: it was taken back or, with Expired, its end has passed
	Revoke                  // takes a certificate back, of which there need be no record
	Settled                 // the sessions that a credential left behind are closed
	Forget                  // drops the record of what has ended
	numVerbs
)

// Command is one command of the family. Which fields mean something is up to the
// verb.
type Command struct {
	Verb Verb
	ID   incumbent.Index // of End, Settled and Forget

	// Of Create and Revoke, as in [Credential]. Method is that of Create.
	Method    Method
	Principal string
	Scope     string
	Secret    []byte
	Grants    uint64
	Ends      Moment

	EndSessions bool // of Create; of End and Revoke: whatever the record says
	Expired     bool // of End
}

// Encode implements [core.Command].
func (c Command) Encode(meta core.Meta) []byte {
	w := wire.Writer{B: make([]byte, 0, 64+len(c.Principal)+len(c.Secret))}
	w.Uint(1, uint64(c.Verb))
	w.Uint(2, uint64(c.ID))
	w.Uint(3, uint64(c.Method))
	w.Text(4, c.Principal)
	w.Text(5, c.Scope)
	w.Bytes(6, c.Secret)
	w.Uint(7, c.Grants)
	w.Uint(8, uint64(c.Ends))
	w.Flag(9, c.EndSessions)
	w.Flag(10, c.Expired)
	return core.EncodeFamily(meta, Family{}, w.B)
}

// decode reads a command. Secret aliases the bytes.
func (c *Command) decode(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool { return c.set(&f) }) && c.Verb > 0 && c.Verb < numVerbs && c.Method < numMethods
}

func (c *Command) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return wire.Small(f, &c.Verb)
	case 2:
		return f.Uint((*uint64)(&c.ID))
	case 3:
		return wire.Small(f, &c.Method)
	case 4:
		return f.CopyText(&c.Principal)
	case 5:
		return f.CopyText(&c.Scope)
	case 6:
		return f.Bytes(&c.Secret)
	case 7:
		return f.Uint(&c.Grants)
	case 8:
		return moment(f, &c.Ends)
	case 9:
		return f.Flag(&c.EndSessions)
	case 10:
		return f.Flag(&c.Expired)
	}
	return false
}

func moment(f *wire.Field, to *Moment) bool {
	var n uint64
	ok := f.Uint(&n) && n <= maxMoment
	*to = Moment(n)
	return ok
}

// Validate returns an Invalid error for what no state could make right.
func (c *Command) Validate() error {
	if c.Verb == 0 || c.Verb >= numVerbs || c.Ends < 0 || c.Ends > maxMoment {
		return invalid("this is no command")
	}
	if c.Verb == Create || c.Verb == Revoke {
		if c.ID != 0 || c.Expired {
			return invalid("a new record has no id, and has not expired")
		}
		return c.described().check()
	}
	switch {
	case c.ID == 0:
		return invalid("a credential has an id above 0")
	case c.Method != 0 || c.Principal != "" || c.Scope != "" || len(c.Secret) > 0 || c.Grants != 0 || c.Ends != 0:
		return invalid("only a new record is described")
	case c.Verb != End && (c.EndSessions || c.Expired), c.EndSessions && c.Expired:
		return invalid("only who takes a credential back says what becomes of sessions")
	}
	return nil
}

// described is the record that the command describes.
func (c *Command) described() *Credential {
	r := &Credential{
		Method: c.Method, Principal: c.Principal, Scope: c.Scope, Secret: c.Secret,
		Grants: c.Grants, Ends: c.Ends, EndSessions: c.EndSessions,
	}
	if c.Verb == Revoke {
		if r.Method != 0 {
			r.Method = numMethods // none
		} else {
			r.Method = Certificate
		}
	} else if r.Method == Certificate {
		r.Method = numMethods // taken back, but never made
	}
	return r
}

// check returns an Invalid error unless the record may be one, as far as it was
// described by who made it.
func (c *Credential) check() error {
	password := c.Method == Password
	switch {
	case c.Method == 0 || c.Method >= numMethods:
		return invalid("a credential is a token or a password, and only certificates are revoked without one")
	case c.Principal == "" && c.Method == Certificate:
		if c.EndSessions {
			return invalid("whose sessions end needs a principal")
		}
	case !ValidPrincipal(c.Principal):
		return invalid("%.300q is no principal; KIND:NAME is one", c.Principal)
	case password && c.EndSessions:
		return invalid("who logs in by password has no sessions")
	}
	switch {
	case !password && (c.Scope != "" || c.Grants != 0):
		return invalid("only a password has a scope and grants")
	case password && (c.Scope == "" || len(c.Scope) > incumbent.MaxNamespaceBytes || !printable(c.Scope)):
		return invalid("%.100q is no scope of a password", c.Scope)
	}
	return c.checkSecret()
}

func (c *Credential) checkSecret() error {
	n := len(c.Secret)
	switch {
	case c.Method == Token && n != TokenBytes:
		return invalid("the hash of a token has %d bytes, this one %d", TokenBytes, n)
	case c.Method == Password && (n == 0 || n > MaxSecretBytes || !printable(string(c.Secret))):
		return invalid("what is kept of a password has 1 to %d printable bytes", MaxSecretBytes)
	case c.Method == Certificate && (n == 0 || n > MaxSerialBytes || c.Secret[0] == 0):
		return invalid("a serial number has 1 to %d bytes, and none in front that is zero", MaxSerialBytes)
	}
	return nil
}

// printable reports whether a text is ASCII without control characters and space.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// ValidPrincipal reports whether a text names a principal, KIND:NAME: a kind of small
// letters, and a name that a holder may have.
func ValidPrincipal(s string) bool {
	kind, name, ok := strings.Cut(s, ":")
	if !ok || kind == "" || len(kind) > maxKindBytes || !utf8.ValidString(s) {
		return false
	}
	return strings.IndexFunc(kind, func(r rune) bool { return r < 'a' || r > 'z' }) < 0 && incumbent.ValidateHolder(name) == nil
}

func invalid(format string, args ...any) error {
	return incumbent.Errorf(incumbent.Invalid, format, args...)
}
