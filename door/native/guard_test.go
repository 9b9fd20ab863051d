package native

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/incumbent-dev/incumbent"
	healthv1 "github.com/incumbent-dev/incumbent/api/grpc/health/v1"
	"github.com/incumbent-dev/incumbent/api/grpc/health/v1/healthv1connect"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
)

// An agent acts only as itself, whatever it names: a holder, a token, or a
// session.
// Who proves a name and claims for nobody claims for itself. Who proves none, as
// the local operator, has to say for whom.
func TestClaimsAreForThePrincipal(t *testing.T) {
	for _, c := range []struct {
		p    auth.Principal
		want string
	}{
		{auth.Principal{Name: "unit-1", Kind: auth.Agent, Via: auth.Credential}, "unit-1"},
		{auth.Principal{Name: "unit-2", Kind: auth.Agent, Via: auth.Certificate}, "unit-2"},
		{auth.Principal{Name: "alice", Kind: auth.Operator, Via: auth.Certificate}, "alice"},
		{auth.Principal{Name: "local", Kind: auth.Operator, Via: auth.Loopback}, ""},
	} {
		m := newMember(t)
		m.guard.principal = c.p
		got := m.dial().ask(claimFrame(1, "db", "", "", false))
		if holder := got.GetOperation().GetClaim().GetLease().GetHolder(); holder != c.want {
			t.Errorf("%v claims for %q, want %q", c.p, holder, c.want)
		}
		if c.want == "" && got.GetError().GetKind() != incumbent.Invalid.String() {
			t.Errorf("%v claims for nobody: %v", c.p, got)
		}
	}
}

func TestG12_AgentsActOnlyAsThemselves(t *testing.T) {
	m := newMember(t)
	m.guard.principal = auth.Principal{Name: "a", Kind: auth.Agent}
	a := m.dial()
	m.guard.principal = auth.Principal{Name: "b", Kind: auth.Agent}
	b := m.dial()
	b.ok(openFrame(1, sessionB, 20000))
	b.ok(attachFrame(2, sessionB, 1))
	token := b.ok(claimFrame(3, "db", "b/lock", sessionB, false)).GetOperation().GetClaim().Lease.Token

	tests := []struct {
		name string
		f    *pb.ClientFrame
		want incumbent.Kind
	}{
		{"claim as another", claimFrame(0, "x", "b", "", false), incumbent.Denied},
		{"claim with another's session", claimFrame(0, "x", "a", sessionB, false), incumbent.Denied},
		{"release another's", releaseFrame(0, "db", "b/lock", sessionB), incumbent.Denied},
		{"release by another's token", opFrame(0, &pb.Operation{Op: &pb.Operation_Release{Release: &pb.ReleaseRequest{Name: nameOf("db"), Token: token}}}), incumbent.Denied},
		{"revoke", opFrame(0, &pb.Operation{Op: &pb.Operation_Revoke{Revoke: &pb.RevokeRequest{Name: nameOf("db")}}}), incumbent.Denied},
		{"pin", opFrame(0, &pb.Operation{Op: &pb.Operation_Pin{Pin: &pb.PinRequest{Name: nameOf("db"), Entity: "a"}}}), incumbent.Denied},
		{"extend another's token", tokensMessage(0, 0, token), incumbent.Denied},
		{"extend a token of the future", tokensMessage(0, 0, 1<<40), incumbent.Unavailable},
		{"attach another's session", attachFrame(0, sessionB, 9), incumbent.Denied},
		{"close another's session", closeSessionFrame(0, sessionB), incumbent.Denied},
		{"use a session that is not open", claimFrame(0, "x", "a", sessionA, false), incumbent.Expired},
		{"claim as itself", claimFrame(0, "x", "a", "", false), incumbent.OK},
		{"claim below itself", claimFrame(0, "y", "a/part", "", false), incumbent.OK},
		{"release an old token", opFrame(0, &pb.Operation{Op: &pb.Operation_Release{Release: &pb.ReleaseRequest{Name: nameOf("db"), Token: 1}}}), incumbent.OK},
		{"look at another's", &pb.ClientFrame{Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("db")}}}, incumbent.OK},
		{"open a session", openFrame(0, sessionA, 5000), incumbent.OK},
		{"leave a queue altogether", opFrame(0, &pb.Operation{Op: &pb.Operation_LeaveQueue{LeaveQueue: &pb.LeaveQueueRequest{Name: nameOf("db"), Session: sessionA}}}), incumbent.OK},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.f.Id = uint64(i + 1)
			got := a.ask(tt.f)
			kind := incumbent.OK
			if got.Error != nil {
				kind, _ = incumbent.ParseKind(got.Error.Kind)
			}
			if kind != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestAnonymousMayDoNothing(t *testing.T) {
	m := newMember(t)
	m.guard.principal = auth.Principal{}
	for _, method := range []string{"LeaseService/Claim", "LeaseService/Get", "LeaseService/List", "LeaseService/WaitReleased", "SessionService/OpenSession", "ClusterService/Status", "ClusterService/Settings"} {
		body := `{"name": {"name": "x"}, "holder": "h", "ttl_ms": 5000}`
		if !strings.HasPrefix(method, "LeaseService") || strings.HasSuffix(method, "List") {
			body = "{}"
		}
		if method == "SessionService/OpenSession" {
			body = `{"ttl_ms": 5000}`
		}
		if strings.HasSuffix(method, "Get") || strings.HasSuffix(method, "WaitReleased") {
			body = `{"name": {"name": "x"}}`
		}
		if resp, text := m.post(method, body); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: HTTP %d %s", method, resp.StatusCode, text)
		}
	}
	if _, _, _, err := ws.Dial(context.Background(), strings.Replace(m.url, "http", "ws", 1)+StreamPath); err == nil {
		t.Error("a stream was opened")
	}
}

// The trust in whoever is on this machine is not for web pages.
func TestLoopbackIsNotForWebPages(t *testing.T) {
	m := newMember(t, func(c *Config) { c.Guard = auth.NewAuthenticator(true, nil) })
	const claim = `{"name": {"name": "x"}, "holder": "h", "ttl_ms": 5000}`
	tests := []struct {
		header, value string
		want          int
	}{
		{"X-Nothing", "", http.StatusOK},
		{"Origin", m.url, http.StatusOK},
		{"Origin", "https://example.org", http.StatusForbidden},
		{"X-Forwarded-For", "192.0.2.1", http.StatusForbidden},
		{"X-Forwarded-For", "", http.StatusForbidden},
		{"Authorization", "Basic YTpi", http.StatusForbidden},
		{"Authorization", "Bearer unknown", http.StatusForbidden},
	}
	for _, tt := range tests {
		if resp, body := m.post("LeaseService/Claim", claim, tt.header, tt.value); resp.StatusCode != tt.want {
			t.Errorf("%s: %s: HTTP %d %s", tt.header, tt.value, resp.StatusCode, body)
		}
	}
	refused := func(what string, change func(*http.Request)) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, m.url+"/incumbent.v1.LeaseService/Claim", strings.NewReader(claim))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		change(r)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: HTTP %d", what, resp.StatusCode)
		}
	}
	refused("a rebound name", func(r *http.Request) { r.Host = "rebound.example.org" })
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		refused("a line of a proxy behind an empty "+name, func(r *http.Request) { r.Header[name] = []string{"", "192.0.2.1"} })
	}
}

// Every kind has its code, its name in the detail, and the hint of when to
// come back, in the header too.
func TestErrorTable(t *testing.T) {
	for _, k := range incumbent.Kinds() {
		e := &incumbent.Error{Kind: k, Message: "m", Hint: "h", RetryAfter: 1500_000_001, Leader: "n2"}
		ce := callError(e, standing{member: "n1", leader: "n3"}, nil)
		if kindOf(ce) != k {
			t.Errorf("%v: detail says %v", k, kindOf(ce))
		}
		d := errorPB(e, standing{member: "n1", leader: "n3"}, nil)
		if d.Member != "n1" || d.Leader != "n2" || d.Hint != "h" || d.Message != "m" || d.RetryAfterMs != 1501 {
			t.Errorf("%v: %v", k, d)
		}
		if got := ce.Meta().Get("Retry-After"); got != "2" {
			t.Errorf("%v: Retry-After %q", k, got)
		}
		if internal := codeOf(k) == connect.CodeInternal; internal != (k == incumbent.Internal) {
			t.Errorf("%v has no code of its own", k)
		}
		if statusOf(k) < 400 {
			t.Errorf("%v: HTTP %d", k, statusOf(k))
		}
	}
	for k, want := range map[incumbent.Kind]connect.Code{
		incumbent.Unknown: connect.CodeUnknown, incumbent.Overloaded: connect.CodeResourceExhausted, incumbent.Held: connect.CodeAlreadyExists,
		incumbent.DeadlineExceeded: connect.CodeDeadlineExceeded, incumbent.NotLeader: connect.CodeUnavailable, incumbent.Conflict: connect.CodeAborted,
	} {
		if codeOf(k) != want {
			t.Errorf("%v: %v, want %v", k, codeOf(k), want)
		}
	}
	if asError(context.DeadlineExceeded).Kind != incumbent.DeadlineExceeded || asError(http.ErrBodyNotAllowed).Kind != incumbent.Internal {
		t.Error("errors that are not of the module")
	}
}

// The health of every service is told that the protocol has.
func TestHealthOfEveryService(t *testing.T) {
	m := newMember(t)
	health, n := healthv1connect.NewHealthClient(http.DefaultClient, m.url), 0
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			name := string(f.Services().Get(i).FullName())
			if !strings.HasPrefix(name, "incumbent.v1.") && !strings.HasPrefix(name, "grpc.health.v1.") {
				continue
			}
			n++
			r, err := health.Check(t.Context(), connect.NewRequest(&healthv1.HealthCheckRequest{Service: name}))
			if err != nil || r.Msg.Status != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		}
		return true
	})
	if n != len(services) {
		t.Errorf("the protocol has %d services, %d are served", n, len(services))
	}
	if _, err := health.Check(t.Context(), connect.NewRequest(&healthv1.HealthCheckRequest{Service: "incumbent.v1.None"})); kindOf(err) != incumbent.NotFound {
		t.Errorf("the health of no service: %v", err)
	}
}

func TestEventsAndHealth(t *testing.T) {
	m := newMember(t)
	m.operator.happen("started")
	m.operator.happen("leading")
	resp, body := m.post("ClusterService/Events", "\x00\x00\x00\x00\x0c"+`{"limit": 1}`, "Content-Type", "application/connect+json")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "leading") || strings.Contains(body, "started") {
		t.Errorf("HTTP %d %q", resp.StatusCode, body)
	}
	check := func() string {
		t.Helper()
		r, err := http.Post(m.url+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := check(); !strings.Contains(got, `"SERVING"`) {
		t.Errorf("health %s", got)
	}
	m.operator.ready.Store(incumbent.Errorf(incumbent.Unavailable, "no leader is known"))
	if got := check(); !strings.Contains(got, "NOT_SERVING") {
		t.Errorf("health %s", got)
	}
}
