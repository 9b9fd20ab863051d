package consul

import (
	"testing"

	"github.com/incumbent-dev/incumbent/core/catalog"
)

// What is selected is told in words that an operator reads, others for each selection.
func TestSelectionsAreTold(t *testing.T) {
	all := map[string]bool{}
	for _, tt := range []struct {
		of   string
		p    picks
		want string
	}{
		{"", picks{}, ``},
		{"web", picks{}, `"web"`},
		{"web passing", picks{}, `"web passing"`},
		{"web", picks{passing: true}, `"web" passing`},
		{"web", picks{tags: []string{"a", "b"}}, `"web" tag="a" tag="b"`},
		{"web", picks{tags: []string{`a" tag="b`}}, `"web" tag="a\" tag=\"b"`},
		{"web", picks{meta: []catalog.Pair{{Key: "zone", Value: "1"}}}, `"web" node-meta="zone:1"`},
		{"web", picks{filter: `Service.Port == 80`}, `"web" filter="Service.Port == 80"`},
	} {
		got := tt.p.key(tt.of)
		if got != tt.want || all[got] {
			t.Errorf("%s %+v: %s, want %s", tt.of, tt.p, got, tt.want)
		}
		all[got] = true
	}
}
