package server

import (
	"context"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func errAlone() error {
	return incumbent.Errorf(incumbent.Unavailable, "this member is a cluster of its own")
}

// Members implements native.Membership.
func (o operator) Members(context.Context) (*apiv1.MembersResponse, error) { return nil, errAlone() }

// CreateToken implements native.Membership.
func (o operator) CreateToken(context.Context, *apiv1.CreateTokenRequest) (*apiv1.CreateTokenResponse, error) {
	return nil, errAlone()
}

// Join implements native.Membership.
func (o operator) Join(context.Context, *apiv1.JoinRequest) (*apiv1.JoinResponse, error) {
	return nil, errAlone()
}

// RemoveMember implements native.Membership.
func (o operator) RemoveMember(context.Context, *apiv1.RemoveMemberRequest) (*apiv1.RemoveMemberResponse, error) {
	return nil, errAlone()
}

// PromoteMember implements native.Membership.
func (o operator) PromoteMember(context.Context, *apiv1.PromoteMemberRequest) (*apiv1.PromoteMemberResponse, error) {
	return nil, errAlone()
}

// TransferLeader implements native.Membership.
func (o operator) TransferLeader(context.Context, *apiv1.TransferLeaderRequest) (*apiv1.TransferLeaderResponse, error) {
	return nil, errAlone()
}

// Leave implements native.Membership.
func (o operator) Leave(context.Context, *apiv1.LeaveRequest) (*apiv1.LeaveResponse, error) {
	return nil, errAlone()
}
