package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// RestoreConfig says what [Restore] makes of a backup.
type RestoreConfig struct {
	DataDir   string          // empty, or not there; required
	Name      string          // of the first member; the host's
	Namespace string          // restore only what belongs to it; "": all
	Above     incumbent.Index // indexes go on above this one, too: see [core.RestoreIndex]
	Logger    *slog.Logger    // discarded if nil
}

// Restored says what [Restore] made.
type Restored struct {
	ClusterID, MemberID, Name string
	Source                    backup.Info
	Index                     incumbent.Index // from which it goes on
	Contents                  []core.Content
	Forgotten                 []string // names of the members of the source
}

// Restore makes an empty data directory the only member of a new cluster, with the
// state of a backup. Cluster and member have new ids, and the ids of the source's
// members are gone for ever, so none of them can join or be heard. The index rises
// first of all above anything that the source can have issued: tokens and watches
// never go back. Leases, sessions and delays begin anew with all of their time when
// a server runs on the directory.
//
// All of the backup is verified before anything is written. Cut short anywhere and
// begun again it comes to the same end; until then no server runs on the directory.
// The errors are those of [backup.Verify], Exists if the directory holds a member,
// and NotFound for a namespace of which there is nothing.
func Restore(cfg RestoreConfig, from io.Reader, name string) (out Restored, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.DataDir == "" {
		return out, invalid("data-dir", "is not set").WithHint("give --data-dir DIR")
	}
	if cfg.Name == "" {
		cfg.Name = HostName()
	}
	if err := ValidName(cfg.Name); err != nil {
		return out, err
	}
	if err := restorable(cfg.DataDir); err != nil {
		return out, err
	}
	group, err := engine.New(engine.Config{Lease: lease.Options{Logger: cfg.Logger}})
	if err != nil {
		return out, err
	}
	defer group.CloseWatches()
	if err := out.load(group, cfg, from, name); err != nil {
		return out, err
	}
	return out, out.found(group, cfg)
}

// load brings the state of the backup into the group, as the new cluster begins with
// it.
func (out *Restored) load(group *engine.Engine, cfg RestoreConfig, from io.Reader, name string) error {
	info, view, err := backup.Verify(from, name)
	if err != nil {
		return err
	}
	out.Source = info
	if cfg.Namespace != "" {
		if view, err = namespaceOf(view, cfg.Namespace, name); err != nil {
			return err
		}
	}
	if err := backup.Load(group, view, max(info.Index, cfg.Above), time.Now()); err != nil {
		return err
	}
	for _, m := range view.Members() {
		out.Forgotten = append(out.Forgotten, m.Name)
	}
	out.Index, out.Contents = group.View().Index(), group.View().Contents()
	return nil
}

// namespaceOf is the part of a state that belongs to a namespace. A namespace of
// which there is nothing is one that was mistyped.
func namespaceOf(v *core.View, namespace, name string) (*core.View, error) {
	part := v.Namespace(namespace)
	if records(part) == records(v.Namespace("\x00")) { // which cannot be: what any has
		return nil, incumbent.Errorf(incumbent.NotFound, "%s holds nothing of namespace %q", name, namespace)
	}
	return part, nil
}

func records(v *core.View) (n int) {
	for _, c := range v.Contents() {
		n += c.Records
	}
	return n
}

// found makes the data directory the first member of a new cluster, which begins
// with the group's state.
func (out *Restored) found(group *engine.Engine, cfg RestoreConfig) error {
	if err := vfs.MkdirAll(vfs.OS{}, cfg.DataDir); err != nil {
		return invalid("data-dir", "%w", err)
	}
	// From here on until it is done nothing else uses the directory.
	begun := &Record{Stage: restoring, ID: FormatID(newMemberID()), Name: cfg.Name}
	if err := begun.Write(cfg.DataDir); err != nil {
		return err
	}
	for _, left := range []string{"log", "snap"} {
		if err := os.RemoveAll(filepath.Join(cfg.DataDir, left)); err != nil {
			return incumbent.Errorf(incumbent.Unavailable, "what an earlier attempt left: %w", err)
		}
	}
	err := group.Open(node.Config{
		FS: vfs.OS{}, Dir: cfg.DataDir, Schema: core.SchemaVersion, Logger: cfg.Logger, SegmentBytes: node.MinSegmentBytes,
	})
	if err != nil {
		return err
	}
	st := group.Node().Status()
	if err := group.Close(context.Background()); err != nil {
		return err
	}
	r := newRecord(st, cfg.Name)
	out.ClusterID, out.MemberID, out.Name = hex.EncodeToString(st.Cluster[:]), r.ID, r.Name
	return r.Write(cfg.DataDir)
}

// restorable refuses a data directory that holds anything of a member but what an
// unfinished restore left.
func restorable(dir string) error {
	r, err := ReadRecord(dir)
	switch {
	case errors.Is(err, errRestoring):
		return nil
	case err != nil:
		return err
	case r != nil || hasLog(dir):
		return incumbent.Errorf(incumbent.Exists, "%s holds a member already", dir).
			WithHint("give an empty data directory; keep the old one until the new cluster serves")
	}
	names, err := vfs.OS{}.List(filepath.Join(dir, "snap"))
	if err == nil && len(names) > 0 {
		return incumbent.Errorf(incumbent.Exists, "%s holds snapshots of a member whose log is gone", dir).WithHint("give an empty data directory")
	}
	return nil
}
