package ovsdb

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// The load tool plays OVN's original test, small, with the real northd between: against
// us, and against the server that OVN comes with.
func TestOriginalTest(t *testing.T) {
	need(t, "ovn-northd", "ovsdb-server", "ovsdb-tool")
	for name, peer := range map[string][]string{"incumbent": nil, "ovsdb-server": {"--peer", "ovsdb"}} {
		t.Run(name, func(t *testing.T) {
			s := &server{t: t, dir: t.TempDir()}
			results := filepath.Join(s.dir, "results")
			s.do(outside.Binary(t), append([]string{
				"bench", "run", "ovn-ports", "--members", "local:3", "--dir", results,
				"--set", "scale=original", "--set", "closed.workers=10", "--set", "ports.count=100", "--set", "thresholds={violations: 0}", "--set", "closed.duration=25s",
			}, peer...)...)
			text, err := os.ReadFile(filepath.Join(results, "summary.json"))
			if err != nil {
				t.Fatal(err)
			}
			var said struct {
				Ops map[string]struct {
					Count  int
					Errors int
				}
				Facts map[string]float64
			}
			if err := json.Unmarshal(text, &said); err != nil {
				t.Fatal(err)
			}
			if up := said.Ops["up"]; up.Count != 100 || up.Errors != 0 || said.Facts["network_seconds"] <= 0 {
				t.Errorf("of 100 ports %d came up in %v s", up.Count, said.Facts["network_seconds"])
			}
		})
	}
}
