package native

import (
	"strings"
	"testing"

	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/calls"
)

// waysOf are all ways of making a call here: the methods of all services of the
// protocol's descriptors, and the fields of what carries several sorts of request.
func waysOf(t *testing.T) map[string]bool {
	t.Helper()
	ways := map[string]bool{StreamPath: true}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		name := string(f.Package())
		if name != "incumbent.v1" && name != "grpc.health.v1" && !strings.HasPrefix(name, "grpc.reflection") {
			return true
		}
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				ways["/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name())] = true
			}
		}
		return true
	})
	for _, s := range []string{grpcreflect.ReflectV1ServiceName, grpcreflect.ReflectV1AlphaServiceName} {
		ways["/"+s+"/ServerReflectionInfo"] = true // its descriptor is not linked in
	}
	for prefix, m := range map[string]protoreflect.MessageDescriptor{
		"operation.": (&pb.Operation{}).ProtoReflect().Descriptor(),
		"frame.":     (&pb.ClientFrame{}).ProtoReflect().Descriptor(),
		"step.":      (&pb.TxnOperation{}).ProtoReflect().Descriptor(),
		"condition.": (&pb.Condition{}).ProtoReflect().Descriptor(),
	} {
		fields := m.Oneofs().Get(0).Fields()
		for i := range fields.Len() {
			ways[prefix+string(fields.Get(i).Name())] = true
		}
	}
	return ways
}

// A call that the protocol has and the table has not, or the other way round.
func TestG12_EveryCallHasARow(t *testing.T) {
	ways := waysOf(t)
	if len(ways) < 50 {
		t.Fatalf("only %d ways: the descriptors were not found", len(ways))
	}
	for w := range ways {
		if _, ok := calls.Of(w); !ok {
			t.Errorf("%s has no row in the table of calls", w)
		}
	}
	for c := range calls.NumCalls {
		for _, w := range c.Row().Ways {
			elsewhere := strings.HasPrefix(w, "juju.") || strings.HasPrefix(w, "consul.") || strings.HasPrefix(w, "ovsdb.") || strings.HasPrefix(w, "GET ") || strings.HasPrefix(w, "/debug/")
			if !elsewhere && !ways[w] {
				t.Errorf("the table has %s, which nobody serves", w)
			}
		}
	}
}

// What an operation of a batch or a transaction is in code is what the table says.
func TestStepsAreTheirRows(t *testing.T) {
	check := func(prefix string, m protoreflect.Message, call func() calls.Call) {
		fields := m.Descriptor().Oneofs().Get(0).Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			m.Set(f, m.NewField(f))
			if want, _ := calls.Of(prefix + string(f.Name())); call() != want {
				t.Errorf("%s%s is taken for %v", prefix, f.Name(), call().Row().Ways)
			}
		}
	}
	op, step := &pb.Operation{}, &pb.TxnOperation{}
	check("operation.", op.ProtoReflect(), func() calls.Call { return callOf(op) })
	check("step.", step.ProtoReflect(), func() calls.Call { return callOfStep(step) })
}
