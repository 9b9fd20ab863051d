package engine

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// BenchmarkLargeTransaction applies a transaction of 10,000 puts as a member does:
// state, view, leader's clock and hub. Machines that do other things make the time of
// a clock mean little: see the CPU time.
func BenchmarkLargeTransaction(b *testing.B) {
	e, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.CloseWatches()
	var puts []core.Command
	for i := range core.MaxTxnSteps {
		puts = append(puts, kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "bench", Name: fmt.Sprintf("key-%05d", i)}, Value: make([]byte, 16)})
	}
	cmds, results := [][]byte{core.TxnCommand{Then: puts}.Encode(core.Meta{})}, make([]any, 1)
	b.ReportAllocs()
	began := cpuTime()
	for b.Loop() {
		e.Apply(cmds, results)
	}
	b.ReportMetric(float64((cpuTime()-began).Microseconds())/float64(b.N), "cpu-µs/op")
	if r := results[0].(*core.Result); r.Err != nil {
		b.Fatal(r.Err)
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
