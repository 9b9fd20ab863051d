package native

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
)

// The answers of the hot path, appended by hand: one pass counts, one writes.
// Field numbers are those of stream.proto.
//
//	ServerMessage.frames[] { id, tokens_extended { held_ms, not_held, unavailable, retry_after_ms, held_each_ms } }
//	ServerMessage.frames[] { id, beaten { held_ms, lost } }

const (
	tokenBytes = 8 // of a token in a packed list

	fieldHeld        = 1 // TokensExtended, Beaten
	fieldNotHeld     = 2 // TokensExtended
	fieldUnavailable = 3 // TokensExtended
	fieldRetryAfter  = 4 // TokensExtended
	fieldHeldEach    = 5 // TokensExtended
	fieldLost        = 2 // Beaten
	fieldRevoking    = 3 // Beaten
)

// outcome is what one extension came to.
type outcome struct {
	kind  incumbent.Kind
	held  time.Duration // OK
	retry time.Duration // transient
}

// over reports whether the holding or session is certainly over.
func (o outcome) over() bool {
	switch o.kind {
	case incumbent.NotHolder, incumbent.NotFound, incumbent.Expired:
		return true
	}
	return false
}

// ms converts to milliseconds, rounded down: a holder never believes too much.
func ms(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
}

// extendCount is the first pass over the outcomes of one extend_tokens.
type extendCount struct {
	held, notHeld, unavailable int
	each                       bool   // held times differ
	heldMS                     uint32 // of all that are held, if they do not differ
	retryMS                    uint32
	eachBytes                  int
}

func count(n int, at func(int) outcome) extendCount {
	var t extendCount
	for i := range n {
		o := at(i)
		switch {
		case o.kind == incumbent.OK:
			h := ms(o.held)
			t.each = t.each || t.held > 0 && h != t.heldMS
			t.heldMS = h
			t.held++
			t.eachBytes += protowire.SizeVarint(uint64(h))
		case o.over():
			t.notHeld++
			t.eachBytes++
		default:
			t.unavailable++
			if r := ms(o.retry); t.retryMS == 0 || r < t.retryMS && r > 0 {
				t.retryMS = r // the soonest: what is denied keeps nothing waiting
			}
			t.eachBytes++
		}
	}
	return t
}

func (t *extendCount) size() int {
	n := 0
	if t.held > 0 && !t.each {
		n += sizeVarintField(uint64(t.heldMS))
	}
	n += sizeBytesField(8 * t.notHeld)
	n += sizeBytesField(8 * t.unavailable)
	n += sizeVarintField(uint64(t.retryMS))
	if t.each {
		n += sizeBytesField(t.eachBytes)
	}
	return n
}

// sizeVarintField is the size of a field below 16; zero is left out.
func sizeVarintField(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

// sizeBytesField is the size of a field below 16 with n bytes; none is left out.
func sizeBytesField(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(n)
}

// appendTokensExtended appends a frame of a ServerMessage for n tokens.
func appendTokensExtended(b []byte, id uint64, n int, token func(int) uint64, at func(int) outcome) []byte {
	t := count(n, at)
	size := t.size()
	b = appendFrameHead(b, id, fieldExtendTokens, size)
	if t.held > 0 && !t.each {
		b = appendVarintField(b, fieldHeld, uint64(t.heldMS))
	}
	if t.notHeld > 0 {
		b = appendBytesHead(b, fieldNotHeld, 8*t.notHeld)
		for i := range n {
			if at(i).over() {
				b = protowire.AppendFixed64(b, token(i))
			}
		}
	}
	if t.unavailable > 0 {
		b = appendBytesHead(b, fieldUnavailable, 8*t.unavailable)
		for i := range n {
			if o := at(i); o.kind != incumbent.OK && !o.over() {
				b = protowire.AppendFixed64(b, token(i))
			}
		}
	}
	b = appendVarintField(b, fieldRetryAfter, uint64(t.retryMS))
	if t.each {
		b = appendBytesHead(b, fieldHeldEach, t.eachBytes)
		for i := range n {
			h := uint64(0)
			if o := at(i); o.kind == incumbent.OK {
				h = uint64(ms(o.held))
			}
			b = protowire.AppendVarint(b, h)
		}
	}
	return b
}

// beaten is the answer to a beat.
type beaten struct {
	held     time.Duration // the least of all sessions'
	lost     []incumbent.SessionID
	revoking []incumbent.Token
}

// appendBeaten appends a frame of a ServerMessage.
func appendBeaten(b []byte, id uint64, a *beaten) []byte {
	const uuidBytes = 36
	size := sizeVarintField(uint64(ms(a.held))) + len(a.lost)*sizeBytesField(uuidBytes)
	if n := len(a.revoking); n > 0 {
		size += sizeBytesField(n * tokenBytes)
	}
	b = appendFrameHead(b, id, fieldBeat, size)
	b = appendVarintField(b, fieldHeld, uint64(ms(a.held)))
	for _, s := range a.lost {
		b = appendBytesHead(b, fieldLost, uuidBytes)
		b = append(b, s.String()...)
	}
	if n := len(a.revoking); n > 0 {
		b = appendBytesHead(b, fieldRevoking, n*tokenBytes)
		for _, t := range a.revoking {
			b = protowire.AppendFixed64(b, uint64(t))
		}
	}
	return b
}

// appendFrameHead begins a frame whose answer is the message of this field,
// size bytes long.
func appendFrameHead(b []byte, id uint64, answer protowire.Number, size int) []byte {
	b = appendBytesHead(b, fieldFrames, sizeVarintField(id)+1+protowire.SizeBytes(size))
	b = appendVarintField(b, fieldID, id)
	return appendBytesHead(b, answer, size)
}

func appendBytesHead(b []byte, num protowire.Number, size int) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

func appendVarintField(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}
