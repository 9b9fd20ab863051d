package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// BenchmarkQuotas claims and releases leases through sessions of a thousand
// principals, and opens sessions, without quotas and with some for many of them.
func BenchmarkQuotas(b *testing.B) {
	many := enforced(1000, 1000, 1000)
	for i := range 500 {
		many.Principals[core.Leases].Set(fmt.Sprintf("agent:%d", i), 2000)
		many.Principals[core.Leases].Set(fmt.Sprintf("agent:%d*", i), 3000)
	}
	for _, c := range []struct {
		name  string
		terms *core.Terms
	}{{"off", &core.Terms{}}, {"on", enforced(1000, 1000, 1000)}, {"many", many}} {
		b.Run(c.name, func(b *testing.B) {
			s := New(ruled{c.terms})
			results := make([]core.Result, 1)
			var cmds [][2][]byte
			for i := range 1000 {
				who, id := fmt.Sprintf("agent:%d", i), sessionID(fmt.Sprintf("s%d", i))
				s.Apply([][]byte{by(who, core.OpenSessionCommand{ID: id, TTL: time.Minute})}, results)
				name := incumbent.Name{Namespace: "default", Model: "default", Lease: fmt.Sprintf("lease-%d", i)}
				cmds = append(cmds, [2][]byte{
					by(who, ClaimCommand{Name: name, Holder: "h", Session: id}),
					by(who, ReleaseCommand{Name: name, Holder: "h", Session: id}),
				})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for _, cmd := range cmds[i%len(cmds)] {
					s.Apply([][]byte{cmd}, results)
				}
			}
			if results[0].Err != nil {
				b.Fatal(results[0].Err)
			}
		})
	}
}
