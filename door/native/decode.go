package native

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/websocket"
)

// Field numbers of stream.proto that the fast path knows.
const (
	fieldFrames       = 1 // ClientMessage, ServerMessage
	fieldID           = 1 // ClientFrame, ServerFrame
	fieldTimeout      = 2 // ClientFrame
	fieldError        = 2 // ServerFrame
	fieldExtendTokens = 3 // ClientFrame; tokens_extended in ServerFrame
	fieldBeat         = 4 // ClientFrame; beaten in ServerFrame
	fieldTokens       = 1 // ExtendTokens
)

// frameKind says how a frame of a client is served.
type frameKind uint8

const (
	generalFrame frameKind = iota // anything; general has it
	tokensFrame                   // extend_tokens
	beatFrame                     // beat
)

// clientFrame is a decoded frame.
type clientFrame struct {
	id        uint64
	timeoutMS uint32
	kind      frameKind
	first     int             // tokensFrame: of its tokens in decoder.tokens
	count     int             // and how many
	general   *pb.ClientFrame // generalFrame
}

// decoder decodes messages of clients, one after the other, into memory that
// it uses again. The two frames that make up nearly all of a fleet's traffic
// are read by hand, without an allocation; whatever is not exactly one of them
// goes to the protobuf library, so that both always agree.
type decoder struct {
	frames []clientFrame
	tokens []uint64
}

// errMalformed stands for all ways in which a message is not protobuf.
var errMalformed = &websocket.Error{Code: 1007, Reason: "message is not a ClientMessage"} // RFC 6455 section 7.4.1

// decode reads a ClientMessage. What it leaves in d is valid until the next
// call.
func (d *decoder) decode(b []byte) *websocket.Error {
	d.frames, d.tokens = d.frames[:0], d.tokens[:0]
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber {
			return errMalformed
		}
		if num != fieldFrames || typ != protowire.BytesType {
			m := protowire.ConsumeFieldValue(num, typ, b[n:])
			if m < 0 {
				return errMalformed
			}
			b = b[n+m:]
			continue
		}
		frame, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			return errMalformed
		}
		b = b[n+m:]
		if len(d.frames) == MaxFrames {
			return &websocket.Error{Code: 1008, Reason: "message has too many frames"} // RFC 6455: policy violation
		}
		if bad := d.frame(frame); bad != nil {
			return bad
		}
	}
	return nil
}

func (d *decoder) frame(b []byte) *websocket.Error {
	if d.fast(b) {
		return nil
	}
	f := &pb.ClientFrame{}
	if err := proto.Unmarshal(b, f); err != nil {
		return errMalformed
	}
	d.frames = append(d.frames, clientFrame{id: f.Id, timeoutMS: f.TimeoutMs, general: f})
	return nil
}

// fast reads a frame that is exactly an id, a timeout and one extend_tokens or
// beat, each at most once and in any order. It appends nothing and returns
// false for anything else, malformed or not.
func (d *decoder) fast(b []byte) bool {
	f := clientFrame{first: len(d.tokens)}
	tokens := d.tokens
	for seen := 0; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > fieldBeat || seen&(1<<num) != 0 {
			return false
		}
		seen |= 1 << num
		b = b[n:]
		if typ == protowire.VarintType && num <= fieldTimeout {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return false
			}
			b = b[n:]
			f.setNumber(num, v)
			continue
		}
		if typ != protowire.BytesType || num < fieldExtendTokens || f.kind != generalFrame {
			return false
		}
		body, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if num == fieldBeat {
			f.kind = beatFrame
			if len(body) > 0 {
				return false
			}
			continue
		}
		f.kind = tokensFrame
		var ok bool
		if tokens, ok = appendTokens(tokens, body); !ok {
			return false
		}
	}
	if f.kind == generalFrame {
		return false
	}
	f.count = len(tokens) - f.first
	d.tokens = tokens
	d.frames = append(d.frames, f)
	return true
}

func (f *clientFrame) setNumber(num protowire.Number, v uint64) {
	if num == fieldID {
		f.id = v
		return
	}
	f.timeoutMS = uint32(v) // as the protobuf library does: the low half counts
}

// appendTokens reads an ExtendTokens that is empty or one packed list.
func appendTokens(tokens []uint64, b []byte) ([]uint64, bool) {
	if len(b) == 0 {
		return tokens, true
	}
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != fieldTokens || typ != protowire.BytesType {
		return tokens, false
	}
	packed, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || n+m != len(b) || len(packed)%8 != 0 {
		return tokens, false
	}
	for ; len(packed) > 0; packed = packed[8:] {
		tokens = append(tokens, binary.LittleEndian.Uint64(packed))
	}
	return tokens, true
}
