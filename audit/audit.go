// Package audit keeps the record of who changed what, and of who was not let do
// what: one JSON object a line, in a file that is rotated or on a stream that
// somebody else keeps. A door makes a [Record] and hands it on; a [Log] writes it.
//
// # Invariants
//
//   - [Log.Write] never waits and takes bounded memory, whatever the disk does.
//   - What is lost is counted, and a line says how much as soon as one can be
//     written: who reads the log knows where it is not whole.
//   - No record has a secret: nobody hands one in, for a record has no field for
//     what a request says, only for what it is about.
//   - A line is one record whatever its texts contain: what would end a line, move a
//     cursor or turn the direction of reading is escaped.
//
// # Concurrency
//
// A Log may be used from anywhere. One goroutine of its own writes.
package audit

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Outcome is what became of what somebody wanted to do.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota // it was done, under Index
	Denied                 // it was not allowed, for Reason
	Failed                 // it was allowed and refused for another cause: of operators' calls only
	Unknown                // it may or may not have been done
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"done", "denied", "failed", "unknown"}

// String returns the outcome's word in records.
func (o Outcome) String() string {
	if o < numOutcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// Reason is why something was denied.
type Reason uint8

// The reasons, a closed set: they are labels of metrics.
const (
	NoReason   Reason = iota // it was not denied
	Identity                 // what it brought proves nobody, or another
	Guesses                  // too many wrong passwords before it
	Permission               // whoever it is may not do that
	Owner                    // the session, or what it is done with, is another's
	NumReasons
)

var reasonNames = [NumReasons]string{"", "identity", "guesses", "permission", "owner"}

// String returns the reason's word in records and metrics.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Login is the action of finding out who somebody is.
const Login = "login"

// Record says what somebody did, or was not let do.
type Record struct {
	At        time.Time // the member's wall clock; zero: when it is written down
	Door      string    // by which it came: native, juju, http, peers
	Address   string    // from where: host and port; "": this machine
	Principal string    // who, by kind and name; of a login that failed what it called itself, if anything
	Action    string    // an action of package auth, Login, or the name of a call
	Subject   string    // what it was done to: a name, a session, a member
	Outcome   Outcome
	Reason    Reason
	Index     uint64 // of the command that did it; 0: none is known
	Detail    string // what an operator needs besides, never what a request brought to prove itself
}

// maxText bounds each text of a line, in bytes: what names a thing is shorter, what
// somebody calls himself before he has proven it need not be.
const maxText = 1024

// line is a record's form. The order of the fields is that of the line.
type line struct {
	At        string `json:"at"`
	Member    string `json:"member"`
	Door      string `json:"door,omitempty"`
	Address   string `json:"address,omitempty"`
	Principal string `json:"principal,omitempty"`
	Action    string `json:"action"`
	Subject   string `json:"subject,omitempty"`
	Outcome   string `json:"outcome,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Index     uint64 `json:"index,omitempty"`
	Detail    string `json:"detail,omitempty"`
	Lost      uint64 `json:"lost,omitempty"`
}

// lostAction is the action of the line that tells of lost records.
const lostAction = "audit_lost"

// appendRecord appends the line of a record.
func appendRecord(b []byte, member string, r *Record) []byte {
	return appendLine(b, &line{
		At: stamp(r.At), Member: member, Door: r.Door, Address: cut(r.Address), Principal: cut(r.Principal), Action: cut(r.Action),
		Subject: cut(r.Subject), Outcome: r.Outcome.String(), Reason: r.Reason.String(), Index: r.Index, Detail: cut(r.Detail),
	})
}

// appendLost appends the line that says how many records are missing before it.
func appendLost(b []byte, member string, at time.Time, n uint64) []byte {
	return appendLine(b, &line{At: stamp(at), Member: member, Action: lostAction, Lost: n})
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func appendLine(b []byte, l *line) []byte {
	text, err := json.Marshal(l)
	if err != nil {
		panic("audit: texts and numbers that cannot be written: " + err.Error())
	}
	return append(append(b, incumbent.EscapeJSON(text)...), '\n')
}

// Bounded is a text as a line has it: who keeps it does not keep what it was cut from.
func Bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.Clone(cut(s))
}

// cut shortens a text. A character that is cut in two becomes the replacement
// character of JSON.
func cut(s string) string { return s[:min(len(s), maxText)] }
