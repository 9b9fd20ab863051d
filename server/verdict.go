package server

import (
	"fmt"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/cluster"
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
	confirmed, age time.Duration // as of cluster.Hearing
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
	case !o.alone && o.confirmed > cluster.HeardWithin && reach.lacking() != "":
		return "cut off" + reach.lacking() + ": nothing can be granted or extended here"
	case !o.alone && o.confirmed > cluster.HeardWithin:
		return fmt.Sprintf("serving with care: nothing was confirmed here for %v", cluster.Ago(o.confirmed))
	case reach.members < reach.all:
		return fmt.Sprintf("serving with care: %d of %d members reachable, %s held", reach.members, reach.all, plural(int64(o.leases), "lease", "leases"))
	case o.remarks > 0:
		return fmt.Sprintf("serving with care: %s held, %s", plural(int64(o.leases), "lease", "leases"), plural(int64(o.remarks), "thing to look at", "things to look at"))
	}
	text := fmt.Sprintf("healthy: %s held, %s to this member", plural(int64(o.leases), "lease", "leases"), plural(int64(o.connections), "connection", "connections"))
	if !o.alone {
		text += fmt.Sprintf(", %d members heard within %v", reach.all, cluster.Ago(o.age))
	}
	return text
}

// reach counts whom the member that answers can reach, itself too.
type reach struct{ members, all, votes, voters int }

func (o *outlook) reach() (r reach) {
	for _, m := range o.members {
		if m.Role == cluster.RoleLeaving {
			continue
		}
		r.all++
		votes := m.Role != cluster.RoleLearner && m.Role != cluster.RoleJoining
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
