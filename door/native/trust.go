package native

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// trustService serves TrustService from an Operator.
type trustService struct{ d *Door }

// GetTrust says what the members trust one another by.
func (s trustService) GetTrust(ctx context.Context, r *connect.Request[pb.GetTrustRequest]) (*connect.Response[pb.GetTrustResponse], error) {
	return answerTo(ctx, s.d, r, s.d.operator.Trust)
}

// Rotate exchanges something of it.
func (s trustService) Rotate(ctx context.Context, r *connect.Request[pb.RotateRequest]) (*connect.Response[pb.RotateResponse], error) {
	return answerBy(ctx, s.d, r, s.d.operator.RotateTrust)
}

// RevokeToken makes a join token worthless.
func (s trustService) RevokeToken(ctx context.Context, r *connect.Request[pb.RevokeTokenRequest]) (*connect.Response[pb.RevokeTokenResponse], error) {
	return answerBy(ctx, s.d, r, s.d.operator.RevokeToken)
}
