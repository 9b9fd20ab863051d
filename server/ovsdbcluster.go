package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/node"
)

// minServerID is how much of a server's id scripts give at least, in digits.
const minServerID = 4

// controlID is a command that shows an id to those who name a database.
func (s *Server) controlID(of func() [16]byte) show {
	return func(args []string) (string, error) {
		if err := s.controlDatabase(args[0]); err != nil {
			return "", err
		}
		return uuidText(of()) + "\n", nil
	}
}

func uuidText(id [16]byte) string { return ovs.UUID(id).String() }

// clusterStatus shows the cluster by the lines that scripts look for. What the member
// does not count, as how often connections ended, has no line.
func (s *Server) clusterStatus(args []string) (string, error) {
	if err := s.controlDatabase(args[0]); err != nil {
		return "", err
	}
	st, id := s.node.Status(), s.ovsdbStanding()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s", s.cfg.Name)
	line("Name: %s", args[0])
	line("Cluster ID: %s", shortAndLong(id.Cluster))
	line("Server ID: %s", shortAndLong(id.Member))
	line("Address: %s", s.peerTarget(s.peerAddress))
	line("Status: %s", s.membershipText(st))
	line("Role: %s", roleText(st.State))
	line("Term: %d", st.Term)
	line("Leader: %s", s.memberText(st, st.Leader))
	line("Vote: %s", s.memberText(st, st.Vote))
	line("")
	line("Election timer: %d", node.ElectionTimeout.Milliseconds())
	line("Log: [%d, %d]", st.First, st.Durable+1)
	line("Entries not yet committed: %d", st.Durable-min(st.Durable, st.Commit))
	line("Entries not yet applied: %d", st.Commit-min(st.Commit, st.Applied))
	line("Connections:%s", s.connectionTexts(st))
	line("Servers:")
	for _, m := range s.controlMembers() {
		line("    %s", s.serverText(st, m))
	}
	return b.String(), nil
}

func shortAndLong(id [16]byte) string {
	long := uuidText(id)
	return long[:minServerID] + " (" + long + ")"
}

// peerTarget is where a member is reached by others, as scripts read addresses.
func (s *Server) peerTarget(at string) string {
	switch {
	case at == "":
		return "none"
	case s.ownTLS != nil:
		return "ssl:" + at
	}
	return "tcp:" + at
}

// controlMembers are those of the cluster; one that is alone is not recorded.
func (s *Server) controlMembers() []core.Member {
	if s.cluster.Alone() {
		return []core.Member{{ID: s.cluster.ID(), Name: s.cfg.Name}}
	}
	return s.engine.View().Members()
}

func (s *Server) membershipText(st node.Status) string {
	for _, m := range s.controlMembers() {
		if m.ID == st.Member {
			return "cluster member"
		}
	}
	return "joining cluster"
}

func roleText(is node.State) string {
	switch is {
	case node.Leader:
		return "leader"
	case node.Candidate:
		return "candidate"
	}
	return "follower"
}

// memberText names a member, 0 for none, as scripts read it.
func (s *Server) memberText(st node.Status, id uint64) string {
	switch id {
	case 0:
		return "unknown"
	case st.Member:
		return "self"
	}
	return s.cluster.NameOf(id)
}

// connectionTexts are the members that this one is connected to.
func (s *Server) connectionTexts(st node.Status) string {
	var b strings.Builder
	for _, m := range s.engine.View().Members() {
		if m.ID != st.Member && s.cluster.Connected(m.ID) {
			b.WriteString(" ->" + m.Name)
		}
	}
	return b.String()
}

// serverText is a member's line; how far it is only the leader knows.
func (s *Server) serverText(st node.Status, m core.Member) string {
	id := uuidText(ovsdbServerID(st.Cluster, m.ID))[:minServerID]
	text := fmt.Sprintf("%s (%s at %s)", m.Name, id, s.peerTarget(m.PeerAddress))
	if m.ID == st.Member {
		text += " (self)"
		if st.State == node.Leader {
			text += fmt.Sprintf(" next_index=%d match_index=%d", st.Durable+1, st.Durable)
		}
		return text
	}
	for _, p := range st.Peers {
		if p.ID == m.ID {
			text += fmt.Sprintf(" next_index=%d match_index=%d", p.Next, p.Match)
		}
	}
	for _, l := range s.cluster.Links() {
		if l.Member.ID == m.ID && l.Connected {
			text += fmt.Sprintf(" last msg %d ms ago", l.Silence.Milliseconds())
		}
	}
	return text
}

// controlKick removes a member from the cluster, and so from all databases. Membership
// is the leader's business.
func (s *Server) controlKick(ctx context.Context, args []string) error {
	if err := s.controlDatabase(args[0]); err != nil {
		return err
	}
	return s.kick(ctx, args[1])
}

func (s *Server) kick(ctx context.Context, word string) error {
	m, err := s.memberByID(word)
	if err != nil {
		return err
	}
	if s.cluster.Alone() {
		return incumbent.Errorf(incumbent.Conflict, "this member is alone: to end it stop its server")
	}
	if _, leader, _ := s.cluster.Standing(); leader != s.cfg.Name {
		return incumbent.Errorf(incumbent.NotLeader, "the leader removes members: give the command there, to %s", orUnknown(leader))
	}
	_, err = s.cluster.RemoveMember(ctx, &apiv1.RemoveMemberRequest{Member: m.Name})
	return err
}

func orUnknown(leader string) string {
	if leader == "" {
		return "whoever leads: none is known"
	}
	return leader
}

// memberByID returns a member by its name, its address, or what of its server id is
// unlike that of any other.
func (s *Server) memberByID(word string) (core.Member, error) {
	clusterID := s.cluster.ClusterID()
	var found []core.Member
	for _, m := range s.controlMembers() {
		if m.Name == word || cluster.FormatID(m.ID) == word || m.PeerAddress != "" && s.peerTarget(m.PeerAddress) == word {
			return m, nil
		}
		if len(word) >= minServerID && strings.HasPrefix(uuidText(ovsdbServerID(clusterID, m.ID)), word) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return core.Member{}, incumbent.Errorf(incumbent.NotFound, "no member is %q", word)
	}
	return core.Member{}, incumbent.Errorf(incumbent.Invalid, "%q is the beginning of %d members' ids", word, len(found))
}
