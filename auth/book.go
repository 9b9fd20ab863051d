package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Book is what the cluster itself knows of credentials. It may be asked from
// anywhere, and answers from the newest state at hand.
type Book interface {
	// Token returns whose token has this SHA-256, also if its end has passed, with
	// sum and end as proof.
	Token(sum [sha256.Size]byte) (Principal, bool)
	// Behind is why it may not know yet what the cluster knows; nil: it knows all but
	// the newest.
	Behind() error
	// Revoked reports whether the certificate of a serial number was taken back.
	Revoked(serial []byte) bool
	// Passwords are those of a tag in a scope, "*" being one of its own.
	Passwords(scope, tag string) []KeptPassword
}

// KeptPassword is what a book keeps of a password.
type KeptPassword struct {
	Secret string // as SecretOf made it
	Grants Grant
	Ends   int64 // Unix milliseconds; 0: it has no end
}

// noBook is the book of who has none.
type noBook struct{}

func (noBook) Token([sha256.Size]byte) (Principal, bool) { return Principal{}, false }
func (noBook) Behind() error                             { return nil }
func (noBook) Revoked([]byte) bool                       { return false }
func (noBook) Passwords(string, string) []KeptPassword   { return nil }

// MaxSerialBytes is how many bytes a certificate's serial number may have (RFC 5280).
const MaxSerialBytes = 20

// ParseSerial reads the serial number of a certificate in hexadecimal, with colons
// between the bytes or without, as tools print it. The error is Invalid.
func ParseSerial(s string) ([]byte, error) {
	word := strings.TrimLeft(strings.ReplaceAll(s, ":", ""), "0")
	if len(word)%2 == 1 {
		word = "0" + word
	}
	serial, err := hex.DecodeString(word)
	if err != nil || len(serial) == 0 || len(serial) > MaxSerialBytes {
		return nil, incumbent.Errorf(incumbent.Invalid, "%.80q is no serial number of 1 to %d bytes in hexadecimal", s, MaxSerialBytes)
	}
	return serial, nil
}

// Horizon is the first end of all that was let in, and of what is let in from now
// on: whoever keeps connections asks then who is still known. One serves all doors.
type Horizon struct {
	at     atomic.Int64 // Unix milliseconds; 0: nothing ends
	sooner chan struct{}
}

// NewHorizon returns a horizon with nothing in sight.
func NewHorizon() *Horizon { return &Horizon{sooner: make(chan struct{}, 1)} }

// Next is the first end; zero: nothing ends.
func (h *Horizon) Next() time.Time {
	if at := h.at.Load(); at != 0 {
		return time.UnixMilli(at)
	}
	return time.Time{}
}

// Sooner is sent to when Next has moved forward.
func (h *Horizon) Sooner() <-chan struct{} { return h.sooner }

// Clear forgets all ends. Who is asked afterwards and still known counts again.
func (h *Horizon) Clear() { h.at.Store(0) }

// note takes an end; 0 is none.
func (h *Horizon) note(ends int64) {
	if ends == 0 {
		return
	}
	for {
		at := h.at.Load()
		if at != 0 && at <= ends {
			return
		}
		if h.at.CompareAndSwap(at, ends) {
			break
		}
	}
	select {
	case h.sooner <- struct{}{}:
	default:
	}
}

// Denial is why somebody was not let in, in a closed set; see
// [Authenticator.Denied].
type Denial uint8

// The denials.
const (
	NotKnown    Denial = iota // nobody has this token
	Ended                     // the end of the token or certificate has passed
	Revoked                   // the certificate was taken back
	NotVerified               // the certificate is of an authority that is not asked, or names nobody
	numDenials
)

var denialNames = [numDenials]string{"unknown", "ended", "revoked", "unverified"}

// String returns the denial's name, as used in metrics.
func (d Denial) String() string {
	if d < numDenials {
		return denialNames[d]
	}
	return "none"
}

// Denials returns all denials.
func Denials() []Denial { return []Denial{NotKnown, Ended, Revoked, NotVerified} }

// Denied returns how often somebody was not let in for a reason.
func (a *Authenticator) Denied(d Denial) uint64 { return a.denials[d].Load() }

func (a *Authenticator) deny(d Denial, err error) (Principal, error) {
	a.denials[d].Add(1)
	return Principal{}, err
}
