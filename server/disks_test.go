package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/vfs"
)

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
		return !slices.ContainsFunc(members, func(s *Server) bool { return len(s.cluster.Disks()) != 3 })
	})
	held, err := claim(t, clientOf(t, members[0]), "kept", "h")
	if err != nil {
		t.Fatal(err)
	}
	free[1].Store(100)
	until(t, "n1 knows that n2 is short", func() bool { return members[0].cluster.ShortOfDisk() == 1 })
	if text := strings.Join(statusOf(t, members[0]).Warnings, "\n"); !strings.Contains(text, "member n2 has 0 MiB free") {
		t.Errorf("status of n1 warns: %s", text)
	}
	if _, err := claim(t, clientOf(t, members[0]), "one-is-short", "h"); err != nil {
		t.Errorf("claim while one of three is short: %v", err)
	}
	free[2].Store(100)
	for _, s := range members {
		until(t, s.cfg.Name+" refuses", func() bool {
			return slices.ContainsFunc(s.cluster.Warnings(nil, s.cluster.Heard(), false), func(w string) bool { return strings.Contains(w, "the disk of n2, n3") })
		})
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
	if _, err := leader.operator().Snapshot(testContext(t)); err != nil {
		t.Errorf("snapshot: %v", err)
	}
	at := slices.Index(members, leader)
	if _, err := leader.operator().RemoveMember(testContext(t), &apiv1.RemoveMemberRequest{Member: members[(at+1)%3].cfg.Name}); err != nil {
		t.Errorf("removing a member: %v", err)
	}
	free[1].Store(plenty)
	free[2].Store(plenty)
	until(t, "growth goes on", func() bool {
		return len(leader.cluster.Refusing()) == 0 && !leader.node.Status().GrowthRefused
	})
	if _, err := claim(t, clientOf(t, leader), "later", "h"); err != nil {
		t.Errorf("claim afterwards: %v", err)
	}
}
