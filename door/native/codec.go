package native

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// jsonCodec is JSON as a person with curl wants it: names as in the .proto
// files, and a misspelt field is an error, not silence. Input may also use the
// lowerCamelCase names of Connect's own clients.
type jsonCodec struct{ name string }

var _ connect.Codec = jsonCodec{}

// encoded stands for a message of which many share the bytes.
type encoded interface {
	appendProto(b []byte) []byte
	appendJSON(b []byte) []byte
}

// codecs replaces all of Connect's own.
func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(protoCodec{}),
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
	)
}

// Name returns the content type's suffix.
func (c jsonCodec) Name() string { return c.name }

// Marshal writes a message; fields at their zero value are left out.
func (c jsonCodec) Marshal(message any) ([]byte, error) {
	if p, ok := message.(encoded); ok {
		return p.appendJSON(nil), nil
	}
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
}

// Unmarshal reads a message and refuses fields it does not know.
func (c jsonCodec) Unmarshal(b []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}
	if len(b) == 0 {
		return errors.New("an empty body is not JSON; send {} for a message without fields")
	}
	if most := mostValues(message); incumbent.HasMoreValues(b, most) {
		return manyValues(most)
	}
	if err := (protojson.UnmarshalOptions{}).Unmarshal(b, m); err != nil {
		// The library varies its white space on purpose; people copy messages.
		return errors.New(strings.ReplaceAll(err.Error(), "\u00a0", " "))
	}
	return nil
}

// mostValues is how many values a request may have: two bytes of a list become hundreds
// once they are decoded, which happens before anything is known of it but its length.
func mostValues(message any) int {
	if _, is := message.(*pb.TxnRequest); is {
		return maxTxnValues
	}
	return maxValues
}

func manyValues(most int) error {
	return fmt.Errorf("the request has more than %d values; split it", most)
}

// hasMoreFields reports whether a message in protobuf has more fields, not counting those
// of messages in it.
func hasMoreFields(b []byte, most int) bool {
	for n := 0; len(b) > 2*(most-n); n++ { // none has fewer bytes
		size := -1
		if field, typ, tag := protowire.ConsumeTag(b); tag > 0 {
			if size = protowire.ConsumeFieldValue(field, typ, b[tag:]); size >= 0 {
				size += tag
			}
		}
		if size < 0 {
			return false // decoding says what is wrong
		}
		if n == most {
			return true
		}
		b = b[size:]
	}
	return false
}

// protoCodec is Connect's own for protobuf, and writes what is encoded already.
type protoCodec struct{}

var _ connect.Codec = protoCodec{}

// Name returns the content type's suffix.
func (protoCodec) Name() string { return "proto" }

// Marshal writes a message.
func (c protoCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends a message to b, which Connect uses again.
func (protoCodec) MarshalAppend(b []byte, message any) ([]byte, error) {
	switch m := message.(type) {
	case encoded:
		return m.appendProto(b), nil
	case proto.Message:
		return proto.MarshalOptions{}.MarshalAppend(b, m)
	}
	return nil, fmt.Errorf("%T is not a protobuf message", message)
}

// Unmarshal reads a message, or leaves it to be decoded.
func (protoCodec) Unmarshal(b []byte, message any) error {
	if most := mostValues(message); hasMoreFields(b, most) {
		return manyValues(most)
	}
	if undecoded(b, message) {
		return nil
	}
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}
	return proto.Unmarshal(b, m)
}
