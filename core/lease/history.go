package lease

import (
	"encoding/binary"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// The history of a lease lies packed in its record, each change behind its length:
//
//	length   varint, of what follows
//	what     1 byte
//	numbers  4 varints: index, token, lateness and time of day in milliseconds
//	texts    holder, by, door, address, principal: each behind its length, a varint
//
// Unpacked it would be most of what a lease needs. The grant of the present holding
// is not there while it is the newest change: it is what the record says.

// packed is a change as it lies in a history. Its texts alias it.
type packed struct {
	what                                 What
	index                                incumbent.Index
	token                                incumbent.Token
	late, at                             int64 // milliseconds
	holder, by, door, address, principal []byte
}

// History is what became of the lease, oldest first; without extensions and the
// queue's comings and goings.
func (l *Lease) History() []LeaseChange {
	list := make([]LeaseChange, 0, 1+l.changes)
	for b := l.past; len(b) > 0; {
		var p packed
		p, b = nextPacked(b)
		list = append(list, p.unpack())
	}
	if l.granted != 0 {
		list = append(list, l.grantChange())
	}
	return list
}

// Newest returns the newest change of the history that is one of those, 0 if none
// is.
func (l *Lease) Newest(of func(What) bool) (what What) {
	if l.granted != 0 && of(l.grantedAs()) {
		return l.grantedAs()
	}
	for b := l.past; len(b) > 0; {
		var p packed
		if p, b = nextPacked(b); of(p.what) {
			what = p.what
		}
	}
	return what
}

// grantedAs says what the grant of the present holding was, if the history ends with it.
func (l *Lease) grantedAs() What {
	if l.Offered {
		return Offered
	}
	return Granted
}

// grantChange is that grant.
func (l *Lease) grantChange() LeaseChange {
	return LeaseChange{Index: l.granted, What: l.grantedAs(), Holder: l.Holder, Token: l.Token, Origin: l.Origin}
}

// grantBytes is what that grant counts.
func (l *Lease) grantBytes() int {
	var buf [maxSmallChange]byte
	c := l.grantChange()
	return len(c.pack(buf[:0]))
}

// remember adds what the command under way does to the history of a record that
// no table has yet.
func (s *exec) remember(n *Lease, ch LeaseChange) {
	ch.Index, ch.Origin = s.x.Index(), s.x.Origin()
	n.remember(ch)
}

// remember adds a change to the history of a record that no table has yet and
// drops the oldest ones beyond the limits. Whoever ends a holding calls it while the
// record still says who had it.
//
// The bytes may be shared with the predecessor: only the newest record of a
// lease is ever appended to, and readers of older ones see no further than
// their own length.
func (l *Lease) remember(ch LeaseChange) {
	x := *l.seldom
	l.seldom = &x
	var buf [2 * maxSmallChange]byte
	b := buf[:0]
	if l.granted != 0 {
		grant := l.grantChange()
		b, l.granted = grant.pack(b), 0
		l.changes++
	}
	l.changes++
	x.past, l.changes = trimPast(appendPast(x.past, ch.pack(b)), l.changes, 0, 0)
}

// begin makes the newest change of the history the grant of a holding that the
// record tells of, and drops the oldest ones beyond the limits.
func (l *Lease) begin(at incumbent.Index) {
	l.granted = at
	if len(l.past) == 0 {
		return
	}
	past, left := trimPast(l.past, l.changes, 1, l.grantBytes())
	if left == l.changes {
		return
	}
	x := *l.seldom
	x.past, l.changes = past, left
	l.seldom = &x
}

// appendPast adds changes to a history, with room for a few more if it has to move.
func appendPast(past, changes []byte) []byte {
	if n := len(past) + len(changes); n > cap(past) {
		past = append(make([]byte, 0, n+n/pastSlack), past...)
	}
	return append(past, changes...)
}

// trimPast drops the oldest of n changes of a history to which so many more, of so many
// bytes, belong, until it is within the limits. It returns how many are left.
func trimPast(past []byte, n, more uint8, bytes int) ([]byte, uint8) {
	for ; n+more > MaxHistory || len(past)+bytes > MaxHistoryBytes; n-- {
		past = skipPacked(past)
	}
	return past, n
}

func countPacked(past []byte) (n int) {
	for ; len(past) > 0; n++ {
		past = skipPacked(past)
	}
	return n
}

func skipPacked(past []byte) []byte {
	size, n := binary.Uvarint(past)
	return past[n+int(size):]
}

// pack appends a change.
func (c *LeaseChange) pack(b []byte) []byte {
	o := c.Origin
	numbers := [...]uint64{uint64(c.Index), uint64(c.Token), uint64(c.Late / time.Millisecond), uint64(o.Millis())}
	return appendPacked(b, c.What, numbers, [...]string{c.Holder, c.By, o.Door, o.Address, o.Principal})
}

// pack appends a change once more.
func (p *packed) pack(b []byte) []byte {
	numbers := [...]uint64{uint64(p.index), uint64(p.token), uint64(p.late), uint64(p.at)}
	return appendPacked(b, p.what, numbers, [...][]byte{p.holder, p.by, p.door, p.address, p.principal})
}

func appendPacked[T string | []byte](b []byte, what What, numbers [4]uint64, texts [5]T) []byte {
	var buf [maxSmallChange]byte
	p := append(buf[:0], byte(what))
	for _, n := range numbers {
		p = binary.AppendUvarint(p, n)
	}
	for _, text := range texts {
		p = binary.AppendUvarint(p, uint64(len(text)))
		p = append(p, text...)
	}
	b = binary.AppendUvarint(b, uint64(len(p)))
	return append(b, p...)
}

// nextPacked takes the first change from a history. No byte of one comes from
// outside: what it holds has been packed here.
func nextPacked(past []byte) (p packed, rest []byte) {
	size, n := binary.Uvarint(past)
	b, rest := past[n:n+int(size)], past[n+int(size):]
	p.what, b = What(b[0]), b[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	text := func() (t []byte) {
		n := number()
		t, b = b[:n], b[n:]
		return t
	}
	p.index, p.token = incumbent.Index(number()), incumbent.Token(number())
	p.late, p.at = int64(number()), int64(number())
	p.holder, p.by, p.door, p.address, p.principal = text(), text(), text(), text(), text()
	return p, rest
}

func (p *packed) unpack() LeaseChange {
	return LeaseChange{
		Index: p.index, What: p.what, Holder: string(p.holder), Token: p.token,
		Origin: &core.Origin{At: core.AtMillis(p.at), Door: string(p.door), Address: string(p.address), Principal: string(p.principal)},
		Late:   time.Duration(p.late) * time.Millisecond, By: string(p.by),
	}
}
