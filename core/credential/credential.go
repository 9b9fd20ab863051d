// Package credential is the family of credentials that a cluster keeps itself:
// bearer tokens, of which it has no more than the hash, passwords of agents, and
// the certificates that were taken back before their end.
//
// A record is made by one command and ended by another: taken back by somebody, or
// by the member that leads, once its end has passed. What has ended lets nobody in
// and stays for people to look at, for [KeepEnded], until it is forgotten or has to
// make room. Of a certificate nothing is known before it is taken back: its record
// begins where those of the others end, and stays until the certificate would have
// ended by itself.
//
// A credential's end is a moment of wall clocks, in its record: apply does not look
// at it, whoever is asked to let somebody in does.
//
// What a principal leaves behind when its credential ends (its sessions) lives on
// for its ttl, or is closed at once if the credential says so: then the record is
// marked until all that is done. The family closes nothing itself: how many sessions
// there are is not bounded by the command.
//
// # Invariants
//
//   - Of one token, and of one certificate, there is one record.
//   - A record that has ended and is no certificate's has no secret any more.
//
// # Concurrency
//
// As in package core: tables belong to one goroutine, a [View] to nobody.
package credential

import (
	"cmp"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family, and schema the version that brought it.
const (
	Number wire.Number = 48
	schema uint32      = 5
)

// laterSchema is the [core.SchemaVersion] with which a second revocation of a certificate
// moves its end.
const laterSchema = 11

// Limits of the family. They decide what a command does: changing one is a new
// schema version.
const (
	MaxCredentials = 100_000 // records of tokens and passwords, ended ones included
	MaxRevocations = 100_000 // records of certificates
	MaxPerAccount  = 4       // passwords that one tag has in one scope: so that one can be replaced while the other works
	MaxSecretBytes = 256     // of what is kept of a password
	MaxSerialBytes = 20      // of a certificate's serial number: RFC 5280
	TokenBytes     = 32      // of a token's SHA-256
	maxKindBytes   = 16      // of a principal
	maxMoment      = 253402300799999
)

// KeepEnded is how long the record of what has ended stays, and how long behind its
// end that of a certificate which was taken back: whose clock is not in step is not to
// take it for good again. The member that leads forgets it then.
const KeepEnded = 7 * 24 * time.Hour

// Method is how somebody proves by a credential who it is.
type Method uint8

// The methods. The numbers are part of the log: append only.
const (
	Token       Method = iota + 1 // brings a bearer token
	Password                      // knows the password of a tag
	Certificate                   // has the key of a client certificate
	numMethods
)

// String returns the method's name.
func (m Method) String() string {
	switch m {
	case Token:
		return "token"
	case Password:
		return "password"
	case Certificate:
		return "certificate"
	}
	return "unknown"
}

// Moment is a moment of a wall clock in milliseconds since 1970; 0: none.
type Moment int64

// MomentOf is the moment of a time, to the millisecond; 0 if it is zero, or none
// that a record could have.
func MomentOf(t time.Time) Moment {
	if t.IsZero() || t.UnixMilli() <= 0 || t.UnixMilli() > maxMoment {
		return 0
	}
	return Moment(t.UnixMilli())
}

// Time returns the moment; zero for none.
func (m Moment) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

// Credential is one record. A *Credential reached through a View never changes.
type Credential struct {
	ID        incumbent.Index // of the command that made the record
	Method    Method
	Principal string // who it is: kind and name ("agent:db-1"). Of a password: agent, and the tag. Of a certificate "" if nobody knew
	Scope     string // of a password: the model it is for, or *

	// Secret is what it is known by: of a token its SHA-256, of a certificate its
	// serial number, of a password what package auth keeps of one. Nobody is shown it.
	Secret []byte

	Grants      uint64 // of a password, beyond being who it is
	Ends        Moment // from then on it lets nobody in; 0: until it is taken back
	EndSessions bool   // with it the sessions of the principal end at once

	Created   Moment // by the proposer's clock
	CreatedBy string // principal; "" of a member

	Ended   incumbent.Index // of the command that ended it; 0: it has not
	EndedAt Moment
	EndedBy string
	Expired bool // its end had passed: nobody took it back
	Closing bool // it has ended, and sessions of the principal are still to be closed
}

// Live reports whether nothing has ended it yet but perhaps the time.
func (c *Credential) Live() bool { return c.Ended == 0 }

// LetsIn reports whether it lets its bearer in at a moment.
func (c *Credential) LetsIn(now time.Time) bool {
	return c.Live() && (c.Ends == 0 || now.UnixMilli() < int64(c.Ends))
}

// Family is the family.
type Family struct{}

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family].
func (Family) Schema() uint32 { return schema }

// Name implements [core.Family].
func (Family) Name() string { return "credential" }

// New implements [core.Family].
func (Family) New() core.Tables { return newTables(limits{MaxCredentials, MaxRevocations}) }

// limits are those that a test needs smaller.
type limits struct{ credentials, revocations int }

// shared are the tables that a View sees. They have the same records in several
// orders.
type shared struct {
	records *btree.BTreeG[*Credential] // by id
	known   *btree.BTreeG[known]       // what is brought, to the records that it may be: live ones, and of certificates all
	ending  *btree.BTreeG[*Credential] // with an end, and live or a certificate's: by end
	ended   *btree.BTreeG[*Credential] // ended, with nothing left to do, and no certificate's: by index of the end
	closing *btree.BTreeG[*Credential] // by id

	certificates int // records of them
}

// known is what a credential is looked up by, and its record.
type known struct {
	by string
	id incumbent.Index
	c  *Credential
}

// keyOf is what a credential is looked up by: it begins with the method.
func keyOf(m Method, scope, principal string, secret []byte) string {
	if m == Password {
		return string([]byte{byte(m)}) + scope + "\x00" + principal
	}
	return string([]byte{byte(m)}) + string(secret)
}

func (c *Credential) key() known {
	return known{keyOf(c.Method, c.Scope, c.Principal, c.Secret), c.ID, c}
}

type tables struct {
	shared
	limits limits
	view   *View // of the tables as they are; nil: they have changed
	again  wire.Writer
}

func newTables(l limits) *tables {
	o := btree.Options{NoLocks: true, Degree: 16}
	by := func(less func(a, b *Credential) int) *btree.BTreeG[*Credential] {
		return btree.NewBTreeGOptions(func(a, b *Credential) bool { return less(a, b) < 0 }, o)
	}
	id := func(a, b *Credential) int { return cmp.Compare(a.ID, b.ID) }
	return &tables{limits: l, shared: shared{
		records: by(id), closing: by(id),
		ending: by(func(a, b *Credential) int { return cmp.Or(cmp.Compare(a.Ends, b.Ends), id(a, b)) }),
		ended:  by(func(a, b *Credential) int { return cmp.Or(cmp.Compare(a.Ended, b.Ended), id(a, b)) }),
		known: btree.NewBTreeGOptions(func(a, b known) bool {
			c := strings.Compare(a.by, b.by)
			return c < 0 || c == 0 && a.id < b.id
		}, o),
	}}
}

// of returns the record of an id, nil if there is none.
func (t *shared) of(id incumbent.Index) *Credential {
	c, _ := t.records.Get(&Credential{ID: id})
	return c
}

// put stores n in the place of o; either may be nil.
func (t *tables) put(o, n *Credential) {
	t.view = nil
	if o != nil {
		t.records.Delete(o)
		t.order(o, func(tree *btree.BTreeG[*Credential]) { tree.Delete(o) }, func(k known) { t.known.Delete(k) })
		t.certificates -= one(o.Method == Certificate)
	}
	if n != nil {
		t.records.Set(n)
		t.order(n, func(tree *btree.BTreeG[*Credential]) { tree.Set(n) }, func(k known) { t.known.Set(k) })
		t.certificates += one(n.Method == Certificate)
	}
}

// order names the trees besides that of all records in which a record stands.
func (t *tables) order(c *Credential, in func(*btree.BTreeG[*Credential]), key func(known)) {
	certificate := c.Method == Certificate
	if c.Live() || certificate {
		key(c.key())
		if c.Ends != 0 {
			in(t.ending)
		}
	}
	if c.Closing {
		in(t.closing)
	}
	if !c.Live() && !c.Closing && !certificate {
		in(t.ended)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
