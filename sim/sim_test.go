package sim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"
)

// number is a setting from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// shapes are the clusters that seeds play, in turn.
var shapes = [...]Config{
	{Voters: 3},
	{Voters: 1},
	{Voters: 3, Hostile: true},
	{Voters: 5},
	{Voters: 3, Learners: 1},
	{Voters: 1, Learners: 1},
	{Voters: 5, Learners: 2, Hostile: true},
}

// smallQuota is less than the keys of a run have together, most of the time.
const smallQuota = 3000

// restoreOneIn is in how many runs a backup is restored.
const restoreOneIn = 9

// config is that of an ordinary run.
func config(seed uint64) Config {
	cfg := shapes[seed%uint64(len(shapes))]
	cfg.Seed, cfg.Duration, cfg.Agents, cfg.Leases, cfg.Faults = seed, 2*time.Minute, 12, 4, 3*time.Second
	cfg.Writers, cfg.Lockers, cfg.Listers, cfg.Hosts, cfg.Pollers = 4, 4, 4, 3, 3
	if seed%2 == 1 {
		cfg.Quota, cfg.Listers = smallQuota, 0 // lists only grow
		cfg.Tablers, cfg.Monitors = 3, 2
	}
	if seed%floodOneIn == floodOneIn-1 && !raced {
		cfg = flooded(seed, floodOfSeed(seed/floodOneIn*uint64(len(shapes))))
		cfg.Only = os.Getenv("INCUMBENT_SIM_FAULT")
		return cfg
	}
	cfg.Restore = seed%restoreOneIn == restoreOneIn-1
	if raced {
		cfg.Duration = 30 * time.Second
	}
	cfg.Only = os.Getenv("INCUMBENT_SIM_FAULT")
	return cfg
}

// run performs a run and says how to replay it if it found something.
func run(t *testing.T, cfg Config) Result {
	t.Helper()
	// raft draws its election timeouts from crypto/rand, the node its ids.
	cryptotest.SetGlobalRandom(t, cfg.Seed)
	r := Run(cfg)
	for _, v := range r.Violations {
		t.Errorf("seed %d: %s", cfg.Seed, v)
	}
	if t.Failed() {
		t.Logf("replay with its trace: INCUMBENT_SIM_SEED=%d go test -count=1 -run TestReplay -v ./sim", cfg.Seed)
	}
	return r
}

// totals adds up what runs did.
type totals struct{ Result }

func (s *totals) add(r Result) {
	s.Virtual += r.Virtual
	s.Crashes += r.Crashes
	s.Snapshots += r.Snapshots
	s.Terms += r.Terms
	s.Grants += r.Grants
	s.Extensions += r.Extensions
	s.Expiries += r.Expiries
	s.HandOvers += r.HandOvers
	s.Reads += r.Reads
	s.Vouched += r.Vouched
	s.Watched += r.Watched
	s.CutOff += r.CutOff
	s.Unknown += r.Unknown
	s.Attached += r.Attached
	s.Revocations += r.Revocations
	s.RolledBack += r.RolledBack
	s.Writes += r.Writes
	s.Conflicts += r.Conflicts
	s.Idle += r.Idle
	s.Full += r.Full
	s.Gets += r.Gets
	s.Locks += r.Locks
	s.Transactions += r.Transactions
	s.Large += r.Large
	s.Delays += r.Delays
	s.Passes += r.Passes
	s.PassesLogged += r.PassesLogged
	s.Lapses += r.Lapses
	s.Bound += r.Bound
	s.Polls += r.Polls
	s.Woken += r.Woken
	s.Restored += r.Restored
	s.TableTxns += r.TableTxns
	s.TableRetries += r.TableRetries
	s.TableFound += r.TableFound
	s.TableTold += r.TableTold
	s.TableResumed += r.TableResumed
	for name, n := range r.Faults {
		s.Faults[name] += n
	}
}

func (s *totals) String() string {
	return fmt.Sprintf("%v of virtual time: terms %d, crashes %d, snapshots %d, grants %d, extensions %d, hand-overs %d, expiries %d, reads %d, frames vouched for %d, changes watched %d, watchers cut off %d, unknown outcomes %d, attachments %d, revocations %d, members put back and refused %d, writes of keys %d, conflicts %d, answers without the log %d, refusals of the quota %d, reads of keys %d, locks %d, lock delays %d, transactions %d, of them in parts %d, passes of checks %d, in the log %d, checks that lapsed %d, sessions that depend on a check %d, polls %d, of them woken %d, transactions on the database %d, sent again %d, found done %d, its changes monitored %d, monitors that resumed %d, backups restored %d, faults %v",
		s.Virtual, s.Terms, s.Crashes, s.Snapshots, s.Grants, s.Extensions, s.HandOvers, s.Expiries, s.Reads, s.Vouched, s.Watched, s.CutOff, s.Unknown, s.Attached, s.Revocations, s.RolledBack,
		s.Writes, s.Conflicts, s.Idle, s.Full, s.Gets, s.Locks, s.Delays, s.Transactions, s.Large, s.Passes, s.PassesLogged, s.Lapses, s.Bound, s.Polls, s.Woken, s.TableTxns, s.TableRetries, s.TableFound, s.TableTold, s.TableResumed, s.Restored, s.Faults)
}

// Clusters of one, three and five with everything that can go wrong: whatever
// the seed, nobody holds what another holds, nothing that was acknowledged is
// lost, and every member serves soon after all is well again. With the race detector the
// runs are short, and need not have had everything in them; nor need few seeds.
func TestSmoke(t *testing.T) {
	sum := totals{Result: Result{Faults: map[string]int{}}}
	// Seeds from INCUMBENT_SIM_FIRST on, INCUMBENT_SIM_SEEDS of them or one of
	// each shape.
	first := number(t, "INCUMBENT_SIM_FIRST", 0)
	played := 0
	for seed := range number(t, "INCUMBENT_SIM_SEEDS", uint64(len(shapes))) {
		seed += first
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			played++
			sum.add(run(t, config(seed)))
		})
	}
	t.Log(&sum)
	if raced || played < len(shapes) {
		return
	}
	if sum.Crashes == 0 || sum.Grants == 0 || sum.Extensions == 0 || sum.HandOvers == 0 || sum.Expiries == 0 || sum.Reads == 0 || sum.Watched == 0 ||
		sum.Attached == 0 || sum.Revocations == 0 || sum.Vouched == 0 ||
		sum.Writes == 0 || sum.Conflicts == 0 || sum.Idle == 0 || sum.Full == 0 || sum.Gets == 0 || sum.Locks == 0 || sum.Delays == 0 || sum.Transactions == 0 || sum.Large == 0 ||
		sum.Passes <= sum.PassesLogged || sum.PassesLogged == 0 || sum.Lapses == 0 || sum.Bound == 0 || sum.Woken == 0 ||
		sum.TableTxns == 0 || sum.TableRetries == 0 || sum.TableFound == 0 || sum.TableTold == 0 || sum.TableResumed == 0 {
		t.Error("the runs did not do what they are there for")
	}
}

// All members are lost, and another cluster begins with a backup: what the backup has is
// there, its indexes and tokens are above all that the lost cluster gave, nobody counts
// on what another holds, and none of the lost members can join.
func TestG03_G14_G34_ALostClusterIsRestored(t *testing.T) {
	for _, seed := range []uint64{restoreOneIn - 1, 2*restoreOneIn - 1} {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			if r := run(t, config(seed)); r.Restored != 1 {
				t.Errorf("%d backups were restored, want one", r.Restored)
			}
		})
	}
}

// Without faults nothing is refused for long: one leader, no expiry of what is
// kept, no unknown outcome.
func TestWithoutFaults(t *testing.T) {
	played := shapes[:]
	if raced {
		played = shapes[:2]
	}
	for _, shape := range played {
		cfg := shape
		cfg.Seed, cfg.Duration, cfg.Agents, cfg.Leases, cfg.Hostile = 1, time.Minute, 12, 4, false
		cfg.Writers, cfg.Lockers, cfg.Listers, cfg.Hosts, cfg.Pollers = 4, 4, 4, 3, 3
		cfg.Tablers, cfg.Monitors = 2, 2
		t.Run(fmt.Sprintf("%d+%d", cfg.Voters, cfg.Learners), func(t *testing.T) {
			if r := run(t, cfg); r.Terms != 1 || r.Grants < 20 {
				t.Errorf("%d terms and %d grants, want one leader and many grants", r.Terms, r.Grants)
			}
		})
	}
}

// The same seed gives the same run, to the byte.
func TestSameSeedSameRun(t *testing.T) {
	seeds := uint64(len(shapes))
	if raced {
		seeds = 2
	}
	for seed := range seeds {
		cfg := config(seed)
		cfg.Duration = 20 * time.Second
		var first, second strings.Builder
		cfg.Trace = &first
		a := run(t, cfg)
		cfg.Trace = &second
		if b := run(t, cfg); a.Trace != b.Trace {
			t.Errorf("seed %d: %s", seed, parting(first.String(), second.String()))
		}
	}
}

// parting says where two traces begin to differ.
func parting(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("the runs part at line %d:\n%s\n%s", i, x[i], y[i])
		}
	}
	return fmt.Sprintf("one run is longer: %d and %d lines", len(x), len(y))
}

// TestReplay runs one seed with its trace.
func TestReplay(t *testing.T) {
	var trace strings.Builder
	cfg := config(number(t, "INCUMBENT_SIM_SEED", 1))
	cfg.Trace = &trace
	run(t, cfg)
	if t.Failed() {
		t.Log(trace.String())
	}
}
