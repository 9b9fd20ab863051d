package node

import (
	"slices"
	"testing"
)

// TestARefusedChangeIsTriedAgainOnceATick has raft refuse a change of members,
// which it does by an empty entry in its place, because it holds another one that
// is not applied: it is proposed again, but not before the next tick, and made when
// the other one is.
func TestARefusedChangeIsTriedAgainOnceATick(t *testing.T) {
	c := three(t)
	m := c.members[1]
	if err := m.raw.ProposeConfChange(confChange([]MemberChange{{4, Learner}}, []byte("another"))); err != nil {
		t.Fatal(err)
	}
	var told []error
	m.ChangeMembers([]MemberChange{{5, Learner}}, func(err error) { told = append(told, err) })
	last := m.proposals.last + 1 // with the other change
	for tick := range uint64(3) {
		for range 20 { // Ready must run dry long before
			eff, ok := m.Ready(c.now)
			if !ok {
				break
			}
			c.effects(m, eff)
		}
		if got, want := m.proposals.last, last+1+tick; got != want {
			t.Fatalf("after %d ticks the log ends at %d, want one attempt in a tick, %d", tick, got, want)
		}
		c.now = c.now.Add(DefaultTick)
		m.Tick(c.now)
	}
	if len(told) != 0 {
		t.Fatalf("told %v before anything was applied", told)
	}
	c.settle()
	for range 5 {
		c.now = c.now.Add(DefaultTick)
		m.Tick(c.now)
		c.settle()
	}
	if len(told) != 1 || told[0] != nil || !slices.Equal(m.members.Learners, []uint64{4, 5}) {
		t.Errorf("told %v, learners %v; want it done, after the other", told, m.members.Learners)
	}
}

// TestG33_AChangeIsAnsweredByTheWholeLog has a leader asked for what its members are by
// the entries it has applied, while one of its predecessor's may say otherwise: it
// answers once it has applied the first entry of its own term.
func TestG33_AChangeIsAnsweredByTheWholeLog(t *testing.T) {
	c := three(t)
	m := c.members[1]
	known := m.leadIndex
	m.leadIndex = m.applied + 1
	var told []error
	m.ChangeMembers([]MemberChange{{3, Voter}}, func(err error) { told = append(told, err) })
	for range 3 {
		c.settle()
		c.now = c.now.Add(DefaultTick)
		m.Tick(c.now)
	}
	if len(told) != 0 {
		t.Fatalf("told %v before the first entry of the term was applied", told)
	}
	m.leadIndex = known
	for range 3 {
		c.now = c.now.Add(DefaultTick)
		m.Tick(c.now)
		c.settle()
	}
	if len(told) != 1 || told[0] != nil {
		t.Errorf("told %v, want that it is so", told)
	}
}

// TestLostBy names what a committed entry proves of a batch.
func TestLostBy(t *testing.T) {
	for _, c := range []struct {
		what        string
		batch       batch
		index, term uint64
		want        bool
	}{
		{"an entry of its term, its place is not known", batch{term: 3}, 9, 3, false},
		{"an entry of a later term, its place is not known", batch{term: 3}, 9, 4, true},
		{"an entry of an earlier term, its place is not known", batch{term: 3}, 9, 2, false},
		{"an entry before its place", batch{term: 3, index: 10}, 9, 3, false},
		{"another entry at its place", batch{term: 3, index: 9}, 9, 2, true},
		{"an entry behind its place", batch{term: 3, index: 8}, 9, 3, true},
		{"a later term before its place", batch{term: 3, index: 10}, 9, 4, true},
	} {
		if got := c.batch.lostBy(c.index, c.term); got != c.want {
			t.Errorf("%s: lost is %v, want %v", c.what, got, c.want)
		}
	}
}

// TestAnEntryOfTheSameTermLosesNothing commits an entry of the leader's own while
// a frame of a follower is on its way: the follower does not send it as another.
func TestAnEntryOfTheSameTermLosesNothing(t *testing.T) {
	c := three(t)
	c.held = 1
	c.propose(2, Proposal{Command: []byte("frame")})
	c.ready(2)
	i := slices.IndexFunc(c.network, func(m Message) bool { return m.Forward != nil })
	if i < 0 {
		t.Fatal("member 2 sent no frame")
	}
	frame := c.network[i]
	c.network = slices.Delete(c.network, i, i+1)
	c.held = 0
	c.propose(1, Proposal{Command: []byte("own")})
	c.settle()
	if n := len(c.members[2].proposals.pending); n != 1 || c.members[2].Status().Waiting != 0 || c.members[2].Status().Applied < 4 {
		t.Errorf("member 2 has %d frames under way: %+v", n, c.members[2].Status())
	}
	if c.count("frame") != 0 {
		t.Fatal("the frame was appended although it had not arrived")
	}
	c.members[1].Step(frame)
	c.settle()
	if c.count("frame") != 1 || c.count("own") != 1 {
		t.Errorf("applied %v", c.members[1].machine.commands)
	}
}

// TestG33_WhoIsLeftKnowsOfAChange loses the leader for good in the moment in which a
// change of members is said to be done: those who are left are the majority that it has
// made of them, and one of them leads.
func TestG33_WhoIsLeftKnowsOfAChange(t *testing.T) {
	c := three(t)
	m, done := c.members[1], false
	ask := func(role MemberRole) {
		done = false
		m.ChangeMembers([]MemberChange{{3, role}}, func(err error) {
			if done = err == nil; !done {
				t.Fatal(err)
			}
		})
	}
	ask(Learner)
	c.settle()
	if !done {
		t.Fatal("no change is made")
	}
	ask(Voter)
	for n := rounds(0); !done; n.next() { // one message after the other
		for _, id := range c.ids() {
			c.ready(id)
			c.append(id)
			c.ready(id)
			if c.apply(id); !done {
				c.ready(id)
			}
		}
		if !done {
			c.deliver()
		}
	}
	c.cut[1], c.network = true, nil
	for range 20 * electionTicks {
		c.now = c.now.Add(DefaultTick)
		for id := uint64(2); id <= 3; id++ {
			c.members[id].Tick(c.now)
		}
		c.settle()
	}
	if c.members[2].role.State != Leader && c.members[3].role.State != Leader {
		t.Errorf("nobody leads; they know %v and %v", c.members[2].members, c.members[3].members)
	}
}
