package native

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
)

func credentialClient(m *member) incumbentv1connect.CredentialServiceClient {
	return incumbentv1connect.NewCredentialServiceClient(http.DefaultClient, m.url)
}

func tokenRequest(who string, sum byte) *pb.CreateCredentialRequest {
	b := make([]byte, 32)
	b[0] = sum
	return &pb.CreateCredentialRequest{Principal: who, Secret: &pb.CreateCredentialRequest_TokenSha256{TokenSha256: b}}
}

func passwordRequest(tag, model, secret string, grants ...string) *pb.CreateCredentialRequest {
	return &pb.CreateCredentialRequest{Secret: &pb.CreateCredentialRequest_Password{
		Password: &pb.PasswordSecret{Tag: tag, Model: model, Secret: secret, Grants: grants},
	}}
}

// Credentials are created, listed without their secrets, and revoked; a call that is
// repeated with its key takes effect once.
func TestCredentialsOfTheCluster(t *testing.T) {
	var later atomic.Int64 // by which the clock is ahead
	m := newMember(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) } })
	c := credentialClient(m)
	first := tokenRequest("agent:db/1", 1)
	first.EndsUnixMs, first.EndSessions = time.Now().Add(time.Hour).UnixMilli(), true
	first.Idempotency = &pb.Idempotency{Key: []byte("k")}
	made, err := c.Create(t.Context(), connect.NewRequest(first))
	if err != nil {
		t.Fatal(err)
	}
	if got := made.Msg.Credential; got.Principal != "agent:db/1" || got.CreatedBy != "operator:admin" || got.State != pb.CredentialState_CREDENTIAL_STATE_VALID || !got.EndSessions {
		t.Errorf("%+v", got)
	}
	if again, err := c.Create(t.Context(), connect.NewRequest(first)); err != nil || again.Msg.Credential.GetId() != made.Msg.Credential.Id {
		t.Errorf("repeated with its key: %v, %v", again, err)
	}
	first.Idempotency = nil
	if _, err := c.Create(t.Context(), connect.NewRequest(first)); kindOf(err) != incumbent.Conflict {
		t.Errorf("the same token: %v", err)
	}
	secret, err := auth.SecretOf("pw", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), connect.NewRequest(passwordRequest("unit-a-0", "*", secret, "claim-any"))); err != nil {
		t.Fatal(err)
	}
	serial := &pb.RevokeCredentialRequest_Certificate{Certificate: &pb.RevokedCertificate{Serial: "0a:ff", Principal: "agent:c"}}
	if _, err := c.Revoke(t.Context(), connect.NewRequest(&pb.RevokeCredentialRequest{Which: serial})); err != nil {
		t.Fatal(err)
	}
	list := func(all bool) (out []*pb.Credential) {
		t.Helper()
		in := &pb.ListCredentialsRequest{All: all, Limit: 1}
		for {
			res, err := c.List(t.Context(), connect.NewRequest(in))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, res.Msg.Credentials...)
			if in.After = res.Msg.Next; in.After == 0 {
				return out
			}
		}
	}
	all := list(false)
	if len(all) != 3 || all[1].Principal != "agent:unit-a-0" || all[1].Grants[0] != "claim-any" || all[2].Serial != "0aff" || all[2].State != pb.CredentialState_CREDENTIAL_STATE_REVOKED {
		t.Fatalf("there are %v", all)
	}
	later.Store(int64(2 * time.Hour))
	if got := list(false)[0]; got.State != pb.CredentialState_CREDENTIAL_STATE_ENDED {
		t.Errorf("behind its end: %v", got)
	}
	if _, err := c.Revoke(t.Context(), connect.NewRequest(&pb.RevokeCredentialRequest{Which: &pb.RevokeCredentialRequest_Id{Id: all[0].Id}})); err != nil {
		t.Fatal(err)
	}
	if n, kept := len(list(false)), list(true); n != 2 || len(kept) != 3 || kept[0].State != pb.CredentialState_CREDENTIAL_STATE_REVOKED || kept[0].EndedBy != "operator:admin" {
		t.Errorf("%d, and %v in all", n, kept)
	}
}

// What cannot be is refused before the log, with the field that is wrong.
func TestCredentialsThatCannotBe(t *testing.T) {
	m := newMember(t, func(c *Config) {
		c.Credentials.Account = func(_, tag string) error {
			if tag != "unit-a-0" {
				return incumbent.Errorf(incumbent.Invalid, "no tag")
			}
			return nil
		}
	})
	c := credentialClient(m)
	short := tokenRequest("agent:a", 1)
	short.Secret = &pb.CreateCredentialRequest_TokenSha256{TokenSha256: []byte("short")}
	early := tokenRequest("agent:a", 1)
	early.EndsUnixMs = -1
	named := passwordRequest("unit-a-0", "*", "sha256:"+string(make([]byte, 0)))
	named.Principal = "agent:a"
	for name, r := range map[string]*pb.CreateCredentialRequest{
		"nothing": {}, "no secret": {Principal: "agent:a"}, "no kind": tokenRequest("a", 1), "another kind": tokenRequest("root:a", 1), "a short hash": short,
		"before 1970": early, "a password in clear": passwordRequest("unit-a-0", "*", "hunter2"), "no tag": passwordRequest("x", "*", "sha256:00"),
		"a password with a principal": named,
	} {
		if _, err := c.Create(t.Context(), connect.NewRequest(r)); kindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, r := range map[string]*pb.RevokeCredentialRequest{
		"nothing": {}, "no id": {Which: &pb.RevokeCredentialRequest_Id{}},
		"no serial number":     {Which: &pb.RevokeCredentialRequest_Certificate{Certificate: &pb.RevokedCertificate{Serial: "x"}}},
		"no certificate":       {Which: &pb.RevokeCredentialRequest_Certificate{}},
		"nobody's sessions":    {EndSessions: true, Which: &pb.RevokeCredentialRequest_Certificate{Certificate: &pb.RevokedCertificate{Serial: "1"}}},
		"a principal of sorts": {Which: &pb.RevokeCredentialRequest_Certificate{Certificate: &pb.RevokedCertificate{Serial: "1", Principal: "a"}}},
	} {
		if _, err := c.Revoke(t.Context(), connect.NewRequest(r)); kindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Revoke(t.Context(), connect.NewRequest(&pb.RevokeCredentialRequest{Which: &pb.RevokeCredentialRequest_Id{Id: 99}})); kindOf(err) != incumbent.NotFound {
		t.Errorf("no such credential: %v", err)
	}
	if _, err := c.Sign(t.Context(), connect.NewRequest(&pb.SignCertificateRequest{Principal: "agent:a"})); kindOf(err) != incumbent.NotFound {
		t.Errorf("no authority: %v", err)
	}
	if _, err := c.List(t.Context(), connect.NewRequest(&pb.ListCredentialsRequest{Limit: maxCredentialPage + 1})); kindOf(err) != incumbent.Invalid {
		t.Errorf("a page that is too long: %v", err)
	}
}

// A credential that is taken back ends the calls that wait, those that are just
// beginning too, and no others.
func TestG12_RecheckEndsCalls(t *testing.T) {
	m := newMember(t)
	leases := incumbentv1connect.NewLeaseServiceClient(http.DefaultClient, m.url)
	held, err := leases.Claim(t.Context(), connect.NewRequest(&pb.ClaimRequest{Name: &pb.LeaseName{Name: "db"}, Holder: "x", TtlMs: 60_000}))
	if err != nil {
		t.Fatal(err)
	}
	wait := func(ctx context.Context) error {
		_, err := leases.WaitReleased(ctx, connect.NewRequest(&pb.WaitReleasedRequest{
			Name: &pb.LeaseName{Name: "db"}, AfterToken: held.Msg.Lease.Token, WaitMs: uint32(patience.Milliseconds()),
		}))
		return err
	}
	watch := func(ctx context.Context) error {
		s, err := leases.Watch(ctx, connect.NewRequest(&pb.WatchRequest{Name: &pb.LeaseName{}, Prefix: true}))
		if err != nil {
			return err
		}
		for s.Receive() {
		}
		return s.Err()
	}
	begin := func(name string, call func(context.Context) error) <-chan error {
		m.guard.principal = auth.Principal{Name: name, Kind: auth.Operator, Via: auth.Credential, Proof: auth.Proof{ID: name}}
		before := m.door.blocked.Len()
		ended := make(chan error, 1)
		go func() { ended <- call(t.Context()) }()
		eventually(t, "the call waits", func() bool {
			select {
			case err := <-ended:
				t.Fatalf("%s's call ends: %v", name, err)
			default:
			}
			return m.door.blocked.Len() == before+1
		})
		return ended
	}
	out := []<-chan error{begin("old", wait), begin("old", watch)}
	in := begin("new", wait)
	m.door.Recheck(func(p auth.Principal) bool { return p.Name != "old" })
	for i, ended := range out {
		select {
		case err := <-ended:
			if kindOf(err) != incumbent.Denied {
				t.Errorf("call %d: %v", i, err)
			}
		case <-time.After(patience):
			t.Fatalf("call %d goes on", i)
		}
	}
	m.guard.principal = auth.Principal{Name: "old", Kind: auth.Operator, Via: auth.Credential, Proof: auth.Proof{ID: "old"}}
	if err := wait(t.Context()); kindOf(err) != incumbent.Denied {
		t.Errorf("begun with what was taken back: %v", err)
	}
	select {
	case err := <-in:
		t.Errorf("another's call has ended: %v", err)
	default:
	}
	if _, err := leases.Release(t.Context(), connect.NewRequest(&pb.ReleaseRequest{Name: &pb.LeaseName{Name: "db"}, Token: held.Msg.Lease.Token})); err == nil {
		t.Error("a call of who is not known any more takes effect")
	}
	m.guard.principal = admin
	if _, err := leases.Release(t.Context(), connect.NewRequest(&pb.ReleaseRequest{Name: &pb.LeaseName{Name: "db"}, Token: held.Msg.Lease.Token})); err != nil {
		t.Fatal(err)
	}
	if err := <-in; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "no call is left", func() bool { return m.door.blocked.Len() == 0 })
}
