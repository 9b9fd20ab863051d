package peers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/incumbent-dev/incumbent/node"
)

func TestThreeMembersExchangeMessages(t *testing.T) {
	a, b, c := newMember(t, 1), newMember(t, 2), newMember(t, 3)
	know(a, b, c)
	connected(t, a, b, c)
	all := []*member{a, b, c}
	for _, from := range all {
		for _, to := range all {
			if from != to {
				from.set.Send([]node.Message{heartbeat(from.id, to.id, 5), appendOf(from.id, to.id, 7, 200_000)})
				if !from.set.SendApp(to.id, []byte("hello")) {
					t.Fatal("the user's frame was not taken")
				}
			}
		}
	}
	for _, m := range all {
		m.until("all messages", func() bool { return len(m.got) == 4 && len(m.apps) == 2 })
		for _, got := range m.now().got {
			want := heartbeat(got.From, m.id, 5)
			if got.Class() == node.Bulk {
				want = appendOf(got.From, m.id, 7, 200_000)
			}
			if got.To != m.id || !proto.Equal(want.Raft, got.Raft) {
				t.Errorf("%v message from %d to %d arrived changed", got.Raft.GetType(), got.From, got.To)
			}
		}
	}
}

// TestRestartedMemberIsBackSoon lets a member be away for so long, in virtual time,
// that the other dials it but seldom.
func TestRestartedMemberIsBackSoon(t *testing.T) {
	for _, c := range []struct {
		name  string
		which func(a, b *member) *member
	}{
		{"the one that dials", func(a, _ *member) *member { return a }},
		{"the one that is dialed", func(_, b *member) *member { return b }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restarts(t, c.which) })
		})
	}
}

func restarts(t *testing.T, which func(a, b *member) *member) {
	s := &street{at: map[string]*piped{}}
	a, b := s.newMember(t, 1), s.newMember(t, 2)
	know(a, b)
	connected(t, a, b)
	m := which(a, b)
	other := a
	if m == a {
		other = b
	}
	m.close()
	other.until("the loss", func() bool { return len(other.lost) == 1 && other.lost[0] == m.id })
	time.Sleep(time.Minute) // virtual
	m.startOn(s.listen(m.addr))
	began := time.Now()
	know(a, b)
	connected(t, a, b)
	// Far above what it takes, far below a backoff that nobody cut short.
	if took := time.Since(began); took > 100*time.Millisecond {
		t.Errorf("connected again only after %v", took)
	}
	m.set.Send([]node.Message{heartbeat(m.id, other.id, 9)})
	other.until("a message after the restart", func() bool { return len(other.got) == 1 })
	a.close()
	b.close()
}

func TestSendToNobodyReportsAndRefuses(t *testing.T) {
	a := newMember(t, 1)
	a.set.SetMembers([]Member{{ID: 2, Address: "127.0.0.1:1"}})
	forward := node.Message{From: 1, To: 2, Forward: &node.Forward{Term: 4, First: 17, Entry: []byte("e")}}
	a.set.Send([]node.Message{heartbeat(1, 2, 1), heartbeat(1, 2, 2), forward})
	if a.now().unreachable != 1 {
		t.Errorf("unreachable was told %d times, want once", a.now().unreachable)
	}
	want := []node.Message{{From: 2, To: 1, Refuse: &node.Refuse{Term: 4, First: 17}}}
	if diff := cmp.Diff(want, a.now().got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if a.set.SendApp(2, []byte("x")) {
		t.Error("a frame was taken without a connection")
	}
	if d := a.set.Links()[0].Dropped; d != 4 {
		t.Errorf("%d drops are counted, want 4", d)
	}
}
