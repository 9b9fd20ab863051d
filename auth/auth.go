// Package auth answers two questions for all doors: who are you, and may you.
//
// Who: an [Authenticator] looks at what a connection and a request bring (a
// client certificate, a bearer credential, or nothing but a loopback address)
// and names a [Principal]; a [Verifier] does so by tag and password. May you:
// [Authorize] looks up principal kind and action in one table, and where there are
// policies asks the [Rights] that they give the principal. What neither allows is
// denied.
//
//	authorize.go  actions, the table, the one decision
//	policy.go     what a policy says; rules.go all of them, compiled
//
// A certificate says its kind in the subject's organizational unit and its
// name in the common name. A credential is a random token of 256 bits of which
// the server's file, or the cluster's own [Book], holds the SHA-256: since nobody can
// guess such a token, a slow password hash would add nothing.
//
// Who has been let in stays only while what it brought is good: its [Proof] goes
// along, and whoever keeps connections asks again ([Authenticator.Knows],
// [Verifier.Knows]) when a file or the book has changed, and when the [Horizon] says
// that something has ended.
//
// # Invariants
//
// Whoever brings a credential or certificate is judged by it alone: a wrong
// one is refused, never passed off as anonymous or local. Loopback is trusted
// only without TLS, only on a loopback listener, and never for a request that
// says it was forwarded.
//
// Operators may do everything, whatever policies say. Whoever is nobody may do
// nothing. Policies add to one another, and to nothing: once there is one, an agent
// or observer may do what a rule says, to what is its own, and no more.
//
// # Concurrency
//
// An Authenticator may be used from anywhere; its credentials may be replaced
// at any time. All else is immutable.
package auth

import (
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Kind is what a principal is, which decides what it may do.
type Kind uint8

// The kinds. The zero kind may do nothing.
const (
	Anonymous Kind = iota
	Observer       // looks only
	Agent          // claims and holds, only as itself
	Operator       // everything
	numKinds
)

var kindNames = [numKinds]string{"anonymous", "observer", "agent", "operator"}

// String returns the kind's name, as in credential files.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return "unknown"
}

// ParseKind is the inverse of [Kind.String], without anonymous: nobody is made
// that on purpose.
func ParseKind(s string) (Kind, error) {
	for k := Observer; k < numKinds; k++ {
		if kindNames[k] == s {
			return k, nil
		}
	}
	return Anonymous, incumbent.Errorf(incumbent.Invalid, "kind %q is none of observer, agent, operator", s)
}

// Via is how a principal proved who it is.
type Via uint8

// The ways.
const (
	Unproven    Via = iota
	Loopback        // by being on the same machine
	Certificate     // by a TLS client certificate
	Credential      // by a bearer token
	Password        // by the password of its tag
)

// String returns the way's name, for logs.
func (v Via) String() string {
	switch v {
	case Loopback:
		return "loopback"
	case Certificate:
		return "certificate"
	case Credential:
		return "credential"
	case Password:
		return "password"
	default:
		return "unproven"
	}
}

// Principal is who makes a request. The zero value is anonymous.
type Principal struct {
	Name  string
	Kind  Kind
	Via   Via
	Proof Proof // what it was known by; zero if nothing was brought
}

// Proof is what somebody was known by: who was let in by it stays only for as long
// as it is good. It is a secret of nobody's, but means nothing to people.
type Proof struct {
	ID string // of a token its SHA-256, of a certificate its serial number, of a password a part of what is kept of it
	// Roots are the authorities at which chains of a certificate end: see [Roots].
	Roots string
	Ends  int64 // Unix milliseconds from which on it is good no more; 0: it has no end
}

// over reports whether a proof has ended.
func (p Proof) over(now time.Time) bool { return p.Ends != 0 && now.UnixMilli() >= p.Ends }

// String returns kind and name, as recorded with what the principal does.
func (p Principal) String() string {
	if p.Name == "" {
		return p.Kind.String()
	}
	return p.Kind.String() + ":" + p.Name
}

// Holder returns for whom the principal claims if it names nobody: itself, if it
// brought what proves its name, else "".
func (p Principal) Holder() string {
	if p.Via == Certificate || p.Via == Credential {
		return p.Name
	}
	return ""
}

// Is reports whether the principal has authority for a holder: the one of its
// own name, or below it ("unit-1" for "unit-1/lock").
func (p Principal) Is(holder string) bool {
	if p.Name == "" || !strings.HasPrefix(holder, p.Name) {
		return false
	}
	return len(holder) == len(p.Name) || holder[len(p.Name)] == '/'
}
