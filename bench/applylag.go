package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// How long a follower takes to apply what its leader has applied, as a client can
// see it: one lease is claimed and released at the leader, over and over, and a
// watch at every member tells when that member has applied it. All clocks are this
// process's. What a watch itself takes is in all of them alike, so that the
// difference between two members is that of their applies.

// lagPatience is how long a member may take to show a change before the run fails.
const lagPatience = 10 * time.Second

// Operations of the play.
const (
	lagOp    = "follower after leader" // between the events of one change
	shownOp  = "follower after answer" // from the leader's answer to a follower's event
	changeOp = "change"                // at the leader
)

// validateLag is for the play that compares members.
func (c *Closed) validateLag() error {
	switch {
	case c == nil:
		return fmt.Errorf("play apply-lag needs closed")
	case !perSecond(c.Rate) || c.Duration <= 0:
		return fmt.Errorf("closed.rate must be %v to %d, duration positive", minPerSecond, maxPerSecond)
	}
	return nil
}

// sighting is a change as a member has shown it.
type sighting struct {
	member int
	index  uint64 // 0: what was there when the watch began
	at     time.Duration
}

// lagged is one such run.
type lagged struct {
	*run
	name   *apiv1.LeaseName
	leader int
	token  uint64 // of the holding; 0: free
	seen   chan sighting
	broken chan error
}

func playApplyLag(ctx context.Context, r *run) error {
	if len(r.clients) < 2 {
		return incumbent.Errorf(incumbent.Invalid, "apply-lag compares members").WithHint("give --members local:3, or several --target")
	}
	l := &lagged{
		run: r, name: &apiv1.LeaseName{Name: "lag/" + incumbent.NewSessionID().String()[:8]},
		seen: make(chan sighting, len(r.clients)), broken: make(chan error, len(r.clients)),
	}
	r.setPhase("looking for the leader")
	if err := l.findLeader(ctx); err != nil {
		return err
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	for i := range r.clients {
		go l.watch(watched, i)
	}
	if _, err := l.sightings(ctx, 0); err != nil {
		return err
	}
	r.setPhase("warm-up")
	if err := l.changes(ctx, time.Duration(r.sc.Closed.Warmup)); err != nil {
		return err
	}
	r.rec.reset()
	r.setPhase("measuring")
	return l.changes(ctx, time.Duration(r.sc.Closed.Duration))
}

// findLeader waits until a member says who leads.
func (l *lagged) findLeader(ctx context.Context) error {
	for {
		st, err := statusOf(ctx, l.clients[0])
		if err != nil {
			return err
		}
		if l.leader = l.leaderIn(st); l.leader >= 0 {
			return nil
		}
		if err := sleep(ctx, localEvery); err != nil {
			return err
		}
	}
}

// leaderIn is who leads as a member sees it, or -1.
func (l *lagged) leaderIn(st *apiv1.StatusResponse) int {
	for _, m := range st.Members {
		if m.Role == "leader" {
			return slices.IndexFunc(l.urls, func(u string) bool {
				return strings.TrimSuffix(u, "/") == strings.TrimSuffix(m.Address, "/")
			})
		}
	}
	return -1
}

func (l *lagged) watch(ctx context.Context, i int) {
	opts := client.WatchOptions{Name: incumbent.Name{
		Namespace: incumbent.DefaultNamespace, Model: incumbent.DefaultModel, Lease: l.name.Name,
	}}
	began := false
	for m, err := range l.clients[i].Watch(ctx, opts) {
		at := l.now()
		switch {
		case err != nil:
			l.broken <- err
			return
		case !began:
			began = true
			l.seen <- sighting{member: i}
		}
		for _, e := range m.Events {
			if !m.Snapshot {
				l.seen <- sighting{member: i, index: e.Index, at: at}
			}
		}
	}
}

// changes makes the changes of a span, each at its time and none before all
// members have shown the one before.
func (l *lagged) changes(ctx context.Context, span time.Duration) error {
	began := l.now()
	for n := 0; ; n++ {
		due := began + time.Duration(float64(n)/l.sc.Closed.Rate*float64(time.Second))
		if due-began >= span {
			return nil
		}
		if err := sleep(ctx, due-l.now()); err != nil {
			return err
		}
		if err := l.one(ctx); err != nil {
			return err
		}
	}
}

// one makes a change and waits until every member has shown it.
func (l *lagged) one(ctx context.Context) error {
	sent := l.now()
	index, err := l.change(ctx)
	if err != nil {
		return err
	}
	answered := l.now()
	at, err := l.sightings(ctx, index)
	if err != nil {
		return err
	}
	l.rec.op(changeOp).done(answered, answered-sent, 1)
	for i, t := range at {
		if i != l.leader {
			l.rec.op(lagOp).done(t, t-at[l.leader], 1) // before it is counted as at once
			l.rec.op(shownOp).done(t, t-answered, 1)
		}
	}
	return nil
}

// change claims the lease or releases it, at the leader.
func (l *lagged) change(ctx context.Context) (index uint64, err error) {
	leases := l.clients[l.leader].Leases()
	if l.token != 0 {
		token := l.token
		l.token = 0
		res, err := leases.Release(ctx, connect.NewRequest(&apiv1.ReleaseRequest{Name: l.name, Holder: "lag", Token: token}))
		if err != nil {
			return 0, client.AsError(err)
		}
		return res.Msg.Index, nil
	}
	res, err := leases.Claim(ctx, connect.NewRequest(&apiv1.ClaimRequest{Name: l.name, Holder: "lag", TtlMs: uint32(closedTTL.Milliseconds())}))
	if err != nil {
		return 0, client.AsError(err)
	}
	l.token = res.Msg.Lease.GetToken()
	return res.Msg.Index, nil
}

// sightings waits until every member has shown the change of an index.
func (l *lagged) sightings(ctx context.Context, index uint64) ([]time.Duration, error) {
	at := make([]time.Duration, len(l.clients))
	late := time.NewTimer(lagPatience)
	defer late.Stop()
	for missing := len(at); missing > 0; missing-- {
		select {
		case s := <-l.seen:
			if s.index != index {
				return nil, incumbent.Errorf(incumbent.Corrupt, "member %d showed the change of index %d where %d was made", s.member, s.index, index)
			}
			at[s.member] = s.at
		case err := <-l.broken:
			return nil, err
		case <-late.C:
			return nil, incumbent.Errorf(incumbent.DeadlineExceeded, "%d members have not shown the change of index %d in %v", missing, index, lagPatience)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return at, nil
}
