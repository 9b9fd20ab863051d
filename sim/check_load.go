package sim

import (
	"math"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// Bounds that hold in a flood.
const (
	// What was let in is served within the targets of all lanes together, and what they
	// have under way at least; when a flood begins, no lane knows yet what it can do.
	workWaits   = 2 * time.Second
	workAtFirst = 12 * time.Second
	findsOut    = 4 * time.Second // after which lanes know
	// What a lane has under way is that much of what it can have done within its target: the
	// most by far was 2.4 times, behind a pause of the leader, for a lane takes what it sees
	// while nothing is refused for what work takes on an idle system.
	atMostTimes = 4
	logTakes    = 30 * time.Millisecond // to a quorum's disks and back, by requests that wait for nothing else
	// A member refuses what the leader refuses so long after that does, in whatever time
	// nothing is wrong: it asks twenty times a second, and is answered within a round.
	roundTrip = 300 * time.Millisecond
	lapse     = 150 * time.Millisecond // a message may be late, and the leader's word be over before the next is there
	// A heartbeat comes a quarter of the election timeout late at most.
	beatWithin  = tick + election/4
	oneIndex    = 64 << 10 // what one index costs: the newest is kept whole
	differing   = 0.9      // of hints: that are jittered
	hintsAtMost = 1000
	goodput     = 0.95
	lagsAtMost  = 64 // indexes, behind the leader, a member that has caught up
)

// loadChecker looks at what floods do to members: what waits and what it takes (G39), the
// order in which lanes refuse, on each member and across (G40), what refusals say and that
// nobody is served too late (G41), and that all is well again soon, and nothing was lost
// that was kept (G42, G43); and at the heartbeats meanwhile (G44).
type loadChecker struct {
	w        *world
	flood    *flood // nil: there is none
	troubled time.Duration
	hints    map[time.Duration]bool
	refusals int

	deadlines map[uint64]time.Time // of calls by number
	late      map[uint64]bool      // that were handed to the node when it had passed

	pressed map[*process]*[admit.NumLanes]time.Duration // by rank: since when it has refused up to there
	lax     map[*process]time.Duration                  // since when it lets in what the leader refuses, refusing nothing
	beats   map[*process]map[uint64]time.Duration

	asked, done [2]int // steady requests before and after
}

func newLoadChecker(w *world) *loadChecker {
	return &loadChecker{
		w: w, hints: map[time.Duration]bool{}, deadlines: map[uint64]time.Time{}, late: map[uint64]bool{},
		lax:     map[*process]time.Duration{},
		pressed: map[*process]*[admit.NumLanes]time.Duration{}, beats: map[*process]map[uint64]time.Duration{},
	}
}

// trouble says that something is wrong for a while.
func (c *loadChecker) trouble(d time.Duration) { c.troubled = max(c.troubled, c.w.now+d) }

// refused checks what a refusal says: when to come back, within bounds (G41).
func (c *loadChecker) refused(p *process, l admit.Lane, err *incumbent.Error) {
	limits := p.door.lanes.Limits()
	if err.Kind != incumbent.Overloaded || err.RetryAfter < limits.Retry/2 || err.RetryAfter > limits.MaxRetry*3/2 {
		c.w.violate("member %d refused %v with %v and a hint of %v (G41)", p.m.at, l, err.Kind, err.RetryAfter)
	}
	if why := admit.ReasonOf(l, err); why < admit.NumReasons {
		c.w.res.Floods.Reasons[why]++
	}
	if c.refusals < hintsAtMost {
		c.refusals++
		c.hints[err.RetryAfter] = true
	}
}

// ordered checks a decision: the order of lanes on one member, and that what the leader
// has refused for a round trip no other member lets in (G40).
func (c *loadChecker) ordered(p *process, d admit.Decision) {
	if err := p.door.record.Next(d, int64(p.door.lanes.Limits().Interval)); err != nil {
		c.w.violate("member %d: %v (G40)", p.m.at, err)
	}
	leader := c.w.leader()
	if d.Why != admit.NumReasons {
		delete(c.lax, p)
	}
	if d.Why != admit.NumReasons || leader == nil || leader == p.m || c.w.now < c.troubled || c.pressed[leader.proc] == nil {
		return
	}
	c.w.res.Floods.Pressed++
	lax := false
	for rank := d.Lane.Rank() + 1; rank < admit.Extensions.Rank()+1; rank++ {
		since := c.pressed[leader.proc][rank]
		lax = lax || since > 0 && c.w.now-since > roundTrip
	}
	switch since := c.lax[p]; {
	case !lax:
		// It may be of a rank that the leader does not refuse.
	case since == 0:
		c.lax[p] = c.w.now
	case c.w.now-since > lapse:
		c.w.violate("member %d has let in for %v what the leader refuses, now %v (G40)", p.m.at, c.w.now-since, d.Lane)
	}
}

// looked is called twenty times a second on each member: what waits is bounded (G39).
func (c *loadChecker) looked(p *process) {
	d, res := p.door, &c.w.res.Floods
	res.Longest, res.HeldBack, res.MostBytes = max(res.Longest, d.cpu.waits), max(res.HeldBack, d.heldBack), max(res.MostBytes, p.memory())
	most := workWaits
	if f := c.flood; f != nil && f.on && c.w.now < floodBegins+findsOut || p.young() {
		most = workAtFirst
	}
	if d.cpu.waits > most {
		c.w.violate("member %d has let work in for %v (G39)", p.m.at, d.cpu.waits)
	}
	if n := p.memory(); n > memoryLimit {
		c.w.violate("member %d takes %d bytes, it may take %d (G39)", p.m.at, n, int64(memoryLimit))
	}
	st := p.node.Status()
	if st.Inbox > st.InboxLimit || st.WaitingBytes > node.MaxInboxBytes {
		c.w.violate("%d proposals of %d bytes wait at member %d (G39)", st.Inbox, st.WaitingBytes, p.m.at)
	}
	calls, batches, extensions, frames := p.leases.Waiting()
	if calls > lease.MaxQueuedReleases || batches > lease.MaxQueuedBatches || extensions > lease.MaxQueuedExtensions || frames > lease.MaxQueuedFrames {
		c.w.violate("%d calls, %d batches, %d extensions and %d frames wait at member %d (G39)", calls, batches, extensions, frames, p.m.at)
	}
	if n := p.group.Hub().Stats().HistoryBytes; n > historyBytes+oneIndex {
		c.w.violate("member %d keeps %d bytes of history (G39)", p.m.at, n)
	}
	c.stays(p)
	c.feel(p)
}

// stays checks what each lane has under way, once lanes have found out what that may be, in
// whatever time nothing is wrong: what can be done in the time for which the lane may wait,
// whatever the lane takes for its limit (G39).
func (c *loadChecker) stays(p *process) {
	if c.w.now < floodBegins+findsOut || c.w.now < c.troubled || p.young() {
		return
	}
	limits := p.door.lanes.Limits()
	for l, has := range p.door.underWay {
		lane := admit.Lane(l)
		target := limits.Target + limits.Target*time.Duration(lane.Rank())/2
		n := float64(target+logTakes+workTakes[l]) / float64(workTakes[l])
		if most := atMostTimes * (int(n+2*math.Sqrt(n)) + limits.Min); lane != admit.Critical && has > most {
			c.w.violate("member %d has %d bytes of %v under way, it can have done %d in time (G39)", p.m.at, requestBytes*has, lane, requestBytes*most)
		}
	}
}

// tookIn checks what a lane has under way when it has let something in (G39): its limit,
// behind the first lanes the least that it may have once more, for which those before it are
// to give way, and one request in each interval, with which it has shut them.
func (c *loadChecker) tookIn(p *process, l admit.Lane) {
	if l == admit.Critical {
		return
	}
	d, limits, now := p.door, p.door.lanes.Limits(), p.door.lanes.Now()
	has, most := d.underWay[l], max(int(d.lanes.Stats()[l].Limit), 1)
	if l.Rank() > 0 {
		most += limits.Min
	}
	switch {
	case has <= most:
	case l.Rank() > 0 && now-d.beyond[l] >= int64(limits.Interval):
		d.beyond[l] = now
	default:
		c.w.violate("member %d has %d bytes of %v under way, it may have %d (G39)", p.m.at, requestBytes*has, l, requestBytes*most)
	}
}

// feel takes note of the pressure of a member.
func (c *loadChecker) feel(p *process) {
	since := c.pressed[p]
	if since == nil {
		since = new([admit.NumLanes]time.Duration)
		c.pressed[p] = since
	}
	rank := int(p.door.lanes.Pressure())
	for r := range since {
		switch {
		case r > rank:
			since[r] = 0
		case since[r] == 0:
			since[r] = c.w.now
		}
	}
}

// young reports whether the process began so late that its lanes know little.
func (p *process) young() bool { return p.w.now-p.opened < findsOut }

// until takes note of the deadline of a call.
func (c *loadChecker) until(call uint64, deadline time.Time) {
	if !deadline.IsZero() {
		c.deadlines[call] = deadline
	}
}

// proposed takes note of calls that are handed to the node after their deadline, which is
// to drop them.
func (c *loadChecker) proposed(p *process, ps []node.Proposal) {
	if len(c.deadlines) == 0 {
		return
	}
	now := nodeClock{p.m}.Now()
	for i := range ps {
		if n, marked := markIn(ps[i].Command); marked {
			if by, has := c.deadlines[n]; has && !now.Before(by) {
				c.late[n] = true
			}
		}
	}
}

// executed checks that none of them is executed (G41).
func (c *loadChecker) executed(n uint64) {
	if c.late[n] {
		c.w.violate("call %d was handed on when its deadline had passed, and is executed (G41)", n)
	}
}

// over checks that what ends is nothing that its holder has kept (G42, G43).
func (c *loadChecker) over(what leases.What, b *leases.Lease) {
	if c.flood == nil {
		return
	}
	for _, k := range c.flood.keepers {
		if k.token == b.Token && !k.a.retired {
			c.w.violate("%s, token %d, %v although its holder has kept it (G42, G43)", b.Name.Lease, b.Token, what)
		}
	}
}

// wanted takes note of a steady request.
func (c *loadChecker) wanted(began time.Duration) {
	if i := c.window(began); i >= 0 {
		c.asked[i]++
	}
}

// served takes note of a steady request that was served in time.
func (c *loadChecker) served(began time.Duration) {
	if i := c.window(began); i >= 0 {
		c.done[i]++
	}
}

// window is 0 for what began before the flood, 1 for what began when all is to be well
// again, else -1.
func (c *loadChecker) window(began time.Duration) int {
	after := floodBegins + floodLasts + recoversWithin
	switch {
	case began >= floodBegins-compared-steadyWaits && began < floodBegins-steadyWaits:
		return 0
	case began >= after-steadyWaits && began < after+compared-steadyWaits:
		return 1
	}
	return -1
}

// recovered is called some time after the flood: as much is served as before (G42), all
// members have caught up, and refusals have said different times (G41).
func (c *loadChecker) recovered() {
	w := c.w
	w.res.Floods.Before, w.res.Floods.After = c.done[0], c.done[1]
	before, after := float64(c.done[0])/float64(max(c.asked[0], 1)), float64(c.done[1])/float64(max(c.asked[1], 1))
	if c.done[0] == 0 || after < goodput*before {
		w.violate("of %d steady requests before the flood %d were served, of %d afterwards %d (G42)", c.asked[0], c.done[0], c.asked[1], c.done[1])
	}
	if n := len(c.hints); c.refusals > 1 && float64(n) < differing*float64(c.refusals) {
		w.violate("%d refusals said %d different times to come back (G41)", c.refusals, n)
	}
	for _, m := range w.members {
		p := m.proc
		switch {
		case p == nil || !p.ready():
			w.violate("member %d does not serve %v after the flood (G42)", m.at, recoversWithin+compared)
		case p.group.View().Index()+lagsAtMost < w.check.index:
			w.violate("member %d is at index %d, the log at %d (G42)", m.at, p.group.View().Index(), w.check.index)
		case p.door.lanes.Disorder() > 0:
			w.violate("member %d has let in %d out of order, as it counts itself (G40)", m.at, p.door.lanes.Disorder())
		case len(p.door.lanes.Refusing()) > 0:
			w.violate("member %d refuses %v (G42)", m.at, p.door.lanes.Refusing())
		}
	}
}

// sent looks at the times between heartbeats of a leader (G44).
func (c *loadChecker) sent(p *process, m *node.Message) {
	if p.door == nil || m.Raft == nil || m.Raft.GetType() != pb.MsgHeartbeat {
		return
	}
	all := c.beats[p]
	if all == nil {
		all = map[uint64]time.Duration{}
		c.beats[p] = all
	}
	if last := all[m.To]; last > 0 {
		c.w.res.Floods.Beats++
		if gap := c.w.now - last; gap > beatWithin {
			c.w.violate("member %d sent no heartbeat to member %x for %v (G44)", p.m.at, m.To, gap)
		}
	}
	all[m.To] = c.w.now
}

// restBeats is called when a member leads no longer or anew, or stands still.
func (c *loadChecker) restBeats(p *process) { delete(c.beats, p) }
