package player

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
)

// The attacker is an agent that a policy lets look at keys of a namespace in which nobody
// plays, and at nothing else.
const (
	attackerName = "attacker"
	ownNamespace = "attacker"
	framesAtOnce = 5
)

// attacker makes the calls of the other players, and those of operators, with its token. All
// are refused but what it may look at; that nothing was changed, all others would notice.
type attacker struct {
	*play
	number int
	with   *credential
}

// credential is the attacker's token and its clients, of each member.
type credential struct {
	token   string
	members []*intruder
}

// intruder makes calls to one member with the attacker's token.
type intruder struct {
	*caller
	policies    incumbentv1connect.PolicyServiceClient
	settings    incumbentv1connect.SettingsServiceClient
	credentials incumbentv1connect.CredentialServiceClient
	tables      incumbentv1connect.TableServiceClient
}

// bringing sends a token with every request.
type bringing struct {
	token string
	over  http.RoundTripper
}

func (b bringing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.over.RoundTrip(r)
}

// letIn gives the attacker its token and its policy, as an operator does.
func letIn(t *testing.T, c *processes) *credential {
	t.Helper()
	out := &credential{token: auth.NewToken()}
	sum := sha256.Sum256([]byte(out.token))
	url := c.Members[0].URL
	operator, done := context.WithTimeout(t.Context(), patience)
	defer done()
	if _, err := incumbentv1connect.NewPolicyServiceClient(c.web, url).SetPolicy(operator, connect.NewRequest(&pb.SetPolicyRequest{Policy: &pb.Policy{
		Name: attackerName, For: []string{"agent:" + attackerName}, Rules: []*pb.PolicyRule{{Kind: "keys", Namespace: ownNamespace, Verbs: []string{"see"}}},
	}})); err != nil {
		t.Fatal(err)
	}
	if _, err := incumbentv1connect.NewCredentialServiceClient(c.web, url).Create(operator, connect.NewRequest(&pb.CreateCredentialRequest{
		Principal: "agent:" + attackerName, Secret: &pb.CreateCredentialRequest_TokenSha256{TokenSha256: sum[:]},
	})); err != nil {
		t.Fatal(err)
	}
	config := c.tls.Clone()
	if config != nil {
		config.Certificates = nil // that is an operator's
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	over := &http.Client{Transport: bringing{out.token, transport}}
	for _, m := range c.Members {
		out.members = append(out.members, &intruder{
			caller: &caller{
				m: m, form: "connect", leases: incumbentv1connect.NewLeaseServiceClient(over, m.URL), sessions: incumbentv1connect.NewSessionServiceClient(over, m.URL),
				cluster: incumbentv1connect.NewClusterServiceClient(over, m.URL), keys: incumbentv1connect.NewKeyValueServiceClient(over, m.URL),
				txns: incumbentv1connect.NewTransactionServiceClient(over, m.URL),
			},
			policies: incumbentv1connect.NewPolicyServiceClient(over, m.URL), settings: incumbentv1connect.NewSettingsServiceClient(over, m.URL),
			credentials: incumbentv1connect.NewCredentialServiceClient(over, m.URL), tables: incumbentv1connect.NewTableServiceClient(over, m.URL),
		})
	}
	return out
}

func (p *attacker) run(ctx context.Context) {
	for step := 0; ctx.Err() == nil; step++ {
		d := p.table.dice(p.number, step)
		k := pick(d, p.with.members)
		c := p.book.begin(fmt.Sprintf("player %d, step %d, attacker at %s", p.number, step, k.m.Name))
		switch n := d.IntN(20); {
		case n < 7:
			p.operate(ctx, d, k, c)
		case n < 12:
			p.keys(ctx, d, k, c)
		case n < 15:
			p.operatorsCalls(ctx, d, k, c)
		case n < 18:
			p.stream(ctx, d, k.m, c)
		case n < 19:
			p.juju(ctx, d, k.m, c)
		default:
			p.own(ctx, k, c)
		}
		p.rest(ctx, d)
		p.rest(ctx, d)
	}
}

// refused notes a fault unless a call was refused, if it was answered.
func refused(c *call, what any, done, answered bool, e *pb.Error) {
	switch {
	case !answered:
	case e == nil && done:
		c.fail("an attacker may do %v", what)
	case e != nil:
		c.b.count("attack " + e.Kind)
	}
}

// stopped is refused for a call of its own.
func stopped[Q, R any](ctx context.Context, k *intruder, c *call, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), in *Q) {
	_, e, ok := do(ctx, c, k.m, f, in)
	refused(c, in, true, ok, e)
}

// operate makes an operation of somebody else's: with others' tokens and sessions, for
// other holders.
func (p *attacker) operate(ctx context.Context, d dice, k *intruder, c *call) {
	op := d.operation()
	if r, ok := k.operate(ctx, c, op); ok {
		refused(c, op, did(r), true, r.Error)
	}
}

// did reports whether an operation has done something, unless it was refused: there may
// be nothing to extend, or to release, and whose that was does not matter.
func did(r *pb.OperationResult) bool {
	switch x := r.GetResult().(type) {
	case *pb.OperationResult_Extend:
		return x.Extend.GetError() == nil
	case *pb.OperationResult_Release:
		return x.Release.GetReleased()
	}
	return true
}

// keys looks at keys, and changes them.
func (p *attacker) keys(ctx context.Context, d dice, k *intruder, c *call) {
	switch d.IntN(8) {
	case 0:
		stopped(ctx, k, c, k.caller.keys.Put, d.put())
	case 1:
		stopped(ctx, k, c, k.caller.keys.Delete, d.delete())
	case 2:
		stopped(ctx, k, c, k.caller.keys.Lock, d.lock())
	case 3:
		stopped(ctx, k, c, k.caller.keys.Unlock, d.unlock())
	case 4:
		stopped(ctx, k, c, k.caller.keys.Get, d.getKey())
	case 5:
		in := d.listKeys()
		out, e, ok := do(ctx, c, k.m, k.caller.keys.List, in)
		refused(c, in, len(out.GetEntries()) > 0, ok, e)
	case 6:
		stopped(ctx, k, c, k.caller.keys.Put, &pb.PutRequest{Namespace: ownNamespace, Key: "k"})
	default:
		in := d.txn()
		if len(in.Conditions)+len(in.Then)+len(in.Else) > 0 { // else it asks for nothing
			stopped(ctx, k, c, k.txns.Txn, in)
		}
	}
}

// operatorsCalls are those that change who may what, and those that show it.
func (p *attacker) operatorsCalls(ctx context.Context, d dice, k *intruder, c *call) {
	sum := sha256.Sum256(d.bytes(8))
	switch d.IntN(11) {
	case 0:
		stopped(ctx, k, c, k.policies.SetPolicy, &pb.SetPolicyRequest{Policy: &pb.Policy{
			Name: attackerName, For: []string{"*"}, Rules: []*pb.PolicyRule{{Kind: "leases", Namespace: "*", Verbs: []string{"write"}}},
		}})
	case 1:
		stopped(ctx, k, c, k.policies.DeletePolicy, &pb.DeletePolicyRequest{Name: attackerName})
	case 2:
		stopped(ctx, k, c, k.policies.ListPolicies, &pb.ListPoliciesRequest{})
	case 3:
		stopped(ctx, k, c, k.credentials.Create, &pb.CreateCredentialRequest{Principal: "operator:me", Secret: &pb.CreateCredentialRequest_TokenSha256{TokenSha256: sum[:]}})
	case 4:
		stopped(ctx, k, c, k.credentials.Revoke, &pb.RevokeCredentialRequest{Which: &pb.RevokeCredentialRequest_Id{Id: 1}})
	case 5:
		stopped(ctx, k, c, k.credentials.List, &pb.ListCredentialsRequest{})
	case 6:
		stopped(ctx, k, c, k.settings.SetSetting, &pb.SetSettingRequest{Name: "kv.quota-bytes", Value: "1"})
	case 7:
		stopped(ctx, k, c, k.cluster.Status, &pb.StatusRequest{})
	case 8:
		in := &pb.ListRequest{}
		out, e, ok := do(ctx, c, k.m, k.leases.List, in)
		refused(c, in, len(out.GetLeases()) > 0, ok, e)
	case 9:
		in := &pb.ListSessionsRequest{}
		out, e, ok := do(ctx, c, k.m, k.sessions.ListSessions, in)
		refused(c, in, len(out.GetSessions()) > 0, ok, e)
	default:
		stopped(ctx, k, c, k.leases.Get, &pb.GetRequest{Name: d.place().pb(), Stale: d.oneIn(2)})
	}
}

// own looks at what the attacker may look at: that it is known is what the rest stands on.
func (p *attacker) own(ctx context.Context, k *intruder, c *call) {
	_, e, ok := do(ctx, c, k.m, k.caller.keys.Get, &pb.GetKeyRequest{Namespace: ownNamespace, Key: "k"})
	switch kind, _ := incumbent.ParseKind(e.GetKind()); {
	case !ok:
	case kind == incumbent.Denied:
		c.fail("an attacker may not look at its own: %v", e)
	case e == nil || kind == incumbent.NotFound:
		p.book.count("attacker looked")
	}
}

// stream sends frames, and reads their answers.
func (p *attacker) stream(ctx context.Context, d dice, m *member, c *call) {
	config := m.c.tls.Clone()
	if config != nil {
		config.Certificates = nil
	}
	dialer := ws.Dialer{Timeout: patience, TLSConfig: config, Header: ws.HandshakeHeaderHTTP{"Authorization": []string{"Bearer " + p.with.token}}}
	conn, buffered, _, err := dialer.Dial(ctx, "ws"+strings.TrimPrefix(m.URL, "http")+"/v1/stream")
	if err != nil {
		return // killed, or refusing
	}
	defer conn.Close()
	if buffered != nil {
		ws.PutReader(buffered)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	asked, out := map[uint64]*pb.ClientFrame{}, &pb.ClientMessage{}
	for id := range uint64(framesAtOnce) {
		f := &pb.ClientFrame{}
		switch d.IntN(4) {
		case 0:
			f.Request = &pb.ClientFrame_Attach{Attach: &pb.Attach{Session: d.session(), Counter: 1}}
		case 1:
			f.Request = &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: d.place().pb()}}
		case 2:
			f.Request = &pb.ClientFrame_Put{Put: d.put()}
		default:
			f.Request = &pb.ClientFrame_Operation{Operation: d.operation()}
		}
		f.Id = id + 1
		asked[f.Id], out.Frames = f, append(out.Frames, f)
	}
	b, err := proto.Marshal(out)
	if err != nil || wsutil.WriteClientBinary(conn, b) != nil {
		return
	}
	for len(asked) > 0 {
		b, _, err := wsutil.ReadServerData(conn)
		in := &pb.ServerMessage{}
		if err != nil || proto.Unmarshal(b, in) != nil {
			return // the others notice what is wrong with it
		}
		for _, f := range in.Frames {
			if f.Id == 0 {
				continue
			}
			done, e := true, f.Error
			if r := f.GetOperation(); r != nil {
				if done = did(r); e == nil {
					e = r.Error
				}
			}
			refused(c, asked[f.Id], done, true, e)
			delete(asked, f.Id)
		}
	}
}

// juju logs in with the token in the place of a password.
func (p *attacker) juju(ctx context.Context, d dice, m *member, c *call) {
	conn := dialJuju(ctx, m)
	if conn == nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	text := fmt.Sprintf(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":%q,"credentials":%q}}`,
		pick(d, []string{"unit-app-0", "machine-0", "unit-" + attackerName + "-0"}), p.with.token)
	if wsutil.WriteClientText(conn, []byte(text)) != nil {
		return
	}
	if b, err := wsutil.ReadServerText(conn); err == nil && strings.Contains(string(b), model) {
		c.fail("an attacker logs in: %s", b)
	}
}
