package calls

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
)

var rewrite = flag.Bool("rewrite", false, "write the table of calls into docs/policies.md")

// page is the documentation, whose end is the table.
const page = "../docs/policies.md"

const tableHead = "| call | needs | judged | lane |\n|---|---|---|---|\n"

func TestThePageHasTheTable(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text, have, _ := strings.Cut(string(b), tableHead)
	want := tableOfCalls()
	if *rewrite {
		if err := os.WriteFile(page, []byte(text+tableHead+want), 0o644); err != nil { //nolint:gosec // documentation is for everybody
			t.Fatal(err)
		}
		return
	}
	if have != want {
		t.Errorf("the table of calls in %s is another one: run 'go test ./calls -rewrite'", page)
	}
}

func tableOfCalls() string {
	var b strings.Builder
	for c := range NumCalls {
		r := c.Row()
		var ways []string
		for _, w := range r.Ways {
			w = strings.TrimPrefix(strings.TrimPrefix(w, "/incumbent.v1."), "/grpc.")
			ways = append(ways, "`"+w+"`")
		}
		needs := "–"
		if r.Judged == First || r.Judged == Named {
			s, v := r.Action.Needs()
			if needs = fmt.Sprintf("%s on %s", v, s); v == 0 {
				needs = "operator"
			}
		}
		lane := "–"
		if r.Lane != NoLane {
			lane = r.Lane.String()
		}
		if r.Stale != admit.Logins && r.Stale != r.Lane {
			lane += ", stale " + r.Stale.String()
		}
		if r.Note != "" {
			lane += "; " + r.Note
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.Join(ways, ", "), needs, r.Judged, lane)
	}
	return b.String()
}
