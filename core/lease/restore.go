package lease

import (
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// reader reads messages Lease, one after the other. It takes what the fields say,
// whatever their order: whether they stand in the one form that is written is for who
// uses it to find out, by writing them again.
type reader struct {
	words  map[string]string // interned texts
	origin *core.Origin      // the last one: a grant's stands with its lease and in the history
	again  writer

	l       Lease
	seldom  seldom
	queue   []Waiter
	newest  packed // change of the history
	changes int    // read
}

// fields calls fn with the fields of a message, a value as n or as b, until it
// returns false. It reports whether that did not happen and the bytes are a message.
func fields(b []byte, fn func(num protowire.Number, n uint64, b []byte) bool) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var v uint64
		var body []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			body, n = protowire.ConsumeBytes(b)
		default:
			return false
		}
		if n < 0 || !fn(num, v, body) {
			return false
		}
		b = b[n:]
	}
	return true
}

// lease reads a lease and who waits for it. The bytes may change afterwards.
func (r *reader) lease(b []byte) (*Lease, []Waiter, bool) {
	r.l = Lease{entry: new(entry), seldom: nothingSeldom, Origin: noOrigin}
	r.seldom, r.queue, r.newest, r.changes = seldom{}, nil, packed{}, 0
	if !fields(b, r.field) {
		return nil, nil, false
	}
	l := r.l
	if r.changes > 0 {
		l.changes = uint8(min(r.changes, 2*MaxHistory)) // too many do not pass check
		r.endHistory(&l)
	}
	if r.seldom.Pins != nil || r.seldom.PreviousHolder != "" || r.seldom.past != nil {
		x := r.seldom
		x.past = slices.Clip(x.past)
		l.seldom = &x
	}
	return &l, r.queue, true
}

// answer reads what is kept of an answer.
func (r *reader) answer(b []byte) (a Answer, ok bool) {
	ok = fields(b, func(num protowire.Number, n uint64, b []byte) (ok bool) {
		switch num {
		case 1:
			a.Lease, _, ok = r.lease(b)
			return ok
		case 2:
			a.Granted = n != 0
		case 3:
			a.Queued = n != 0
		case 4:
			a.Position = int(n)
		}
		return true
	})
	return a, ok && a.Lease != nil && !(a.Granted && a.Queued)
}

// sameOrigin returns the origin before if they are equal.
func (r *reader) sameOrigin(p *packed) *core.Origin {
	if o := r.origin; o == nil || o.Millis() != p.at || o.Door != string(p.door) || o.Address != string(p.address) || o.Principal != string(p.principal) {
		r.origin = &core.Origin{At: core.AtMillis(p.at), Door: r.word(p.door), Address: r.word(p.address), Principal: r.word(p.principal)}
	}
	return r.origin
}

func (r *reader) word(b []byte) string { return word(r.words, b) }

// endHistory decides where the newest change belongs: see [Lease.remember].
func (r *reader) endHistory(l *Lease) {
	c := &r.newest
	o := l.Origin
	l.granted = c.index
	if g := l.grantChange(); c.token != 0 && c.token == g.Token && c.what == g.What && string(c.holder) == g.Holder && c.late == 0 && len(c.by) == 0 &&
		c.at == o.Millis() && string(c.door) == o.Door && string(c.address) == o.Address && string(c.principal) == o.Principal {
		l.changes--
		return
	}
	l.granted = 0
	r.seldom.past = c.append(r.seldom.past)
}

func (r *reader) field(num protowire.Number, n uint64, b []byte) bool {
	l, ok := &r.l, true
	switch num {
	case 1:
		ok = fields(b, r.name)
	case 2:
		l.Holder, ok = string(b), utf8.Valid(b)
	case 3:
		ok = toSession(&l.Session, b)
	case 4:
		l.Token = incumbent.Token(n)
	case 5:
		l.LastToken = incumbent.Token(n)
	case 6:
		l.TTL = time.Duration(n) * time.Millisecond
		ok = n <= uint64(incumbent.MaxTTL.Milliseconds())
	case 7:
		l.Renewal = n
	case 8:
		l.Offered = n != 0
	case 9:
		l.Critical = n != 0
	case 10:
		l.Revoking = n != 0
	case 11:
		r.seldom.Pins, ok = append(r.seldom.Pins, string(b)), utf8.Valid(b)
	case 12:
		ok = r.waiter(b)
	case 13:
		l.Modified = incumbent.Index(n)
	case 14:
		var o packed
		ok = o.origin(b)
		l.Origin = r.sameOrigin(&o)
	case historyField:
		ok = r.change(b)
	case 16:
		r.seldom.PreviousHolder, ok = string(b), utf8.Valid(b)
	}
	return ok
}

func (r *reader) name(num protowire.Number, _ uint64, b []byte) bool {
	n := &r.l.entry.Name
	switch num {
	case 1:
		n.Namespace = r.word(b)
	case 2:
		n.Model = r.word(b)
	case 3:
		n.Lease = string(b)
	}
	return utf8.Valid(b)
}

func toSession(id *incumbent.SessionID, b []byte) bool {
	return copy(id[:], b) == len(id) && len(b) == len(id)
}

func (r *reader) waiter(b []byte) bool {
	var w Waiter
	r.queue = append(r.queue, w)
	at := &r.queue[len(r.queue)-1]
	return fields(b, func(num protowire.Number, n uint64, b []byte) bool {
		switch num {
		case 1:
			return toSession(&at.Session, b)
		case 2:
			at.Holder = string(b)
			return utf8.Valid(b)
		case 3:
			at.Since = incumbent.Index(n)
		case 4:
			at.Critical = n != 0
		case 5:
			at.Turn = n
		}
		return true
	})
}

// change reads one of the history, and puts the one before to the others.
func (r *reader) change(b []byte) bool {
	if r.changes++; r.changes > 1 {
		r.seldom.past = r.newest.append(r.seldom.past)
	}
	r.newest = packed{}
	return fields(b, r.newest.field) && r.newest.what > 0
}

func (p *packed) field(num protowire.Number, n uint64, b []byte) bool {
	ok := true
	switch num {
	case 1:
		p.index = incumbent.Index(n)
	case 2:
		p.what = What(n)
		ok = n < uint64(numWhats)
	case 3:
		p.holder, ok = b, utf8.Valid(b)
	case 4:
		p.token = incumbent.Token(n)
	case 5:
		ok = p.origin(b)
	case 6:
		p.late = int64(n)
		ok = n <= maxLateMillis
	case 7:
		p.by, ok = b, utf8.Valid(b)
	}
	return ok
}

func (p *packed) origin(b []byte) bool {
	return fields(b, func(num protowire.Number, n uint64, b []byte) bool {
		switch num {
		case 1:
			p.at = int64(n)
			return n <= maxAtMillis
		case 2:
			p.door = b
		case 3:
			p.address = b
		case 4:
			p.principal = b
		}
		return utf8.Valid(b)
	})
}
