package native

import (
	"bytes"
	"fmt"
	"iter"

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

// outline are the operations of a request that is not decoded: the field of the request
// that each is in, and the call that it is. What is no message it tells as far as it is
// one: decoding says what is wrong.
func outline(m proto.Message, of []calls.Call) iter.Seq2[protowire.Number, calls.Call] {
	return func(yield func(protowire.Number, calls.Call) bool) {
		for field, operation := range fields(m.ProtoReflect().GetUnknown()) {
			c := of[0]
			for which := range fields(operation) {
				if int(which) < len(of) && of[which] != calls.NumCalls {
					c = of[which] // the last one holds
				}
			}
			if !yield(field, c) {
				return
			}
		}
	}
}

// fields are the fields of a message that have bytes, as far as it is one.
func fields(b []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(b) > 0 {
			field, typ, n := protowire.ConsumeTag(b)
			if n < 0 {
				return
			}
			if b = b[n:]; typ != protowire.BytesType {
				if n = protowire.ConsumeFieldValue(field, typ, b); n < 0 {
					return
				}
				b = b[n:]
				continue
			}
			value, n := protowire.ConsumeBytes(b)
			if n < 0 || !yield(field, value) {
				return
			}
			b = b[n:]
		}
	}
}

// Which call an operation is whose oneof has a field of that number: at 0 one that has none,
// and calls.NumCalls for a number that none of its fields has.
var (
	callsOfOperations = callsByField(func(m proto.Message) calls.Call { return callOf(m.(*pb.Operation)) }, &pb.Operation{})           //nolint:forcetypeassert // as given
	callsOfSteps      = callsByField(func(m proto.Message) calls.Call { return callOfStep(m.(*pb.TxnOperation)) }, &pb.TxnOperation{}) //nolint:forcetypeassert // as given
)

// callsByField asks with each field of the message's only oneof in turn.
func callsByField(callOf func(proto.Message) calls.Call, m proto.Message) []calls.Call {
	by := []calls.Call{callOf(m)}
	list := m.ProtoReflect().Descriptor().Oneofs().Get(0).Fields()
	for i := range list.Len() {
		field := list.Get(i)
		one := m.ProtoReflect().New()
		one.Set(field, protoreflect.ValueOfMessage(one.NewField(field).Message()))
		for int(field.Number()) >= len(by) {
			by = append(by, calls.NumCalls)
		}
		by[field.Number()] = callOf(one.Interface())
	}
	return by
}
