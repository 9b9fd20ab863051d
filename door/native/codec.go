package native

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
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
	if err := (protojson.UnmarshalOptions{}).Unmarshal(b, m); err != nil {
		// The library varies its white space on purpose; people copy messages.
		return errors.New(strings.ReplaceAll(err.Error(), "\u00a0", " "))
	}
	return nil
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
	if undecoded(b, message) {
		return nil
	}
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}
	return proto.Unmarshal(b, m)
}
