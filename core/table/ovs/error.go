package ovs

import "fmt"

// Names of errors, as RFC 7047 and today's servers have them.
const (
	SyntaxError        = "syntax error"
	UnknownDatabase    = "unknown database"
	UnknownColumn      = "unknown column"
	UnknownFunction    = "unknown function"
	UnknownMutator     = "unknown mutator"
	ConstraintError    = "constraint violation"
	RangeError         = "range error"
	DomainError        = "domain error"
	DuplicateUUIDName  = "duplicate uuid-name"
	DuplicateUUID      = "duplicate uuid"
	ReferentialError   = "referential integrity violation"
	TimedOut           = "timed out"
	Aborted            = "aborted"
	NotOwner           = "not owner"
	NotAllowed         = "not allowed"
	PermissionError    = "permission error"
	ResourcesExhausted = "resources exhausted"
	InternalError      = "internal error"
)

// Error is an error as clients of OVSDB get it.
type Error struct {
	Name    string
	Details string // may be empty
	Syntax  string // the JSON that is to blame, members sorted; empty if none is
}

func (e *Error) Error() string {
	switch {
	case e.Syntax != "" && e.Details != "":
		return e.Name + ": syntax " + e.Syntax + ": " + e.Details
	case e.Details != "":
		return e.Name + ": " + e.Details
	}
	return e.Name
}

// AppendJSON appends the error as an object.
func (e *Error) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	if e.Details != "" {
		b = append(b, `"details":`...)
		b = AppendString(b, e.Details)
		b = append(b, ',')
	}
	b = append(b, `"error":`...)
	b = AppendString(b, e.Name)
	if e.Syntax != "" {
		b = append(b, `,"syntax":`...)
		b = AppendString(b, e.Syntax)
	}
	return append(b, '}')
}

// Errorf returns an error that no JSON is to blame for.
func Errorf(name, format string, args ...any) *Error {
	return &Error{Name: name, Details: fmt.Sprintf(format, args...)}
}

// errorAt returns an error that v is to blame for.
func errorAt(v Value, name, format string, args ...any) *Error {
	e := Errorf(name, format, args...)
	e.Syntax = string(v.AppendSorted(nil))
	return e
}

func syntaxError(v Value, format string, args ...any) *Error {
	return errorAt(v, SyntaxError, format, args...)
}
