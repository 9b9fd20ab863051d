package bench

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

// nap is how long the witness sleeps at a time.
const nap = 10 * time.Millisecond

// witness tells what the machine did to a run apart from what the servers did. It
// naps, and notes by how much it overslept: where the processors were not all busy,
// the whole machine stood still for so long, as it does when others share it.
type witness struct {
	naps  *opRecord
	last  cpuTimes // at the last sample
	first cpuTimes
}

func newWitness() *witness {
	now := readCPUTimes()
	return &witness{naps: NewRecorder().op("nap"), first: now, last: now}
}

func (w *witness) watch(ctx context.Context, now func() time.Duration) {
	for {
		began := now()
		if sleep(ctx, nap) != nil {
			return
		}
		woke := now()
		w.naps.done(woke, woke-began-nap, 1)
	}
}

// sample is what a second was like: by how many milliseconds a nap was late at
// most, and which share of the processors' time the hypervisor gave to others.
func (w *witness) sample() (lateMillis, stolen float64) {
	now := readCPUTimes()
	stolen = now.stolenSince(w.last)
	w.last = now
	return w.naps.sample().Max, stolen
}

// testify notes what the whole run was like.
func (w *witness) testify(r *run) {
	late := w.naps.summary()
	r.fact("machine_late_p99_ms", late.P99)
	r.fact("machine_late_max_ms", late.Max)
	r.fact("machine_stolen_share", readCPUTimes().stolenSince(w.first))
}

// cpuTimes is what all processors did since they were started; zero where the
// system has no /proc/stat.
type cpuTimes struct{ all, stolen uint64 } // in units of 10 ms

func readCPUTimes() cpuTimes {
	stat, _ := os.ReadFile("/proc/stat")
	return parseCPUTimes(string(stat))
}

// cpuFields are user, nice, system, idle, iowait, irq, softirq and steal; what
// follows is in user already.
const cpuFields = 8

func parseCPUTimes(stat string) (t cpuTimes) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) <= cpuFields || fields[0] != "cpu" {
		return cpuTimes{}
	}
	for _, f := range fields[1 : 1+cpuFields] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return cpuTimes{}
		}
		t.all += n
		t.stolen = n // the last one stays
	}
	return t
}

// stolenSince is the share of the time since then that was stolen, 0 to 1.
func (t cpuTimes) stolenSince(then cpuTimes) float64 {
	if t.all <= then.all || t.stolen <= then.stolen {
		return 0
	}
	return float64(t.stolen-then.stolen) / float64(t.all-then.all)
}
