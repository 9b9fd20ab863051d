package peers

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/incumbent-dev/incumbent/node"
)

// The handshake, once both sides have proven that they belong to the cluster (see
// proof.go). The dialer says hello; the other judges it, writes into its book what
// was shown, and says hello or refuses; the dialer does the same and says ready or
// refuses. Only then messages travel, in both directions.
//
// The member with the smaller id dials. One with the larger id that has no
// connection knocks: it dials and says hello like the other, and is refused with
// Dialing, upon which the other dials at once; or it learns that it was removed.
//
//	dialer   ── hello ──────────────▶  other
//	         ◀───── hello | refusal ──
//	         ── ready | refusal ────▶
//
//	hello    cluster 16, group u64, member u64, to u64, standing 4 × u64, boot 16, schema u32, class u8, name (uvarint, bytes), code 32
//	refusal  reason u8, text (uvarint, bytes), code 32 or, before there is a key, none

const helloMagic = "INCP"

// bootNonce tells one run of a member from another that claims the same
// incarnation.
type bootNonce [16]byte

func newBootNonce() (n bootNonce) {
	rand.Read(n[:]) // never fails: crypto/rand stops the process instead
	return n
}

// hello is who speaks, and what of the log it holds.
type hello struct {
	cluster [16]byte
	group   uint64
	member  uint64
	to      uint64 // whom the speaker believes it speaks to
	shows   Standing
	boot    bootNonce
	schema  uint32
	class   node.Class
	name    string
}

// appendHello ends it with the code of p.
func appendHello(b []byte, h hello, p *proof) []byte {
	at := len(b)
	b = beginFrame(b, frameHello, h.group)
	b = append(b, h.cluster[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.group)
	b = binary.LittleEndian.AppendUint64(b, h.member)
	b = binary.LittleEndian.AppendUint64(b, h.to)
	b = appendStanding(b, h.shows)
	b = append(b, h.boot[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.schema)
	b = append(b, byte(h.class))
	return p.seal(appendText(b, h.name, MaxNameBytes), at)
}

// decodeHello reads a hello without its code.
func decodeHello(p []byte) (hello, error) {
	c := &cursor{b: p}
	var h hello
	copy(h.cluster[:], c.take(16))
	h.group, h.member, h.to = c.u64(), c.u64(), c.u64()
	h.shows = decodeStanding(c)
	copy(h.boot[:], c.take(16))
	h.schema = c.u32()
	class := c.u8()
	if class > uint8(node.Bulk) {
		c.fail("connection of unknown class %d", class)
	}
	h.class = node.Class(class)
	h.name = c.text(MaxNameBytes)
	return h, c.end()
}

// Reason is why a member refused another's connection. The numbers are on the
// wire: append only.
type Reason uint8

// The reasons of a refusal.
const (
	NotKnown         Reason = iota + 1 // not heard of yet: the other tries again
	Removed                            // the member is gone for ever
	RolledBack                         // the member shows less than it once did
	WrongCluster                       // or the wrong group, member or direction
	WrongVersion                       // of the frames
	WrongCertificate                   // it is not that member's
	NotNow                             // the book cannot be written
	Dialing                            // the member with the smaller id dials, and does so now
	WrongSecret                        // it does not have the cluster's
	numReasons
)

var reasonNames = [numReasons]string{"", "not_known", "removed", "rolled_back", "wrong_cluster", "wrong_version", "wrong_certificate", "not_now", "dialing", "wrong_secret"}

// String returns the reason in snake case, as used in metrics.
func (r Reason) String() string {
	if r == 0 || r >= numReasons {
		return "unknown"
	}
	return reasonNames[r]
}

// Reasons returns all reasons, for tables that must cover them all.
func Reasons() []Reason {
	rs := make([]Reason, 0, numReasons-1)
	for r := NotKnown; r < numReasons; r++ {
		rs = append(rs, r)
	}
	return rs
}

// refusal is an answer instead of a hello or a ready.
type refusal struct {
	reason Reason
	text   string
}

// Error implements error.
func (r *refusal) Error() string { return r.reason.String() + ": " + r.text }

// slow reports whether trying again soon is of no use.
func (r *refusal) slow() bool {
	return r.reason != NotKnown && r.reason != NotNow && r.reason != Dialing && r.reason != WrongSecret
}

// encodeRefusal ends it with the code of p; nil: there is no key yet.
func encodeRefusal(r *refusal, group uint64, p *proof) []byte {
	b := appendText(append(beginFrame(nil, frameRefusal, group), byte(r.reason)), r.text, MaxTextBytes)
	if p == nil {
		return endFrame(b, 0)
	}
	return p.seal(b, 0)
}

// decodeRefusal reads a refusal without its code. It takes reasons of later
// versions as they are.
func decodeRefusal(p []byte) (*refusal, error) {
	c := &cursor{b: p}
	r := &refusal{reason: Reason(c.u8()), text: c.text(MaxTextBytes)}
	return r, c.end()
}
