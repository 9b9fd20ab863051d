package outside

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// What one Extend may cost that names the same session over and over: to look through
// the session's leases each time takes several times as much.
const (
	often         = 1_000    // as many as one Extend may have
	oftenLeases   = 9_900    // of the session
	oftenBytes    = 64 << 20 // that a member allocates meanwhile
	allocated     = "go_memstats_alloc_bytes_total"
	oftenPatience = 10 * time.Minute
)

// ExtendOften names one session with many leases in every extension of one Extend: each
// is answered alike, and no member does the work more than once. It is counted in the
// bytes that members allocate, for those do not depend on what else the machine does.
func ExtendOften(t *testing.T, c *client.Client, members ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), oftenPatience)
	defer cancel()
	session, _, err := Hoard(ctx, c, oftenLeases)
	if err != nil {
		t.Fatal(err)
	}
	r := &apiv1.ExtendRequest{Extensions: []*apiv1.Extension{{Session: session}}}
	extend := func() []*apiv1.ExtensionResult {
		t.Helper()
		res, err := c.Leases().Extend(ctx, connect.NewRequest(r))
		if err != nil {
			t.Fatal(client.AsError(err))
		}
		return res.Msg.Results
	}
	extend()
	for range often - 1 {
		r.Extensions = append(r.Extensions, r.Extensions[0])
	}
	before := make([]float64, len(members))
	for i, m := range members {
		before[i] = allocations(ctx, t, m)
	}
	results := extend()
	for i, m := range members {
		if n := allocations(ctx, t, m) - before[i]; n > oftenBytes {
			t.Errorf("%s allocated %.0f bytes for an Extend that names one session %d times", m, n, often)
		}
	}
	if len(results) != often {
		t.Fatalf("%d results of %d extensions", len(results), often)
	}
	for _, x := range results {
		if x.Error != nil || x.HeldMs != results[0].HeldMs || x.HeldMs == 0 {
			t.Fatalf("one was answered %v, and another %v", results[0], x)
		}
	}
}

// allocations is how many bytes a member has allocated since its start.
func allocations(ctx context.Context, t *testing.T, member string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, member+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), allocated+" "); ok {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no metric %s", member, allocated)
	return 0
}
