package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
)

// outlook is what one member knows of how the cluster is, for people.
type outlook struct {
	draining, ready bool
	cutOff          bool
	leader          string // "" while none is known
	members         []*apiv1.Member
	leases          uint64
	connections     uint64 // with this member
	remarks         int    // warnings and refusals

	alone          bool          // there are no other members
	confirmed, age time.Duration // as of hearing
}

// verdict is one sentence.
func (o *outlook) verdict() string {
	reach := o.reach()
	switch {
	case o.draining:
		return "leaving: this member drains its connections"
	case o.leader == "" && (o.ready || reach.lacking() != ""):
		return "no leader" + reach.lacking() + ": nothing can be granted or extended"
	case !o.ready:
		return "starting: this member is not caught up yet"
	case o.cutOff:
		return "cut off: this member hears a leader and can confirm nothing, its clients are sent to other members"
	case !o.alone && o.confirmed > heardWithin && reach.lacking() != "":
		return "cut off" + reach.lacking() + ": nothing can be granted or extended here"
	case !o.alone && o.confirmed > heardWithin:
		return fmt.Sprintf("serving with care: nothing was confirmed here for %v", ago(o.confirmed))
	case reach.members < reach.all:
		return fmt.Sprintf("serving with care: %d of %d members reachable, %s held", reach.members, reach.all, plural(int64(o.leases), "lease", "leases"))
	case o.remarks > 0:
		return fmt.Sprintf("serving with care: %s held, %s", plural(int64(o.leases), "lease", "leases"), plural(int64(o.remarks), "thing to look at", "things to look at"))
	}
	text := fmt.Sprintf("healthy: %s held, %s to this member", plural(int64(o.leases), "lease", "leases"), plural(int64(o.connections), "connection", "connections"))
	if !o.alone {
		text += fmt.Sprintf(", %d members heard within %v", reach.all, ago(o.age))
	}
	return text
}

// ago is a time for people.
func ago(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// reach counts whom the member that answers can reach, itself too.
type reach struct{ members, all, votes, voters int }

func (o *outlook) reach() (r reach) {
	for _, m := range o.members {
		if m.Role == roleLeaving {
			continue
		}
		r.all++
		votes := m.Role != roleLearner && m.Role != roleJoining
		if votes {
			r.voters++
		}
		if m.Connected {
			r.members++
			if votes {
				r.votes++
			}
		}
	}
	return r
}

// lacking says that too few voters can be reached to elect a leader, if so.
func (r reach) lacking() string {
	need := r.voters/2 + 1
	if r.votes >= need || r.voters < 2 {
		return ""
	}
	return fmt.Sprintf(", %d of %d voters reachable and %d needed", r.votes, r.voters, need)
}

// Roles that are not raft's.
const (
	roleLearner = "learner"
	roleJoining = "joining"
	roleLeaving = "leaving"
)

// clusterWarnings say what an operator should look at among the members, and
// what helps.
func (s *Server) clusterWarnings(st node.Status, members []*apiv1.Member, h hearing) []string {
	var out []string
	for _, m := range members {
		switch {
		case m.Role == roleLeaving:
			out = append(out, "a member that was removed ("+m.Id+") still votes: it goes when a majority agrees")
		case !m.Connected:
			out = append(out, fmt.Sprintf("member %s at %s cannot be reached%s", m.Name, m.PeerAddress, trouble(h.links[cluster.ParseID(m.Id)])))
		}
	}
	if s.cutOff.now.Load() || s.leader.Load() != 0 && !h.alone && h.confirmed > heardWithin {
		out = append(out, fmt.Sprintf("nothing is confirmed here for %v although a leader is known: look at the network from this member to the others", ago(h.confirmed)))
	}
	if len(st.Voters) == 2 {
		out = append(out, "two members vote: when either is lost nothing can be granted; let a third join")
	}
	if mix := schemaMix(members); mix != "" {
		out = append(out, mix)
	}
	if n := s.rates.dropsPerSecond(); n >= 1 {
		out = append(out, fmt.Sprintf("%.0f messages a second to other members are dropped: the network or a member is too slow", n))
	}
	return append(out, s.certificateWarnings()...)
}

// trouble is since when a member cannot be reached, and why, as far as that is
// known.
func trouble(l peers.Link) (text string) {
	if l.Silence > 0 {
		text = fmt.Sprintf(", heard of last %v ago", ago(l.Silence))
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

// certificateWarnings name what ends soon.
func (s *Server) certificateWarnings() (out []string) {
	if s.ownTLS != nil {
		out = s.ownTLS.Warnings()
	}
	if s.certs == nil || s.certs.own != nil {
		return out
	}
	if w := cluster.EndWarning(time.Now(), "the certificate of --tls-cert", s.certs.ends(), cluster.CertificateWarning, "renew it and send SIGHUP"); w != "" {
		out = append(out, w)
	}
	return out
}
