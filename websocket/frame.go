// Package websocket is WebSocket framing (RFC 6455, section 5) for servers, on
// bytes as they lie in a buffer that belongs to somebody else: nothing is copied
// out and nothing is allocated, except for control frames that stand between the
// fragments of a message. A message is consumed when it is complete; until then
// its bytes stay with the parked connection, under that connection's limits.
//
//	 0                   1
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
//	+-+-+-+-+-------+-+-------------+----------------+----------+---------+
//	|F|R|R|R| opcode|M| length      | 0, 2, 8 bytes  | 4 bytes  | payload |
//	|I|S|S|S|       |A| 0-125, 126, | longer length  | mask     |         |
//	|N|V|V|V|       |S| 127         |                |          |         |
//	+-+-+-+-+-------+-+-------------+----------------+----------+---------+
//
// # Invariants
//
// A message that is not complete leaves its bytes as they are. However the bytes
// arrive, the first complete reading is the same.
//
// # Concurrency
//
// There is no state: whoever owns the bytes calls.
//
// # Not guaranteed
//
// Whether a text message is UTF-8 is for those who decode it.
package websocket

import (
	"encoding/binary"

	"github.com/gobwas/ws"
)

// MaxHeader is the longest header of a frame that a server sends: never masked.
const MaxHeader = 10

// MaxFragments bounds the frames that make up one message.
const MaxFragments = 1_024

const (
	finBit     = 0x80
	rsvBits    = 0x70
	opBits     = 0x0f
	maskBit    = 0x80
	lenBits    = 0x7f
	maxControl = 125 // payload of a control frame
	maskBytes  = 4
)

// Error ends a connection with a close frame of this code and reason.
type Error struct {
	Code   ws.StatusCode
	Reason string
}

// Error returns the reason.
func (e *Error) Error() string { return e.Reason }

// Reader says which messages a client may send.
type Reader struct {
	Op    ws.OpCode // of every message: OpText or OpBinary
	Limit int       // bytes of a message
}

func protocolError(reason string) *Error {
	return &Error{Code: ws.StatusProtocolError, Reason: reason}
}

// header is a frame's header.
type header struct {
	op      ws.OpCode
	fin     bool
	mask    [4]byte
	size    int // of the header
	payload int
}

// header reads a frame's header; size 0 means that more bytes are needed. The
// payload need not be there yet.
func (r Reader) header(b []byte) (header, *Error) {
	if len(b) < 2 {
		return header{}, nil
	}
	h := header{op: ws.OpCode(b[0] & opBits), fin: b[0]&finBit != 0}
	short := int(b[1] & lenBits)
	switch {
	case b[0]&rsvBits != 0:
		return header{}, protocolError("reserved bits are set")
	case b[1]&maskBit == 0:
		return header{}, protocolError("frame of a client is not masked")
	case h.op.IsReserved():
		return header{}, protocolError("reserved opcode")
	case h.op.IsControl() && (!h.fin || short > maxControl):
		return header{}, protocolError("control frame is fragmented or too long")
	case h.op.IsData() && h.op != ws.OpContinuation && h.op != r.Op:
		return header{}, r.otherKind()
	}
	size, n, more, bad := readLength(b, short)
	if bad != nil || more {
		return header{}, bad
	}
	if n > uint64(r.Limit) {
		return header{}, tooBig()
	}
	if len(b) < size+maskBytes {
		return header{}, nil
	}
	copy(h.mask[:], b[size:])
	h.size, h.payload = size+maskBytes, int(n)
	return h, nil
}

// readLength returns where the length ends and what it is.
func readLength(b []byte, short int) (size int, n uint64, more bool, bad *Error) {
	switch short {
	case 126:
		if len(b) < 4 {
			return 0, 0, true, nil
		}
		size, n = 4, uint64(binary.BigEndian.Uint16(b[2:]))
		if n < 126 {
			bad = protocolError("length is not in its shortest form")
		}
	case 127:
		if len(b) < 10 {
			return 0, 0, true, nil
		}
		size, n = 10, binary.BigEndian.Uint64(b[2:])
		if n <= 0xffff || n > 1<<63-1 {
			bad = protocolError("length is not in its shortest form")
		}
	default:
		size, n = 2, uint64(short)
	}
	return size, n, false, bad
}

func (r Reader) otherKind() *Error {
	if r.Op == ws.OpText {
		return &Error{Code: ws.StatusUnsupportedData, Reason: "only text messages are understood"}
	}
	return &Error{Code: ws.StatusUnsupportedData, Reason: "only binary messages are understood"}
}

func tooBig() *Error {
	return &Error{Code: ws.StatusMessageTooBig, Reason: "message is over max_message_bytes"}
}

// Message is one message, or one control frame.
type Message struct {
	Op       ws.OpCode
	Payload  []byte    // unmasked, within the bytes given
	Size     int       // bytes it took; 0: not complete
	Controls []Message // ping and pong frames that stood between its fragments
}

// Next reads the message that b begins with, unmasking it in place. A message
// that is not complete has size 0 and is unchanged.
func (r Reader) Next(b []byte) (Message, *Error) {
	h, bad := r.header(b)
	if bad != nil || h.size == 0 {
		return Message{}, bad
	}
	if h.op == ws.OpContinuation {
		return Message{}, protocolError("continuation without a beginning")
	}
	if !h.fin {
		return r.fragments(b)
	}
	if len(b) < h.size+h.payload {
		return Message{}, nil
	}
	return Message{Op: h.op, Payload: unmask(b, h), Size: h.size + h.payload}, nil
}

func unmask(b []byte, h header) []byte {
	p := b[h.size : h.size+h.payload]
	ws.Cipher(p, h.mask, 0)
	return p
}

// fragments reads a message of several frames. They are counted first, and
// joined in place when the last one is there. A close frame among them counts
// at once.
func (r Reader) fragments(b []byte) (Message, *Error) {
	at, total, last := 0, 0, false
	for count := 0; !last; count++ {
		h, bad := r.header(b[at:])
		switch {
		case bad != nil:
			return Message{}, bad
		case count >= MaxFragments:
			return Message{}, &Error{Code: ws.StatusMessageTooBig, Reason: "message has too many fragments"}
		case h.size == 0 || len(b)-at < h.size+h.payload:
			return Message{}, nil
		case h.op == ws.OpClose:
			return Message{Op: ws.OpClose, Payload: unmask(b[at:], h), Size: len(b)}, nil
		case !h.op.IsControl() && (h.op == ws.OpContinuation) != (at > 0):
			return Message{}, protocolError("message begins within another")
		}
		at += h.size + h.payload
		if h.op.IsControl() {
			continue
		}
		if total += h.payload; total > r.Limit {
			return Message{}, tooBig()
		}
		last = h.fin
	}
	return r.joined(b[:at]), nil
}

// joined moves the fragments' payloads together.
func (r Reader) joined(b []byte) Message {
	m := Message{Op: r.Op, Size: len(b)}
	end := 0
	for at := 0; at < len(b); {
		h, _ := r.header(b[at:])
		p := unmask(b[at:], h)
		at += h.size + h.payload
		if h.op.IsControl() {
			m.Controls = append(m.Controls, Message{Op: h.op, Payload: append([]byte(nil), p...)})
			continue
		}
		end += copy(b[end:], p)
	}
	m.Payload = b[:end]
	return m
}

// Start makes room for a frame's header at the end of b; the payload is
// appended next, then Finish called.
func Start(b []byte) []byte { return append(b, make([]byte, MaxHeader)...) }

// Finish writes the header of the frame whose room b begins with, right
// before the payload, and returns where the frame begins.
func Finish(b []byte, op ws.OpCode) int {
	n := len(b) - MaxHeader
	h := b[:MaxHeader]
	switch {
	case n < 126:
		h[8], h[9] = finBit|byte(op), byte(n)
		return 8
	case n <= 0xffff:
		h[6], h[7] = finBit|byte(op), 126
		binary.BigEndian.PutUint16(h[8:], uint16(n))
		return 6
	default:
		h[0], h[1] = finBit|byte(op), 127
		binary.BigEndian.PutUint64(h[2:], uint64(n))
		return 0
	}
}

// Frame returns a frame with this payload, which is copied.
func Frame(op ws.OpCode, payload []byte) []byte {
	b := append(Start(make([]byte, 0, MaxHeader+len(payload))), payload...)
	return b[Finish(b, op):]
}

// Close returns a close frame; reason is cut to what fits.
func Close(code ws.StatusCode, reason string) []byte {
	return Frame(ws.OpClose, ws.NewCloseFrameBody(code, reason[:min(len(reason), maxControl-2)]))
}

// CloseReply answers the close frame of a client, as RFC 6455 section 5.5.1
// wants it: with the same code.
func CloseReply(payload []byte) []byte {
	if len(payload) == 0 {
		return Frame(ws.OpClose, nil)
	}
	if len(payload) == 1 {
		return Close(ws.StatusProtocolError, "close frame of one byte")
	}
	code := ws.StatusCode(binary.BigEndian.Uint16(payload))
	if err := ws.CheckCloseFrameData(code, string(payload[2:])); err != nil {
		return Close(ws.StatusProtocolError, "close frame is malformed")
	}
	return Close(code, "")
}

// AppendHead appends the header of a message of n bytes, for
// a payload that is sent from several buffers.
func AppendHead(b []byte, op ws.OpCode, n int) []byte {
	b = append(b, finBit|byte(op))
	switch {
	case n < 126:
		return append(b, byte(n))
	case n <= 0xffff:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
}
