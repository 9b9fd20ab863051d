package kv

import (
	"fmt"
	"testing"

	"github.com/incumbent-dev/incumbent/core"
)

// BenchmarkTxn applies transactions of puts to a state of 100,000 keys, each behind a
// view, as the first of a batch is.
func BenchmarkTxn(b *testing.B) {
	for _, n := range []int{1, 16, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := core.New(Family{})
			for i := range 100 {
				var puts []core.Command
				for k := range 1000 {
					puts = append(puts, Command{Verb: Put, Key: key(fmt.Sprintf("%d/%d", i, k)), Value: make([]byte, 16)})
				}
				do(b, s, core.TxnCommand{Then: puts})
			}
			var puts []core.Command
			for i := range n {
				puts = append(puts, Command{Verb: Put, Key: key(fmt.Sprintf("%d/%d", i/1000, i%1000)), Value: make([]byte, 16)})
			}
			cmd := [][]byte{core.TxnCommand{Then: puts}.Encode(core.Meta{})}
			results := make([]core.Result, 1)
			b.ReportAllocs()
			for b.Loop() {
				s.View()
				s.Apply(cmd, results)
			}
			if results[0].Err != nil {
				b.Fatal(results[0].Err)
			}
		})
	}
}
