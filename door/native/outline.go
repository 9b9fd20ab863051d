package native

import (
	"bytes"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/calls"
)

// Requests of many operations are decoded once their lane has taken them: to decode
// five hundred claims takes a millisecond with the memory for it, to look which
// operations there are a hundredth of that, and a refusal needs no more.

// undecoded keeps the bytes of such a request in the message, among the fields that are
// not known, and reports whether it is one. b is not kept.
func undecoded(b []byte, message any) bool {
	switch m := message.(type) {
	case *pb.BatchRequest:
		m.ProtoReflect().SetUnknown(bytes.Clone(b))
	case *pb.TxnRequest:
		m.ProtoReflect().SetUnknown(bytes.Clone(b))
	default:
		return false
	}
	return true
}

// decode decodes what undecoded has left. Of other messages it changes nothing. The
// error is Connect's for what cannot be decoded.
func decode(m proto.Message) error {
	raw := m.ProtoReflect().GetUnknown()
	if len(raw) == 0 {
		return nil
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("unmarshal message: %w", err))
	}
	m.ProtoReflect().SetUnknown(nil) // of a newer client; it must not be decoded once more
	return nil
}

// outline calls each with every operation of a request that is not decoded: the field
// of the request that it is in, and the call that it is. What is no message it tells as
// far as it is one: decoding says what is wrong.
func outline(m proto.Message, of map[protowire.Number]calls.Call, each func(field protowire.Number, c calls.Call)) {
	fields(m.ProtoReflect().GetUnknown(), func(field protowire.Number, operation []byte) {
		c := of[0]
		fields(operation, func(which protowire.Number, _ []byte) {
			if is, ok := of[which]; ok {
				c = is // the last one holds
			}
		})
		each(field, c)
	})
}

// fields calls each with the fields of a message that have bytes, as far as it is one.
func fields(b []byte, each func(field protowire.Number, value []byte)) {
	for len(b) > 0 {
		field, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(field, typ, b)
		if size < 0 {
			return
		}
		if typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			each(field, value)
		}
		b = b[size:]
	}
}

// Which call an operation is whose oneof has a field of that number; 0: one that has
// none.
var (
	callsOfOperations = callsByField(func(m proto.Message) calls.Call { return callOf(m.(*pb.Operation)) }, &pb.Operation{})           //nolint:forcetypeassert // as given
	callsOfSteps      = callsByField(func(m proto.Message) calls.Call { return callOfStep(m.(*pb.TxnOperation)) }, &pb.TxnOperation{}) //nolint:forcetypeassert // as given
)

// callsByField asks with each field of the message's only oneof in turn.
func callsByField(callOf func(proto.Message) calls.Call, m proto.Message) map[protowire.Number]calls.Call {
	by := map[protowire.Number]calls.Call{0: callOf(m)}
	list := m.ProtoReflect().Descriptor().Oneofs().Get(0).Fields()
	for i := range list.Len() {
		field := list.Get(i)
		one := m.ProtoReflect().New()
		one.Set(field, protoreflect.ValueOfMessage(one.NewField(field).Message()))
		by[field.Number()] = callOf(one.Interface())
	}
	return by
}
