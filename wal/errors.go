package wal

import (
	"fmt"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Damage is the cause of every Corrupt error of this package: which file, and
// the byte where what is wrong begins.
type Damage struct {
	File   string
	Offset int64
	Reason string
}

// Error names the file and the byte.
func (d *Damage) Error() string {
	return fmt.Sprintf("log is damaged in %s at byte %d: %s", d.File, d.Offset, d.Reason)
}

func corrupt(file string, offset int64, format string, args ...any) error {
	return incumbent.Errorf(incumbent.Corrupt, "%w", &Damage{file, offset, fmt.Sprintf(format, args...)}).
		WithHint("keep the directory for inspection (incumbent debug wal); where other members have a majority, start with --join-file FILE on an empty directory; else 'incumbent backup restore FILE --data-dir DIR' makes a new cluster of a backup")
}

// errOtherFormat refuses a folder that is whole, and of another version.
func errOtherFormat(dir string, format uint32) error {
	e := incumbent.Errorf(incumbent.Invalid, "%s: the log has format %d, this version reads format %d", dir, format, FormatVersion)
	if format > FormatVersion {
		return e.WithHint("start it with the version of incumbent that wrote it, or a newer one")
	}
	return e.WithHint("start it with the version of incumbent that wrote it; this one reads neither its files nor its backups, and begins with an empty directory")
}

// broken says that the caller broke a rule of the log, or of raft.
func broken(group uint64, err error) error {
	return incumbent.Errorf(incumbent.Internal, "log of group %d: %w", group, err)
}

// diskError says what err means for the log: no space before anything was
// acknowledged is the one that passes; after any other the node must stop.
func diskError(doing string, err error) error {
	if vfs.IsNoSpace(err) {
		return incumbent.Errorf(incumbent.Unavailable, "log has no space, %s: %w", doing, err).
			WithHint("free space on the disk of the data directory; writing goes on by itself")
	}
	return fatal(doing, err)
}

// fatal is for errors after which nobody knows what is on the disk.
func fatal(doing string, err error) error {
	return incumbent.Errorf(incumbent.Internal, "log stops, %s: %w", doing, err).
		WithHint("the disk or the filesystem failed: see the kernel's log; what was acknowledged is what was synced before")
}
