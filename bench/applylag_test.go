package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// laggard is a member that shows changes late.
type laggard struct {
	incumbentv1connect.UnimplementedLeaseServiceHandler
	incumbentv1connect.UnimplementedClusterServiceHandler
	*lagLog
	behind time.Duration
	wrong  uint64 // added to the indexes that it shows
}

// lagLog is what the members agree on.
type lagLog struct {
	mu      sync.Mutex // held for a change
	index   uint64
	leader  string // its URL
	watches []chan uint64
}

func (l *laggard) start(t *testing.T) string {
	mux := http.NewServeMux()
	mux.Handle(incumbentv1connect.NewLeaseServiceHandler(l))
	mux.Handle(incumbentv1connect.NewClusterServiceHandler(l))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func (l *lagLog) change() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	for _, w := range l.watches {
		w <- l.index
	}
	return l.index
}

func (l *laggard) Status(context.Context, *connect.Request[apiv1.StatusRequest]) (*connect.Response[apiv1.StatusResponse], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return connect.NewResponse(&apiv1.StatusResponse{Members: []*apiv1.Member{{Role: "leader", Address: l.leader}}}), nil
}

func (l *laggard) Claim(context.Context, *connect.Request[apiv1.ClaimRequest]) (*connect.Response[apiv1.ClaimResponse], error) {
	i := l.change()
	return connect.NewResponse(&apiv1.ClaimResponse{Index: i, Lease: &apiv1.Lease{Token: i}}), nil
}

func (l *laggard) Release(context.Context, *connect.Request[apiv1.ReleaseRequest]) (*connect.Response[apiv1.ReleaseResponse], error) {
	return connect.NewResponse(&apiv1.ReleaseResponse{Index: l.change(), Released: true}), nil
}

func (l *laggard) Watch(ctx context.Context, _ *connect.Request[apiv1.WatchRequest], to *connect.ServerStream[apiv1.WatchResponse]) error {
	changes := make(chan uint64, 100)
	l.mu.Lock()
	l.watches = append(l.watches, changes)
	l.mu.Unlock()
	m := &apiv1.WatchResponse{Snapshot: true, ProgressIndex: 1}
	for {
		if err := to.Send(m); err != nil {
			return err
		}
		select {
		case i := <-changes:
			m = &apiv1.WatchResponse{ProgressIndex: i, Events: []*apiv1.LeaseEvent{{Index: i + l.wrong, What: "claimed"}}}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := sleep(ctx, l.behind); err != nil {
			return err
		}
	}
}

func TestApplyLag(t *testing.T) {
	t.Parallel()
	const behind = 20 * time.Millisecond
	play := func(t *testing.T, second *laggard) (*Summary, error) {
		log := &lagLog{}
		first := &laggard{lagLog: log}
		second.lagLog = log
		log.leader = first.start(t)
		return Run(t.Context(), Options{
			Scenario: "apply-lag", Targets: []string{second.start(t), log.leader},
			Set: map[string]string{"closed.rate": "100", "closed.warmup": "50ms", "closed.duration": "300ms"},
		})
	}
	t.Run("a follower that is late", func(t *testing.T) {
		s, err := play(t, &laggard{behind: behind})
		if err != nil {
			t.Fatal(err)
		}
		lag := s.Ops[lagOp]
		if lag.Count == 0 || lag.Count != s.Ops[changeOp].Count || s.Ops[shownOp].Count != lag.Count {
			t.Errorf("operations %+v", s.Ops)
		}
		if lag.Max < float64(behind.Milliseconds())/2 || s.Passed() {
			t.Errorf("passed %v with %+v; the follower shows everything %v late", s.Passed(), lag, behind)
		}
	})
	t.Run("a follower that shows another change", func(t *testing.T) {
		if _, err := play(t, &laggard{wrong: 1}); err == nil || !strings.Contains(err.Error(), "showed the change of index") {
			t.Errorf("%v", err)
		}
	})
	t.Run("one member", func(t *testing.T) {
		log := &lagLog{}
		if _, err := Run(t.Context(), Options{Scenario: "apply-lag", Targets: []string{(&laggard{lagLog: log}).start(t)}}); err == nil {
			t.Error("compared one member with itself")
		}
	})
}
