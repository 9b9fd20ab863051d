package cluster

import (
	"fmt"
	"sync"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/node"
)

// How long a connected member that is behind may take nothing before an operator is told; and
// one that is to be sent a snapshot, which it takes as a whole.
const (
	stuckAfter     = 10 * time.Second
	snapshotsAfter = 2 * time.Minute
)

// progress is what the leader has seen of how the others take the log.
type progress struct {
	mu   sync.Mutex // held for moments
	seen map[uint64]taken
}

// taken is how far a member was, and since when it has been no further while it was connected
// and behind.
type taken struct {
	match    uint64
	since    time.Duration // of this member's run
	snapshot bool          // it needs one
}

// look takes what the node knows. Nothing is known on a member that does not lead.
func (p *progress) look(st node.Status, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st.State != node.Leader {
		p.seen = nil
		return
	}
	next := make(map[uint64]taken, len(st.Peers))
	for _, one := range st.Peers {
		was, known := p.seen[one.ID]
		is := taken{one.Match, now, one.Snapshot}
		if known && one.Active && one.Match == was.match && one.Match+caughtUpWithin < st.Commit {
			is.since = was.since
		}
		next[one.ID] = is
	}
	p.seen = next
}

// stuck returns since when members that are behind have taken nothing, of those for whom that
// is long.
func (p *progress) stuck(now time.Duration) map[uint64]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[uint64]time.Duration{}
	for id, one := range p.seen {
		bound := stuckAfter
		if one.snapshot {
			bound = snapshotsAfter
		}
		if now-one.since >= bound {
			out[id] = now - one.since
		}
	}
	return out
}

// Stuck is how many connected members are behind and have taken nothing for
// long, as far as this one knows: 0 if it does not lead.
func (c *Cluster) Stuck() (n int) {
	stuck := c.progress.stuck(time.Since(c.begun))
	for _, l := range c.Links() {
		if _, ok := stuck[l.Member.ID]; ok && l.Connected {
			n++
		}
	}
	return n
}

// stuckWarning says since when a member that is behind has taken nothing.
func stuckWarning(m *apiv1.Member, since time.Duration) string {
	return fmt.Sprintf("member %s is %d entries behind and has taken none for %v: 'incumbent events --all-members' says whether a snapshot is on its way to it, or why not; look at its disk",
		m.Name, m.Lag, since.Round(time.Second))
}
