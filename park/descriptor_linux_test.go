package park

import (
	"os"
	"testing"
)

// TestOneDescriptorPerConnection counts them: with two each, 15,000
// connections no longer fit into 20,000 files.
func TestOneDescriptorPerConnection(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	for _, v := range []variant{{name: "tcp"}, {name: "tls", tls: true}} {
		t.Run(v.name, func(t *testing.T) {
			r := newRig(t, v, Config{}, func() Handler { return newEchoer() })
			r.dial()
			r.wantParked(1)
			before := count()
			const n = 50
			for range n {
				r.dial()
			}
			r.wantParked(n + 1)
			if got := count() - before; got != 2*n {
				t.Errorf("%d descriptors for both ends of %d connections", got, n)
			}
		})
	}
}
