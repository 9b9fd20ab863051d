package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/vfs"
)

func TestG31_Needed(t *testing.T) {
	full, low := space{free: 1 << 40}, space{short: true}
	type known = map[uint64]space
	three, four := []uint64{1, 2, 3}, []uint64{1, 2, 3, 4}
	for _, x := range []struct {
		name   string
		voters []uint64
		known  known
		want   []uint64
	}{
		{"alone", three[:1], known{1: full}, nil},
		{"alone and short", three[:1], known{1: low}, three[:1]},
		{"all have space", three, known{1: full, 2: full, 3: full}, nil},
		{"one of three", three, known{1: full, 2: low, 3: full}, nil},
		{"two of three", three, known{1: low, 2: low, 3: full}, []uint64{1, 2}},
		{"one, and another is not heard of", three, known{1: full, 2: low}, []uint64{2}},
		{"others are not heard of", three, known{1: full}, nil},
		{"one of two", three[:2], known{1: full, 2: low}, []uint64{2}},
		{"one of four", four, known{1: full, 2: low, 3: full, 4: full}, nil},
		{"two of four", four, known{1: full, 2: low, 3: low, 4: full}, []uint64{2, 3}},
		{"a learner", three, known{1: full, 2: full, 3: full, 9: low}, nil},
		{"nobody votes yet", nil, known{9: low}, nil},
	} {
		if got := needed(x.voters, x.known); !slices.Equal(got, x.want) {
			t.Errorf("%s: got %v, want %v", x.name, got, x.want)
		}
	}
}

func TestSpacesForgetAndRefuseFrames(t *testing.T) {
	var s spaces
	want := space{short: true, free: 7, reserve: 9}
	s.receive(2, encodeSpace(want), time.Second)
	s.receive(3, encodeSpace(want)[:spaceBytes-1], time.Second)
	s.receive(4, append(encodeSpace(want), 0), time.Second)
	s.receive(5, []byte{spaceKind}, time.Second)
	odd := encodeSpace(want)
	odd[1] = 2
	s.receive(6, odd, time.Second)
	if got := s.fresh(time.Second + spaceFresh); len(got) != 1 || got[2] != want {
		t.Errorf("got %v", got)
	}
	if got := s.fresh(time.Second + spaceFresh + 1); len(got) != 0 {
		t.Errorf("of old reports: %v", got)
	}
	for id := range uint64(10 * reportersKept) {
		s.receive(id, encodeSpace(want), time.Second)
	}
	if n := len(s.heard); n > reportersKept {
		t.Errorf("%d reports kept", n)
	}
}

// meager is a filesystem whose free space is what a test says.
type meager struct {
	vfs.FS
	free *atomic.Int64
}

func (m meager) Free(string) (int64, error) { return m.free.Load(), nil }

// While a quorum needs a disk that is short, no member lets the state grow; what
// makes room goes on. One disk of three is nobody else's business.
func TestG31_AQuorumNeedsSpace(t *testing.T) {
	const plenty = int64(1 << 40)
	free := make([]*atomic.Int64, 3)
	members := make([]*Server, 3)
	for i := range members {
		free[i] = new(atomic.Int64)
		free[i].Store(plenty)
		cfg := memberConfig(t, fmt.Sprintf("n%d", i+1))
		cfg.fs = meager{vfs.OS{}, free[i]}
		if i == 0 {
			members[i] = open(t, cfg)
			continue
		}
		members[i] = join(t, members[0], cfg)
	}
	until(t, "each has heard of all disks", func() bool {
		return !slices.ContainsFunc(members, func(s *Server) bool { return len(s.knownSpaces()) != 3 })
	})
	held, err := claim(t, clientOf(t, members[0]), "kept", "h")
	if err != nil {
		t.Fatal(err)
	}
	free[1].Store(100)
	until(t, "n1 knows that n2 is short", func() bool { return len(members[0].shortMembers()) == 1 })
	if text := strings.Join(statusOf(t, members[0]).Warnings, "\n"); !strings.Contains(text, "member n2 has 0 MiB free") {
		t.Errorf("status of n1 warns: %s", text)
	}
	if _, err := claim(t, clientOf(t, members[0]), "one-is-short", "h"); err != nil {
		t.Errorf("claim while one of three is short: %v", err)
	}
	free[2].Store(100)
	for _, s := range members {
		until(t, s.cfg.Name+" refuses", func() bool { short, _ := s.growth.state(); return len(short) == 2 })
		_, err := claim(t, clientOf(t, s), "two-are-short", "h")
		var e *incumbent.Error
		if !errors.As(err, &e) || e.Kind != incumbent.Overloaded || e.RetryAfter <= 0 || !strings.Contains(e.Message, "the disk of n2, n3") {
			t.Errorf("claim on %s: %v", s.cfg.Name, err)
		}
		if st := statusOf(t, s); !slices.Contains(st.Refusing, "growth (members' disks)") {
			t.Errorf("status of %s: refusing %v", s.cfg.Name, st.Refusing)
		}
		if n := len(eventsOf(s, "refusing growth everywhere")); n != 1 {
			t.Errorf("%s noted it %d times", s.cfg.Name, n)
		}
	}
	if err := extend(t, members[0], "kept", "h", held.Lease.Token); err != nil {
		t.Errorf("extend: %v", err)
	}
	release := &apiv1.ReleaseRequest{Name: held.Lease.Name, Holder: "h", Token: held.Lease.Token}
	if _, err := clientOf(t, members[1]).Leases().Release(testContext(t), connect.NewRequest(release)); err != nil {
		t.Errorf("release: %v", client.AsError(err))
	}
	leader := leaderOf(t, members...)
	if _, err := (operator{leader}).Snapshot(testContext(t)); err != nil {
		t.Errorf("snapshot: %v", err)
	}
	at := slices.Index(members, leader)
	if _, err := (operator{leader}).RemoveMember(testContext(t), &apiv1.RemoveMemberRequest{Member: members[(at+1)%3].cfg.Name}); err != nil {
		t.Errorf("removing a member: %v", err)
	}
	free[1].Store(plenty)
	free[2].Store(plenty)
	until(t, "growth goes on", func() bool {
		short, _ := leader.growth.state()
		return len(short) == 0 && !leader.node.Status().GrowthRefused
	})
	if _, err := claim(t, clientOf(t, leader), "later", "h"); err != nil {
		t.Errorf("claim afterwards: %v", err)
	}
}
