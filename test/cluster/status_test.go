package cluster

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// heardWithin is how old what a verdict is based on may be.
const heardWithin = time.Second

// Who is asked a second after a follower or the leader was cut off does not call the
// cluster healthy, on neither side of the cut, and says who is missing.
func TestStatusSeesACutWithinTwoSeconds(t *testing.T) {
	s := startSpread(t, 3)
	ask := map[*member]*client.Client{}
	for _, m := range s.Members {
		ask[m] = s.clientOf(m)
	}
	status := func(m *member) *apiv1.StatusResponse {
		t.Helper()
		res, err := ask[m].Cluster().Status(t.Context(), connect.NewRequest(&apiv1.StatusRequest{}))
		if err != nil {
			t.Fatal(client.AsError(err))
		}
		return res.Msg
	}
	healthy := func(when string) {
		t.Helper()
		for _, m := range s.Members {
			eventually(t, patience, m.Name+" is healthy "+when, func() bool { return strings.HasPrefix(status(m).Verdict, "healthy: ") })
		}
	}
	for _, who := range []string{"a follower", "the leader"} {
		healthy("before")
		cut := s.leader()
		if who == "a follower" {
			cut = s.others(cut)[0]
		}
		others := s.others(cut)
		for _, o := range others {
			s.cut(cut, o)
			s.cut(o, cut)
		}
		began := time.Now()
		time.Sleep(heardWithin) // the fault itself: what was heard before it must not count any more
		said := make([]*apiv1.StatusResponse, len(s.Members))
		var all sync.WaitGroup
		for i, m := range s.Members {
			all.Go(func() {
				res, err := ask[m].Cluster().Status(t.Context(), connect.NewRequest(&apiv1.StatusRequest{}))
				if err != nil {
					t.Error(client.AsError(err))
					return
				}
				said[i] = res.Msg
			})
		}
		all.Wait()
		for i, m := range s.Members {
			st := said[i]
			t.Logf("%s was cut off: %s says after %v: %s", who, m.Name, time.Since(began).Round(time.Millisecond), st.Verdict)
			if strings.HasPrefix(st.Verdict, "healthy") {
				t.Errorf("%s was cut off, and %s says %q", who, m.Name, st.Verdict)
			}
			if m == cut && !strings.Contains(st.Verdict, "1 of 3 voters reachable and 2 needed") {
				t.Errorf("%s was cut off, and says %q", who, st.Verdict)
			}
			for _, is := range st.Members {
				if is.Name != m.Name && is.Connected == (m == cut || is.Name == cut.Name) {
					t.Errorf("%s was cut off, and %s says of %s: connected %v, heard %d ms ago", who, m.Name, is.Name, is.Connected, is.HeardMsAgo)
				}
			}
		}
		for _, o := range others {
			eventually(t, patience, o.Name+" goes on without it", func() bool {
				return strings.HasPrefix(status(o).Verdict, "serving with care: 2 of 3 members reachable")
			})
		}
		s.heal()
		healthy("again")
	}
}

// The timeline can be asked of the whole cluster: each row names its member, all are
// in order, and who did not answer is named.
func TestEventsOfAllMembers(t *testing.T) {
	c := start(t)
	all := func() (members []string, said string) {
		t.Helper()
		out, said, code := cli(t, "events", "--all-members", "-o", "json", "--server", c.Servers, "--ca", c.CA, "--cert", c.Cert, "--key", c.Key)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, said)
		}
		last := int64(0)
		for line := range strings.Lines(out) {
			var e struct {
				Member string `json:"member"`
				At     int64  `json:"at_unix_ms,string"`
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if e.At < last {
				t.Errorf("out of order: %s", line)
			}
			last = e.At
			if !slices.Contains(members, e.Member) {
				members = append(members, e.Member)
			}
		}
		slices.Sort(members)
		return members, said
	}
	if got, said := all(); !slices.Equal(got, []string{"n1", "n2", "n3"}) || said != "" {
		t.Errorf("events of %v, %q", got, said)
	}
	gone := c.others(c.leader())[0]
	told := followEvents(t, c)
	from := func(m *member) int { return strings.Count(told(), `"member":"`+m.Name+`"`) }
	eventually(t, patience, "all are followed", func() bool { return from(gone) > 0 && from(c.leader()) > 0 })
	gone.kill(t)
	got, said := all()
	if len(got) != 2 || slices.Contains(got, gone.Name) || !strings.Contains(said, "member "+gone.Name+" at "+gone.URL+" did not answer") {
		t.Errorf("%s is gone: events of %v, %q", gone.Name, got, said)
	}
	before := from(gone)
	gone.again(t, nil)
	eventually(t, patience, gone.Name+" is followed again", func() bool { return from(gone) > before })
	lines := slices.Sorted(strings.Lines(told()))
	if once := slices.Compact(slices.Clone(lines)); len(once) != len(lines) {
		t.Errorf("%d events were told more than once:\n%s", len(lines)-len(once), told())
	}
}

// followEvents follows the timelines of all members, and returns what was printed so far.
func followEvents(t *testing.T, c *trio) func() string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "events"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary(t), "events", "-f", "--all-members", "-o", "jsonl", "--server", c.Servers, "--ca", c.CA, "--cert", c.Cert, "--key", c.Key)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("following ended with %v", err)
		}
		_ = out.Close() // it was read
	})
	return func() string {
		b, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}
