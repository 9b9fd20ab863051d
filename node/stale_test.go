package node

import (
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"

	pb "go.etcd.io/raft/v3/raftpb"
)

// three returns a cluster whose member 1 leads and has applied something.
func three(t *testing.T) *cluster {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	c := newCluster(3)
	if err := c.members[1].Campaign(); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.propose(1, Proposal{Command: []byte("a")})
	c.settle()
	c.log.Reset()
	return c
}

// until delivers messages until one of type typ is next, and returns it without
// delivering it.
func (c *cluster) until(t *testing.T, to uint64, typ pb.MessageType) Message {
	t.Helper()
	for range 100 {
		for _, id := range c.ids() {
			c.ready(id)
			for c.append(id) {
				c.ready(id)
			}
		}
		if len(c.network) == 0 {
			break
		}
		if m := c.network[0]; m.To == to && m.Raft.GetType() == typ {
			c.network = c.network[1:]
			return m
		}
		c.deliver()
	}
	t.Fatalf("no %v came for member %d", typ, to)
	return Message{}
}

// TestG22_LateAnswerConfirmsNothing holds back the answer to one read until
// another is asked for: it must not answer that one.
func TestG22_LateAnswerConfirmsNothing(t *testing.T) {
	c := three(t)
	c.confirm(3, "first")
	c.ready(3)
	late := c.until(t, 3, pb.MsgReadIndexResp)
	for range roundTicks { // the first read asks again, under another id
		c.now = c.now.Add(DefaultTick)
		c.members[3].Tick(c.now)
	}
	c.settle()
	if !strings.Contains(c.log.String(), "confirm first") {
		t.Fatalf("the second attempt was not answered: %s", c.log.String())
	}
	c.propose(1, Proposal{Command: []byte("b")})
	c.settle()
	c.cut[1] = true // from here on nobody can confirm
	c.confirm(3, "second")
	c.ready(3)
	c.members[3].Step(late)
	c.settle()
	if strings.Contains(c.log.String(), "confirm second") {
		t.Errorf("a late answer confirmed a newer read: %s", c.log.String())
	}
}

// TestG22_LateComerWaitsForTheNextRound asks for a read while the round before
// is under way: that round began too early for it.
func TestG22_LateComerWaitsForTheNextRound(t *testing.T) {
	c := three(t)
	c.confirm(3, "early")
	c.ready(3)
	answer := c.until(t, 3, pb.MsgReadIndexResp)
	c.propose(1, Proposal{Command: []byte("b")})
	c.cut[3] = true
	c.settle()
	if !strings.Contains(c.log.String(), "1: b -> 2") {
		t.Fatalf("b was not acknowledged: %s", c.log.String())
	}
	c.confirm(3, "late")
	c.ready(3)
	c.members[3].Step(answer)
	c.ready(3)
	if got := c.log.String(); !strings.Contains(got, "confirm early") || strings.Contains(got, "confirm late") {
		t.Errorf("want early confirmed and late waiting: %s", got)
	}
}

// frame is an entry of member 2 on its way to member 1.
func (c *cluster) frame(term, first, after uint64, cmd string) Message {
	entry := encodeEntry(entryHeader{Member: 2, Incarnation: 1, First: first, Count: 1}, [][]byte{[]byte(cmd)})
	return Message{From: 2, To: 1, Forward: &Forward{Term: term, First: first, After: after, Entry: entry}}
}

// step hands a frame to member 1 and returns the refusal, if that is its answer.
func (c *cluster) step(t *testing.T, m Message) *Refuse {
	t.Helper()
	c.members[1].Step(m)
	c.settleBut(2)
	for i := range c.network {
		if r := c.network[i].Refuse; r != nil {
			c.network = nil
			return r
		}
	}
	return nil
}

// settleBut settles and keeps what goes to one member.
func (c *cluster) settleBut(id uint64) {
	c.held = id
	c.settle()
	c.held = 0
}

// TestForwardedFrameNamesItsTerm hands a leader frames of other terms: it appends
// none of them, and refuses none either, for it cannot know what became of them.
func TestForwardedFrameNamesItsTerm(t *testing.T) {
	c := three(t)
	term := c.members[1].Status().Term
	for _, wrong := range []uint64{term - 1, term + 1} {
		if r := c.step(t, c.frame(wrong, 7, 0, "x")); r != nil {
			t.Errorf("frame of term %d in term %d: refused", wrong, term)
		}
	}
	if c.step(t, c.frame(term, 7, 0, "y")) != nil || c.count("y") != 1 || c.count("x") != 0 {
		t.Errorf("want y once and x never: %v", c.members[1].machine.commands)
	}
}

// count returns how often member 1 has applied a command.
func (c *cluster) count(cmd string) int {
	n := 0
	for _, have := range c.members[1].machine.commands {
		if have == cmd {
			n++
		}
	}
	return n
}

// TestForwardedFramesKeepTheirOrder doubles, delays and refuses frames.
func TestForwardedFramesKeepTheirOrder(t *testing.T) {
	c := three(t)
	term := c.members[1].Status().Term
	if c.step(t, c.frame(term, 9, 8, "late")) != nil || c.count("late") != 0 {
		t.Error("a frame was appended whose forerunner is missing")
	}
	for range 2 {
		if c.step(t, c.frame(term, 8, 0, "early")) != nil {
			t.Error("a frame was refused that is appended")
		}
	}
	c.step(t, c.frame(term, 9, 8, "late"))
	if c.count("early") != 1 || c.count("late") != 1 {
		t.Errorf("want each frame once: %v", c.members[1].machine.commands)
	}
	c.cut[3] = true // nobody can take over, so the hand-over lasts
	c.members[1].TransferLeader(3, func(error) {})
	if c.step(t, c.frame(term, 10, 9, "refused")) == nil {
		t.Fatal("a frame was taken during a hand-over")
	}
	for range 2 * electionTicks {
		c.now = c.now.Add(DefaultTick)
		c.members[1].Tick(c.now)
		c.members[1].Step(Message{From: 3, To: 1, Raft: &pb.Message{
			Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(term),
		}})
		c.settleBut(2)
	}
	c.network = nil
	if c.members[1].Status().State != Leader {
		t.Fatalf("member 1 does not lead any more: %s", c.log.String())
	}
	if c.step(t, c.frame(term, 10, 9, "refused")) == nil || c.count("refused") != 0 {
		t.Error("a frame was appended that had been refused: its commands are in another one by now")
	}
	if c.step(t, c.frame(term, 11, 9, "again")) != nil {
		t.Error("what was put into another frame was refused")
	}
}

// TestFrameThatNobodyCouldApplyIsDropped hands a leader damaged and foreign
// entries. One that was appended would stop every member.
func TestFrameThatNobodyCouldApplyIsDropped(t *testing.T) {
	c := three(t)
	term := c.members[1].Status().Term
	last := c.members[1].Status().Durable
	for name, change := range map[string]func(f *Forward){
		"short":         func(f *Forward) { f.Entry = f.Entry[:len(f.Entry)-1] },
		"no header":     func(f *Forward) { f.Entry = f.Entry[:5] },
		"empty":         func(f *Forward) { f.Entry = nil },
		"other number":  func(f *Forward) { f.First++ },
		"other group":   func(f *Forward) { f.Entry[1]++ },
		"other version": func(f *Forward) { f.Entry[0]++ },
		"other member":  func(f *Forward) { f.Entry[9]++ },
	} {
		m := c.frame(term, 7, 0, "x")
		change(m.Forward)
		if c.step(t, m); c.members[1].Status().Durable != last {
			t.Errorf("%s: appended", name)
		}
	}
}

// TestForgedRefusalIsIgnored refuses a batch that this member appended itself.
func TestForgedRefusalIsIgnored(t *testing.T) {
	c := three(t)
	c.propose(1, Proposal{Command: []byte("b")})
	c.ready(1)
	c.members[1].Step(Message{From: 2, To: 1, Refuse: &Refuse{Term: 2, First: c.members[1].proposals.next - 1}})
	c.settle()
	if got := strings.Count(c.log.String(), "1: apply"); got != 1 {
		t.Errorf("applied %d times: %s", got, c.log.String())
	}
}

// TestRefusalTakesTheTailWithIt refuses the first of two frames: the second was
// not appended either, and both go again in their order.
func TestRefusalTakesTheTailWithIt(t *testing.T) {
	c := three(t)
	c.noFrames = true
	first := c.members[2].proposals.next
	for _, cmd := range []string{"d", "e"} {
		c.propose(2, Proposal{Command: []byte(cmd)})
		c.ready(2)
	}
	c.noFrames = false
	c.members[2].Step(Message{From: 1, To: 2, Refuse: &Refuse{Term: c.members[1].Status().Term, First: first}})
	if st := c.members[2].Status(); st.Waiting != 2 || st.InFlight != 0 {
		t.Errorf("want both waiting again: %+v", st)
	}
	c.members[2].Tick(c.now)
	c.settle()
	if got := c.members[1].machine.commands; !slices.Equal(got, []string{"a", "d", "e"}) {
		t.Errorf("applied %v", got)
	}
}

// TestForwardsGoOnAfterAnUnknown loses all frames until one is given up. What is
// forwarded later must not wait for it at the leader.
func TestForwardsGoOnAfterAnUnknown(t *testing.T) {
	c := three(t)
	c.noFrames = true
	c.propose(2, Proposal{Command: []byte("lost")})
	for range forwardTicks + 5 {
		c.now = c.now.Add(DefaultTick)
		for _, id := range c.ids() {
			c.members[id].Tick(c.now)
			c.settle()
		}
	}
	if !strings.Contains(c.log.String(), "2: lost -> unknown") {
		t.Fatalf("want Unknown: %s", c.log.String())
	}
	c.noFrames = false
	c.propose(2, Proposal{Command: []byte("next")})
	c.settle()
	if got := c.members[1].machine.commands; !slices.Equal(got, []string{"a", "next"}) {
		t.Errorf("applied %v", got)
	}
}

// TestG22_SoleVoterConfirmsForNobodyTooEarly asks a sole voter for a read before
// it knows what its former life committed. Raft itself would answer.
func TestG22_SoleVoterConfirmsForNobodyTooEarly(t *testing.T) {
	c := newCluster(1)
	c.settle()
	c.join(2)
	c.members[1].ChangeMembers([]MemberChange{{2, Learner}}, func(error) {})
	for range 5 {
		c.members[1].Tick(c.now)
		c.settle()
	}
	c.start(1)
	for range 4 * electionTicks { // one with learners waits for the election timeout
		if c.ready(1); c.members[1].Status().State == Leader {
			break
		}
		c.members[1].Tick(c.now)
		c.append(1)
		c.ready(1)
		c.apply(1)
	}
	if st := c.members[1].Status(); st.State != Leader {
		t.Fatalf("it is %+v", st.Role)
	}
	answered := func() bool {
		c.network = nil
		c.members[1].Step(Message{From: 2, To: 1, Raft: &pb.Message{
			Type: pb.MsgReadIndex.Enum(), From: new(uint64(2)), To: new(uint64(1)), Entries: []*pb.Entry{{Data: make([]byte, 16)}},
		}})
		c.ready(1)
		return slices.ContainsFunc(c.network, func(m Message) bool { return m.Raft.GetType() == pb.MsgReadIndexResp })
	}
	if answered() {
		t.Error("confirmed before the first entry of the term was committed")
	}
	c.settle()
	if !answered() {
		t.Error("not confirmed afterwards")
	}
}

// TestG34_WhoHasLearnersAsksBeforeItLeadsAlone starts the only voter of a cluster again.
// Alone it leads at once. With a learner, which may be a voter today if the disk was put
// back, it leaves it an election timeout to say so.
func TestG34_WhoHasLearnersAsksBeforeItLeadsAlone(t *testing.T) {
	c := newCluster(1)
	c.settle()
	c.start(1)
	if c.settle(); c.members[1].Status().State != Leader {
		t.Fatalf("alone it is %+v", c.members[1].Status().Role)
	}
	c.join(2)
	c.members[1].ChangeMembers([]MemberChange{{2, Learner}}, func(error) {})
	for range 5 {
		c.members[1].Tick(c.now)
		c.settle()
	}
	c.start(1)
	c.settle()
	for i := range electionTicks - 1 {
		if st := c.members[1].Status(); st.State != Follower {
			t.Fatalf("after %d ticks it is %+v", i, st.Role)
		}
		c.members[1].Tick(c.now)
		c.settle()
	}
	for range 2 * electionTicks {
		c.members[1].Tick(c.now)
		c.settle()
	}
	if st := c.members[1].Status(); st.State != Leader {
		t.Errorf("after the election timeout it is %+v", st.Role)
	}
}

// TestNothingOvertakesWhatMayBeLost has a frame lost with its leader. What was
// asked for later must wait until its fate is known.
func TestNothingOvertakesWhatMayBeLost(t *testing.T) {
	c := three(t)
	c.noFrames = true
	c.propose(2, Proposal{Command: []byte("d")})
	c.ready(2)
	c.noFrames = false
	c.cut[1] = true
	for _, id := range []uint64{2, 3} {
		c.members[id].PeerLost(1, c.now)
		c.ready(id)
	}
	c.propose(2, Proposal{Command: []byte("e")}) // waits for a leader
	if err := c.members[3].Campaign(); err != nil {
		t.Fatal(err)
	}
	c.settle()
	if got := c.members[2].machine.commands; !slices.Equal(got, []string{"a", "d", "e"}) {
		t.Errorf("applied %v", got)
	}
}

// TestRefusalOfAnEarlierLifeIsIgnored has a member hear, after a restart, that a frame of
// its life before was refused. What it has on its way now may still be appended: it must
// not go again.
func TestRefusalOfAnEarlierLifeIsIgnored(t *testing.T) {
	c := three(t)
	c.noFrames = true
	first := c.members[2].proposals.next
	c.propose(2, Proposal{Command: []byte("before")})
	c.ready(2)
	c.start(2)
	for c.members[2].Status().Leader == 0 {
		c.members[1].Tick(c.now)
		c.settle()
	}
	c.propose(2, Proposal{Command: []byte("after")})
	c.ready(2)
	c.members[2].Step(Message{From: 1, To: 2, Refuse: &Refuse{Term: c.members[1].Status().Term, First: first}})
	if st := c.members[2].Status(); st.Waiting != 0 || st.InFlight != 1 {
		t.Errorf("want it on its way still: %+v", st)
	}
}

// TestAnswersThatWaitForTheDiskDoNotGather has a leader ask again and again, as it does
// with each heartbeat, a follower whose disk does not answer: neither appends nor answers
// gather, and what waited leaves once the disk has answered.
func TestAnswersThatWaitForTheDiskDoNotGather(t *testing.T) {
	c := three(t)
	c.propose(1, Proposal{Command: []byte("b")})
	c.members[3].Step(c.until(t, 3, pb.MsgApp))
	c.ready(3)
	m := c.members[3]
	if len(m.appends) != 1 {
		t.Fatalf("%d appends, want one with the entry", len(m.appends))
	}
	asked := m.appends[0].Entries[0]
	again := &pb.Message{
		Type: pb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(3)), Term: new(asked.GetTerm()),
		Index: new(asked.GetIndex()), LogTerm: new(asked.GetTerm()), Commit: new(m.Status().Commit),
	}
	before := len(m.appends[0].responses)
	c.network = nil
	for range 10_000 {
		m.Step(Message{From: 1, To: 3, Raft: again})
		c.ready(3)
	}
	if n := len(m.appends); n != 1 || len(m.appends[0].responses) != before {
		t.Fatalf("%d appends wait, the first with %d responses; want one with %d", n, len(m.appends[0].responses), before)
	}
	if len(c.network) != 0 {
		t.Fatalf("an answer left before the disk had answered: %v", c.network)
	}
	// Another answer than those that wait is not lost.
	again.Index, again.LogTerm = new(asked.GetIndex()+5), new(asked.GetTerm())
	m.Step(Message{From: 1, To: 3, Raft: again})
	c.ready(3)
	c.append(3)
	c.ready(3)
	var took, refused int
	for _, a := range c.network {
		switch {
		case a.Raft.GetType() != pb.MsgAppResp:
		case a.Raft.GetReject():
			refused++
		case a.Raft.GetIndex() == asked.GetIndex():
			took++
		}
	}
	if took != 1 || refused != 1 {
		t.Errorf("%d answers say that the entry is here and %d that one is missing, want one each", took, refused)
	}
	if st := m.Status(); st.Durable != asked.GetIndex() {
		t.Errorf("durable up to %d, want %d", st.Durable, asked.GetIndex())
	}
	c.settle()
	if got := m.machine.commands; !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("applied %v", got)
	}
}
