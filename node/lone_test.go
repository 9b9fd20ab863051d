package node

import (
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// loneCommit counts what one commit of three members takes, with nothing else under way:
// appends, and acknowledgements on their way to the leader.
func loneCommit(t *testing.T, c *cluster) (appends, acks int) {
	t.Helper()
	c.propose(1, Proposal{Command: []byte("lone")})
	n := rounds(0)
	for busy := true; busy; n.next() {
		busy = false
		for _, id := range c.ids() {
			c.ready(id)
			for c.append(id) {
				appends++
				busy = true
				c.ready(id)
			}
			busy = c.apply(id) || busy
			c.ready(id)
		}
		if len(c.network) > 0 && c.network[0].Raft.GetType() == pb.MsgAppResp {
			acks++
		}
		busy = c.deliver() || busy
	}
	return appends, acks
}

// A commit costs each member one append, that of its entry, and each follower one
// acknowledgement: that more is committed is written with the next entry, and what
// answers the leader's saying so waits for a tick.
func TestACommitIsNotWrittenByItself(t *testing.T) {
	c := three(t)
	loneCommit(t, c)
	for range 3 {
		if appends, acks := loneCommit(t, c); appends != 3 || acks != 2 {
			t.Errorf("%d appends and %d acknowledgements, want 3 and 2", appends, acks)
		}
	}
	for _, id := range c.ids() {
		m := c.members[id]
		if st := m.Status(); st.Commit != st.Durable || st.Applied != st.Commit {
			t.Errorf("member %d: commit %d, applied %d, the log ends at %d", id, st.Commit, st.Applied, st.Durable)
		}
		written := m.written.GetCommit()
		a := m.WriteCommit()
		if a == nil || a.MustSync || a.HardState.GetCommit() != m.Status().Commit || written != m.Status().Commit-1 {
			t.Errorf("member %d has written with the last entry that %d is committed of %d, and would write %+v", id, written, m.Status().Commit, a)
			continue
		}
		m.Appended(a)
		if m.WriteCommit() != nil {
			t.Errorf("member %d writes how much is committed twice", id)
		}
	}
}

// An acknowledgement that was held back leaves with the next tick: the leader may
// have lost the one that it repeats.
func TestAnAcknowledgementIsRepeatedByTheNextTick(t *testing.T) {
	c := three(t)
	loneCommit(t, c)
	c.members[2].Tick(c.now.Add(DefaultTick))
	c.ready(2)
	acks := 0
	for _, m := range c.network {
		if m.From == 2 && m.Raft.GetType() == pb.MsgAppResp && m.Raft.GetIndex() == c.members[2].Status().Durable {
			acks++
		}
	}
	if acks != 1 {
		t.Errorf("%d acknowledgements, want 1", acks)
	}
	c.settle()
	c.members[2].Tick(c.now.Add(2 * DefaultTick))
	c.ready(2)
	for _, m := range c.network {
		if m.Raft.GetType() == pb.MsgAppResp {
			t.Errorf("it is repeated again: %v", m.Raft)
		}
	}
}

// A read that waits for an entry to be applied is answered in the moment in which it
// is, not with the next tick, and so is one that comes later.
func TestAReadHearsAtOnceOfWhatIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = DefaultTick / 5
		s := newStand()
		r := s.start(t, nil)
		r.machine.onApply = func([][]byte) { time.Sleep(takes) }
		time.Sleep(DefaultTick / 10) // between two ticks
		for _, after := range []time.Duration{takes / 4, takes / 2, takes, takes + time.Millisecond} {
			began := time.Now()
			done := make(chan error, 1)
			r.Propose(Proposal{Command: []byte("x"), Done: func(_ any, err error) { done <- err }})
			time.Sleep(after)
			if _, err := r.confirm(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != max(takes, after) {
				t.Errorf("asked %v after the proposal: answered after %v, applied after %v", after, took, takes)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			time.Sleep(DefaultTick - time.Since(began)) // the same place between ticks
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// What was applied while the loop found out that something waits for that wakes it,
// as does what is applied from then on, until nothing waits.
func TestTheLoopHearsOfWhatWasAppliedMeanwhile(t *testing.T) {
	b := &inbox{wake: make(chan struct{}, 1)}
	woken := func() bool {
		woken := len(b.wake) > 0
		takeToken(b.wake)
		return woken
	}
	var st ReplicaStatus
	for _, x := range []struct {
		what string
		do   func()
		want bool
	}{
		{"applied, nothing waits", func() { b.callApplied(false, func() {}) }, false},
		{"nothing waits", func() { b.settle(&st, false) }, false},
		{"applied, and it is pressing", func() { b.callApplied(true, func() {}) }, true},
		{"something waits, and something was applied", func() { b.settle(&st, true) }, true},
		{"applied, something waits", func() { b.callApplied(false, func() {}) }, true},
		{"something waits, and nothing was applied", func() { b.take(inboxBatch{}); b.settle(&st, true) }, false},
		{"nothing waits any more", func() { b.settle(&st, false); b.callApplied(false, func() {}) }, false},
		{"asked to stop", func() { b.refuse(); b.callApplied(false, func() {}) }, true},
	} {
		if x.do(); woken() != x.want {
			t.Errorf("%s: woken %v", x.what, !x.want)
		}
	}
}

// Entries that are handed out only once others are applied do not wait for ticks,
// nor do proposals for which there is no place until then.
func TestAQueueHearsAtOnceOfWhatIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = time.Millisecond
		s := newStand()
		r := s.start(t, nil)
		r.machine.onApply = func([][]byte) { time.Sleep(takes) }
		const n = 2 * maxUncommitted / MaxCommandBytes
		places := make(chan struct{}, 24) // less than the inbox takes
		failed := make(chan error, n)
		began := time.Now()
		for range n {
			places <- struct{}{}
			r.Propose(Proposal{Command: make([]byte, MaxCommandBytes), Done: func(_ any, err error) {
				if err != nil {
					failed <- err
				}
				<-places
			}})
		}
		for range cap(places) {
			places <- struct{}{}
		}
		if len(failed) > 0 {
			t.Fatal(<-failed)
		}
		if took := time.Since(began); took > n*takes+DefaultTick/2 {
			t.Errorf("%d entries that take %v each took %v", n, takes, took)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
