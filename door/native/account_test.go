package native

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/engine"
)

// A record says which call an operator made and about whom, and who wanted to join;
// it never has a secret or a token.
func TestRecordsSayWhoIsLetInAndTakenBack(t *testing.T) {
	var got []audit.Record
	d := &Door{audit: func(r audit.Record) { got = append(got, r) }, view: engine.NewState().View}
	refused := connect.NewError(connect.CodePermissionDenied, nil)
	taken := connect.NewError(connect.CodeAlreadyExists, nil)
	stranger := auth.Principal{Kind: auth.Anonymous}
	made := ca.Token{Addresses: []string{"https://n1:7600"}, Name: "n4", Expires: time.Unix(1e10, 0)}
	token, err := ca.NewToken(ca.NewSecret(), &made)
	if err != nil {
		t.Fatal(err)
	}
	const operators = "admin"
	for _, tt := range []struct {
		who       auth.Principal
		procedure string
		in        any
		err       error
		want      audit.Record
	}{
		{
			admin, incumbentv1connect.CredentialServiceCreateProcedure, &pb.CreateCredentialRequest{Principal: "agent:x"}, nil,
			audit.Record{Action: operators, Subject: "Create agent:x"},
		},
		{
			admin, incumbentv1connect.CredentialServiceCreateProcedure,
			&pb.CreateCredentialRequest{Secret: &pb.CreateCredentialRequest_Password{Password: &pb.PasswordSecret{Model: "m", Tag: "unit-x-0", Secret: "secret"}}},
			nil,
			audit.Record{Action: operators, Subject: "Create agent:unit-x-0 m"},
		},
		{
			admin, incumbentv1connect.CredentialServiceSignProcedure, &pb.SignCertificateRequest{Principal: "operator:y"}, nil,
			audit.Record{Action: operators, Subject: "Sign operator:y"},
		},
		{
			admin, incumbentv1connect.CredentialServiceRevokeProcedure, &pb.RevokeCredentialRequest{Which: &pb.RevokeCredentialRequest_Id{Id: 7}}, nil,
			audit.Record{Action: operators, Subject: "Revoke credential 7"},
		},
		{
			admin, incumbentv1connect.CredentialServiceRevokeProcedure,
			&pb.RevokeCredentialRequest{Which: &pb.RevokeCredentialRequest_Certificate{Certificate: &pb.RevokedCertificate{Serial: "3a5f"}}},
			nil,
			audit.Record{Action: operators, Subject: "Revoke certificate 3a5f"},
		},
		{
			admin, incumbentv1connect.PolicyServiceSetPolicyProcedure, &pb.SetPolicyRequest{Policy: &pb.Policy{Name: "units"}}, taken,
			audit.Record{Action: operators, Subject: "SetPolicy units", Outcome: audit.Failed, Detail: "already_exists"},
		},
		{
			admin, incumbentv1connect.SettingsServiceSetSettingProcedure, &pb.SetSettingRequest{Name: "kv.quota-bytes"}, nil,
			audit.Record{Action: operators, Subject: "SetSetting kv.quota-bytes"},
		},
		{
			admin, incumbentv1connect.ClusterServiceRemoveMemberProcedure, &pb.RemoveMemberRequest{Member: "n3"}, nil,
			audit.Record{Action: operators, Subject: "RemoveMember n3"},
		},
		{
			stranger, incumbentv1connect.ClusterServiceJoinProcedure, &pb.JoinRequest{Name: "n4", MemberId: "0a", Token: "secret"}, nil,
			audit.Record{Action: "Join", Subject: "n4", Detail: "id 0a"},
		},
		{
			stranger, incumbentv1connect.ClusterServiceJoinProcedure, &pb.JoinRequest{Name: "n4", MemberId: "0a", Token: "secret"}, refused,
			audit.Record{Action: "Join", Subject: "n4", Detail: "id 0a", Outcome: audit.Denied, Reason: audit.Permission},
		},
		{
			stranger, incumbentv1connect.ClusterServiceJoinProcedure, &pb.JoinRequest{Name: "n4", MemberId: "0a", Token: "secret"}, taken,
			audit.Record{Action: "Join", Subject: "n4", Detail: "id 0a, already_exists", Outcome: audit.Failed},
		},
		{
			stranger, incumbentv1connect.ClusterServiceJoinProcedure, &pb.JoinRequest{Name: "n4", MemberId: "0a", Token: token}, refused,
			audit.Record{Action: "Join", Subject: "n4", Detail: fmt.Sprintf("id 0a, token %x", made.ID), Outcome: audit.Denied, Reason: audit.Permission},
		},
	} {
		got = nil
		who := &caller{principal: tt.who, address: "10.0.0.1:1"}
		d.settledCall(who, tt.procedure, tt.in, nil, tt.err)
		tt.want.Door, tt.want.Address, tt.want.Principal = doorName, who.address, who.name()
		if len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.procedure, got, tt.want)
		}
	}
}

// notes are the records of a door, in short, since they were last taken.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) note(r audit.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := strings.Join([]string{r.Action, r.Subject, r.Outcome.String(), r.Detail}, " ")
	if r.Outcome == audit.Done && r.Index == 0 {
		text += " without an index"
	}
	n.list = append(n.list, strings.TrimSpace(text))
}

func (n *notes) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.list = nil }()
	return strings.Join(n.list, ", ")
}

func (n *notes) audited(c *Config) { c.Audit = n.note }

// long is longer than a text of a record.
var long = strings.Repeat("x", 5000)

// fillMessage has a message say something in each field, as long as may be.
func fillMessage(m protoreflect.Message, depth int) {
	const deep = 4
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if of := f.ContainingOneof(); of != nil && m.WhichOneof(of) != nil || f.IsMap() || depth == deep {
			continue
		}
		value := m.NewField(f)
		switch {
		case f.IsList() && f.Message() != nil:
			for range 1 + 99*max(0, 1-depth) {
				fillMessage(value.List().AppendMutable().Message(), depth+1)
			}
		case f.IsList():
			continue
		case f.Message() != nil:
			fillMessage(value.Message(), depth+1)
		case f.Name() == "id" && f.Kind() == protoreflect.StringKind: // of a session
			value = protoreflect.ValueOfString(incumbent.SessionID{1}.String())
		case f.Kind() == protoreflect.StringKind:
			value = protoreflect.ValueOfString(long)
		case f.Kind() == protoreflect.BoolKind:
			value = protoreflect.ValueOfBool(true)
		case f.Kind() == protoreflect.EnumKind:
			value = protoreflect.ValueOfEnum(1)
		case f.Kind() == protoreflect.Uint64Kind:
			value = protoreflect.ValueOfUint64(1)
		}
		m.Set(f, value)
	}
}

// What reads has no record once it is done; what changes something has one that says of
// what, however long the message is.
func TestEveryCallThatChangesSomethingSaysOfWhat(t *testing.T) {
	const most = 1024 // bytes of a text
	var got []audit.Record
	d := &Door{audit: func(r audit.Record) { got = append(got, r) }, view: engine.NewState().View}
	who := &caller{principal: admin, address: "10.0.0.1:1"}
	seen := map[bool]int{}
	protoregistry.GlobalFiles.RangeFilesByPackage("incumbent.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				procedure := "/" + string(s.FullName()) + "/" + string(m.Name())
				message := func(is protoreflect.MessageDescriptor) any {
					of, err := protoregistry.GlobalTypes.FindMessageByName(is.FullName())
					if err != nil {
						t.Fatal(err)
					}
					made := of.New()
					fillMessage(made, 0)
					return made.Interface()
				}
				got = nil
				d.settledCall(who, procedure, message(m.Input()), message(m.Output()), nil)
				reads := readsOnly(procedure, m)
				switch {
				case reads && len(got) > 0:
					t.Errorf("%s reads, and is recorded: %+v", procedure, got)
				case !reads && (len(got) != 1 || got[0].Subject == "" || len(got[0].Subject) > most || len(got[0].Detail) > most):
					t.Errorf("%s changes something: %.2000v", procedure, got)
				}
				seen[reads]++
			}
		}
		return true
	})
	if seen[true] < 20 || seen[false] < 20 {
		t.Errorf("only %d calls that read, and %d that do not", seen[true], seen[false])
	}
}

// readsOnly says of each call whether its record is of no interest once it is done, by what
// the protocol says of it, and of some by their names.
func readsOnly(procedure string, m protoreflect.MethodDescriptor) bool {
	if o, ok := m.Options().(*descriptorpb.MethodOptions); ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
		return true
	}
	switch path.Base(procedure) {
	case "Watch", "WatchService", "WaitReleased", "Events", "Settings", "StateHash":
		return true
	case "Batch", "Extend": // whose steps are recorded, and extensions are not
		return true
	}
	return false
}

func TestRecordsSayWhatWasChanged(t *testing.T) {
	all := &notes{}
	m, ctx := newPets(t, all.audited), t.Context()
	want := func(what, text string) {
		t.Helper()
		if got := all.take(); got != text {
			t.Errorf("%s: recorded %q, want %q", what, got, text)
		}
	}
	want("a database", "table_define default:Pets done")
	if _, err := m.tables().DefineSchema(ctx, connect.NewRequest(&pb.DefineSchemaRequest{Schema: petsSchema})); err != nil {
		t.Fatal(err)
	}
	want("the same", "")
	m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"cat"}}]`)
	want("rows", "Transact default:Pets done")
	m.mustTransact(`[{"op":"select","table":"Pet","where":[]}]`)
	m.mustTransact(`[{"op":"delete","table":"Pet","where":[["name","==","dog"]]}]`)
	if res, err := m.transact(`[{"op":"insert","table":"Pet","row":{"name":"cat"}}]`, nil); err != nil || !res.Failed {
		t.Error(res, err)
	}
	m.rows(&pb.SelectRequest{Table: "Pet"})
	want("what changes no row", "")

	r := web("a", "w1", critical)
	register(t, m, r)
	want("a registration", "Register default:a done service w1, check w1-up")
	if _, err := m.catalog().Health(ctx, connect.NewRequest(&pb.HealthRequest{Service: "web"})); err != nil {
		t.Fatal(err)
	}
	want("a look", "")
	for _, text := range []string{"UpdateCheck default:a done check w1-up", ""} {
		if _, err := m.catalog().UpdateCheck(ctx, connect.NewRequest(&pb.UpdateCheckRequest{Node: "a", CheckId: "w1-up", Status: passing})); err != nil {
			t.Fatal(err)
		}
		want("how a check is", text)
	}
	if _, err := m.catalog().Deregister(ctx, connect.NewRequest(&pb.DeregisterRequest{Node: "a", ServiceId: "w1"})); err != nil {
		t.Fatal(err)
	}
	want("what is not there any more", "Deregister default:a done service w1")
	if _, err := m.tables().DropDatabase(ctx, connect.NewRequest(&pb.DropDatabaseRequest{Database: "Pets"})); err != nil {
		t.Fatal(err)
	}
	want("no database", "table_define default:Pets done")

	res, err := incumbentv1connect.NewSessionServiceClient(http.DefaultClient, m.url).OpenSession(ctx, connect.NewRequest(&pb.OpenSessionRequest{TtlMs: 60_000}))
	if err != nil {
		t.Fatal(err)
	}
	want("a session whose id the server chose", "session_open session "+res.Msg.Session.Id+" done")
	for _, text := range []string{"key_write default:l done", ""} {
		if _, err := m.keys().Lock(ctx, connect.NewRequest(&pb.LockRequest{Key: "l", Session: res.Msg.Session.Id, Lazy: true})); err != nil {
			t.Fatal(err)
		}
		want("a lock", text)
	}
}

// What a transaction has changed is recorded by its names, whether it comes as a call or on
// a stream; one that only reads, or finds nothing to do, is not.
func TestTransactionsAreRecordedByWhatTheyChange(t *testing.T) {
	all := &notes{}
	m := newMember(t, all.audited)
	w := m.dial()
	put := func(key string) *pb.TxnOperation { return opPut(key, "v") }
	remove := func(key string) *pb.TxnOperation {
		return &pb.TxnOperation{Op: &pb.TxnOperation_Delete{Delete: &pb.DeleteRequest{Key: key}}}
	}
	get := opGet("a")
	list := &pb.TxnOperation{Op: &pb.TxnOperation_List{List: &pb.ListKeysRequest{}}}
	claim := opClaim(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "l"}, Holder: "h", TtlMs: 60_000})
	never := []*pb.Condition{ifKey("never", 7)}
	var many []*pb.TxnOperation
	for i := range 500 {
		many = append(many, put(fmt.Sprintf("many/%03d", i)))
	}
	ops := func(ops ...*pb.TxnOperation) []*pb.TxnOperation { return ops }
	for _, tt := range []struct {
		what string
		in   *pb.TxnRequest
		want string
	}{
		{"one key", &pb.TxnRequest{Then: ops(get, put("a"), list)}, "key_write default:a done"},
		{"two keys, and one that is not there", &pb.TxnRequest{Then: ops(put("a"), remove("none"), remove("a"))}, "key_write default:a done"},
		{"a look", &pb.TxnRequest{Then: ops(get, list)}, ""},
		{"nothing to do", &pb.TxnRequest{Then: ops(remove("none"))}, ""},
		{"a condition that does not hold", &pb.TxnRequest{Conditions: never, Then: ops(put("a"))}, ""},
		{"what is done then", &pb.TxnRequest{Conditions: never, Then: ops(put("a")), Else: ops(put("b"), get)}, "key_write default:b done"},
		{"a lease", &pb.TxnRequest{Then: ops(claim, put("c"))}, "key_write default:default:l, default:c done"},
	} {
		for _, way := range []string{"call", "stream"} {
			if way == "call" {
				if _, err := m.txn(proto.CloneOf(tt.in)); err != nil {
					t.Errorf("%s: %v", tt.what, err)
				}
			} else if f := w.ask(&pb.ClientFrame{Id: 1, Request: &pb.ClientFrame_Txn{Txn: proto.CloneOf(tt.in)}}); f.Error != nil {
				t.Errorf("%s: %v", tt.what, f.Error)
			}
			want := tt.want
			if tt.what == "a lease" && way == "stream" {
				want = "key_write default:c done" // it has the lease already
			}
			if got := all.take(); got != want {
				t.Errorf("%s by %s: recorded %q, want %q", tt.what, way, got, want)
			}
		}
	}
	if _, err := m.txn(&pb.TxnRequest{Then: many}); err != nil {
		t.Fatal(err)
	}
	if got := all.take(); len(got) > 1024 || !strings.HasPrefix(got, "key_write default:many/000, default:many/001, ") || !strings.HasSuffix(got, " more done") {
		t.Errorf("many keys: recorded %q", got)
	}
}

// The same is recorded of what comes as calls and of what comes on a stream.
func TestStreamsAreRecordedAsCalls(t *testing.T) {
	calls, frames := &notes{}, &notes{}
	byCall, byStream := newMember(t, calls.audited), newMember(t, frames.audited)
	session, other := incumbent.SessionID{7}.String(), incumbent.SessionID{8}.String()
	w, callers := byStream.dial(), byCall.dial()
	for i, id := range []string{session, other} {
		w.ok(openFrame(uint64(i)+1, id, 60_000))
		callers.ok(openFrame(uint64(i)+1, id, 60_000))
	}
	if got, want := frames.take(), calls.take(); got != want || !strings.HasPrefix(got, "session_open session "+session+" done") {
		t.Errorf("sessions: recorded %q, and %q", got, want)
	}
	asked := keyRequests("n", session, other)
	for i, f := range keyRequests("n", session, other) {
		byCall.called(asked[i])
		f.Id = uint64(100 + i)
		w.ask(f)
		if got, want := frames.take(), calls.take(); got != want {
			t.Errorf("%v: recorded %q, as a call %q", f.Request, got, want)
		}
	}
}
