package node

import (
	"log/slog"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/cockroachdb/datadriven"
)

var discard = slog.New(slog.DiscardHandler)

// TestReplica runs the transcripts in testdata/replica. They are written to be
// read: each is one short story of the protocol.
func TestReplica(t *testing.T) {
	datadriven.Walk(t, "testdata/replica", func(t *testing.T, path string) {
		cryptotest.SetGlobalRandom(t, 1) // raft draws election timeouts from it; each story from the start
		var c *cluster
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "start" {
				n := 1
				d.MaybeScanArgs(t, "members", &n)
				c = newCluster(n)
			} else {
				perform(t, c, d)
			}
			out := c.log.String()
			c.log.Reset()
			if out == "" {
				return "ok"
			}
			return out
		})
	})
}

// perform runs one command of a transcript. The member is 1 unless the command
// says on=N.
func perform(t *testing.T, c *cluster, d *datadriven.TestData) {
	id, times := uint64(1), 1
	d.MaybeScanArgs(t, "on", &id)
	d.MaybeScanArgs(t, "times", &times)
	m := c.members[id]
	switch d.Cmd {
	case "propose":
		for _, cmd := range d.CmdArgs {
			if len(cmd.Vals) == 0 {
				p := Proposal{Command: []byte(cmd.Key)}
				var ms int
				if d.MaybeScanArgs(t, "deadline", &ms); ms != 0 {
					p.Deadline = c.now.Add(time.Duration(ms) * time.Millisecond)
				}
				d.MaybeScanArgs(t, "term", &p.Term)
				c.propose(id, p)
			}
		}
	case "confirm":
		c.confirm(id, d.CmdArgs[0].Key)
	case "ready":
		c.ready(id)
		c.printf("%d: %d appends, %d applies wait", id, len(m.appends), len(m.applies))
	case "append":
		for range times {
			c.append(id)
		}
	case "apply":
		for range times {
			c.apply(id)
		}
	case "deliver":
		for range times {
			c.deliver()
		}
	case "drop":
		c.network = nil
	case "cut":
		c.cut[id] = true
	case "heal":
		c.cut = map[uint64]bool{}
	case "tick":
		for range times {
			c.now = c.now.Add(DefaultTick)
			m.Tick(c.now)
			c.ready(id)
		}
	case "campaign":
		if err := m.Campaign(); err != nil {
			c.printf("%d: %v", id, err)
		}
	case "settle":
		c.settle()
	case "crash":
		c.start(id)
	case "stop":
		c.effects(m, m.Stop())
	case "status":
		st := m.Status()
		c.printf("%d: %s, commit %d, applied %d, durable %d, in flight %d, waiting %d, unanswered %d, confirming %d",
			id, describeRole(st.Role), st.Commit, st.Applied, st.Durable, st.InFlight, st.Waiting, st.Unanswered, st.Confirming)
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
}
