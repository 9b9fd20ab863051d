package peers

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/incumbent-dev/incumbent/node"
)

// The handshake. The dialer says hello; the other judges it, writes into its
// book what was shown, and says hello or refuses; the dialer does the same and
// says ready or refuses. Only then messages travel, in both directions.
//
// The member with the smaller id dials. One with the larger id that has no
// connection knocks: it dials and says hello like the other, and is refused with
// Dialing, upon which the other dials at once; or it learns that it was removed.
//
//	dialer   ── hello ──────────────▶  other
//	         ◀───── hello | refusal ──
//	         ── ready | refusal ────▶
//
//	hello    magic "INCP" 4, version u16, cluster 16, group u64, member u64, to u64, standing 4 × u64, boot 16, schema u32, class u8, name (uvarint, bytes)
//	refusal  reason u8, text (uvarint, bytes)

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
	version uint16
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

func appendHello(b []byte, h hello) []byte {
	at := len(b)
	b = beginFrame(b, frameHello, h.group)
	b = append(b, helloMagic...)
	b = binary.LittleEndian.AppendUint16(b, h.version)
	b = append(b, h.cluster[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.group)
	b = binary.LittleEndian.AppendUint64(b, h.member)
	b = binary.LittleEndian.AppendUint64(b, h.to)
	b = appendStanding(b, h.shows)
	b = append(b, h.boot[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.schema)
	b = append(b, byte(h.class))
	return endFrame(appendText(b, h.name, MaxNameBytes), at)
}

// decodeHello reads a hello of any version up to its version, and all of it if
// the version is ours.
func decodeHello(p []byte) (hello, error) {
	c := &cursor{b: p}
	var h hello
	if magic := c.take(uint64(len(helloMagic))); string(magic) != helloMagic {
		c.fail("this is not a member of a cluster")
		return h, c.err
	}
	h.version = c.u16()
	if h.version != version {
		return h, c.err
	}
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
	numReasons
)

var reasonNames = [numReasons]string{"", "not_known", "removed", "rolled_back", "wrong_cluster", "wrong_version", "wrong_certificate", "not_now", "dialing"}

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
	return r.reason != NotKnown && r.reason != NotNow && r.reason != Dialing
}

func encodeRefusal(r *refusal, group uint64) []byte {
	b := append(beginFrame(nil, frameRefusal, group), byte(r.reason))
	return endFrame(appendText(b, r.text, MaxTextBytes), 0)
}

// decodeRefusal takes reasons of later versions as they are.
func decodeRefusal(p []byte) (*refusal, error) {
	c := &cursor{b: p}
	r := &refusal{reason: Reason(c.u8()), text: c.text(MaxTextBytes)}
	return r, c.end()
}
