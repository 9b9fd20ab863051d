// Package backup is a group's replicated state in one file, and folders of such
// files. A backup is a snapshot of [core.View] in the form of package sealed, behind
// a header that says whose it is and what is in it.
//
//	"INCBACK1"   the header: an [Info] as JSON   the snapshot, in chunks   the trailer
//
// It holds everything that the cluster has stored: leases and their history,
// sessions, keys and values, results of idempotent commands, names and addresses of
// members and of whoever changed something, hashes of the tokens and passwords of
// credentials. It holds no key and no certificate, and nothing of what members read
// from files of their own.
//
// # Invariants
//
//   - A file that is not whole is refused, whichever bit of it differs, and nothing of
//     it is used: see package sealed.
//   - What says that it is newer than this program is refused with that reason.
//   - [Save] shows a file under its name only once it is whole and durable.
package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/vfs/sealed"
)

// Version is the newest version of the header that this program knows.
const Version = 1

const (
	magic     = "INCBACK1"
	maxHeader = 16 << 10 // bytes
)

// Info is what a backup says of itself.
type Info struct {
	Version  uint32          `json:"version"`      // of the header
	Schema   uint32          `json:"schema"`       // of the state: see core.SchemaVersion
	Cluster  string          `json:"cluster"`      // id, 32 hexadecimal digits
	Member   string          `json:"member"`       // name of who wrote it
	Program  string          `json:"program"`      // version of its binary
	Index    incumbent.Index `json:"index,string"` // of the state
	At       time.Time       `json:"at"`           // by the member's clock, to the second
	Contents []core.Content  `json:"contents"`
}

// Write writes a backup of a state. Cluster, Member, Program and At are the
// caller's to say. It runs while the state goes on, takes at most half of a
// processor, and ends with the error of w or of ctx.
func Write(ctx context.Context, w io.Writer, v *core.View, of Info) error {
	of.Version, of.Schema, of.Index, of.Contents = Version, core.SchemaVersion, v.Index(), v.Contents()
	of.At = of.At.UTC().Truncate(time.Second)
	header, err := json.Marshal(of)
	if err != nil {
		return incumbent.Errorf(incumbent.Internal, "header of a backup: %w", err)
	}
	out, err := sealed.NewWriter(w, magic, header)
	if err != nil {
		return err
	}
	if err := v.WriteSnapshot(engine.Paced(ctx, out)); err != nil {
		return err
	}
	return out.Close()
}

// Reader reads the snapshot in a backup.
type Reader struct {
	*sealed.Reader
	Info Info
}

// Open reads and verifies the header. The error is Invalid for what is no backup,
// and for one that is newer than this program, and Corrupt for a damaged one. name
// is for errors.
func Open(r io.Reader, name string) (*Reader, error) {
	r, err := unpacked(r, name)
	if err != nil {
		return nil, err
	}
	in, err := sealed.NewReader(r, name, magic, maxHeader)
	if errors.Is(err, sealed.ErrOther) {
		return nil, incumbent.Errorf(incumbent.Invalid, "%s is not a backup", name).
			WithHint("'incumbent backup create' makes backups")
	}
	if err != nil {
		return nil, err
	}
	b := &Reader{Reader: in}
	var head struct{ Version, Schema uint32 }
	if err := json.Unmarshal(in.Header(), &head); err != nil {
		return nil, in.Corrupt("its header is none")
	}
	if head.Version > Version || head.Schema > core.SchemaVersion {
		return nil, incumbent.Errorf(incumbent.Invalid, "%s is of format %d and schema %d, this program knows %d and %d",
			name, head.Version, head.Schema, Version, core.SchemaVersion).WithHint("use the version of incumbent that made it, or a newer one")
	}
	strict := json.NewDecoder(bytes.NewReader(in.Header()))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&b.Info); err != nil || head.Version == 0 {
		return nil, in.Corrupt("its header is none")
	}
	return b, nil
}

// Check verifies that a backup is whole, without looking at what it holds. Errors are
// those of [Open].
func Check(r io.Reader, name string) (Info, error) {
	b, err := Open(r, name)
	if err != nil {
		return Info{}, err
	}
	return b.Info, b.Finish()
}

// Verify reads a whole backup as a restore does: every record, and every invariant
// of the state. Errors are those of [Open].
func Verify(r io.Reader, name string) (Info, *core.View, error) {
	b, err := Open(r, name)
	if err != nil {
		return Info{}, nil, err
	}
	state, err := engine.RestoreState(b)
	if err == nil {
		err = b.Finish()
	}
	if damage := b.Damage(); damage != nil {
		return b.Info, nil, damage
	}
	if err != nil {
		return b.Info, nil, incumbent.Errorf(incumbent.KindOf(err), "%s: %w", name, err)
	}
	v := state.View()
	if v.Index() != b.Info.Index || !slices.Equal(filled(v.Contents()), filled(b.Info.Contents)) {
		return b.Info, nil, incumbent.Errorf(incumbent.Corrupt, "%s: its header says index %d and %v, it holds index %d and %v",
			name, b.Info.Index, b.Info.Contents, v.Index(), v.Contents())
	}
	return b.Info, v, nil
}

// filled leaves out what has no records: the program that wrote a header may not have
// known of it, or known of more.
func filled(all []core.Content) []core.Content {
	return slices.DeleteFunc(slices.Clone(all), func(c core.Content) bool { return c.Records == 0 })
}
