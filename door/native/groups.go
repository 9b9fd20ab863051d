package native

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Whoever floods a lane from one namespace leaves room for other namespaces there: see
// [admit.Who]. A lease of a model counts for its model: many are in one namespace.

// groupOf is the group to whose share of a lane a request counts, by the name in it. 0: it has
// none. Of one with several operations it is that of the first: most are about one namespace, and
// to look at all would cost as much again as to see which operations they are.
func groupOf(m any) admit.Key {
	switch m := m.(type) {
	case *pb.BatchRequest:
		if len(m.Operations) > 0 {
			return groupOfOperation(m.Operations[0])
		}
		return groupOfFirst(m, scopesOfOperations, fieldOperations)
	case *pb.TxnRequest:
		for _, steps := range [...][]*pb.TxnOperation{m.Then, m.Else} {
			if len(steps) > 0 {
				return groupOfStep(steps[0])
			}
		}
		return groupOfFirst(m, scopesOfSteps, fieldThen, fieldElse)
	case interface{ GetName() *pb.LeaseName }:
		return groupOfLease(m.GetName())
	case *pb.ListRequest:
		return groupOfScope(m.Namespace, m.Model)
	case interface{ GetNamespace() string }:
		return groupOfNamespace(m.GetNamespace())
	}
	return 0
}

// groupOfFrame is that of a frame which watches or waits.
func groupOfFrame(f *pb.ClientFrame) admit.Key {
	switch r := f.GetRequest().(type) {
	case *pb.ClientFrame_Watch:
		return groupOf(r.Watch.GetWatch())
	case *pb.ClientFrame_WatchKeys:
		return groupOf(r.WatchKeys)
	case *pb.ClientFrame_WatchService:
		return groupOf(r.WatchService)
	case *pb.ClientFrame_WatchTables:
		return groupOf(r.WatchTables)
	}
	return 0
}

func groupOfOperation(in *pb.Operation) admit.Key {
	switch o := in.GetOp().(type) {
	case *pb.Operation_Claim:
		return groupOf(o.Claim)
	case *pb.Operation_Release:
		return groupOf(o.Release)
	case *pb.Operation_Revoke:
		return groupOf(o.Revoke)
	case *pb.Operation_Transfer:
		return groupOf(o.Transfer)
	case *pb.Operation_Pin:
		return groupOf(o.Pin)
	case *pb.Operation_Unpin:
		return groupOf(o.Unpin)
	case *pb.Operation_LeaveQueue:
		return groupOf(o.LeaveQueue)
	}
	return 0
}

func groupOfStep(in *pb.TxnOperation) admit.Key {
	switch o := in.GetOp().(type) {
	case *pb.TxnOperation_Get:
		return groupOf(o.Get)
	case *pb.TxnOperation_List:
		return groupOf(o.List)
	case *pb.TxnOperation_Put:
		return groupOf(o.Put)
	case *pb.TxnOperation_Delete:
		return groupOf(o.Delete)
	case *pb.TxnOperation_Lock:
		return groupOf(o.Lock)
	case *pb.TxnOperation_Unlock:
		return groupOf(o.Unlock)
	case *pb.TxnOperation_Release:
		return groupOf(o.Release)
	case *pb.TxnOperation_Claim:
		return groupOf(o.Claim)
	}
	return 0
}

// groupOfLease is the group of a lease; of none, as where it is named by a token, it is 0.
func groupOfLease(n *pb.LeaseName) admit.Key {
	if n == nil {
		return 0
	}
	return groupOfScope(n.Namespace, n.Model)
}

func groupOfNamespace(namespace string) admit.Key { return groupOfScope(namespace, "") }

// groupOfScope is the group of a namespace, or of a model in it. What is left out is the default.
func groupOfScope(namespace, model string) admit.Key {
	in := admit.KeyOf(cmp.Or(namespace, incumbent.DefaultNamespace))
	if model == "" || model == incumbent.DefaultModel {
		return in
	}
	return in.Of(model)
}

// scopeField is where a request says its namespace: in a field of its own, or in one that has
// the name of a lease.
type scopeField struct {
	number protowire.Number
	lease  bool
}

// Where operations of requests that are not decoded say it, by the field of the oneof.
var (
	scopesOfOperations = scopesByField(&pb.Operation{})
	scopesOfSteps      = scopesByField(&pb.TxnOperation{})
)

// Fields of a LeaseName.
const (
	fieldNamespace = 1
	fieldModel     = 2
)

// scopesByField looks at the messages of the only oneof of a message.
func scopesByField(m proto.Message) map[protowire.Number]scopeField {
	by := map[protowire.Number]scopeField{}
	list := m.ProtoReflect().Descriptor().Oneofs().Get(0).Fields()
	for i := range list.Len() {
		of := list.Get(i).Message().Fields()
		if f := of.ByName("namespace"); f != nil {
			by[list.Get(i).Number()] = scopeField{number: f.Number()}
		} else if f := of.ByName("name"); f != nil && f.Message() != nil {
			by[list.Get(i).Number()] = scopeField{f.Number(), true}
		}
	}
	return by
}

// groupOfFirst is the group of the first operation in any of these fields of a request that is
// not decoded.
func groupOfFirst(m proto.Message, by map[protowire.Number]scopeField, in ...protowire.Number) (g admit.Key) {
	for field, operation := range fields(m.ProtoReflect().GetUnknown()) {
		if !slices.Contains(in, field) {
			continue
		}
		for which, request := range fields(operation) {
			if scope, ok := by[which]; ok {
				g = groupIn(request, scope)
			}
		}
		break
	}
	return g
}

// groupIn is the group of an operation that says its namespace there.
func groupIn(request []byte, scope scopeField) admit.Key {
	var namespace, model string
	named := !scope.lease
	for field, value := range fields(request) {
		switch {
		case field != scope.number:
		case !scope.lease:
			namespace = string(value)
		default:
			named = true
			for field, value := range fields(value) {
				switch field {
				case fieldNamespace:
					namespace = string(value)
				case fieldModel:
					model = string(value)
				}
			}
		}
	}
	if !named {
		return 0
	}
	return groupOfScope(namespace, model)
}
