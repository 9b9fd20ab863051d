package lease

import (
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// The history of a lease lies in its record as it does in a snapshot: the fields
// history of the message Lease of lease.proto, oldest first. Unpacked it would be most of
// what a lease needs, and a snapshot of leases that change hands is mostly histories. The
// grant of the present holding is not there while it is the newest change: it is what the
// record says.

const (
	historyField = 15
	historyTag   = historyField<<3 | byte(protowire.BytesType)
)

// packed is a change of a history. Its texts alias what it was read from.
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
		var c []byte
		c, b = nextChange(b)
		p := readChange(c)
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
		var c []byte
		c, b = nextChange(b)
		if w := whatOf(c); of(w) {
			what = w
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

// grantBytes is what that grant counts against MaxHistoryBytes.
func (l *Lease) grantBytes() int {
	c := l.grantChange()
	return countedBytes(c.parts())
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
		b, l.granted = grant.append(b), 0
		l.changes++
	}
	l.changes++
	x.past, l.changes = trimPast(appendPast(x.past, ch.append(b)), l.changes, 0, 0)
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

// trimPast drops the oldest of n changes of a history to which so many more, that count
// so many bytes, belong, until it is within the limits. It returns how many are left.
func trimPast(past []byte, n, more uint8, bytes int) ([]byte, uint8) {
	for ; n+more > MaxHistory || !withinBytes(past, bytes); n-- {
		_, past = nextChange(past)
	}
	return past, n
}

// withinBytes reports whether a history and what belongs to it besides, which counts so
// many bytes, are within MaxHistoryBytes. Few are so long that it has to be counted.
func withinBytes(past []byte, more int) bool {
	return len(past)+MaxHistory*maxUncounted+more <= MaxHistoryBytes || countPast(past)+more <= MaxHistoryBytes
}

// countPast is what the changes of a history count against MaxHistoryBytes.
func countPast(past []byte) (n int) {
	for len(past) > 0 {
		var c []byte
		c, past = nextChange(past)
		p := readChange(c)
		n += countedBytes(p.parts())
	}
	return n
}

// countedBytes is what a change counts against MaxHistoryBytes: its kind a byte, its
// numbers as varints, its texts each with its length, and the length of all that. It is
// at most maxUncounted more than the bytes in the record, where what is zero takes none.
func countedBytes[T string | []byte](numbers [4]uint64, texts [5]T) int {
	n := 1
	for _, v := range numbers {
		n += protowire.SizeVarint(v)
	}
	for _, t := range texts {
		n += protowire.SizeBytes(len(t))
	}
	return protowire.SizeBytes(n)
}

// parts is what a change says, but for its kind, in the order of the fields that
// appendChange gives them.
func (c *LeaseChange) parts() (numbers [4]uint64, texts [5]string) {
	o := c.Origin
	return [...]uint64{uint64(c.Index), uint64(c.Token), uint64(c.Late / time.Millisecond), uint64(o.Millis())},
		[...]string{c.Holder, c.By, o.Door, o.Address, o.Principal}
}

func (p *packed) parts() (numbers [4]uint64, texts [5][]byte) {
	return [...]uint64{uint64(p.index), uint64(p.token), uint64(p.late), uint64(p.at)},
		[...][]byte{p.holder, p.by, p.door, p.address, p.principal}
}

// append adds a change to a history.
func (c *LeaseChange) append(b []byte) []byte {
	numbers, texts := c.parts()
	return appendChange(b, c.What, numbers, texts)
}

func (p *packed) append(b []byte) []byte {
	numbers, texts := p.parts()
	return appendChange(b, p.what, numbers, texts)
}

// appendChange adds a field history: the message LeaseChange of lease.proto. It does not
// use a [wire.Writer], which would put the caller's buffer into the heap.
func appendChange[T string | []byte](b []byte, what What, numbers [4]uint64, texts [5]T) []byte {
	index, token, late, at := numbers[0], numbers[1], numbers[2], numbers[3]
	holder, by, door, address, principal := texts[0], texts[1], texts[2], texts[3], texts[4]
	origin := numberSize(at) + textSize(door) + textSize(address) + textSize(principal)
	size := numberSize(index) + numberSize(uint64(what)) + textSize(holder) + numberSize(late) + textSize(by)
	if token != 0 {
		size += 1 + 8
	}
	if origin > 0 {
		size += 1 + protowire.SizeBytes(origin)
	}
	b = protowire.AppendVarint(append(b, historyTag), uint64(size))
	b = appendNumber(b, 1, index)
	b = appendNumber(b, 2, uint64(what))
	b = appendText(b, 3, holder)
	if token != 0 {
		b = binary.LittleEndian.AppendUint64(append(b, 4<<3|byte(protowire.Fixed64Type)), token)
	}
	if origin > 0 {
		b = protowire.AppendVarint(append(b, 5<<3|byte(protowire.BytesType)), uint64(origin))
		b = appendNumber(b, 1, at)
		b = appendText(b, 2, door)
		b = appendText(b, 3, address)
		b = appendText(b, 4, principal)
	}
	b = appendNumber(b, 6, late)
	return appendText(b, 7, by)
}

// Fields of which zero values are left out, with numbers below 16.

func numberSize(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func appendNumber(b []byte, num byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, num<<3|byte(protowire.VarintType)), v)
}

func textSize[T string | []byte](t T) int {
	if len(t) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(t))
}

func appendText[T string | []byte](b []byte, num byte, t T) []byte {
	if len(t) == 0 {
		return b
	}
	b = protowire.AppendVarint(append(b, num<<3|byte(protowire.BytesType)), uint64(len(t)))
	return append(b, t...)
}

// nextChange takes the first change from a history that was made here, and returns the
// bytes of its message.
func nextChange(past []byte) (c, rest []byte) {
	size, n := binary.Uvarint(past[1:])
	end := 1 + n + int(size)
	return past[1+n : end], past[end:]
}

// readChange reads the message of a change that was made here.
func readChange(c []byte) (p packed) {
	fields(c, p.field)
	return p
}

// whatOf is the kind of such a change.
func whatOf(c []byte) (what What) {
	fields(c, func(num protowire.Number, n uint64, _ []byte) bool {
		what = What(n)
		return num < 2
	})
	return what
}

func (p *packed) unpack() LeaseChange {
	return LeaseChange{
		Index: p.index, What: p.what, Holder: string(p.holder), Token: p.token,
		Origin: &core.Origin{At: core.AtMillis(p.at), Door: string(p.door), Address: string(p.address), Principal: string(p.principal)},
		Late:   time.Duration(p.late) * time.Millisecond, By: string(p.by),
	}
}
