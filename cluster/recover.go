package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/trust"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// RecoverConfig says what [Recover] works on.
type RecoverConfig struct {
	DataDir string       // of the member that is left
	DryRun  bool         // change nothing
	Logger  *slog.Logger // discarded if nil
}

// Recovered says what [Recover] found.
type Recovered struct {
	ClusterID, MemberID, Name string
	Index                     uint64   // newest index that clients may have seen, before recovery raises it
	Forgotten                 []string // names of the members left behind

	// Of raft's log: the term of its last entry, the index that is known to be
	// committed, and that of the last entry.
	LastTerm, Committed, Durable uint64

	Leases, Sessions int // held, open
}

// Recover makes a member whose cluster has lost its majority for good a cluster of
// one, with everything in its log, committed or not. What the lost members had
// acknowledged and this one does not have is gone, so the index is raised above
// anything they can have issued: tokens and watches never go back. The others must
// not run again. No server may run on the directory. See [node.Recover] for errors.
func Recover(cfg RecoverConfig) (out Recovered, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.DataDir == "" {
		return out, invalid("data-dir", "is not set").WithHint("give --data-dir DIR")
	}
	r, err := ReadRecord(cfg.DataDir)
	if err != nil {
		return out, err
	}
	if r == nil || r.Stage != member {
		return out, incumbent.Errorf(incumbent.NotFound, "%s holds no member of a cluster", cfg.DataDir)
	}
	group, err := engine.New(engine.Config{Lease: lease.Options{Logger: cfg.Logger}})
	if err != nil {
		return out, err
	}
	defer group.CloseWatches()
	// One that came up a moment before may not have the secret: others will never give
	// it that now.
	var secret []byte
	if len(r.Secret) == 0 {
		secret = ca.NewSecret()
	}
	var view *core.View
	then := func(s node.Survivor) error {
		view = group.View()
		return group.ApplyAll(append(forgetOthers(view, s.Member, time.Now()), exchangeSecret(view, secret)...))
	}
	if cfg.DryRun {
		then = nil
	}
	found, err := node.Recover(node.Config{
		FS: vfs.OS{}, Dir: cfg.DataDir, Machine: group, Schema: core.SchemaVersion, Logger: cfg.Logger,
		SegmentBytes: node.MinSegmentBytes, KeepSegmentBytes: true,
	}, then)
	if err != nil {
		return out, err
	}
	if view == nil {
		view = group.View()
	}
	out = Recovered{
		ClusterID: hex.EncodeToString(found.Cluster[:]), MemberID: FormatID(found.Member), Name: r.Name, Index: uint64(view.Index()),
		LastTerm: found.LastTerm, Committed: found.Committed, Durable: found.Durable,
		Leases: leases.Of(view).HeldCount(), Sessions: view.SessionCount(),
	}
	for _, other := range view.Members() {
		if other.ID != found.Member {
			out.Forgotten = append(out.Forgotten, other.Name)
		}
	}
	slices.Sort(out.Forgotten)
	if cfg.DryRun {
		return out, nil
	}
	r.Members, r.Differs, r.Split = nil, "", "" // whoever recovers it has decided for its state
	if len(secret) > 0 {
		r.Secret, r.Token = secret, ""
	}
	return out, r.Write(cfg.DataDir)
}

// forgetOthers are the commands with which a member goes on alone: the index
// rises first of all, then everybody else is gone for ever.
func forgetOthers(view *core.View, self uint64, now time.Time) [][]byte {
	meta := core.Meta{Origin: core.Origin{At: now.UTC()}}
	cmds := [][]byte{core.EpochCommand{}.Encode(meta)}
	for _, other := range view.Members() {
		if other.ID != self {
			cmds = append(cmds, core.RemoveMemberCommand{ID: other.ID}.Encode(meta))
		}
	}
	return cmds
}

// exchangeSecret are the commands with which the cluster's secret becomes another one
// at once; nil: it stays.
func exchangeSecret(view *core.View, secret []byte) [][]byte {
	t := trust.Of(view)
	if len(secret) == 0 || len(t.Secret.Current) == 0 {
		return nil
	}
	hash := sha256.Sum256(secret)
	cmds := []trust.Command{
		{Verb: trust.Begin, What: trust.Secret, Was: t.Secret.Current, Value: hash[:]}, {Verb: trust.Finish, What: trust.Secret, Value: hash[:]},
	}
	if len(t.Secret.Next) > 0 {
		cmds = append([]trust.Command{{Verb: trust.Abandon, What: trust.Secret, Value: t.Secret.Next}}, cmds...)
	}
	out := make([][]byte, len(cmds))
	for i := range cmds {
		out[i] = cmds[i].Encode(core.Meta{})
	}
	return out
}
