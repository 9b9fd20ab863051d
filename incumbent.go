// Package incumbent holds the words of the domain: what a lease, a holder, a
// session, a token and an index are, and the one error type that every layer
// returns. It imports the standard library only, so that every other package
// of the module may speak these words without pulling in anything else.
//
// A *lease* is the exclusive right of one *holder* to a name, for as long as
// the holder keeps extending it. Every grant to a new holding carries a
// fencing [Token] greater than every earlier one. A *session* is the
// replicated owner of leases; a holder may also hold without one. An [Index]
// is the place of a command in the one replicated order.
package incumbent

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"
	"unicode/utf8"
)

// Limits of names and durations. A door may be narrower (Juju's durations are
// 5 s to 5 min), never wider.
const (
	MaxNameBytes      = 256            // lease name
	MaxNamespaceBytes = 128            // namespace and model
	MaxHolderBytes    = 256            // holder
	MaxPinBytes       = 256            // entity that pins a lease
	MaxPins           = 64             // entities that pin one lease
	MinTTL            = time.Second    // lease and session
	MaxTTL            = 24 * time.Hour // lease and session
)

// DefaultNamespace and DefaultModel are used where a caller names none.
const (
	DefaultNamespace = "default"
	DefaultModel     = "default"
)

// ServerNamespace is that of the leases by which members agree on who writes backups and
// who runs checks. Clients look there, and only operators change anything.
const ServerNamespace = "incumbent"

// Index is the place of a command in the replicated order. It counts commands,
// not raft entries: two commands of one entry never share an index, and it
// never goes backwards, not even across restore. Zero is before all commands.
type Index uint64

// String returns the index in decimal, the form used in JSON.
func (i Index) String() string { return strconv.FormatUint(uint64(i), 10) }

// Token is a fencing token: the index of the command that granted the lease.
// Zero is no token.
type Token uint64

// String returns the token in decimal, the form used in JSON.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// Name names a lease. Leases of different namespaces or models never meet.
type Name struct {
	Namespace string
	Model     string
	Lease     string
}

// String returns namespace, model and lease name joined by colons, for logs.
func (n Name) String() string { return n.Namespace + ":" + n.Model + ":" + n.Lease }

// WithDefaults returns the name with [DefaultNamespace] and [DefaultModel] where it
// names none.
func (n Name) WithDefaults() Name {
	if n.Namespace == "" {
		n.Namespace = DefaultNamespace
	}
	if n.Model == "" {
		n.Model = DefaultModel
	}
	return n
}

// Compare orders names by namespace, then model, then lease name.
func (n Name) Compare(o Name) int {
	for _, p := range [3][2]string{{n.Namespace, o.Namespace}, {n.Model, o.Model}, {n.Lease, o.Lease}} {
		if p[0] < p[1] {
			return -1
		}
		if p[0] > p[1] {
			return 1
		}
	}
	return 0
}

// Validate returns an Invalid error unless each part of the name is 1 to
// [MaxNameBytes] (or [MaxNamespaceBytes]) bytes of valid UTF-8 without white
// space, control, invisible or directional characters: see [PlainText].
func (n Name) Validate() error {
	if err := validText("namespace", n.Namespace, MaxNamespaceBytes); err != nil {
		return err
	}
	if err := validText("model", n.Model, MaxNamespaceBytes); err != nil {
		return err
	}
	return validText("name", n.Lease, MaxNameBytes)
}

// ValidateHolder returns an Invalid error unless h can name a holder.
func ValidateHolder(h string) error { return validText("holder", h, MaxHolderBytes) }

// ValidateNamespace returns an Invalid error unless n can name a namespace.
func ValidateNamespace(n string) error { return validText("namespace", n, MaxNamespaceBytes) }

// ValidatePin returns an Invalid error unless e can name a pinning entity.
func ValidatePin(e string) error { return validText("pin", e, MaxPinBytes) }

// ValidateTTL returns an Invalid error unless d lies in [MinTTL], [MaxTTL].
func ValidateTTL(d time.Duration) error {
	if d < MinTTL || d > MaxTTL {
		return Errorf(Invalid, "ttl %v is outside %v to %v", d, MinTTL, MaxTTL)
	}
	return nil
}

func validText(what, s string, limit int) error {
	switch {
	case s == "":
		return Errorf(Invalid, "%s is empty", what)
	case len(s) > limit:
		return Errorf(Invalid, "%s has %d bytes, limit is %d", what, len(s), limit)
	case !utf8.ValidString(s):
		return Errorf(Invalid, "%s is not valid UTF-8", what)
	}
	if at, r := PlainText(s); at >= 0 {
		return Errorf(Invalid, "%s has %U at byte %d; white space, control, invisible and directional characters are not allowed", what, r, at)
	}
	return nil
}

// SessionID identifies a session for ever: 128 random bits, printed as a UUID.
// The zero id means no session.
type SessionID [16]byte

// NewSessionID returns a random (version 4) session id.
func NewSessionID() SessionID {
	var id SessionID
	rand.Read(id[:]) // never fails: crypto/rand stops the process instead
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// IsZero reports whether the id means "no session".
func (s SessionID) IsZero() bool { return s == SessionID{} }

// String returns the UUID form, or "" for the zero id.
func (s SessionID) String() string {
	if s.IsZero() {
		return ""
	}
	var b [36]byte
	hex.Encode(b[0:8], s[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], s[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], s[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], s[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], s[10:16])
	return string(b[:])
}

// ParseSessionID reads the UUID form; "" is the zero id. Anything else is an
// Invalid error.
func ParseSessionID(s string) (SessionID, error) {
	var id SessionID
	if s == "" {
		return id, nil
	}
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, Errorf(Invalid, "session %q is not a UUID", s)
	}
	raw, err := hex.DecodeString(s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36])
	if err != nil {
		return id, Errorf(Invalid, "session %q is not a UUID", s)
	}
	copy(id[:], raw)
	if id.IsZero() {
		return id, Errorf(Invalid, "session %q is the zero UUID", s)
	}
	return id, nil
}
