package bench

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Field numbers of stream.proto that the hot path reads and writes by hand: the
// load tool shares its cores with what it measures.
const (
	fieldFrames         = 1
	fieldID             = 1
	fieldError          = 2
	fieldTokensExtended = 3
	fieldExtendTokens   = 3
	fieldTokens         = 1
	fieldHeld           = 1
	fieldNotHeld        = 2
	fieldUnavailable    = 3
)

// appendExtend appends a ClientMessage with one extend_tokens frame.
func appendExtend(b []byte, id uint64, tokens []uint64) []byte {
	packed := 8 * len(tokens)
	inner := 1 + protowire.SizeBytes(packed)
	frame := 1 + protowire.SizeVarint(id) + 1 + protowire.SizeBytes(inner)
	b = protowire.AppendTag(b, fieldFrames, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(frame))
	b = protowire.AppendTag(b, fieldID, protowire.VarintType)
	b = protowire.AppendVarint(b, id)
	b = protowire.AppendTag(b, fieldExtendTokens, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(inner))
	b = protowire.AppendTag(b, fieldTokens, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(packed))
	for _, t := range tokens {
		b = protowire.AppendFixed64(b, t)
	}
	return b
}

// answer is one frame from the server, decoded as far as the hot path needs.
type answer struct {
	id          uint64
	failed      bool   // an error is there
	extended    bool   // tokens_extended
	heldMs      uint64 // of tokens_extended
	notHeld     int
	unavailable int
	raw         []byte // the frame; valid during the call
}

// full decodes the whole frame.
func (a *answer) full() (*apiv1.ServerFrame, error) {
	f := new(apiv1.ServerFrame)
	return f, proto.Unmarshal(a.raw, f)
}

var errWire = incumbent.Errorf(incumbent.Corrupt, "a message of the server cannot be decoded")

// eachAnswer walks the frames of an encoded ServerMessage.
func eachAnswer(msg []byte, handle func(*answer) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return errWire
		}
		if num != fieldFrames || typ != protowire.BytesType {
			// A newer server may say more.
			skip := protowire.ConsumeFieldValue(num, typ, msg[n:])
			if skip < 0 {
				return errWire
			}
			msg = msg[n+skip:]
			continue
		}
		frame, m := protowire.ConsumeBytes(msg[n:])
		if m < 0 {
			return errWire
		}
		msg = msg[n+m:]
		a := answer{raw: frame}
		if err := a.decode(); err != nil {
			return err
		}
		if err := handle(&a); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) decode() error {
	return eachField(a.raw, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) error {
		switch {
		case num == fieldID && typ == protowire.VarintType:
			a.id = v
		case num == fieldError && typ == protowire.BytesType:
			a.failed = true
		case num == fieldTokensExtended && typ == protowire.BytesType:
			a.extended = true
			return a.decodeExtended(data)
		}
		return nil
	})
}

func (a *answer) decodeExtended(b []byte) error {
	return eachField(b, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) error {
		switch {
		case num == fieldHeld && typ == protowire.VarintType:
			a.heldMs = v
		case num == fieldNotHeld:
			a.notHeld += len(data) / 8
		case num == fieldUnavailable:
			a.unavailable += len(data) / 8
		}
		return nil
	})
}

// eachField walks a message's fields: v of varints, data of bytes.
func eachField(b []byte, handle func(num protowire.Number, typ protowire.Type, v uint64, data []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if err := handle(num, typ, v, data); err != nil {
			return err
		}
	}
	return nil
}
