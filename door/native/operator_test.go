package native

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
)

// elsewhere is a member that does not lead.
type elsewhere struct{ Membership }

func (elsewhere) RemoveMember(context.Context, *pb.RemoveMemberRequest) (*pb.RemoveMemberResponse, error) {
	return nil, incumbent.Errorf(incumbent.NotLeader, "another member leads")
}

func (elsewhere) Join(_ context.Context, r *pb.JoinRequest, from string) (*pb.JoinResponse, error) {
	return &pb.JoinResponse{MemberId: r.MemberId, ClusterId: from}, nil
}

func clusterClient(m *member) incumbentv1connect.ClusterServiceClient {
	t := &http.Transport{}
	m.tb.Cleanup(t.CloseIdleConnections)
	return incumbentv1connect.NewClusterServiceClient(&http.Client{Transport: t}, m.url)
}

// leaderOf is the leader that a call's error names.
func leaderOf(err error) string {
	var ce *connect.Error
	if errors.As(err, &ce) {
		for _, d := range ce.Details() {
			if v, err := d.Value(); err == nil {
				return v.(*pb.Error).GetLeader() //nolint:forcetypeassert // the door's errors have no other detail
			}
		}
	}
	return ""
}

// Who asks a member that does not lead learns where to go on.
func TestNotLeaderSaysWhereTheLeaderIs(t *testing.T) {
	m := newMember(t)
	m.operator.Membership = elsewhere{}
	c := clusterClient(m)
	_, err := c.RemoveMember(t.Context(), connect.NewRequest(&pb.RemoveMemberRequest{Member: "n2"}))
	if kindOf(err) != incumbent.NotLeader || leaderOf(err) != "http://n1:7600" {
		t.Errorf("got %v, leader at %q", err, leaderOf(err))
	}
	if d := errorPB(incumbent.Errorf(incumbent.Held, "x"), standing{"n1", "n2", "http://n2"}, nil); d.Leader != "n2" {
		t.Errorf("another error names the leader %q", d.Leader)
	}
}

// Membership is for operators; joining is for whoever has a token.
func TestWhoMayChangeMembers(t *testing.T) {
	for procedure, want := range map[string]auth.Action{
		incumbentv1connect.ClusterServiceMembersProcedure:        auth.Discover,
		incumbentv1connect.ClusterServiceCreateTokenProcedure:    auth.Admin,
		incumbentv1connect.ClusterServiceRemoveMemberProcedure:   auth.Admin,
		incumbentv1connect.ClusterServicePromoteMemberProcedure:  auth.Admin,
		incumbentv1connect.ClusterServiceTransferLeaderProcedure: auth.Admin,
		incumbentv1connect.ClusterServiceLeaveProcedure:          auth.Admin,
		incumbentv1connect.TrustServiceGetTrustProcedure:         auth.Admin,
		incumbentv1connect.TrustServiceRotateProcedure:           auth.Admin,
		incumbentv1connect.TrustServiceRevokeTokenProcedure:      auth.Admin,
		incumbentv1connect.CredentialServiceCreateProcedure:      auth.Admin,
		incumbentv1connect.CredentialServiceListProcedure:        auth.Admin,
		incumbentv1connect.CredentialServiceRevokeProcedure:      auth.Admin,
		incumbentv1connect.CredentialServiceSignProcedure:        auth.Admin,
	} {
		if c, ok := calls.Of(procedure); !ok || c.Action() != want || c.Row().Judged != calls.First {
			t.Errorf("%s: %v, %v", procedure, c, ok)
		}
	}
	m := newMember(t)
	m.operator.Membership = elsewhere{}
	m.guard.principal = auth.Principal{}
	c := clusterClient(m)
	if res, err := c.Join(t.Context(), connect.NewRequest(&pb.JoinRequest{MemberId: "1"})); err != nil || res.Msg.MemberId != "1" || !strings.HasPrefix(res.Msg.ClusterId, "127.0.0.1:") {
		t.Errorf("a stranger with a token: %v", err)
	}
	if _, err := c.RemoveMember(t.Context(), connect.NewRequest(&pb.RemoveMemberRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a stranger removes: %v", err)
	}
}

// A credential that is taken back ends the streams that it opened, those that are
// just being opened too, and no others.
func TestRecheckEndsStreams(t *testing.T) {
	m := newMember(t)
	m.guard.principal = auth.Principal{Name: "old", Kind: auth.Agent, Via: auth.Credential}
	out := m.dial()
	m.guard.principal = auth.Principal{Name: "new", Kind: auth.Agent, Via: auth.Credential}
	in := m.dial()
	for _, w := range []*wire{out, in} {
		w.write(clientFrameBytes(ws.OpPing, true, []byte("x")))
		if op, _ := w.read(); op != ws.OpPong {
			t.Fatalf("got %v", op)
		}
	}
	m.door.Recheck(func(p auth.Principal) bool { return p.Name != "old" })
	if got := out.closed(); got != ws.StatusPolicyViolation {
		t.Errorf("closed with %d", got)
	}
	m.guard.principal = auth.Principal{Name: "old", Kind: auth.Agent, Via: auth.Credential}
	if got := m.dial().closed(); got != ws.StatusPolicyViolation {
		t.Errorf("opened with what was taken back: closed with %d", got)
	}
	in.write(clientFrameBytes(ws.OpPing, true, []byte("y")))
	if op, p := in.read(); op != ws.OpPong || string(p) != "y" {
		t.Errorf("another's stream: %v %q", op, p)
	}
}

// A refusal for the base of a key says so without words, and nothing else does.
func TestARefusalForTheBaseOfAKeyIsMarked(t *testing.T) {
	err := incumbent.Errorf(incumbent.Unknown, "the base is too old: %w", core.OutsideWindow{Index: 7})
	if d := errorPB(err, standing{}, nil); d.Kind != "unknown" || d.BaseIndex != 7 {
		t.Errorf("got %v", d)
	}
	if d := errorPB(incumbent.Errorf(incumbent.Unknown, "no answer"), standing{}, nil); d.BaseIndex != 0 {
		t.Errorf("got %v", d)
	}
}
