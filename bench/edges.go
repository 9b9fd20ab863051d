package bench

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// edgePatience is how long the agents of a learner that is gone may take to be elsewhere.
const edgePatience = time.Minute

// edges are the learners of a cluster, which agents connect to, and what these cost who
// leads.
type edges struct {
	leader   int   // of the run's members
	learners []int // of the same
	costs    []edgeCost
}

// edgeCost is what so many idle agents cost: processors that are busy.
type edgeCost struct {
	agents        int
	leader, edges float64
}

// settleAtEdges has the fleet's streams begin at learners.
func (f *fleet) settleAtEdges(ctx context.Context) error {
	e := &edges{leader: -1}
	for i, c := range f.clients {
		st, err := statusOf(ctx, c)
		if err != nil {
			return err
		}
		for _, m := range st.Members {
			switch {
			case !m.Self:
			case m.Learner:
				e.learners = append(e.learners, i)
			case m.Role == "leader":
				e.leader = i
			}
		}
	}
	if e.leader < 0 || len(e.learners) < 2 {
		return incumbent.Errorf(incumbent.Invalid, "edges need a leader and two learners, there are %d learners", len(e.learners)).
			WithHint("--members local:3+2")
	}
	f.edges = e
	return nil
}

// home is the member at which a stream begins.
func (f *fleet) home(stream int) int {
	if f.edges == nil {
		return stream % len(f.clients)
	}
	return f.edges.learners[stream%len(f.edges.learners)]
}

// note notes what idle agents cost from one reading of what the servers use to another.
func (e *edges) note(r *run, agents int, from, to []processStat, took time.Duration) {
	if e == nil {
		return
	}
	busy := func(i int) float64 { return (to[i].CPU - from[i].CPU).Seconds() / took.Seconds() }
	cost := edgeCost{agents: agents, leader: busy(e.leader)}
	for _, i := range e.learners {
		cost.edges += busy(i)
	}
	r.fact(fmt.Sprintf("leader_cores_%d", agents), cost.leader)
	r.fact(fmt.Sprintf("edges_cores_%d", agents), cost.edges)
	e.costs = append(e.costs, cost)
	first := e.costs[0]
	if more := float64(agents - first.agents); more > 0 {
		r.fact("leader_us_per_agent_second", (cost.leader-first.leader)/more*1e6)
		r.fact("edges_us_per_agent_second", (cost.edges-first.edges)/more*1e6)
	}
}

// loseAnEdge kills a learner. Its agents are elsewhere soon after, and nobody's session
// ends: it stays long enough for those to be over that would be.
func (f *fleet) loseAnEdge(ctx context.Context) error {
	if f.edges == nil {
		return nil
	}
	servers, ok := f.cluster.(Members)
	if !ok {
		return incumbent.Errorf(incumbent.Invalid, "a learner is killed: that needs a cluster that this run starts")
	}
	gone := f.edges.learners[0]
	f.setPhase("a learner is gone")
	began := f.now()
	f.fact("moved_agents", float64(f.attachedAt(gone)))
	if err := servers.Kill(gone, syscall.SIGKILL); err != nil {
		return err
	}
	for left := 1; left > 0; {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
		left = f.agentsWithout(gone)
		if f.now()-began > edgePatience {
			f.check.Violate("%d agents are not elsewhere %v after their learner was killed", left, edgePatience)
			break
		}
	}
	f.fact("elsewhere_seconds", (f.now() - began).Seconds())
	return f.hold(ctx, 2*f.ttl)
}

// attachedAt returns how many agents have their stream at a member.
func (f *fleet) attachedAt(member int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.links {
		if l.member == member && l.stream != nil {
			n += len(l.agents)
		}
	}
	return n
}

// agentsWithout returns how many agents are at a member that is gone, at none, or not
// attached to the stream they have now: one whose attachment was refused asks again later.
func (f *fleet) agentsWithout(gone int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.links {
		if l.stream == nil || l.member == gone {
			n += len(l.agents)
			continue
		}
		for _, a := range l.agents {
			if a.stream != l.opened {
				n++
			}
		}
	}
	return n
}
