package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"
)

// seeds is how many runs TestSmoke makes: INCUMBENT_SIM_SEEDS, or few.
func seeds(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("INCUMBENT_SIM_SEEDS")
	if text == "" {
		return 5
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("INCUMBENT_SIM_SEEDS: %v", err)
	}
	return n
}

// config is that of an ordinary run.
func config(seed uint64) Config {
	return Config{
		Seed: seed, Duration: 2 * time.Minute, Agents: 12, Leases: 4,
		Crash: 8 * time.Second, Stall: 15 * time.Second, Silence: 5 * time.Second,
	}
}

func run(t *testing.T, cfg Config) Result {
	t.Helper()
	// raft draws its election timeouts from crypto/rand.
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

// One member with crashes, stalls and silent agents: whatever the seed, nobody
// holds what another holds, and nothing that was acknowledged is lost.
func TestSmoke(t *testing.T) {
	var sum Result
	for seed := range seeds(t) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := run(t, config(seed))
			sum.Crashes += r.Crashes
			sum.Stalls += r.Stalls
			sum.Grants += r.Grants
			sum.Extensions += r.Extensions
			sum.Expiries += r.Expiries
			sum.HandOvers += r.HandOvers
			sum.Snapshots += r.Snapshots
		})
	}
	t.Logf("crashes %d, stalls %d, snapshots %d, grants %d, extensions %d, hand-overs %d, expiries %d",
		sum.Crashes, sum.Stalls, sum.Snapshots, sum.Grants, sum.Extensions, sum.HandOvers, sum.Expiries)
	if sum.Crashes == 0 || sum.Stalls == 0 || sum.Grants == 0 || sum.Extensions == 0 || sum.HandOvers == 0 || sum.Expiries == 0 {
		t.Error("the runs did not do what they are there for")
	}
}

// The same seed gives the same run, to the byte.
func TestSameSeedSameRun(t *testing.T) {
	cfg := config(7)
	cfg.Duration = 30 * time.Second
	var first, second strings.Builder
	cfg.Trace = &first
	a := run(t, cfg)
	cfg.Trace = &second
	b := run(t, cfg)
	if a.Trace == b.Trace {
		return
	}
	x, y := strings.Split(first.String(), "\n"), strings.Split(second.String(), "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			t.Fatalf("runs part at line %d:\n%s\n%s", i, x[i], y[i])
		}
	}
	t.Fatalf("one run is longer: %d and %d lines", len(x), len(y))
}

// TestReplay runs one seed with its trace.
func TestReplay(t *testing.T) {
	text := os.Getenv("INCUMBENT_SIM_SEED")
	if text == "" {
		text = "1"
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var trace strings.Builder
	cfg := config(seed)
	cfg.Trace = &trace
	run(t, cfg)
	if t.Failed() {
		t.Log(trace.String())
	}
}
