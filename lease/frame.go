package lease

import (
	"encoding/binary"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// What members say to each other about leases travels in frames. A frame is a
// header and records up to its end. The kind of an ask has its highest bit set
// where the sender vouches for the leader, and the next where it shows its state with
// an answer; that of an answer says in its higher half
// up to which rank of lanes the leader refuses work, see [Config].Pressure:
//
//	version(1) kind(1) boot(8) term(v) seq(v) …
//
//	ask     … replaces(v)  records: head(1) [token(z)] [session(16)] [4 texts] [ttl ms(v)] [counter(v)] [family(v) text generation(v)]
//	answer  … index(v)     records: head(1) [gap(v)] [held ns(v)] [n(1) tokens(v)…]   or   look: head(1) number(v) flags(1) 3 × v
//	refuse  … leader(v)    no records
//	lost    … 0            records: session(16) counter(v)
//
// v is an unsigned varint, z the zigzag difference to the token before it in
// the frame, a text is its length (v) and its bytes. An extension by token takes
// some 3 bytes, one by session 17. Items and looks are numbered from 0 in the
// order in which they stand; an answer names them by number.
const (
	frameVersion = 1

	askFrame    = 1 // to the leader: extensions, attachments, inspections
	answerFrame = 2 // from the leader: of some of the items of an ask
	refuseFrame = 3 // not the leader of that term
	lostFrame   = 4 // from the leader: attached elsewhere

	vouching = 1 << 7 // with askFrame: its sender vouches for the leader, see vouch.go
	showing  = 1 << 6 // with askFrame: an answer is shown with state, see Batch.shows

	pressureShift = 4 // with answerFrame
	maxPressure   = 1<<4 - 1
)

// The head of an asking record: what it is, and what follows.
const (
	itemRecord     = 0
	detachRecord   = 1
	announceRecord = 2
	lookRecord     = 3
	recordMask     = 3

	withToken   = 1 << 2
	withSession = 1 << 3
	withNamed   = 1 << 4
	withTTL     = 1 << 5
	withCounter = 1 << 6
	withLasting = 1 << 7
)

// The head of an answering record: the kind, and what follows.
const (
	kindMask     = 1<<5 - 1
	lookAnswer   = kindMask // in the place of a kind
	heldAsBefore = 1 << 5
	withRevoking = 1 << 6
	withGap      = 1 << 7
)

// Flags of an inspected one.
const (
	lookedKnown = 1 << iota
	lookedRuns
	lookedAttached
	lookedExtended
)

// counted is a session with the counter it was attached with.
type counted struct {
	session incumbent.SessionID
	counter uint64
}

// header is what all frames begin with.
type header struct {
	kind  byte
	boot  uint64 // of the member that asks: sets its lives apart
	term  uint64 // that the leader leads in
	seq   uint64
	extra uint64 // see the drawing
}

// frame is a decoded one. What its kind does not have is empty.
type frame struct {
	header

	items     []Extension
	bindings  []binding // of items that attach, in their order
	detached  []counted
	announced []counted
	looks     []Inspected

	answers []answered
	looked  []int32 // numbers of looks
	lost    []counted
	vouched bool
	shows   bool

	pressure uint8 // of the leader
}

// binding says that an item attaches its session.
type binding struct {
	item    int32
	counter uint64
}

// answered is the answer to an item.
type answered struct {
	item     int32
	kind     incumbent.Kind
	held     time.Duration
	revoking []incumbent.Token
}

// load is what a frame counts until it is done with.
func (f *frame) load() load { return load{frames: 1, extensions: len(f.items)} }

func (f *frame) reset() {
	clear(f.items) // texts
	clear(f.answers)
	*f = frame{
		items: f.items[:0], bindings: f.bindings[:0], detached: f.detached[:0], announced: f.announced[:0],
		looks: f.looks[:0], answers: f.answers[:0], looked: f.looked[:0], lost: f.lost[:0],
	}
}

// writer builds a frame.
type writer struct {
	b    []byte
	last uint64        // token
	held time.Duration // of the answer before
	next int32         // item that an answer without gap would be of
}

func (w *writer) start(h header) {
	*w = writer{b: append(w.b[:0], frameVersion, h.kind)}
	w.b = binary.BigEndian.AppendUint64(w.b, h.boot)
	w.uint(h.term)
	w.uint(h.seq)
	w.uint(h.extra)
}

// show marks an ask, an answer to which is shown with state.
func (w *writer) show() { w.b[1] |= showing }

func (w *writer) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *writer) text(s string) {
	w.uint(uint64(len(s)))
	w.b = append(w.b, s...)
}

// back undoes a record that did not fit.
func (w *writer) back(to writer) {
	b := w.b[:len(to.b)]
	*w = to
	w.b = b
}

// item appends an extension; counter is not 0 if it attaches its session.
func (w *writer) item(x *Extension, attaches bool, counter uint64) {
	head := byte(itemRecord)
	at := len(w.b)
	w.b = append(w.b, 0)
	if x.Token != 0 {
		head |= withToken
		w.token(x.Token)
	}
	if !x.Session.IsZero() {
		head |= withSession
		w.b = append(w.b, x.Session[:]...)
	}
	if n := x.Named; n != nil {
		head |= withNamed
		w.text(n.Name.Namespace)
		w.text(n.Name.Model)
		w.text(n.Name.Lease)
		w.text(n.Holder)
	}
	if x.TTL != 0 {
		head |= withTTL
		w.uint(uint64(millis(x.TTL)))
	}
	if attaches {
		head |= withCounter
		w.uint(counter)
	}
	if l := x.Lasting; l != nil {
		head |= withLasting
		w.uint(uint64(l.Family))
		w.text(l.ID)
		w.uint(uint64(l.Generation))
	}
	w.b[at] = head
}

func (w *writer) token(t incumbent.Token) {
	w.b = binary.AppendVarint(w.b, int64(uint64(t)-w.last))
	w.last = uint64(t)
}

func (w *writer) counted(record byte, c counted) {
	w.b = append(w.b, record)
	w.session(c)
}

func (w *writer) session(c counted) {
	w.b = append(w.b, c.session[:]...)
	w.uint(c.counter)
}

func (w *writer) look(x *Inspected) {
	if x.Token != 0 {
		w.b = append(w.b, lookRecord|withToken)
		w.token(x.Token)
		return
	}
	w.b = append(w.b, lookRecord|withSession)
	w.b = append(w.b, x.Session[:]...)
}

func (w *writer) answer(n int32, x *Extension) {
	head := byte(x.Kind)
	at := len(w.b)
	w.b = append(w.b, 0)
	if n != w.next {
		head |= withGap
		w.uint(uint64(n - w.next))
	}
	w.next = n + 1
	if x.Kind == incumbent.OK {
		if x.Held == w.held {
			head |= heldAsBefore
		} else {
			w.uint(uint64(x.Held))
			w.held = x.Held
		}
		if x.Revoking {
			head |= withRevoking
			w.b = append(w.b, byte(len(x.RevokingTokens)))
			for _, t := range x.RevokingTokens {
				w.uint(uint64(t))
			}
		}
	}
	w.b[at] = head
}

func (w *writer) looked(n int, x *Inspected) {
	var f byte
	for _, is := range [...]struct {
		set bool
		bit byte
	}{{x.Known, lookedKnown}, {x.Running, lookedRuns}, {x.Attached, lookedAttached}, {x.LastExtend >= 0, lookedExtended}} {
		if is.set {
			f |= is.bit
		}
	}
	w.b = append(w.b, lookAnswer)
	w.uint(uint64(n))
	w.b = append(w.b, f)
	w.uint(uint64(x.ExpiresIn))
	w.uint(x.Extends)
	w.uint(uint64(max(x.LastExtend, 0)))
}
