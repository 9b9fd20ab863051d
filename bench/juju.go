package bench

import (
	"context"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// doorJuju is the door for Juju's agents, as scenarios and servers name it.
const doorJuju = "juju"

// processConns is how many connections one process opens at most: it may have 20,000
// files, and some are being dialled.
const processConns = 18_000

// crew is the units of Juju's that a run has, in this process or in others.
type crew interface {
	grow(ctx context.Context, leases int, rate float64) error
	hold(ctx context.Context, d time.Duration) error
	flush()
	strike()
	count() (tally, error)
	close()
}

// playJuju plays a ladder over the door for Juju's agents: each stage ramps up and
// is held, and the fault, if there is one, is played on each, or on the last if it
// leaves a member down or is a flood.
func playJuju(ctx context.Context, r *run) error {
	base := r.rss()
	hosts, err := r.jujuHosts(ctx)
	if err != nil {
		return err
	}
	c, err := r.newCrew(ctx, hosts)
	if err != nil {
		return err
	}
	defer c.close()
	r.setAgents(func() (int, int, int) {
		t, _ := c.count()
		return t.Leading, t.Blocked, t.Open
	})
	script := r.sc.script()
	for i, stage := range r.sc.Stages {
		if err := r.climb(ctx, c, stage, base); err != nil {
			return err
		}
		if len(script) == 0 || i < len(r.sc.Stages)-1 && onceOnly(script) {
			r.step(stage.Leases, "")
			continue
		}
		if err := r.strikeCrew(ctx, c, stage, script); err != nil {
			return err
		}
	}
	if !leavesDown(script) {
		if err := r.awaitMembers(ctx, membersTimeout); err != nil {
			return err
		}
	}
	t, err := c.count()
	r.jujuFacts(t)
	return err
}

// strikeCrew plays the fault on a stage, and waits until all units lead or are
// blocked again.
func (r *run) strikeCrew(ctx context.Context, c crew, stage Stage, script []Action) error {
	before := r.faultFacts()
	o := &ordeal{run: r, settle: time.Duration(r.sc.Settle), victims: &struckCrew{run: r, crew: c, leases: stage.Leases}}
	if err := o.playFaults(ctx, script); err != nil {
		return err
	}
	now := r.faultFacts()
	for name := range now {
		r.fact(name, now[name]+before[name])
	}
	return c.grow(ctx, stage.Leases, stage.Ramp)
}

// faultFacts are the counts that each fault notes: a ladder's are the sums of its
// stages'.
func (r *run) faultFacts() map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]float64{}
	for _, name := range []string{"elections", "leadership_moves", "held_before_the_fault", "not_recovered", "replaced_in_the_fault"} {
		if v, ok := r.facts[name]; ok {
			out[name] = v
		}
	}
	return out
}

// climb ramps up to a stage and holds it.
func (r *run) climb(ctx context.Context, c crew, stage Stage, base uint64) error {
	r.setPhase("ramp to %d leases", stage.Leases)
	began := r.now()
	before, _ := c.count()
	if err := c.grow(ctx, stage.Leases, stage.Ramp); err != nil {
		return err
	}
	now, _ := c.count()
	took := (r.now() - began).Seconds()
	r.fact("connect_seconds", took)
	r.fact("connects_per_second", float64(now.Open-before.Open)/took)
	r.setPhase("%d leases", stage.Leases)
	if err := c.hold(ctx, time.Duration(stage.Hold)); err != nil {
		return err
	}
	r.fact("servers_rss_bytes", float64(r.perConnection(base, now.Open)))
	return nil
}

// onceOnly reports whether a fault is played on the last stage alone.
func onceOnly(script []Action) bool {
	return leavesDown(script) || slices.ContainsFunc(script, func(a Action) bool { return a.Do == "flood" })
}

// leavesDown reports whether a fault ends members that do not come back.
func leavesDown(script []Action) bool {
	for _, a := range script {
		if a.Do == "kill" {
			return true
		}
	}
	return false
}

// jujuFacts notes what the units came to, the slowest step with no fault, ramps
// included, and the most memory that the servers had together.
func (r *run) jujuFacts(t tally) {
	want := r.sc.Stages[len(r.sc.Stages)-1].Leases
	for name, n := range map[string]int{
		"holding_at_end": t.Leading, "blocked_at_end": t.Blocked, "connections_at_end": t.Open, "holders_ended": t.Ended,
		"connections_lost": t.Closed, "hand_overs": t.Moved, "wakes": t.Wakes, "agents": want * max(1, r.sc.Candidates),
	} {
		r.fact(name, float64(n))
	}
	r.notePeak()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range []string{"claim", "extend"} {
		worst := 0.0
		for _, s := range r.steps {
			if s.Phase == "" || s.Phase == quietPhase {
				worst = max(worst, s.Ops[op].P99)
			}
		}
		r.facts[op+"_p99_worst_step_ms"] = worst
	}
}

// struckCrew is a crew under a fault.
type struckCrew struct {
	*run
	crew
	leases int
}

func (s *struckCrew) size() int { return s.leases }

// judge says how the leaders fared. One whose member went comes back elsewhere and
// claims: it leads on if it is in time.
func (s *struckCrew) judge() error {
	t, err := s.count()
	for name, n := range map[string]int{"held_before_the_fault": t.Struck, "not_recovered": t.Waiting, "replaced_in_the_fault": t.Replaced} {
		s.fact(name, float64(n))
	}
	if t.Waiting > 0 {
		s.check.Violate("%d leaders have had no good extension since the fault", t.Waiting)
	}
	return err
}

// jujuHosts asks each server where its door for Juju's agents is.
func (r *run) jujuHosts(ctx context.Context) ([]string, error) {
	var hosts []string
	for i, c := range r.clients {
		address, err := doorAddress(ctx, c, r.urls[i], doorJuju)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, address)
	}
	return hosts, nil
}

// doorAddress asks a server where one of its doors is.
func doorAddress(ctx context.Context, c *client.Client, server, door string) (string, error) {
	st, err := statusOf(ctx, c)
	if err != nil {
		return "", err
	}
	for _, d := range st.Doors {
		if d.Name == door {
			return reachable(d.Address, server)
		}
	}
	return "", incumbent.Errorf(incumbent.Invalid, "%s has no door for %s", server, door).WithHint("start it with --" + door + "-listen")
}

// reachable is where to dial an address that a server listens on: where that names
// no host, the host of the server's URL.
func reachable(address, server string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	u, uerr := url.Parse(server)
	if err != nil || uerr != nil {
		return "", incumbent.Errorf(incumbent.Invalid, "%s names a door as %q", server, address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = u.Hostname()
	}
	return net.JoinHostPort(host, port), nil
}

// newCrew starts the units: in this process, or, where it may not open so many
// connections, in several that it starts.
func (r *run) newCrew(ctx context.Context, hosts []string) (crew, error) {
	// A model of the run's own: its applications are nobody else's.
	login := jujuLogin{Model: incumbent.NewSessionID().String(), Agent: r.opts.JujuAgent, Password: r.opts.JujuPassword}
	stage := r.sc.Stages[len(r.sc.Stages)-1]
	units := stage.Leases * max(1, r.sc.Candidates)
	n := max(r.sc.Workers, (units+processConns-1)/processConns)
	if n == 1 {
		return newJujuFleet(ctx, r, login, hosts, part{Of: 1})
	}
	return newTeam(ctx, r, login, hosts, n)
}
