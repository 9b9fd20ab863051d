package server

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// clusterStatus shows the cluster by the lines of ovsdb-server, which scripts look for.
// Members are named by the beginnings of their ids, as there.
func (s *Server) clusterStatus(args []string) (string, error) {
	if err := s.controlDatabase(args[0]); err != nil {
		return "", err
	}
	st, id := s.node.Status(), s.ovsdbStanding()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s", uuidText(id.Member)[:minServerID])
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
	if c := st.Candidacy; !c.Started.IsZero() {
		line("Last Election started %d ms ago, reason: %v", time.Since(c.Started).Milliseconds(), c.Reason)
		if !c.Won.IsZero() {
			line("Last Election won: %d ms ago", time.Since(c.Won).Milliseconds())
		}
	}
	line("Election timer: %d", node.ElectionTimeout.Milliseconds())
	line("Log: [%d, %d]", st.First, st.Durable+1)
	line("Entries not yet committed: %d", st.Durable-min(st.Durable, st.Commit))
	line("Entries not yet applied: %d", st.Commit-min(st.Commit, st.Applied))
	line("Connections:%s", s.connectionTexts(st))
	line("Disconnections: %d", s.cluster.Disconnections())
	line("Servers:")
	for _, m := range s.controlMembers() {
		line("    %s", s.serverText(st, m))
	}
	return b.String(), nil
}

// shortID is the beginning of a member's id.
func shortID(st node.Status, id uint64) string {
	return uuidText(ovsdbServerID(st.Cluster, id))[:minServerID]
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

// controlMembers are those of the cluster; one that is alone is itself, recorded or not.
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
	return shortID(st, id)
}

// connectionTexts are the connections with other members, two with each: -> those that
// this member opens, <- those that the other does, in parentheses those that are not up.
func (s *Server) connectionTexts(st node.Status) string {
	var b strings.Builder
	for _, l := range s.cluster.Links() {
		text := "<-" + shortID(st, l.Member.ID)
		if l.Dials {
			text = "->" + shortID(st, l.Member.ID)
		}
		for _, up := range [...]bool{l.Control, l.Bulk} {
			if up {
				b.WriteString(" " + text)
			} else {
				b.WriteString(" (" + text + ")")
			}
		}
	}
	return b.String()
}

// serverText is a member's line; how far it is only the leader knows.
func (s *Server) serverText(st node.Status, m core.Member) string {
	id := shortID(st, m.ID)
	text := fmt.Sprintf("%s (%s at %s)", id, id, s.peerTarget(m.PeerAddress))
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
