package lease

import (
	"encoding/binary"
	"time"

	"github.com/incumbent-dev/incumbent"
	corewire "github.com/incumbent-dev/incumbent/core/wire"
)

// maxTTLMillis is the longest ttl that a frame may ask for.
const maxTTLMillis = uint64(incumbent.MaxTTL / time.Millisecond)

// maxFamily is the greatest number of a family that a frame may name.
const maxFamily = 1<<31 - 1

// reader takes a frame apart. After the first thing that is wrong it is at the
// end and bad.
type reader struct {
	b    []byte
	at   int
	bad  bool
	all  string // b, once a text was asked for
	last uint64 // token
	held time.Duration
	next int64
}

// decode fills an empty frame from b, which it does not keep. It reports false
// if b is not one; it never panics, and takes memory in proportion to b.
func (f *frame) decode(b []byte) bool {
	if len(b) > MaxFrameBytes {
		return false
	}
	r := reader{b: b}
	if r.byte() != frameVersion {
		return false
	}
	f.kind = r.byte()
	if f.kind&^(vouching|showing) == askFrame {
		f.vouched, f.shows = f.kind&vouching != 0, f.kind&showing != 0
		f.kind = askFrame
	}
	if f.kind&maxPressure == answerFrame {
		f.kind, f.pressure = answerFrame, f.kind>>pressureShift
	}
	f.boot = r.uint64()
	f.term, f.seq, f.extra = r.uint(), r.uint(), r.uint()
	for !r.bad && r.at < len(b) {
		switch f.kind {
		case askFrame:
			f.asking(&r)
		case answerFrame:
			f.answering(&r)
		case lostFrame:
			f.losing(&r)
		default:
			return false
		}
	}
	return !r.bad && f.kind >= askFrame && f.kind <= lostFrame
}

func (r *reader) fail() {
	r.bad = true
	r.at = len(r.b)
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b)-r.at {
		r.fail()
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 {
		r.fail()
		return 0
	}
	r.at += n
	return v
}

// upTo reads a number that must not exceed a limit.
func (r *reader) upTo(limit uint64) uint64 {
	v := r.uint()
	if v > limit {
		r.fail()
		return 0
	}
	return v
}

func (r *reader) token() incumbent.Token {
	d, n := binary.Varint(r.b[r.at:])
	if n <= 0 {
		r.fail()
		return 0
	}
	r.at += n
	r.last += uint64(d)
	if r.last == 0 {
		r.fail()
	}
	return incumbent.Token(r.last)
}

func (r *reader) session() (id incumbent.SessionID) {
	copy(id[:], r.take(len(id)))
	if id.IsZero() {
		r.fail()
	}
	return id
}

func (r *reader) text(limit int) string {
	n := int(r.upTo(uint64(limit)))
	at := r.at
	if r.take(n); r.bad {
		return ""
	}
	if r.all == "" {
		r.all = string(r.b)
	}
	return r.all[at : at+n]
}

// asking reads a record of an ask.
func (f *frame) asking(r *reader) {
	head := r.byte()
	switch head & recordMask {
	case itemRecord:
		f.item(r, head)
	case detachRecord:
		f.detached = append(f.detached, counted{r.session(), r.uint()})
	case announceRecord:
		f.announced = append(f.announced, counted{r.session(), r.uint()})
	case lookRecord:
		var x Inspected
		if head&withToken != 0 {
			x.Token = r.token()
		} else {
			x.Session = r.session()
		}
		if len(f.looks) >= MaxFrameLooks {
			r.fail()
			return
		}
		f.looks = append(f.looks, x)
	}
}

func (f *frame) item(r *reader, head byte) {
	var x Extension
	if head&withLasting != 0 {
		f.lasting(r, head)
		return
	}
	if head&(withToken|withSession|withNamed) == 0 {
		r.fail()
		return
	}
	if head&withToken != 0 {
		x.Token = r.token()
	}
	if head&withSession != 0 {
		x.Session = r.session()
	}
	if head&withNamed != 0 {
		n := &Named{}
		n.Name.Namespace = r.text(incumbent.MaxNamespaceBytes)
		n.Name.Model = r.text(incumbent.MaxNamespaceBytes)
		n.Name.Lease = r.text(incumbent.MaxNameBytes)
		n.Holder = r.text(incumbent.MaxHolderBytes)
		x.Named = n
	}
	if head&withTTL != 0 {
		x.TTL = time.Duration(r.upTo(maxTTLMillis)) * time.Millisecond
	}
	if head&withCounter != 0 {
		if head&(withToken|withSession|withNamed) != withSession {
			r.fail()
			return
		}
		f.bindings = append(f.bindings, binding{int32(len(f.items)), r.uint()})
	}
	f.items = append(f.items, x)
}

// lasting reads an extension of a family's deadline, which has nothing else.
func (f *frame) lasting(r *reader, head byte) {
	if head&^withLasting != itemRecord {
		r.fail()
		return
	}
	family := r.upTo(maxFamily)
	id := r.text(MaxDeadlineIDBytes)
	f.items = append(f.items, Extension{Lasting: &Lasting{corewire.Number(family), id, incumbent.Index(r.uint())}})
}

// answering reads a record of an answer.
func (f *frame) answering(r *reader) {
	head := r.byte()
	if head&kindMask == lookAnswer {
		f.look(r)
		return
	}
	a := answered{kind: incumbent.Kind(head & kindMask)}
	if a.kind > incumbent.Internal {
		r.fail()
		return
	}
	if head&withGap != 0 {
		r.next += int64(r.upTo(MaxFrameBytes))
	}
	if r.next >= MaxFrameBytes { // an item takes at least a byte of its frame
		r.fail()
		return
	}
	a.item = int32(r.next)
	r.next++
	if a.kind == incumbent.OK {
		if head&heldAsBefore == 0 {
			r.held = time.Duration(r.upTo(uint64(incumbent.MaxTTL)))
		}
		a.held = r.held
		if head&withRevoking != 0 {
			a.revoking = r.revoking()
		}
	}
	f.answers = append(f.answers, a)
}

// revoking is not nil, so that it says that there are some even if it is empty.
func (r *reader) revoking() []incumbent.Token {
	n := int(r.byte())
	if n > MaxRevokingTokens || n > len(r.b)-r.at {
		r.fail()
		return nil
	}
	ts := make([]incumbent.Token, n)
	for i := range ts {
		ts[i] = incumbent.Token(r.uint())
	}
	return ts
}

func (f *frame) look(r *reader) {
	n := r.upTo(MaxFrameLooks - 1)
	flags := r.byte()
	x := Inspected{Known: flags&lookedKnown != 0, Running: flags&lookedRuns != 0, Attached: flags&lookedAttached != 0}
	x.ExpiresIn = time.Duration(r.upTo(1<<63 - 1))
	x.Extends = r.uint()
	x.LastExtend = time.Duration(r.upTo(1<<63 - 1))
	if flags&lookedExtended == 0 {
		x.LastExtend = -1
	}
	f.looks = append(f.looks, x)
	f.looked = append(f.looked, int32(n))
}

func (f *frame) losing(r *reader) { f.lost = append(f.lost, counted{r.session(), r.uint()}) }
