package native

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

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
