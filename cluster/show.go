package cluster

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
)

// Roles that are not raft's.
const (
	RoleLearner = "learner"
	RoleJoining = "joining"
	RoleLeaving = "leaving"
)

// Members implements native.Membership.
func (c *Cluster) Members(ctx context.Context) (*apiv1.MembersResponse, error) {
	_, name, at := c.Standing()
	st := c.node.Status()
	return &apiv1.MembersResponse{ClusterId: hex.EncodeToString(st.Cluster[:]), Leader: name, LeaderUrl: at, Members: c.Show(c.Hear(ctx))}, nil
}

// Show returns all members that are recorded or counted, by name.
func (c *Cluster) Show(h Hearing) []*apiv1.Member {
	st, r := c.node.Status(), c.Roster()
	progress := map[uint64]node.PeerStatus{}
	for _, p := range st.Peers {
		progress[p.ID] = p
	}
	disks := c.Disks()
	recorded := r.View.Members()
	if _, ok := r.View.Member(c.id); !ok {
		self, _ := c.self()
		recorded = append(recorded, self)
	}
	var out []*apiv1.Member
	for _, m := range recorded {
		out = append(out, c.shown(m, st, r, progress[m.ID], &h, disks))
	}
	for id := range r.Counted {
		if _, ok := r.View.Member(id); !ok && id != c.id {
			m := c.shown(core.Member{ID: id}, st, r, progress[id], &h, disks)
			m.Role = RoleLeaving
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *apiv1.Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Id, b.Id)) })
	return out
}

func (c *Cluster) shown(m core.Member, st node.Status, r *Roster, p node.PeerStatus, h *Hearing, disks map[uint64]Disk) *apiv1.Member {
	out := &apiv1.Member{
		Name: m.Name, Id: FormatID(m.ID), Address: m.ClientURL, PeerAddress: m.PeerAddress, Learner: m.Learner,
		Schema: m.Schema, Version: m.Version, Self: m.ID == c.id,
	}
	votes, counted := r.Counted[m.ID]
	switch {
	case m.ID == st.Leader:
		out.Role = node.Leader.String()
	case !counted:
		out.Role = RoleJoining
	case !votes:
		out.Role = RoleLearner
	case m.ID == c.id:
		out.Role = st.State.String()
	default:
		out.Role = node.Follower.String()
	}
	if m.ID == c.id {
		out.Connected, out.Ready = true, st.Ready && st.Leader != 0
		out.AppliedIndex, out.CommitIndex = st.Applied, st.Commit
		return out
	}
	out.Connected = h.reaches(m.ID)
	out.HeardMsAgo = uint32(h.Links[m.ID].Silence.Milliseconds())
	said, known := disks[m.ID]
	out.Ready = out.Connected && known && !said.Behind
	if st.State == node.Leader {
		out.AppliedIndex = min(p.Match, st.Commit)
		out.Lag = st.Commit - out.AppliedIndex
	}
	return out
}

// Warnings say what an operator should look at among the members, and what helps.
// cutOff: this member sends its clients to the others.
func (c *Cluster) Warnings(members []*apiv1.Member, h Hearing, cutOff bool) []string {
	out := append(c.growthWarnings(), c.trustWarnings()...)
	stuck := c.progress.stuck(time.Since(c.begun))
	for _, m := range members {
		since, behind := stuck[ParseID(m.Id)]
		switch {
		case m.Role == RoleLeaving:
			out = append(out, "a member that was removed ("+m.Id+") still votes: it goes when a majority agrees")
		case !m.Connected:
			out = append(out, fmt.Sprintf("member %s at %s cannot be reached%s", m.Name, m.PeerAddress, trouble(h.Links[ParseID(m.Id)])))
		case behind:
			out = append(out, stuckWarning(m, since))
		}
	}
	if cutOff || c.Leader() != 0 && !h.Alone && h.Confirmed > HeardWithin {
		out = append(out, fmt.Sprintf("nothing is confirmed here for %v although a leader is known: look at the network from this member to the others", Ago(h.Confirmed)))
	}
	if len(c.node.Status().Voters) == 2 {
		out = append(out, "two members vote: when either is lost nothing can be granted; let a third join")
	}
	if mix := schemaMix(members); mix != "" {
		out = append(out, mix)
	}
	return out
}

// trouble is since when a member cannot be reached, and why, as far as that is
// known.
func trouble(l peers.Link) (text string) {
	if l.Heard {
		text = fmt.Sprintf(", heard of last %v ago", Ago(l.Silence))
	}
	if l.Trouble != "" {
		text += ": " + l.Trouble
	}
	return text
}

// schemaMix says that members know different versions, if so.
func schemaMix(members []*apiv1.Member) string {
	byVersion := map[uint32][]string{}
	for _, m := range members {
		if m.Schema != 0 {
			byVersion[m.Schema] = append(byVersion[m.Schema], m.Name)
		}
	}
	if len(byVersion) < 2 {
		return ""
	}
	var oldest uint32
	for v := range byVersion {
		if oldest == 0 || v < oldest {
			oldest = v
		}
	}
	slices.Sort(byVersion[oldest])
	return fmt.Sprintf("members know different schemas: %s hold the cluster at %d; upgrade them", strings.Join(byVersion[oldest], ", "), oldest)
}

// Ago is a time for people.
func Ago(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
