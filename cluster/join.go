package cluster

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
)

// Joined says what [Join] prepared.
type Joined struct {
	ClusterID, MemberID, Name string
	Members                   []string // names of the others
}

// Join makes an empty data directory a member of the cluster that made the token; a
// server on it then goes on as that member. It asks until ctx ends or the answer is
// no. The error is Exists if the directory holds a member.
func Join(ctx context.Context, cfg JoinConfig) (Joined, error) {
	r, err := ReadRecord(cfg.DataDir)
	if err != nil {
		return Joined{}, err
	}
	if r != nil && r.Stage != joining || hasLog(cfg.DataDir) {
		return Joined{}, incumbent.Errorf(incumbent.Exists, "%s holds a member already", cfg.DataDir).WithHint("give an empty data directory")
	}
	if r, err = enroll(ctx, cfg, r); err != nil {
		return Joined{}, err
	}
	out := Joined{ClusterID: r.Cluster, MemberID: r.ID, Name: r.Name}
	for _, m := range r.Members {
		if m.ID != r.ID {
			out.Members = append(out.Members, m.Name)
		}
	}
	return out, nil
}

// Identify finds out who a member is: from its data directory, or by joining. It
// returns nil for a directory that is empty or older than records; the node then
// says.
func Identify(ctx context.Context, cfg JoinConfig) (*Record, error) {
	dir := cfg.DataDir
	r, err := ReadRecord(dir)
	if err != nil {
		return nil, err
	}
	if r == nil && cfg.Token == "" {
		return nil, nil
	}
	if r == nil && hasLog(dir) {
		return nil, incumbent.Errorf(incumbent.Conflict, "%s holds a cluster of its own", dir).
			WithHint("give an empty --data-dir to join another, or leave --join-file out")
	}
	if r != nil && r.Stage != joining {
		if t, err := ca.ParseToken(cfg.Token); err == nil && hex.EncodeToString(t.Cluster[:]) != r.Cluster {
			return nil, incumbent.Errorf(incumbent.Conflict, "%s holds member %s of cluster %s, the join token is of %x", dir, r.Name, r.Cluster, t.Cluster).
				WithHint("give an empty --data-dir to join another cluster, or leave --join-file out")
		}
		if r.Differs != "" {
			return nil, errDiffers(errors.New(r.Differs))
		}
		return r, r.checkLog(dir)
	}
	if cfg.Token == "" {
		return nil, incumbent.Errorf(incumbent.Conflict, "%s was left while joining a cluster", dir).
			WithHint("give --join-file FILE again, or empty the data directory")
	}
	return enroll(ctx, cfg, r)
}
