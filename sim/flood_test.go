package sim

import (
	"strconv"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
)

// floodOneIn is in how many runs there is a flood.
const floodOneIn = 10

// everything is what a flood may be of, the dearest and the cheapest alike.
var everything = []admit.Lane{admit.Claims, admit.Transactions, admit.Small, admit.Reads, admit.Watches, admit.Logins}

// floods are those that seeds play, in turn.
var floods = [...]Flood{
	{Times: 5, Of: everything, One: true, Leader: true},
	{Times: 10, Of: everything, Fault: FloodKills, One: true},
	{Times: 2, Of: everything, Fault: FloodPartitions},
	{Times: 2, Of: []admit.Lane{admit.Claims, admit.Claims, admit.Claims, admit.Extensions}, Fault: FloodSlows, One: true},
	{Times: 5, Of: []admit.Lane{admit.Logins}, Reconnect: true},
	{Times: 10, Of: []admit.Lane{admit.Small, admit.Transactions, admit.Releases}, Fault: FloodPauses, One: true},
	{Times: 5, Of: everything, Memory: true},
	{Times: 2, Of: []admit.Lane{admit.Claims, admit.Reads}, Fault: FloodKills},
}

// flooded is the configuration of a run with a flood.
func flooded(seed uint64, f Flood) Config {
	cfg := shapes[seed%uint64(len(shapes))]
	cfg.Seed, cfg.Duration, cfg.Agents, cfg.Leases, cfg.Hostile = seed, floodRun, 6, 3, false
	cfg.Writers, cfg.Lockers, cfg.Listers, cfg.Hosts, cfg.Pollers = 2, 2, 0, 1, 1
	cfg.Flood = &f
	return cfg
}

// One member is asked for five times what it can serve: what waits stays within its bounds,
// lanes refuse in their order, on it and on others, refusals say when to come back, what is
// late is not done, and soon afterwards all is as it was.
func TestG39_G40_G41_G42_G44_AFlood(t *testing.T) {
	notRaced(t)
	for _, f := range []Flood{floods[0], floods[6]} {
		r := run(t, flooded(0, f))
		if n := r.Floods; n.Refusals == 0 || n.Served == 0 || n.Late == 0 || n.Kept == 0 || n.Pressed == 0 || n.Beats == 0 || n.Reasons[admit.Order] == 0 || f.Memory && n.Reasons[admit.Memory] == 0 {
			t.Errorf("the run did not do what it is there for: %+v", n)
		}
	}
}

// The leader dies, and all clients come back at once: leases stay held.
func TestG43_AllComeBackAtOnce(t *testing.T) {
	notRaced(t)
	if r := run(t, flooded(4, floods[4])); r.Floods.Streams < herdNum {
		t.Errorf("%d clients that hold something have opened a stream again, want %d", r.Floods.Streams, herdNum)
	}
}

// The same seed gives the same flood, to the byte.
func TestSameFloodSameRun(t *testing.T) {
	notRaced(t)
	cfg := flooded(0, floods[1])
	if a, b := run(t, cfg), run(t, cfg); a.Trace != b.Trace || a.Floods != b.Floods {
		t.Errorf("%+v and %+v", a.Floods, b.Floods)
	}
}

// TestFloods plays the floods, INCUMBENT_SIM_SEEDS of them from INCUMBENT_SIM_FIRST on.
func TestFloods(t *testing.T) {
	notRaced(t)
	first := number(t, "INCUMBENT_SIM_FIRST", 0)
	for seed := range number(t, "INCUMBENT_SIM_SEEDS", 1) {
		seed += first
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := run(t, flooded(seed, floodOfSeed(seed)))
			t.Logf("%v of virtual time: %+v", r.Virtual, r.Floods)
		})
	}
}

// notRaced leaves a flood to `make sim-smoke`: a run has one goroutine, in which there is
// nothing for the race detector to find, and takes minutes with it.
func notRaced(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("played without the race detector")
	}
}

// floodOfSeed is the flood of a run.
func floodOfSeed(seed uint64) Flood { return floods[seed/uint64(len(shapes))%uint64(len(floods))] }
