// Package auth answers two questions for all doors: who are you, and may you.
//
// Who: an [Authenticator] looks at what a connection and a request bring (a
// client certificate, a bearer credential, or nothing but a loopback address)
// and names a [Principal]. May you: [Authorize] looks up principal kind and
// action in one table. What the table does not allow is denied.
//
// A certificate says its kind in the subject's organizational unit and its
// name in the common name. A credential is a random token of 256 bits of which
// the server's file holds the SHA-256: since nobody can guess such a token, a
// slow password hash would add nothing.
//
// # Invariants
//
// Whoever brings a credential or certificate is judged by it alone: a wrong
// one is refused, never passed off as anonymous or local. Loopback is trusted
// only without TLS, only on a loopback listener, and never for a request that
// says it was forwarded.
//
// # Concurrency
//
// An Authenticator may be used from anywhere; its credentials may be replaced
// at any time. All else is immutable.
package auth

import (
	"strings"

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
	Name string
	Kind Kind
	Via  Via
}

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

// Action is something a request does.
type Action uint8

// The actions.
const (
	Claim    Action = iota // become holder, or wait for it
	Extend                 // go on holding
	Release                // stop holding, or waiting
	Transfer               // give a holding to somebody else
	Revoke                 // take a holding away
	Pin                    // keep from expiring, and undo that
	Read                   // look at leases and sessions, their history and explanation
	Watch                  // follow changes, or wait for one
	SessionOpen
	SessionUse   // extend, attach, or claim with
	SessionClose // end, with all that it holds
	Status       // of the member and the cluster
	Admin        // settings, membership, backup
	Debug        // profiles and internals
	KeyRead      // look at keys and values, and follow changes of them
	KeyWrite     // store, lock and delete them
	NumActions
)

var actionNames = [NumActions]string{
	"claim", "extend", "release", "transfer", "revoke", "pin", "read", "watch",
	"session_open", "session_use", "session_close", "status", "admin", "debug", "key_read", "key_write",
}

// String returns the action's name, as in errors and metrics.
func (a Action) String() string {
	if a < NumActions {
		return actionNames[a]
	}
	return "unknown"
}

// Resource is what an action is done to.
type Resource struct {
	Name   incumbent.Name // lease; for errors
	Holder string         // for whom one claims, extends, releases, transfers: who holds, or will
	Owner  string         // [Principal.String] of who opened the session
}

// rule says under which condition a kind may do an action.
type rule uint8

const (
	never rule = iota
	always
	asHolder // if the holder is the principal, or below it
	asOwner  // if the principal opened the session
)

// rules is the whole policy. What is not in it is never.
var rules = [NumActions][numKinds]rule{
	Claim:        {Agent: asHolder, Operator: always},
	Extend:       {Agent: asHolder, Operator: always},
	Release:      {Agent: asHolder, Operator: always},
	Transfer:     {Agent: asHolder, Operator: always},
	Revoke:       {Operator: always},
	Pin:          {Operator: always},
	Read:         {Observer: always, Agent: always, Operator: always},
	Watch:        {Observer: always, Agent: always, Operator: always},
	SessionOpen:  {Agent: always, Operator: always},
	SessionUse:   {Agent: asOwner, Operator: always},
	SessionClose: {Agent: asOwner, Operator: always},
	Status:       {Observer: always, Agent: always, Operator: always},
	Admin:        {Operator: always},
	Debug:        {Operator: always},
	KeyRead:      {Agent: always, Operator: always},
	KeyWrite:     {Agent: always, Operator: always},
}

// Authorize returns nil if the principal may do the action to the resource,
// else a Denied error that says what would be needed.
func Authorize(p Principal, a Action, r Resource) error {
	rule := never
	if a < NumActions && p.Kind < numKinds {
		rule = rules[a][p.Kind]
	}
	switch {
	case rule == always, rule == asHolder && p.Is(r.Holder), rule == asOwner && p.Name != "" && r.Owner == p.String():
		return nil
	case rule == asHolder:
		return incumbent.Errorf(incumbent.Denied, "%s may not %s %s for holder %q", p, a, r.Name, r.Holder).
			WithHint("an agent acts only for the holder of its own name, or below it: " + p.Name + " or " + p.Name + "/…")
	case rule == asOwner:
		return incumbent.Errorf(incumbent.Denied, "%s may not do %s: the session is not its own", p, a).
			WithHint("use a session that this agent has opened, or ask an operator")
	case p.Kind == Anonymous:
		return incumbent.Errorf(incumbent.Denied, "%s may not do %s", p, a).
			WithHint("bring a client certificate or --credential-file")
	default:
		return incumbent.Errorf(incumbent.Denied, "%s may not do %s", p, a).
			WithHint("ask for a certificate or credential of a kind that may: " + strings.Join(allowed(a), ", "))
	}
}

// allowed returns the kinds that may do the action, on some condition.
func allowed(a Action) []string {
	var names []string
	for k := range numKinds {
		if a < NumActions && rules[a][k] != never {
			names = append(names, k.String())
		}
	}
	return names
}
