package wal

import (
	"fmt"
	"io"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// dumpDataBytes is how much of an entry's data Dump shows.
const dumpDataBytes = 32

// Dump writes every record of the log in dir as a line of text: file, byte
// offset, type and content, then where the log ends. It changes nothing and
// takes no lock, so it may look at a log that is in use; then the end it sees
// may be half written. A log that is damaged is dumped up to there, and the
// damage returned.
func Dump(w io.Writer, fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return incumbent.Errorf(incumbent.NotFound, "no log in %s: %w", dir, err)
	}
	if !hasSegment(names) {
		return incumbent.Errorf(incumbent.NotFound, "no log in %s", dir)
	}
	var writeErr error
	line := func(format string, args ...any) {
		if _, err := fmt.Fprintf(w, format+"\n", args...); err != nil && writeErr == nil {
			writeErr = err
		}
	}
	sc, err := scan(fsys, dir, names, func(file string, offset int64, r record) {
		line("%s %d %s", file, offset, describe(r))
	})
	if err != nil {
		line("%v", err)
		return err
	}
	seg := sc.segs[len(sc.segs)-1]
	line("%s %d end synced=%d cut=%d clean=%t", join(dir, seg.name), seg.offset(sc.next),
		seg.offset(max(sc.horizon, seg.first)), int64(sc.dirty-sc.next)*sectorBytes, sc.closed && sc.dirty == sc.next)
	return writeErr
}

// describe returns a record, which the scan has found sound, as text.
func describe(r record) string {
	switch r.kind {
	case recSegment:
		h, _ := decodeSegment(r.body)
		return fmt.Sprintf("segment first=%d sectors=%d before=%d record=%d chain=%08x", h.first, h.sectors, h.end, h.rec, h.chain)
	case recMeta:
		m, _ := decodeMeta(r.body)
		return fmt.Sprintf("meta cluster=%x member=%d format=%d incarnation=%d", m.Cluster, m.Member, m.Format, m.Incarnation)
	case recGroup:
		g, _ := decodeGroup(r.body)
		return fmt.Sprintf("group group=%d last=%d %s %s", r.group, g.last, describeState(g.hs), describeMark(g.mark))
	case recHardState:
		hs, _ := decodeHardState(r.body)
		return fmt.Sprintf("state group=%d %s", r.group, describeState(hs))
	case recEntry:
		en, _ := decodeEntry(r.body)
		return fmt.Sprintf("entry group=%d index=%d term=%d type=%d bytes=%d data=%q", r.group, en.Index, en.Term, en.Type,
			len(en.Data), en.Data[:min(len(en.Data), dumpDataBytes)])
	case recSnapshot:
		m, replaces, _ := decodeSnapshot(r.body)
		return fmt.Sprintf("snapshot group=%d %s received=%t", r.group, describeMark(m), replaces)
	case recClose:
		return "close"
	}
	return fmt.Sprintf("type=%d bytes=%d", r.kind, len(r.body))
}

func describeState(hs HardState) string {
	return fmt.Sprintf("term=%d vote=%d commit=%d", hs.Term, hs.Vote, hs.Commit)
}

func describeMark(m SnapshotMark) string {
	return fmt.Sprintf("snapshot=%d snapshot_term=%d file=%q bytes=%d checksum=%x", m.Index, m.Term, m.File, m.Bytes, m.Checksum[:4])
}
