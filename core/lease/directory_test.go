package lease

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent/core"
)

// Names that have the same number are found all the same, whichever of them comes
// and goes.
func TestNamesThatMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		s.t.directory.mask = 1
		s.t.limits.free = 0
		held := map[string]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"claim or release": func(t *rapid.T) {
				name := fmt.Sprintf("l%d", rapid.IntRange(0, 9).Draw(t, "lease"))
				var cmd core.Command = ClaimCommand{Name: parseName(name), Holder: "h", TTL: time.Minute}
				if held[name] {
					cmd = ReleaseCommand{Name: parseName(name), Holder: "h"}
				}
				if r := s.apply(cmd.Encode(core.Meta{})); r.Err != nil {
					t.Fatal(r.Err)
				}
				held[name] = !held[name]
			},
			"": func(t *rapid.T) {
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
				for name, is := range held {
					if n := parseName(name); (s.t.find([]byte(n.Namespace), []byte(n.Model), []byte(n.Lease)) != nil) != is {
						t.Fatalf("%s: held %v", name, is)
					}
				}
			},
		})
	})
}
