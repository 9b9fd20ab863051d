package node

import (
	"log/slog"
	"slices"
	"strconv"
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
		for _, msg := range c.network {
			c.drop(msg)
		}
		c.network = nil
	case "join":
		c.join(id)
	case "change":
		c.change(id, d)
	case "transfer":
		to := uint64(0)
		d.MaybeScanArgs(t, "to", &to)
		m.TransferLeader(to, c.printTold(id, "transfer"))
	case "lost":
		from := uint64(0)
		d.ScanArgs(t, "leader", &from)
		m.PeerLost(from, c.now)
		c.ready(id)
	case "wait":
		var ms int
		d.ScanArgs(t, "ms", &ms)
		c.now = c.now.Add(time.Duration(ms) * time.Millisecond)
	case "wake":
		c.wake(d, id)
	case "flush":
		m.FlushStalled(d.HasArg("stalled"))
	case "lose-forwards":
		c.network = slices.DeleteFunc(c.network, func(m Message) bool { return m.Forward != nil })
	case "ticks": // of all members, one by one, with what they have to say to one another
		for range times {
			c.now = c.now.Add(DefaultTick)
			for _, id := range c.ids() {
				c.members[id].Tick(c.now)
				c.settle()
			}
		}
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
		for _, p := range st.Peers {
			c.printf("%d: peer %d has %d, active %v, learner %v, snapshot %v", id, p.ID, p.Match, p.Active, p.Learner, p.Snapshot)
		}
		c.printf("%d: %s, commit %d, applied %d, durable %d, in flight %d, waiting %d, unanswered %d, confirming %d",
			id, describeRole(st.Role), st.Commit, st.Applied, st.Durable, st.InFlight, st.Waiting, st.Unanswered, st.Confirming)
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
}

// change asks a member to change members: voters=(2,3) learners=(4) gone=(1).
func (c *cluster) change(id uint64, d *datadriven.TestData) {
	var changes []MemberChange
	for _, arg := range d.CmdArgs {
		role, ok := map[string]MemberRole{"voters": Voter, "learners": Learner, "gone": Gone}[arg.Key]
		if !ok {
			continue
		}
		for _, v := range arg.Vals {
			n, err := strconv.ParseUint(v, 10, 64)
			if err != nil {
				panic(err)
			}
			changes = append(changes, MemberChange{n, role})
		}
	}
	c.members[id].ChangeMembers(changes, c.printTold(id, "change"))
}

func (c *cluster) printTold(id uint64, what string) func(error) {
	return func(err error) {
		if err != nil {
			c.printf("%d: %s -> %v", id, what, err)
			return
		}
		c.printf("%d: %s -> done", id, what)
	}
}

// wake lets time go by until a replica wants a turn: the one that the command
// names, or else whichever is first.
func (c *cluster) wake(d *datadriven.TestData, id uint64) {
	if !d.HasArg("on") {
		for _, other := range c.ids() {
			at, ok := c.members[id].Wake()
			if next, wants := c.members[other].Wake(); wants && (!ok || next.Before(at)) {
				id = other
			}
		}
	}
	at, ok := c.members[id].Wake()
	if !ok {
		c.printf("%d: nothing planned", id)
		return
	}
	between := at.Sub(c.now) < campaignLatest
	c.printf("%d: planned within %v: %v", id, campaignLatest, between)
	if at.After(c.now) {
		c.now = at
	}
	c.ready(id)
}
