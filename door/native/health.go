package native

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	healthv1 "github.com/incumbent-dev/incumbent/api/grpc/health/v1"
)

// healthEvery is how often a watch of health looks.
const healthEvery = time.Second

// healthService serves grpc.health.v1. All services are ready together.
type healthService struct{ d *Door }

func (s healthService) status(service string) healthv1.HealthCheckResponse_ServingStatus {
	if service != "" && !slices.Contains(services, service) {
		return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
	}
	if s.d.life.Err() != nil || s.d.operator.Ready() != nil {
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVING
}

// Check answers at once.
func (s healthService) Check(_ context.Context, r *connect.Request[healthv1.HealthCheckRequest]) (*connect.Response[healthv1.HealthCheckResponse], error) {
	status := s.status(r.Msg.Service)
	if status == healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, s.d.callError(incumbent.Errorf(incumbent.NotFound, "no service %q", r.Msg.Service))
	}
	return connect.NewResponse(&healthv1.HealthCheckResponse{Status: status}), nil
}

// Watch answers at once and whenever the answer changes.
func (s healthService) Watch(ctx context.Context, r *connect.Request[healthv1.HealthCheckRequest], out *connect.ServerStream[healthv1.HealthCheckResponse]) error {
	ctx, stop := s.d.untilDrained(ctx)
	defer stop()
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	said := healthv1.HealthCheckResponse_ServingStatus(-1)
	for {
		if now := s.status(r.Msg.Service); now != said {
			said = now
			if err := out.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s.d.callError(context.Cause(ctx))
		}
	}
}
