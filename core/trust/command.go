package trust

import (
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Verb is what a command does.
type Verb uint8

// The verbs. The numbers are part of the log: append only.
const (
	// Found begins the trust of Cluster, whose Secret and Authority it names; Member
	// is its first signer. What another cluster left is forgotten.
	Found Verb = iota + 1
	// Offer makes a token outstanding. Tokens that have ended by Now go.
	Offer
	// Spend has Member join with a token, under Name and with Key. It answers Denied
	// unless the token is outstanding at Now and for Name, or was spent by the same
	// member with the same key, which has reported nothing yet.
	Spend
	// Withdraw makes a token worthless; NotFound if it is not outstanding.
	Withdraw
	// Say is a member's report.
	Say
	// Forget lets go of what is known of a member that is gone.
	Forget
	// Begin puts the next secret or authority beside the current one, which must be
	// Was: Conflict otherwise, or while there is a next one already.
	Begin
	// Finish puts the next one, which must be Value, in the place of the current one.
	Finish
	// Abandon lets go of the next one, which must be Value.
	Abandon
	// Renew asks all members for new keys and certificates.
	Renew
	numVerbs
)

// What is what is exchanged.
type What uint8

// The numbers are part of the log: append only.
const (
	Secret What = iota
	Authority
	numWhats
)

// Command is one command of the family. Which fields mean something is up to the
// verb.
type Command struct {
	Verb      Verb
	Cluster   [16]byte // of Found
	Secret    Hash     // of Found
	Authority []byte   // of Found: a certificate in DER; nil: the cluster has none

	Token  Token     // of Offer, Spend (ID, Name, Spender and Key) and Withdraw (ID)
	Now    time.Time // of Offer and Spend: the proposer's clock, to the second
	Member uint64    // of Found, Say and Forget
	Report Report    // of Say

	What  What   // of Begin, Finish and Abandon
	Was   []byte // of Begin
	Value []byte // likewise: a hash, or a certificate in DER
	Cross []byte // of Begin, with Authority
}

// Encode implements [core.Command].
func (c Command) Encode(meta core.Meta) []byte {
	var w wire.Writer
	w.Uint(1, uint64(c.Verb))
	w.Bytes(2, present(c.Cluster[:]))
	w.Bytes(3, present(c.Secret[:]))
	w.Bytes(4, c.Authority)
	if c.Token != (Token{}) {
		at := w.Begin(5)
		c.Token.write(&w)
		w.End(at)
	}
	w.Uint(6, seconds(c.Now))
	w.Fixed(7, c.Member)
	if c.Report != (Report{}) {
		at := w.Begin(8)
		c.Report.write(&w)
		w.End(at)
	}
	w.Uint(9, uint64(c.What))
	w.Bytes(10, c.Was)
	w.Bytes(11, c.Value)
	w.Bytes(12, c.Cross)
	return core.EncodeFamily(meta, Family{}, w.B)
}

// present is nil for bytes that are all zero: they are left out.
func present(b []byte) []byte {
	if slices.Max(b) == 0 {
		return nil
	}
	return b
}

// seconds of a time since 1970; 0 for the zero time and what was before.
func seconds(t time.Time) uint64 { return uint64(max(t.Unix(), 0)) }

func (k *Token) write(w *wire.Writer) {
	w.Bytes(1, present(k.ID[:]))
	w.Text(2, k.Name)
	w.Uint(3, seconds(k.Expires))
	w.Flag(4, k.Signer)
	w.Text(5, k.Maker)
	w.Fixed(6, k.Spender)
	w.Bytes(7, present(k.Key[:]))
}

func (r *Report) write(w *wire.Writer) {
	w.Bytes(10, present(r.Secret[:]))
	w.Bytes(11, present(r.Trusts[:]))
	w.Bytes(12, present(r.Shows[:]))
	w.Uint(13, r.Epoch)
	w.Flag(14, r.Signs)
}

// decode reads a command. Its texts and bytes are copies.
func (c *Command) decode(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool { return c.set(&f) }) && c.Verb > 0 && c.Verb < numVerbs && c.What < numWhats
}

func (c *Command) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return wire.Small(f, &c.Verb)
	case 2:
		return fixed(f, c.Cluster[:])
	case 3:
		return fixed(f, c.Secret[:])
	case 4:
		return copied(f, &c.Authority)
	case 5:
		return f.Type == bytesType && c.Token.read(f.B)
	case 6:
		return at(f, &c.Now)
	case 7:
		return f.Fixed(&c.Member)
	case 8:
		return f.Type == bytesType && c.Report.read(f.B)
	case 9:
		return wire.Small(f, &c.What)
	case 10:
		return copied(f, &c.Was)
	case 11:
		return copied(f, &c.Value)
	case 12:
		return copied(f, &c.Cross)
	}
	return false
}

func (k *Token) read(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool { return k.set(&f) })
}

func (k *Token) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return fixed(f, k.ID[:])
	case 2:
		return f.CopyText(&k.Name)
	case 3:
		return at(f, &k.Expires)
	case 4:
		return f.Flag(&k.Signer)
	case 5:
		return f.CopyText(&k.Maker)
	case 6:
		return f.Fixed(&k.Spender)
	case 7:
		return fixed(f, k.Key[:])
	}
	return false
}

func (r *Report) read(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool { return r.set(&f) })
}

func (r *Report) set(f *wire.Field) bool {
	switch f.Num {
	case 10:
		return fixed(f, r.Secret[:])
	case 11:
		return fixed(f, r.Trusts[:])
	case 12:
		return fixed(f, r.Shows[:])
	case 13:
		return f.Uint(&r.Epoch)
	case 14:
		return f.Flag(&r.Signs)
	}
	return false
}

// validate returns what no state could make right.
func (c *Command) validate() *incumbent.Error {
	ok := true
	switch c.Verb {
	case Found:
		ok = c.Cluster != [16]byte{} && c.Secret != Hash{} && c.Member != 0 && len(c.Authority) <= MaxAuthorityBytes
	case Offer:
		k := &c.Token
		ok = k.ID != TokenID{} && validName(k.Name) && k.Expires.After(c.Now) && k.Spender == 0 && k.Key == Hash{} && len(k.Maker) <= MaxMakerBytes
	case Spend:
		ok = c.Token.Spender != 0
	case Say, Forget:
		ok = c.Member != 0
	case Begin:
		ok = len(c.Value) > 0 && c.fits(c.Value) && len(c.Cross) <= MaxAuthorityBytes && (c.What == Authority || len(c.Cross) == 0)
	case Finish, Abandon:
		ok = len(c.Value) > 0
	}
	if !ok {
		return &incumbent.Error{Kind: incumbent.Invalid, Message: "malformed command"}
	}
	return nil
}

func (c *Command) fits(value []byte) bool {
	if c.What == Secret {
		return len(value) == HashBytes
	}
	return len(value) <= MaxAuthorityBytes
}
