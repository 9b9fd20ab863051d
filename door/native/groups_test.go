package native

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// floodedMember returns a member in one of whose lanes others have as much of the first of the
// namespaces under way as one may.
func floodedMember(t *testing.T, l admit.Lane) *member {
	t.Helper()
	lanes, err := admit.New(admit.Limits{Min: 16, Max: 16, Interval: time.Minute, Retry: time.Millisecond, MaxRetry: time.Millisecond}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	for range 100 {
		if _, err := m.door.lanes.Enter(admit.Who{Group: admit.KeyOf(namespaces()[0])}, l, 1); err != nil {
			return m
		}
	}
	t.Fatal("the lane takes everything")
	return nil
}

// namespaces are one that floods and another, with the default one in three places of a lane's account.
func namespaces() (names [2]string) {
	const places = 1024
	taken := []admit.Key{admit.KeyOf(incumbent.DefaultNamespace) % places}
	for i, n := 0, 0; n < len(names); i++ {
		name := fmt.Sprintf("n%d", i)
		if k := admit.KeyOf(name) % places; !slices.Contains(taken, k) {
			taken, names[n] = append(taken, k), name
			n++
		}
	}
	return names
}

// asked is what a request of a namespace is told: the error's kind.
type asked func(m *member, namespace string) incumbent.Kind

func overStream(frame func(namespace string) *pb.ClientFrame) asked {
	return func(m *member, namespace string) incumbent.Kind {
		f := m.dial().ask(frame(namespace))
		if f.Error == nil {
			return incumbent.OK
		}
		return kindNamed(f.Error.Kind)
	}
}

func kindNamed(name string) incumbent.Kind {
	for k := incumbent.OK; k < 64; k++ {
		if k.String() == name {
			return k
		}
	}
	return incumbent.Internal
}

func overHTTP(method string, body func(namespace string) string) asked {
	return func(m *member, namespace string) incumbent.Kind {
		if resp, _ := m.post(method, body(namespace)); resp.StatusCode == http.StatusTooManyRequests {
			return incumbent.Overloaded
		}
		return incumbent.OK
	}
}

func inProto[Q, A any](call func(*member) func(*connect.Request[Q]) (*connect.Response[A], error), in func(namespace string) *Q) asked {
	return func(m *member, namespace string) incumbent.Kind {
		_, err := call(m)(connect.NewRequest(in(namespace)))
		if err == nil {
			return incumbent.OK
		}
		return kindOf(err)
	}
}

// TestG41_ANamespaceLeavesRoomForOthers: who floods a lane from one namespace is refused there,
// while others are served, by whatever call, in whatever encoding and way.
func TestG41_ANamespaceLeavesRoomForOthers(t *testing.T) {
	lease := func(namespace string) *pb.LeaseName { return &pb.LeaseName{Namespace: namespace, Name: "l"} }
	put := func(namespace string) *pb.PutRequest {
		return &pb.PutRequest{Namespace: namespace, Key: "k", Value: []byte("v")}
	}
	claim := func(namespace string) *pb.ClaimRequest {
		return &pb.ClaimRequest{Name: lease(namespace), Holder: "h", TtlMs: 15000}
	}
	txn := func(namespace string) *pb.TxnRequest {
		return &pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Put{Put: put(namespace)}}, {Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Namespace: namespace, Key: "k2"}}}}}
	}
	for name, test := range map[string]struct {
		lane admit.Lane
		ask  asked
	}{
		"a read over HTTP":  {admit.Small, overHTTP("KeyValueService/Get", func(ns string) string { return `{"namespace":"` + ns + `","key":"k"}` })},
		"a write over HTTP": {admit.Small, overHTTP("KeyValueService/Put", func(ns string) string { return `{"namespace":"` + ns + `","key":"k"}` })},
		"a list over HTTP":  {admit.Reads, overHTTP("KeyValueService/List", func(ns string) string { return `{"namespace":"` + ns + `"}` })},
		"a list of leases":  {admit.Reads, overHTTP("LeaseService/List", func(ns string) string { return `{"namespace":"` + ns + `"}` })},
		"a claim over HTTP": {admit.Claims, overHTTP("LeaseService/Claim", func(ns string) string {
			return `{"name":{"namespace":"` + ns + `","name":"l"},"holder":"h","ttl_ms":15000}`
		})},
		"a batch over HTTP": {admit.Claims, overHTTP("LeaseService/Batch", func(ns string) string {
			return `{"operations":[{"claim":{"name":{"namespace":"` + ns + `","name":"l"},"holder":"h","ttl_ms":15000}}]}`
		})},
		"a transaction over HTTP": {admit.Transactions, overHTTP("TransactionService/Txn", func(ns string) string {
			return `{"then":[{"put":{"namespace":"` + ns + `","key":"k"}},{"put":{"namespace":"` + ns + `","key":"k2"}}]}`
		})},
		"a batch that is not decoded": {admit.Claims, inProto(func(m *member) func(*connect.Request[pb.BatchRequest]) (*connect.Response[pb.BatchResponse], error) {
			return func(r *connect.Request[pb.BatchRequest]) (*connect.Response[pb.BatchResponse], error) {
				return m.leaseClient().Batch(t.Context(), r)
			}
		}, func(ns string) *pb.BatchRequest {
			return &pb.BatchRequest{Operations: []*pb.Operation{{Op: &pb.Operation_Claim{Claim: claim(ns)}}}}
		})},
		"a transaction that is not decoded": {admit.Transactions, inProto(func(m *member) func(*connect.Request[pb.TxnRequest]) (*connect.Response[pb.TxnResponse], error) {
			return func(r *connect.Request[pb.TxnRequest]) (*connect.Response[pb.TxnResponse], error) {
				return incumbentv1connect.NewTransactionServiceClient(http.DefaultClient, m.url).Txn(t.Context(), r)
			}
		}, txn)},
		"a claim": {admit.Claims, overStream(func(ns string) *pb.ClientFrame {
			return opFrame(1, &pb.Operation{Op: &pb.Operation_Claim{Claim: claim(ns)}})
		})},
		"a write": {admit.Small, overStream(func(ns string) *pb.ClientFrame {
			return &pb.ClientFrame{Id: 1, Request: &pb.ClientFrame_Put{Put: put(ns)}}
		})},
		"a list": {admit.Reads, overStream(func(ns string) *pb.ClientFrame {
			return &pb.ClientFrame{Id: 1, Request: &pb.ClientFrame_ListKeys{ListKeys: &pb.ListKeysRequest{Namespace: ns}}}
		})},
		"a lease": {admit.Reads, overStream(func(ns string) *pb.ClientFrame {
			return &pb.ClientFrame{Id: 1, Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: lease(ns)}}}
		})},
		"steps": {admit.Transactions, overStream(func(ns string) *pb.ClientFrame {
			return &pb.ClientFrame{Id: 1, Request: &pb.ClientFrame_Txn{Txn: txn(ns)}}
		})},
		"a wait": {admit.Watches, overStream(func(ns string) *pb.ClientFrame {
			return &pb.ClientFrame{Id: 1, Request: &pb.ClientFrame_WaitReleased{WaitReleased: &pb.WaitReleasedRequest{Name: lease(ns)}}}
		})},
		"a watch": {admit.Watches, overStream(func(ns string) *pb.ClientFrame {
			return watchKeysFrame(1, &pb.WatchKeysRequest{Namespace: ns, Prefix: true, CatchUp: true})
		})},
	} {
		t.Run(name, func(t *testing.T) {
			m := floodedMember(t, test.lane)
			names := namespaces()
			if k := test.ask(m, names[0]); k != incumbent.Overloaded {
				t.Errorf("who floods is told %v", k)
			}
			if k := test.ask(m, names[1]); k == incumbent.Overloaded {
				t.Error("another namespace is refused")
			}
			if k := test.ask(m, ""); k == incumbent.Overloaded {
				t.Error("the default namespace is refused")
			}
		})
	}
}

// The group of a request does not depend on whether it is decoded; a model is one of its own.
func TestGroupsOfRequests(t *testing.T) {
	claims := func(namespace, model string) *pb.BatchRequest {
		name := &pb.LeaseName{Namespace: namespace, Model: model, Name: "l"}
		return &pb.BatchRequest{Operations: []*pb.Operation{{Op: &pb.Operation_Release{Release: &pb.ReleaseRequest{Name: name}}}, {}}}
	}
	undecodedOf := func(m proto.Message) proto.Message {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		raw := m.ProtoReflect().New().Interface()
		if !undecoded(b, raw) {
			t.Fatal("it would be decoded")
		}
		return raw
	}
	seen := map[admit.Key]string{}
	for _, scope := range [][2]string{{"", ""}, {"a", ""}, {"b", ""}, {"a", "m"}, {"a", "n"}, {"b", "m"}, {"m", "a"}} {
		in := claims(scope[0], scope[1])
		got := groupOf(in)
		if raw := groupOf(undecodedOf(in)); raw != got || got == 0 {
			t.Errorf("%q: %v, and %v before it is decoded", scope, got, raw)
		}
		if was, twice := seen[got]; twice {
			t.Errorf("%q shares with %q", scope, was)
		}
		seen[got] = scope[0] + ":" + scope[1]
	}
	same := groupOf(claims("", ""))
	for name, m := range map[string]any{
		"in words":  claims(incumbent.DefaultNamespace, incumbent.DefaultModel),
		"a key":     &pb.GetKeyRequest{Key: "k"},
		"its steps": &pb.TxnRequest{Then: []*pb.TxnOperation{{Op: &pb.TxnOperation_Get{Get: &pb.GetKeyRequest{Key: "k"}}}}},
	} {
		if got := groupOf(m); got != same {
			t.Errorf("%s: %v, want %v", name, got, same)
		}
	}
	byToken := &pb.BatchRequest{Operations: []*pb.Operation{{Op: &pb.Operation_Release{Release: &pb.ReleaseRequest{Token: 7}}}}}
	for _, m := range []any{byToken, undecodedOf(byToken), &pb.BatchRequest{}, &pb.TxnRequest{}, &pb.GetSessionRequest{}} {
		if got := groupOf(m); got != 0 {
			t.Errorf("%v is in group %v", m, got)
		}
	}
}

// Whatever is watched over a stream counts for its namespace.
func TestGroupsOfWatches(t *testing.T) {
	want := groupOfNamespace("a")
	for _, f := range []*pb.ClientFrame{
		{Request: &pb.ClientFrame_Watch{Watch: &pb.StreamWatch{Watch: &pb.WatchRequest{Name: &pb.LeaseName{Namespace: "a"}}}}},
		{Request: &pb.ClientFrame_WatchKeys{WatchKeys: &pb.WatchKeysRequest{Namespace: "a"}}},
		{Request: &pb.ClientFrame_WatchService{WatchService: &pb.WatchServiceRequest{Namespace: "a"}}},
		{Request: &pb.ClientFrame_WatchTables{WatchTables: &pb.WatchTablesRequest{Namespace: "a"}}},
	} {
		if got := groupOfFrame(f); got != want {
			t.Errorf("%v: %v, want %v", f, got, want)
		}
	}
}
