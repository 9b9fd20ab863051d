package bench

import (
	"context"
	"strings"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// membersTimeout is how long after the load a member may take to be back: in its
// role, serving, and with everything applied that any of them had by then.
const membersTimeout = time.Minute

// awaitMembers waits until every member is back, but no longer than most, and notes
// how many are and how long the last one took. One that is not breaks what a storm must not break.
func (r *run) awaitMembers(ctx context.Context, most time.Duration) error {
	r.setPhase("members")
	began := r.now()
	missing, err := r.missingMembers(ctx, most)
	if err != nil {
		return err
	}
	r.fact("members", float64(len(r.clients)))
	r.fact("members_back", float64(len(r.clients)-len(missing)))
	r.fact("members_back_seconds", (r.now() - began).Seconds())
	if len(missing) > 0 {
		r.check.Violate("%v after the load: %s", most, strings.Join(missing, "; "))
	}
	return nil
}

// missingMembers waits until every member is back, but no longer than most, and says which
// are not and what they lack.
func (r *run) missingMembers(ctx context.Context, most time.Duration) (missing []string, err error) {
	goal := r.newestIndex(ctx)
	for began := r.now(); ; {
		missing = missing[:0]
		for i, c := range r.clients {
			if why := standing(ctx, c, goal); why != "" {
				missing = append(missing, r.urls[i]+" "+why)
			}
		}
		if len(missing) == 0 || r.now()-began >= most {
			return missing, nil
		}
		if err := sleep(ctx, backEvery); err != nil {
			return nil, err
		}
	}
}

// newestIndex is the newest of raft's indexes that any member knows to be committed.
// The state has an index of its own, which counts changes instead of entries.
func (r *run) newestIndex(ctx context.Context) (newest uint64) {
	for _, c := range r.clients {
		if st := statusSoon(ctx, c); st != nil {
			for _, m := range st.Members {
				newest = max(newest, m.CommitIndex)
			}
		}
	}
	return newest
}

// standing says what a member lacks, by its own words, to serve in its role with
// everything applied up to goal, an index of raft's; "": nothing. One that does not
// answer soon lacks that.
func standing(ctx context.Context, c *client.Client, goal uint64) string {
	st := statusSoon(ctx, c)
	if st == nil {
		return "does not answer"
	}
	for _, m := range st.Members {
		switch {
		case !m.Self:
		case !m.Ready:
			return "is not ready"
		case m.Learner != (m.Role == "learner") || !m.Learner && m.Role != "leader" && m.Role != "follower":
			return "is " + m.Role
		case m.AppliedIndex < goal:
			return "is behind"
		default:
			return ""
		}
	}
	return "is no member"
}

// statusSoon is a member's status; nil if it does not answer soon.
func statusSoon(ctx context.Context, c *client.Client) *apiv1.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, termsPatient)
	defer cancel()
	st, err := statusOf(ctx, c)
	if err != nil {
		return nil
	}
	return st
}
