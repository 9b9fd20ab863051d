package native

import (
	"encoding/binary"

	"github.com/gobwas/ws"
)

// WebSocket framing (RFC 6455, section 5) on the bytes as they lie in the
// worker's buffer: nothing is copied out and nothing is allocated, except for
// control frames that stand between the fragments of a message. A message is
// consumed when it is complete; until then its bytes stay with the parked
// connection, under that connection's limits.
//
//	 0                   1
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
//	+-+-+-+-+-------+-+-------------+----------------+----------+---------+
//	|F|R|R|R| opcode|M| length      | 0, 2, 8 bytes  | 4 bytes  | payload |
//	|I|S|S|S|       |A| 0-125, 126, | longer length  | mask     |         |
//	|N|V|V|V|       |S| 127         |                |          |         |
//	+-+-+-+-+-------+-+-------------+----------------+----------+---------+

const (
	finBit         = 0x80
	rsvBits        = 0x70
	opBits         = 0x0f
	maskBit        = 0x80
	lenBits        = 0x7f
	maxControl     = 125 // payload of a control frame
	maskBytes      = 4
	maxFrameHeader = 10 // of a frame we send: never masked
)

// closeError ends a stream with a close frame of this code and reason.
type closeError struct {
	code   ws.StatusCode
	reason string
}

func (e *closeError) Error() string { return e.reason }

func protocolError(reason string) *closeError {
	return &closeError{code: ws.StatusProtocolError, reason: reason}
}

// header is a frame's header.
type header struct {
	op      ws.OpCode
	fin     bool
	mask    [4]byte
	size    int // of the header
	payload int
}

// readHeader reads a frame's header; size 0 means that more bytes are needed.
// limit bounds the payload, which need not be there yet.
func readHeader(b []byte, limit int) (header, *closeError) {
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
	case h.op == ws.OpText:
		return header{}, &closeError{code: ws.StatusUnsupportedData, reason: "only binary messages are understood"}
	}
	size, n, more, bad := readLength(b, short)
	if bad != nil || more {
		return header{}, bad
	}
	if n > uint64(limit) {
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
func readLength(b []byte, short int) (size int, n uint64, more bool, bad *closeError) {
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

func tooBig() *closeError {
	return &closeError{code: ws.StatusMessageTooBig, reason: "message is over max_message_bytes"}
}

// message is one message, or one control frame.
type message struct {
	op       ws.OpCode
	payload  []byte    // unmasked, within the bytes given
	size     int       // bytes it took; 0: not complete
	controls []message // ping and pong frames that stood between its fragments
}

// nextMessage reads the message that b begins with, unmasking it in place. A
// message that is not complete has size 0 and is unchanged.
func nextMessage(b []byte, limit int) (message, *closeError) {
	h, bad := readHeader(b, limit)
	if bad != nil || h.size == 0 {
		return message{}, bad
	}
	if h.op == ws.OpContinuation {
		return message{}, protocolError("continuation without a beginning")
	}
	if !h.fin {
		return fragments(b, limit)
	}
	if len(b) < h.size+h.payload {
		return message{}, nil
	}
	return message{op: h.op, payload: unmask(b, h), size: h.size + h.payload}, nil
}

func unmask(b []byte, h header) []byte {
	p := b[h.size : h.size+h.payload]
	ws.Cipher(p, h.mask, 0)
	return p
}

// fragments reads a message of several frames. They are counted first, and
// joined in place when the last one is there. A close frame among them counts
// at once.
func fragments(b []byte, limit int) (message, *closeError) {
	at, total, last := 0, 0, false
	for count := 0; !last; count++ {
		h, bad := readHeader(b[at:], limit)
		switch {
		case bad != nil:
			return message{}, bad
		case count >= MaxFragments:
			return message{}, &closeError{code: ws.StatusMessageTooBig, reason: "message has too many fragments"}
		case h.size == 0 || len(b)-at < h.size+h.payload:
			return message{}, nil
		case h.op == ws.OpClose:
			return message{op: ws.OpClose, payload: unmask(b[at:], h), size: len(b)}, nil
		case !h.op.IsControl() && (h.op == ws.OpContinuation) != (at > 0):
			return message{}, protocolError("message begins within another")
		}
		at += h.size + h.payload
		if h.op.IsControl() {
			continue
		}
		if total += h.payload; total > limit {
			return message{}, tooBig()
		}
		last = h.fin
	}
	return joined(b[:at], limit), nil
}

// joined moves the fragments' payloads together.
func joined(b []byte, limit int) message {
	m := message{op: ws.OpBinary, size: len(b)}
	end := 0
	for at := 0; at < len(b); {
		h, _ := readHeader(b[at:], limit)
		p := unmask(b[at:], h)
		at += h.size + h.payload
		if h.op.IsControl() {
			m.controls = append(m.controls, message{op: h.op, payload: append([]byte(nil), p...)})
			continue
		}
		end += copy(b[end:], p)
	}
	m.payload = b[:end]
	return m
}

// frameStart makes room for a frame's header at the end of b; the payload is
// appended next, then finishFrame called.
func frameStart(b []byte) []byte { return append(b, make([]byte, maxFrameHeader)...) }

// finishFrame writes the header of the frame whose room b begins with, right
// before the payload, and returns where the frame begins.
func finishFrame(b []byte, op ws.OpCode) int {
	n := len(b) - maxFrameHeader
	h := b[:maxFrameHeader]
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

// frameOf returns a frame with this payload, which is copied.
func frameOf(op ws.OpCode, payload []byte) []byte {
	b := append(frameStart(make([]byte, 0, maxFrameHeader+len(payload))), payload...)
	return b[finishFrame(b, op):]
}

// closeFrame returns a close frame; reason is cut to what fits.
func closeFrame(code ws.StatusCode, reason string) []byte {
	return frameOf(ws.OpClose, ws.NewCloseFrameBody(code, reason[:min(len(reason), maxControl-2)]))
}

// closeReply answers the close frame of a client, as RFC 6455 section 5.5.1
// wants it: with the same code.
func closeReply(payload []byte) []byte {
	if len(payload) == 0 {
		return frameOf(ws.OpClose, nil)
	}
	if len(payload) == 1 {
		return closeFrame(ws.StatusProtocolError, "close frame of one byte")
	}
	code := ws.StatusCode(binary.BigEndian.Uint16(payload))
	if err := ws.CheckCloseFrameData(code, string(payload[2:])); err != nil {
		return closeFrame(ws.StatusProtocolError, "close frame is malformed")
	}
	return closeFrame(code, "")
}

// appendWebSocketHead appends the header of a binary message of n bytes, for
// a payload that is sent from several buffers.
func appendWebSocketHead(b []byte, n int) []byte {
	b = append(b, finBit|byte(ws.OpBinary))
	switch {
	case n < 126:
		return append(b, byte(n))
	case n <= 0xffff:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
}
